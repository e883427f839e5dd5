/*
 * cove-execd: start-up and end of the agent. Reads the configuration, makes the loop, the process
 * table and the API, starts the entrypoint when there is one, and runs until init.c says so. What
 * the order guarantees: signals are caught before the entrypoint exists, and /ping answers before
 * it starts.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/path.h"
#include "execd/api.h"
#include "execd/bootstrap.h"
#include "execd/command.h"
#include "execd/config.h"
#include "execd/init.h"
#include "execd/metrics.h"
#include "execd/pty.h"

extern char **environ;

/* Descriptors 0..2 always mean standard streams, whatever we were started with. */
static void fill_standard_fds(void) {
    int p[2];

    while (fcntl(0, F_GETFD) < 0 || fcntl(1, F_GETFD) < 0 || fcntl(2, F_GETFD) < 0) {
        if (open("/dev/null", O_RDWR) < 0 && pipe(p) < 0)
            return;
    }
}

static void harden(void) {
#ifndef __SANITIZE_ADDRESS__ /* the leak checker attaches to us */
    prctl(PR_SET_DUMPABLE, 0);
#endif
    signal(SIGPIPE, SIG_IGN);
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

static void raise_fd_limit(void) {
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < rl.rlim_max) {
        rl.rlim_cur = rl.rlim_max;
        setrlimit(RLIMIT_NOFILE, &rl);
    }
}

static enum log_level level_of(int number) {
    if (number <= 3)
        return LOG_ERROR;
    if (number == 4)
        return LOG_WARN;
    return number <= 6 ? LOG_INFO : LOG_DEBUG;
}

/* Our own copy of the environment can be read by every process of the same user: secrets do not
 * stay there. */
static void scrub_environment(void) {
    static const char *const names[] = {"COVE_TOKEN", "EXECD_ACCESS_TOKEN"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char *value = getenv(names[i]);
        if (value)
            explicit_bzero(value, strlen(value));
    }
}

static int make_agent(struct agent *a, struct config *c, struct err *err) {
    struct processes_opts po = {.loop = a->loop,
                                .cgroup_fd = c->cgroup_fd,
                                .confine = c->native,
                                .signals = init_signals(),
                                .on_signal = init_on_signal,
                                .ud = a};
    int r = processes_new(&po, &a->processes, err);

    c->cgroup_fd = -1; /* taken */
    if (r < 0)
        return r;
    a->native = c->native;
    a->claimed = !c->native;
    a->strip_line_ends = c->strip_line_ends;
    a->token = TAKE_PTR(c->token);
    a->log_fd = c->log_fd;
    a->state_fd = c->state_fd;
    a->cwd = get_current_dir_name();
    if (!a->cwd)
        a->cwd = strdup("/");
    r = a->cwd ? env_init(&a->env, environ) : -ENOMEM;
    scrub_environment();
    setenv("TZ", "UTC0", 1); /* ours only: the image's zone files are none of our business */
    if (r == 0)
        r = commands_new(a, &a->commands);
    if (r == 0)
        r = ptys_new(a, &a->ptys);
    if (r == 0)
        r = metrics_new(a, &a->metrics);
    if (r < 0)
        return err_sys(err, r, "cannot start");
    return api_new(a, err);
}

static int listen_api(struct agent *a, struct config *c, struct err *err) {
    uint16_t port;
    int r;

    if (c->listen_fd >= 0)
        return h1_server_listen_fd(a->server, TAKE_FD(c->listen_fd), err);
    r = h1_server_listen_tcp(a->server, "0.0.0.0", c->port, 1024, &port, err);
    if (r == 0)
        log_info("listening", LOG_INT("port", port));
    return r;
}

static void on_entry(pid_t pid, const struct err *error, void *ud) {
    if (!error)
        return;
    log_error("the command cannot be started", LOG_ERR(error));
    agent_exit(ud, 1);
}

static int start_entrypoint(struct agent *a, const struct config *c, struct err *err) {
    _cleanup_(launch_done) struct launch l = {0};
    _cleanup_strv_ struct strv words = {0};
    int r = launch_prepare(a, NULL, NULL, -1, -1, &l, err);

    if (r < 0)
        return r;
    strv_done(&l.env);
    r = env_build_entrypoint(&a->env, &l.env);
    if (r < 0)
        return err_sys(err, r, "environment");
    r = c->mode == MODE_BOOTSTRAP ? bootstrap_command(c->argv, &l.env, &words, err)
                                  : strv_copy(&words, (const char *const *)c->argv);
    if (r == 0)
        r = launch_argv(&l, &words, err);
    if (r == 0)
        r = entrypoint_start(a, &l, c->mode == MODE_BOOTSTRAP ? ENTRY_NULL_STDIN : ENTRY_INHERIT,
                             on_entry, a, err);
    return r < 0 ? err_wrap(err, "the command cannot be started") : 0;
}

static void free_agent(struct agent *a) {
    api_free(a);
    metrics_free(a->metrics);
    ptys_free(a->ptys);
    commands_free(a->commands);
    entrypoint_free(a);
    processes_free(a->processes);
    env_done(&a->env);
    free(a->cwd);
    free(a->token);
    for (int i = 0; i < 100 && uv_run(a->loop, UV_RUN_NOWAIT) != 0; i++)
        ;
    uv_loop_close(a->loop);
}

static int serve(struct config *c) {
    static uv_loop_t loop; /* sockets that linger are still its own when we end */
    struct agent a = {.loop = &loop, .log_fd = -1, .state_fd = -1};
    struct err err = {0};
    int r = uv_loop_init(&loop);

    if (r < 0)
        r = err_sys(&err, r, "event loop");
    else
        r = make_agent(&a, c, &err);
    if (r == 0)
        r = listen_api(&a, c, &err);
    if (r == 0 && (c->mode == MODE_BOOTSTRAP || (c->mode == MODE_INIT && *c->argv)))
        r = start_entrypoint(&a, c, &err);
    if (r == 0)
        uv_run(&loop, UV_RUN_DEFAULT);
    else
        log_error("stopped", LOG_ERR(&err));
    free_agent(&a);
    return r < 0 ? 1 : a.exit_status;
}

int main(int argc, char **argv) {
    struct config c = {0};
    struct err err = {0};

    fill_standard_fds();
    harden();
    raise_fd_limit();
    log_setup(LOG_INFO, false, "cove-execd");
    int r = config_parse(argc, argv, &c, &err);
    if (r != 0) {
        if (r < 0)
            log_error("cannot start", LOG_ERR(&err));
        return r < 0 ? 2 : 0;
    }
    log_setup(level_of(c.log_level), false, "cove-execd");
    if (c.mode == MODE_BOOTSTRAP)
        r = bootstrap_prepare(argc, argv);
    if (r == 0)
        r = serve(&c);
    config_done(&c);
    return r;
}
