/* Starts, exits, failures before exec, trees, orphans and the ends of pipes, on a loop of the
 * test's own. */
#include "execd/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/path.h"
#include "base/test.h"
#include "execd/pump.h"

extern char **environ;

struct run {
    uv_loop_t loop;
    struct processes *ps;
    struct process *p;
    bool ended, executed, failed, is_zombie;
    int wstatus;
    char text[256];
};

static void on_exit_cb(struct process *p, int wstatus, const struct err *start, void *ud) {
    struct run *r = ud;

    r->ended = true;
    r->wstatus = wstatus;
    r->failed = start != NULL;
    r->is_zombie = kill(process_pid(p), 0) == 0;
    snprintf(r->text, sizeof r->text, "%s", start ? err_text(start) : "");
    uv_stop(&r->loop);
}

static void on_exec_cb(struct process *p, void *ud) {
    struct run *r = ud;
    r->executed = true;
}

static void setup(struct run *r) {
    struct processes_opts o = {.loop = &r->loop, .cgroup_fd = -1};
    struct err err = {0};

    *r = (struct run){0};
    ASSERT_OK(uv_loop_init(&r->loop));
    ASSERT_OK(processes_new(&o, &r->ps, &err));
}

static void teardown(struct run *r) {
    processes_free(r->ps);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    ASSERT_OK(uv_loop_close(&r->loop));
    uv_library_shutdown(); /* its two descriptors */
}

/* Until no child is left; the death of each wakes the loop. */
static void await_orphans(struct run *r) {
    siginfo_t si = {0};
    while (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) == 0)
        uv_run(&r->loop, UV_RUN_ONCE);
}

static int start(struct run *r, struct process_opts *o, const char *const *argv, struct err *err) {
    static const struct process_ops ops = {.on_exit = on_exit_cb, .on_exec = on_exec_cb};

    o->exe = argv[0];
    o->argv = argv;
    o->envp = (const char *const *)environ;
    if (!o->stdout_fd)
        o->stdout_fd = processes_null_fd(r->ps);
    o->stderr_fd = o->stdin_fd = processes_null_fd(r->ps);
    return process_start(r->ps, o, &ops, r, &r->p, err);
}

static void run_shell(struct run *r, const char *script) {
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    struct process_opts o = {0};
    struct err err = {0};

    ASSERT_OK(start(r, &o, argv, &err));
    uv_run(&r->loop, UV_RUN_DEFAULT);
    ASSERT(r->ended);
}

TEST(exit_status) {
    struct run r;

    setup(&r);
    run_shell(&r, "exit 7");
    ASSERT(r.executed && !r.failed && r.is_zombie);
    ASSERT_INT(process_exit_code(r.wstatus), 7);
    ASSERT_INT(processes_count(r.ps), 0);
    r.ended = false;
    run_shell(&r, "kill -TERM $$");
    ASSERT(WIFSIGNALED(r.wstatus) && WTERMSIG(r.wstatus) == SIGTERM);
    teardown(&r);
}

TEST(failures_before_exec_are_told) {
    const char *none[] = {"/no/such/program", NULL}, *ok[] = {"/bin/true", NULL};
    struct process_opts o = {0}, bad_cwd = {.cwd = "/no/such/directory"};
    struct err err = {0};
    struct run r;

    setup(&r);
    ASSERT_OK(start(&r, &o, none, &err));
    uv_run(&r.loop, UV_RUN_DEFAULT);
    ASSERT(r.failed && !r.executed && strstr(r.text, "/no/such/program"));
    r.ended = r.failed = false;
    ASSERT_OK(start(&r, &bad_cwd, ok, &err));
    uv_run(&r.loop, UV_RUN_DEFAULT);
    ASSERT(r.failed && strstr(r.text, "/no/such/directory"));
    teardown(&r);
}

TEST(modes) {
    struct run r;
    const char *argv[] = {"/bin/sh", "-c", "test \"$(cut -d' ' -f6 /proc/$$/stat)\" = $$", NULL};
    struct process_opts session = {.mode = PROCESS_SESSION}, group = {.mode = PROCESS_GROUP};
    struct err err = {0};

    setup(&r);
    ASSERT_OK(start(&r, &session, argv, &err));
    uv_run(&r.loop, UV_RUN_DEFAULT);
    ASSERT_INT(r.wstatus, 0);
    ASSERT_OK(start(&r, &group, argv, &err));
    uv_run(&r.loop, UV_RUN_DEFAULT);
    ASSERT(r.wstatus != 0);
    teardown(&r);
}

static void read_line(int fd, char *ret, size_t size) {
    size_t n = 0;
    while (n + 1 < size && read(fd, ret + n, 1) == 1 && ret[n] != '\n')
        n++;
    ret[n] = 0;
}

TEST(a_tree_is_killed_whatever_its_sessions) {
    const char *argv[] = {
        "/bin/sh", "-c",
        "setsid sh -c 'trap \"\" TERM HUP; echo $$; while :; do read x; done' & wait", NULL};
    struct process_opts o = {0};
    struct err err = {0};
    char line[32];
    struct run r;
    int p[2];

    setup(&r);
    ASSERT(pipe2(p, O_CLOEXEC) == 0);
    o.stdout_fd = p[1];
    ASSERT_OK(start(&r, &o, argv, &err));
    fd_close(p[1]);
    read_line(p[0], line, sizeof line);
    process_kill_tree(r.p);
    uv_run(&r.loop, UV_RUN_DEFAULT);
    ASSERT_INT(WTERMSIG(r.wstatus), SIGKILL);
    ASSERT_INT(read(p[0], line, 1), 0); /* nobody holds the pipe any more */
    fd_close(p[0]);
    await_orphans(&r);
    teardown(&r);
}

TEST(orphans_are_reaped) {
    struct run r;

    setup(&r);
    run_shell(&r, "(sh -c 'exit 3' &) ; exit 0");
    await_orphans(&r);
    ASSERT_INT(errno, ECHILD);
    teardown(&r);
}

/* ---- pumps ---- */

struct sink {
    struct buf data;
    bool ended;
};

static void on_data(struct pump *p, const char *data, size_t len, void *ud) {
    struct sink *s = ud;
    buf_append(&s->data, data, len);
}

static void on_end(struct pump *p, void *ud) {
    struct sink *s = ud;
    s->ended = true;
}

static const struct pump_ops pump_ops = {on_data, on_end};

TEST(pump_finish_takes_what_is_there) {
    struct sink s = {0};
    struct pump *pump;
    uv_loop_t loop;
    char chunk[100];
    int p[2];

    ASSERT_OK(uv_loop_init(&loop));
    ASSERT(pipe2(p, O_CLOEXEC) == 0);
    ASSERT_OK(pump_new(&loop, p[0], &pump_ops, &s, &pump));
    ASSERT_INT(write(p[1], "before", 6), 6);
    pump_pause(pump);
    pump_finish(pump);
    ASSERT(!s.ended && s.data.len == 0);
    ASSERT_INT(write(p[1], "after", 5), 5);
    pump_resume(pump);
    ASSERT(s.ended);
    ASSERT_STR(s.data.data, "before");
    /* a survivor can go on writing: more than a pipe holds */
    pump_discard(pump);
    memset(chunk, 'x', sizeof chunk);
    fd_set_nonblock(p[1], true);
    for (int i = 0; i < 3000; i++) {
        if (write(p[1], chunk, sizeof chunk) < 0)
            ASSERT_INT(errno, EAGAIN);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    ASSERT_INT(write(p[1], chunk, 1), 1);
    fd_close(p[1]);
    uv_run(&loop, UV_RUN_DEFAULT); /* frees itself at the end of the stream */
    ASSERT_STR(s.data.data, "before");
    buf_done(&s.data);
    ASSERT_OK(uv_loop_close(&loop));
    uv_library_shutdown();
}

TEST(pump_ends_with_its_pipe) {
    struct sink s = {0};
    struct pump *pump;
    uv_loop_t loop;
    int p[2];

    ASSERT_OK(uv_loop_init(&loop));
    ASSERT(pipe2(p, O_CLOEXEC) == 0);
    ASSERT_OK(pump_new(&loop, p[0], &pump_ops, &s, &pump));
    ASSERT_INT(write(p[1], "all", 3), 3);
    fd_close(p[1]);
    uv_run(&loop, UV_RUN_DEFAULT);
    ASSERT(s.ended);
    ASSERT_STR(s.data.data, "all");
    pump_finish(pump);
    pump_free(pump);
    uv_run(&loop, UV_RUN_DEFAULT);
    buf_done(&s.data);
    ASSERT_OK(uv_loop_close(&loop));
    uv_library_shutdown();
}

TEST_MAIN()
