/* The library against a scripted server: requests, answers, errors, commands and copies. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/test.h"
#include "client/exec.h"
#include "client/files.h"
#include "test-fake.h"

static struct fake fake;
static struct cove_client *client;

static void setup(void) {
    fake_start(&fake);
    ASSERT_OK(cove_client_new(fake.address, NULL, &client, NULL));
}

static void teardown(void) {
    client = cove_client_free(client);
    uv_library_shutdown(); /* closes what libuv keeps for its signal handlers */
    fake_stop(&fake);
}

/* ---- pure parts ---- */

TEST(addresses) {
    static const struct {
        const char *text, *unix_path, *host;
        unsigned port; /* 0 with neither: refused */
    } cases[] = {
        {"unix:/run/x.sock", "/run/x.sock", NULL, 0},
        {"unix:///run/x", "/run/x", NULL, 0},
        {"/run/x", "/run/x", NULL, 0},
        {"http://localhost:8080", NULL, "localhost", 8080},
        {"http://10.0.0.1", NULL, "10.0.0.1", 80},
        {"http://[::1]:9/", NULL, "::1", 9},
        {"unix:x", NULL, NULL, 0},
        {"unix:", NULL, NULL, 0},
        {"https://x", NULL, NULL, 0},
        {"localhost:8080", NULL, NULL, 0},
        {"http://", NULL, NULL, 0},
        {"http://x:0", NULL, NULL, 0},
        {"http://x:65536", NULL, NULL, 0},
        {"http://x:", NULL, NULL, 0},
        {"http://x/path", NULL, NULL, 0},
        {"http://u:p@x", NULL, NULL, 0},
        {"http://[::1", NULL, NULL, 0},
        {"http://[::1]x", NULL, NULL, 0},
        {"ftp://x", NULL, NULL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct address a = {0};
        struct cove_error err = {0};
        int r = address_parse(cases[i].text, &a, &err);
        bool want = cases[i].unix_path || cases[i].host;
        if ((r == 0) != want || !str_eq(a.unix_path, cases[i].unix_path) ||
            !str_eq(a.host, cases[i].host) || a.port != cases[i].port)
            test_fail(__FILE__, __LINE__, "%s: r %d, %s %s %u", cases[i].text, r, a.unix_path,
                      a.host, a.port);
        ASSERT(want || err.message[0]);
        address_done(&a);
    }
    struct address a;
    char longer[200];
    memset(longer, 'a', sizeof(longer));
    longer[0] = '/';
    longer[150] = '\0';
    ASSERT_INT(address_parse(longer, &a, NULL), -EINVAL);
}

TEST(exit_frames) {
    static const struct {
        const char *frame, *signal;
        int code;
    } cases[] = {
        {"{\"exit_code\":0}", "", 0},
        {"{\"exit_code\":255}", "", 255},
        {"{\"exit_code\":-1,\"signal\":\"SIGKILL\"}", "SIGKILL", 137},
        {"{\"exit_code\":-1,\"signal\":\"SIGTERM\"}", "SIGTERM", 143},
        {"{\"exit_code\":-1,\"signal\":\"SIGSEGV\"}", "SIGSEGV", 139},
        {"{\"exit_code\":-1}", "SIGKILL", 137}, /* an agent that does not tell */
        {"{}", "SIGKILL", 137},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_json_ json_t *j = json_parse(cases[i].frame, strlen(cases[i].frame), NULL);
        struct cove_exit e;
        exit_from_frame(j, &e);
        ASSERT_INT(e.code, cases[i].code);
        ASSERT_STR(e.signal, cases[i].signal);
    }
}

TEST(reasons_of_a_failed_start) {
    static const struct {
        const char *frame;
        int code;
    } cases[] = {
        {"{\"errno\":\"ENOENT\",\"error\":\"x\"}", -ENOENT},
        {"{\"errno\":\"EACCES\"}", -EACCES},
        {"{\"errno\":\"ENOEXEC\"}", -EACCES},
        {"{\"errno\":\"EISDIR\"}", -EACCES},
        {"{\"errno\":\"EAGAIN\",\"error\":\"No such file\"}", -EIO},
        {"{\"error\":\"fork/exec /x: No such file or directory\"}",
         -ENOENT}, /* agents that do not name it */
        {"{\"error\":\"Permission denied\"}", -EACCES},
        {"{}", -EIO},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_json_ json_t *j = json_parse(cases[i].frame, strlen(cases[i].frame), NULL);
        ASSERT_INT(start_error_code(j), cases[i].code);
    }
}

TEST(modes_and_names) {
    ASSERT_INT(mode_to_digits(0755), 755);
    ASSERT_INT(mode_to_digits(04644), 644);
    ASSERT_INT(mode_from_digits(755), 0755);
    ASSERT_INT(mode_from_digits(7), 07);
    ASSERT_INT(mode_from_digits(-5), 0);
    ASSERT_STR(child_name("/a", "/a/b"), "b");
    ASSERT_STR(child_name("/", "/b"), "b");
    ASSERT_STR(child_name("/a/", "/a/b"), "b");
    ASSERT(!child_name("/a", "/a/b/c"));
    ASSERT(!child_name("/a", "/ab"));
    ASSERT(!child_name("/a", "/a/.."));
    ASSERT(!child_name("/a", "/a/."));
    ASSERT(!child_name("/a", "/a/"));
    ASSERT(!child_name("/a", "/x/b"));
}

TEST(no_server) {
    struct cove_error err = {0};
    ASSERT_OK(cove_client_new("unix:/nonexistent/cove.sock", NULL, &client, &err));
    ASSERT(cove_client_ping(client, NULL, &err) < 0);
    ASSERT_STR(err.message, "nothing listens at unix:/nonexistent/cove.sock");
    cove_client_free(client);
    uv_library_shutdown();
}

/* ---- requests ---- */

TEST(create_asks_for_everything) {
    setup();
    static const char *const env[] = {"A=1", "B=", NULL}, *const meta[] = {"team=x", NULL};
    const struct cove_mount mount = {"/src", "/workspace", true};
    struct cove_sandbox_options o = COVE_SANDBOX_OPTIONS_INIT;
    o.image = "local/x";
    o.env = env;
    o.metadata = meta;
    o.cwd = "/w";
    o.network = "none";
    o.cpu_millis = 1500;
    o.memory_bytes = 1 << 20;
    o.timeout_s = 90;
    o.mounts = &mount;
    o.n_mounts = 1;
    struct cove_sandbox *s;
    ASSERT_OK(cove_sandbox_create(client, &o, &s, NULL));
    ASSERT_STR(cove_sandbox_id(s), "box-1");
    ASSERT_STR(cove_sandbox_image(s), "local/x");
    ASSERT_INT(cove_sandbox_created_us(s), 1767323045500000);
    ASSERT_INT(cove_sandbox_expires_us(s) - cove_sandbox_created_us(s), 599500000);
    _cleanup_json_ json_t *sent =
        json_parse(cove_sandbox_message(s), strlen(cove_sandbox_message(s)), NULL);
    _cleanup_json_ json_t *want = json_pack(
        "{s:{s:s}, s:{s:s, s:s}, s:{s:s, s:s}, s:{s:s}, s:i, s:[{s:s, s:{s:s}, s:s, s:b}], s:{s:s, "
        "s:s, s:s}}",
        "image", "uri", "local/x", "resourceLimits", "cpu", "1500m", "memory", "1048576", "env",
        "A", "1", "B", "", "metadata", "team", "x", "timeout", 90, "volumes", "name", "mount-0",
        "host", "path", "/src", "mountPath", "/workspace", "readOnly", 1, "extensions",
        "cove.entrypoint", "none", "cove.cwd", "/w", "cove.network", "none");
    ASSERT(want);
    if (!json_equal(sent, want))
        test_fail(__FILE__, __LINE__, "sent %s", cove_sandbox_message(s));
    cove_sandbox_free(s);

    static const char *const bad[] = {"A", NULL};
    struct cove_error err = {0};
    o.env = bad;
    ASSERT_INT(cove_sandbox_create(client, &o, &s, &err), -EINVAL);
    ASSERT(strstr(err.message, "NAME=VALUE"));
    teardown();
}

TEST(older_callers_have_shorter_options) {
    setup();
    struct cove_sandbox_options o = COVE_SANDBOX_OPTIONS_INIT;
    struct cove_sandbox *s;
    o.size = offsetof(struct cove_sandbox_options, timeout_s);
    o.timeout_s = 5; /* beyond what the caller knows: must be ignored */
    o.n_mounts = 77;
    ASSERT_OK(cove_sandbox_create(client, &o, &s, NULL));
    ASSERT(!strstr(cove_sandbox_message(s), "timeout"));
    cove_sandbox_free(s);
    struct cove_sandbox_options zero = {0};
    struct cove_exec_options no_init = {0};
    struct cove_exec *x;
    ASSERT_INT(cove_sandbox_create(client, &zero, &s, NULL), -EINVAL);
    ASSERT_INT(cove_exec_start(client, "box-1", &no_init, &x, NULL), -EINVAL);
    teardown();
}

TEST(ids_may_be_shortened) {
    setup();
    struct cove_sandbox *s;
    struct cove_error err = {0};
    ASSERT_OK(cove_sandbox_find(client, "boy-2", &s, &err));
    cove_sandbox_free(s);
    ASSERT_OK(cove_sandbox_find(client, "ca", &s, &err)); /* on the second page */
    ASSERT_STR(cove_sandbox_id(s), "cab-3");
    cove_sandbox_free(s);
    ASSERT_INT(cove_sandbox_find(client, "bo", &s, &err), -ENOTUNIQ);
    ASSERT(strstr(err.message, "box-1 and boy-2"));
    ASSERT_INT(cove_sandbox_find(client, "zzz", &s, &err), -ENOENT);
    ASSERT_INT(cove_sandbox_find(client, "..", &s, &err), -EINVAL);
    ASSERT_INT(cove_sandbox_find(client, "", &s, &err), -EINVAL);
    teardown();
}

TEST(errors_carry_the_servers_words) {
    setup();
    struct cove_sandbox *s;
    struct cove_error err = {0};
    ASSERT_INT(cove_sandbox_get(client, "nobody", &s, &err), -ENOENT);
    ASSERT_STR(err.message, "cannot find the sandbox: There is no such sandbox.");
    ASSERT_STR(err.kind, "DOCKER::SANDBOX_NOT_FOUND");
    ASSERT_INT(err.http_status, 404);
    ASSERT_INT(cove_sandbox_get(client, "broken", &s, &err), -EIO);
    ASSERT_STR(err.message, "cannot find the sandbox: <html>bad gateway</html>");
    ASSERT_INT(cove_sandbox_get(client, "invalid", &s, &err), -EINVAL);
    ASSERT_STR(err.message, "cannot find the sandbox: Field required");
    char *version = NULL;
    ASSERT_OK(cove_client_ping(client, &version, &err));
    ASSERT_STR(version, "9.9");
    cove_free(version);
    teardown();
}

static void *interrupt_soon(void *arg) {
    uv_sleep(100);
    cove_client_interrupt(arg);
    return NULL;
}

TEST(a_hanging_call_can_be_interrupted) {
    setup();
    pthread_t t;
    struct cove_sandbox *s;
    ASSERT_OK(pthread_create(&t, NULL, interrupt_soon, client));
    ASSERT_INT(cove_sandbox_get(client, "hangs", &s, NULL), -EINTR);
    pthread_join(t, NULL);
    ASSERT_OK(cove_client_ping(client, NULL, NULL)); /* and the client still works */
    teardown();
}

/* ---- commands ---- */

static struct cove_exec *start(const char *word, int in, int out, int errs, struct cove_error *err,
                               int want) {
    const char *argv[] = {word, NULL};
    struct cove_exec_options o = COVE_EXEC_OPTIONS_INIT;
    struct cove_exec *x = NULL;
    o.argv = argv;
    o.stdin_fd = in;
    o.stdout_fd = out;
    o.stderr_fd = errs;
    ASSERT_INT(cove_exec_start(client, "box-1", &o, &x, err), want);
    return x;
}

TEST(stdin_comes_back_whole) {
    setup();
    enum { SIZE = 3 << 20 };
    int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
    char *data = malloc(SIZE), *got = malloc(SIZE + 1);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    ASSERT_OK(fd_write_full(in, data, SIZE));
    lseek(in, 0, SEEK_SET);
    struct cove_exit e;
    struct cove_exec *x = start("echo", in, out, -1, NULL, 0);
    ASSERT_OK(cove_exec_wait(x, 0, &e, NULL));
    ASSERT_INT(e.code, 0);
    cove_exec_free(x);
    lseek(out, 0, SEEK_SET);
    ASSERT_INT(fd_read_full(out, got, SIZE + 1), SIZE);
    ASSERT(memcmp(data, got, SIZE) == 0);
    free(data);
    free(got);
    close(in);
    close(out);
    teardown();
}

struct slow_reader {
    int fd;
    size_t bytes;
    bool wrong;
};

static void *read_slowly(void *arg) {
    struct slow_reader *r = arg;
    unsigned char chunk[50000];
    ssize_t n;
    uv_sleep(200); /* long enough for everything in between to be full */
    while ((n = read(r->fd, chunk, sizeof(chunk))) > 0)
        for (ssize_t i = 0; i < n; i++, r->bytes++)
            r->wrong = r->wrong || chunk[i] != (unsigned char)((r->bytes * 7) >> 3);
    return NULL;
}

TEST(a_slow_reader_loses_nothing) {
    setup();
    int p[2], errs = memfd_create("err", MFD_CLOEXEC);
    pthread_t t;
    ASSERT_OK(pipe2(p, O_CLOEXEC));
    struct slow_reader reader = {.fd = p[0]};
    ASSERT_OK(pthread_create(&t, NULL, read_slowly, &reader));
    struct cove_exit e;
    struct cove_exec *x = start("big", -1, p[1], errs, NULL, 0);
    ASSERT_OK(cove_exec_wait(x, 0, &e, NULL));
    ASSERT(!(fcntl(p[1], F_GETFL) & O_NONBLOCK)); /* others may share it */
    close(p[1]);
    pthread_join(t, NULL);
    ASSERT_INT(e.code, 7);
    ASSERT_INT(reader.bytes, 20 << 20);
    ASSERT(!reader.wrong);
    ASSERT_INT(lseek(errs, 0, SEEK_END), 5);
    cove_exec_free(x);
    close(p[0]);
    close(errs);
    teardown();
}

TEST(a_closed_reader_ends_the_wait) {
    setup();
    int p[2];
    struct cove_exit e;
    signal(SIGPIPE, SIG_IGN);
    ASSERT_OK(pipe2(p, O_CLOEXEC));
    close(p[0]);
    struct cove_exec *x = start("big", -1, p[1], -1, NULL, 0);
    ASSERT_INT(cove_exec_wait(x, 0, &e, NULL), -EPIPE);
    cove_exec_free(x);
    close(p[1]);
    teardown();
}

TEST(signals_timeouts_and_interrupts) {
    setup();
    struct cove_exit e;
    struct cove_error err = {0};
    struct cove_exec *x = start("wait", -1, -1, -1, NULL, 0);
    int64_t t0 = clock_mono_ms();
    ASSERT_INT(cove_exec_wait(x, 50, &e, &err), -ETIMEDOUT);
    ASSERT(clock_mono_ms() - t0 >= 45);
    cove_client_interrupt(client);
    ASSERT_INT(cove_exec_wait(x, 0, &e, &err), -EINTR);
    ASSERT_INT(cove_exec_signal(x, "SIGNONSENSE"), -EINVAL);
    ASSERT_OK(cove_exec_signal(x, "SIGTERM"));
    ASSERT_OK(cove_exec_wait(x, 5000, &e, &err));
    ASSERT_INT(e.code, 143);
    ASSERT_STR(e.signal, "SIGTERM");
    cove_exec_free(x);
    teardown();
}

TEST(a_waiting_command_keeps_its_sandbox_alive) {
    setup();
    const char *argv[] = {"renew", NULL};
    struct cove_exec_options o = COVE_EXEC_OPTIONS_INIT;
    struct cove_exec *x;
    struct cove_exit e;
    int64_t us = 0;
    o.argv = argv;
    o.renew_s = 1; /* three times in the time it would live */
    ASSERT_OK(cove_exec_start(client, "box-1", &o, &x, NULL));
    int64_t t0 = clock_mono_ms();
    ASSERT_OK(cove_exec_wait(x, 5000, &e, NULL));
    ASSERT(clock_mono_ms() - t0 > 600);
    cove_exec_free(x);
    ASSERT_OK(cove_sandbox_renew(client, "box-1", 60, &us, NULL));
    ASSERT_INT(us, 1767323045000000);
    teardown();
}

static int collect(enum cove_stream stream, const void *data, size_t len, void *ud) {
    return buf_append(ud, data, len);
}

/* Runs `word`, gives the output; returns what wait returned. */
static int run_collect(const char *word, struct buf *out, struct cove_error *err) {
    const char *argv[] = {word, NULL};
    struct cove_exec_options o = COVE_EXEC_OPTIONS_INIT;
    struct cove_exec *x;
    struct cove_exit e;
    o.argv = argv;
    o.on_output = collect;
    o.ud = out;
    ASSERT_OK(cove_exec_start(client, "box-1", &o, &x, err));
    if (str_eq(word, "size"))
        ASSERT_OK(cove_exec_resize(x, 120, 40));
    int r = cove_exec_wait(x, 5000, &e, err);
    cove_exec_free(x);
    return r;
}

TEST(replays_are_joined_and_gaps_are_errors) {
    setup();
    _cleanup_buf_ struct buf out = BUF_INIT(1000);
    struct cove_error err = {0};
    ASSERT_OK(run_collect("again", &out, &err));
    ASSERT_STR(out.data, "abcde");
    buf_clear(&out);
    ASSERT_INT(run_collect("lost", &out, &err), -EIO);
    ASSERT(strstr(err.message, "was lost"));
    buf_clear(&out);
    ASSERT_INT(run_collect("drop", &out, &err), -ECONNRESET);
    ASSERT(strstr(err.message, "connection to the command was lost (code 1001, going away)"));
    ASSERT_STR(out.data, "ab");
    buf_clear(&out);
    ASSERT_OK(run_collect("size", &out, &err));
    ASSERT_STR(out.data, "120x40");
    teardown();
}

TEST(what_cannot_be_started) {
    setup();
    struct cove_error err = {0};
    start("absent", -1, -1, -1, &err, -ENOENT);
    ASSERT_STR(err.kind, "START_FAILED");
    ASSERT_STR(err.message, "absent: there is no such program");
    start("refuse", -1, -1, -1, &err, -EALREADY);
    ASSERT_STR(err.message, "cannot start the command: somebody is there");
    start("refuse-late", -1, -1, -1, &err, -EALREADY);
    ASSERT_STR(err.message, "cannot start the command: the server answered with status 409");
    struct cove_exec_options o = COVE_EXEC_OPTIONS_INIT;
    struct cove_exec *x;
    ASSERT_INT(cove_exec_start(client, "box-1", &o, &x, &err), -EINVAL);
    ASSERT_STR(err.message, "no command was given");
    static const char *const bad[] = {"a\xff", NULL};
    o.argv = bad;
    ASSERT_INT(cove_exec_start(client, "box-1", &o, &x, &err), -EINVAL);
    ASSERT(strstr(err.message, "UTF-8"));
    teardown();
}

/* ---- files ---- */

TEST(uploads_are_forms) {
    setup();
    int fd = memfd_create("file", MFD_CLOEXEC), pipefd[2], back = memfd_create("back", MFD_CLOEXEC);
    char got[200] = "";
    ASSERT_OK(fd_write_full(fd, "content", 7));
    lseek(fd, 3, SEEK_SET); /* from where the descriptor stands */
    ASSERT_OK(cove_file_upload(client, "box-1", fd, "/x \"y\"", 0755, NULL, NULL));
    ASSERT_OK(cove_file_download(client, "box-1", "/uploaded", back, NULL, NULL));
    ASSERT(pread(back, got, sizeof(got) - 1, 0) > 0);
    ASSERT_STR(got, "{\"path\":\"/x \\\"y\\\"\",\"mode\":755}|tent|");
    ASSERT_OK(pipe2(pipefd, O_CLOEXEC)); /* a source of unknown length */
    ASSERT_OK(fd_write_full(pipefd[1], "piped", 5));
    close(pipefd[1]);
    ASSERT_OK(cove_file_upload(client, "box-1", pipefd[0], "/p", 0, NULL, NULL));
    ASSERT_OK(ftruncate(back, 0));
    lseek(back, 0, SEEK_SET);
    ASSERT_OK(cove_file_download(client, "box-1", "/uploaded", back, NULL, NULL));
    memset(got, 0, sizeof(got));
    ASSERT(pread(back, got, sizeof(got) - 1, 0) > 0);
    ASSERT_STR(got, "{\"path\":\"/p\",\"mode\":644}|piped|");
    close(fd);
    close(pipefd[0]);
    close(back);
    teardown();
}

static void count_skip(const char *path, const char *why, void *ud) {
    unsigned *n = ud;
    (*n)++;
}

TEST(trees_come_out_and_nothing_escapes) {
    setup();
    char dir[] = "/tmp/cove-test-out-XXXXXX", *text = NULL;
    unsigned skipped = 0;
    struct cove_error err = {0};
    struct cove_copy_options o = COVE_COPY_OPTIONS_INIT;
    struct stat st;
    o.on_skip = count_skip;
    o.ud = &skipped;
    ASSERT(mkdtemp(dir));
    _cleanup_close_ int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_OK(cove_copy_out(client, "box-1", "/tree", dir, &o, &err));
    ASSERT_INT(skipped, 2); /* the one that is gone, the pipe */
    ASSERT_OK(path_read_file_at(d, "tree/a", 100, &text, NULL));
    ASSERT_STR(text, "hi");
    free(text);
    ASSERT_OK(fstatat(d, "tree/a", &st, 0));
    ASSERT_INT(st.st_mode & 0777, 0640);
    ASSERT_OK(fstatat(d, "tree", &st, 0));
    ASSERT_INT(st.st_mode & 0777, 0750);
    ASSERT_INT(cove_copy_out(client, "box-1", "/evil", dir, &o, &err), -EBADMSG);
    ASSERT(access("/tmp/cove-escaped", F_OK) < 0);
    /* a link of ours in the way is not followed */
    ASSERT_OK(path_remove_tree_at(d, "tree"));
    ASSERT_OK(symlinkat("/tmp", d, "tree"));
    ASSERT(cove_copy_out(client, "box-1", "/tree", dir, &o, &err) < 0);
    ASSERT(access("/tmp/a", F_OK) < 0);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, dir));
    teardown();
}

TEST_MAIN()
