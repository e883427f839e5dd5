/* Lookup of programs, descriptors of COVE_FDS, bootstrap's words, validation of bodies, signal
 * texts. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/test.h"
#include "execd/bootstrap.h"
#include "execd/command.h"
#include "execd/config.h"
#include "execd/lookup.h"
#include "execd/pty.h"

TEST(lookup) {
    char dir[] = "/tmp/cove-lookup-XXXXXX", *got = NULL;
    _cleanup_strv_ struct strv env = {0};
    struct err err = {0};

    ASSERT(mkdtemp(dir));
    _cleanup_free_ char *prog = path_join(dir, "prog"), *plain = path_join(dir, "plain"),
                        *sub = path_join(dir, "sub");
    ASSERT_OK(path_write_file_at(AT_FDCWD, prog, "x", 1, 0755, false));
    ASSERT_OK(path_write_file_at(AT_FDCWD, plain, "x", 1, 0644, false));
    ASSERT(mkdir(sub, 0755) == 0);
    _cleanup_free_ char *path = str_printf("relative:/nonexistent::%s", dir);
    env_set(&env, "PATH", path);
    ASSERT_OK(lookup_program("prog", "/", &env, &got, &err));
    ASSERT_STR(got, prog);
    free(got);
    ASSERT_OK(lookup_program("./prog", dir, &env, &got, &err));
    free(got);
    ASSERT_OK(lookup_program("sub/../prog", dir, &env, &got, &err));
    free(got);
    ASSERT_INT(lookup_program("plain", "/", &env, &got, &err), -EACCES);
    ASSERT_INT(lookup_program("sub", "/", &env, &got, &err), -ENOENT);
    ASSERT_INT(lookup_program("none", "/", &env, &got, &err), -ENOENT);
    ASSERT(strstr(err.msg, "none"));
    ASSERT_INT(lookup_program(sub, "/", &env, &got, &err), -EISDIR);
    ASSERT_INT(lookup_program("./none", dir, &env, &got, &err), -ENOENT);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, dir));
}

TEST(cove_fds) {
    struct config c = {.listen_fd = -1, .cgroup_fd = -1, .log_fd = -1, .state_fd = -1};
    struct err err = {0};
    char text[64];
    int s = socket(AF_UNIX, SOCK_STREAM, 0), f = open("/dev/null", O_RDWR);

    snprintf(text, sizeof text, "log:%d,state:%d", f, f);
    ASSERT_OK(config_parse_fds(text, &c, &err));
    ASSERT(c.log_fd == f && c.state_fd == f && c.listen_fd == -1);
    ASSERT(fcntl(f, F_GETFD) & FD_CLOEXEC);
    snprintf(text, sizeof text, "listen:%d", s);
    ASSERT_INT(config_parse_fds(text, &c, &err), -EINVAL); /* not listening */
    const char *bad[] = {"log",    "log:",   "log:x", "log:2",          "log:9999",
                         "log:-1", "nope:3", ":3",    "log:99999999999"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ASSERT_INT(config_parse_fds(bad[i], &c, &err), -EINVAL);
    fd_close(s);
    fd_close(f);
}

TEST(bootstrap_words) {
    char *plain[] = {"prog", "a b", NULL}, *dash[] = {"-c", "echo", "a", NULL}, *none[] = {NULL};
    _cleanup_strv_ struct strv env = {0}, w1 = {0}, w2 = {0}, w3 = {0}, w4 = {0}, w5 = {0};
    struct err err = {0};

    ASSERT_OK(bootstrap_command(plain, &env, &w1, &err)); /* needs no shell */
    ASSERT(w1.n == 2 && str_eq(w1.v[1], "a b"));
    env_set(&env, "BOOTSTRAP_SHELL", "/x/sh");
    ASSERT_OK(bootstrap_command(dash, &env, &w2, &err));
    ASSERT(w2.n == 3 && str_eq(w2.v[0], "/x/sh") && str_eq(w2.v[2], "echo a"));
    ASSERT_OK(bootstrap_command(none, &env, &w3, &err));
    ASSERT(w3.n == 1);
    env_set(&env, "BOOTSTRAP_CMD", "run me");
    ASSERT_OK(bootstrap_command(plain, &env, &w4, &err));
    ASSERT(w4.n == 3 && str_eq(w4.v[2], "run me"));
}

static int spec(const char *body) {
    struct command_spec s = {0};
    struct err err = {0};
    int r = command_spec_parse(body, strlen(body), &s, &err);
    command_spec_done(&s);
    return r;
}

TEST(command_bodies) {
    ASSERT_INT(spec("{\"command\":\"x\"}"), 0);
    ASSERT_INT(spec("{\"Command\":\"x\",\"ENVS\":{\"A\":\"b\"},\"timeout\":5} trailing"), 0);
    ASSERT_INT(spec("{\"argv\":[\"x\",\"\"],\"command\":null}"), 0);
    ASSERT_INT(spec("{\"command\":\"\",\"argv\":[\"x\"]}"), -EINVAL);
    ASSERT_INT(spec("{\"command\":\"x\",\"envs\":{\"A=B\":\"c\"}}"), -EINVAL);
    ASSERT_INT(spec("{\"command\":\"x\",\"envs\":{\"\":\"c\"}}"), -EINVAL);
    ASSERT_INT(spec("{\"command\":\"x\",\"timeout\":3.0}"), -EINVAL);
    ASSERT_INT(spec("\"x\""), -EINVAL);
}

TEST(pty_bodies) {
    struct pty_spec s = {0};
    struct err err = {0};

    ASSERT_OK(pty_spec_parse("", 0, &s, &err));
    ASSERT(s.cols == 80 && s.rows == 24 && s.uid == -1);
    pty_spec_done(&s);
    ASSERT_OK(pty_spec_parse("null", 4, &s, &err));
    pty_spec_done(&s);
    ASSERT_INT(pty_spec_parse("{\"cols\":70000}", 14, &s, &err), -EINVAL);
}

TEST(status_texts) {
    char t[64];

    process_status_text(0, t, sizeof t);
    ASSERT_STR(t, "");
    process_status_text(3 << 8, t, sizeof t);
    ASSERT_STR(t, "exit status 3");
    process_status_text(SIGKILL, t, sizeof t);
    ASSERT_STR(t, "signal: killed");
    process_status_text(SIGABRT | 0x80, t, sizeof t);
    ASSERT_STR(t, "signal: aborted (core dumped)");
    process_status_text(40, t, sizeof t);
    ASSERT_STR(t, "signal: signal 40");
    ASSERT_INT(process_exit_code(SIGTERM), -1);
    ASSERT_INT(signal_from_name("SIGHUP"), SIGHUP);
    ASSERT_INT(signal_from_name("KILL"), SIGKILL);
    ASSERT_INT(signal_from_name("nope"), -EINVAL);
    ASSERT_STR(signal_name(SIGTERM), "SIGTERM");
}

TEST_MAIN()
