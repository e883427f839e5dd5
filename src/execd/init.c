/*
 * Supervision (see init.h). Owns the entrypoint's record. Invariants: the agent's exit status is
 * the entrypoint's (128 + signal), written into the state descriptor before the agent ends; its
 * last output is in the log by then. Signals are taken from the process table's descriptor, so none
 * is ever lost between the start of the agent and the start of the entrypoint.
 */
#include "execd/init.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "execd/command.h"
#include "execd/logfile.h"
#include "execd/pump.h"
#include "execd/timer.h"

#define STOP_GRACE_MS 10000
#define PLAIN_STOP_GRACE_MS 5000

struct entrypoint {
    struct agent *agent;
    struct process *process; /* NULL once it ended */
    struct pump *log_pump;
    struct logfile log;
    entry_cb cb; /* NULL once called */
    void *ud;
    int wstatus;
};

const int *init_signals(void) {
    static const int list[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGQUIT, 0};
    return list;
}

void agent_exit(struct agent *a, int status) {
    a->exit_status = status;
    uv_stop(a->loop);
}

static void write_state(struct agent *a, int wstatus) {
    _cleanup_buf_ struct buf b = BUF_INIT(256);

    if (a->state_fd < 0)
        return;
    buf_printf(&b, "{\"code\":%d,\"signal\":%d,\"finished_us\":%lld}\n",
               WIFSIGNALED(wstatus) ? 128 + WTERMSIG(wstatus) : WEXITSTATUS(wstatus),
               WIFSIGNALED(wstatus) ? WTERMSIG(wstatus) : 0, (long long)clock_wall_us());
    if (pwrite(a->state_fd, b.data, b.len, 0) != (ssize_t)b.len ||
        ftruncate(a->state_fd, (off_t)b.len) < 0)
        log_error("the exit state cannot be written");
}

static void tell(struct entrypoint *e, const struct err *error) {
    entry_cb cb = e->cb;

    e->cb = NULL;
    if (cb)
        cb(e->process ? process_pid(e->process) : 0, error, e->ud);
}

static void finish(struct entrypoint *e) {
    int st = e->wstatus;

    write_state(e->agent, st);
    agent_exit(e->agent, WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st));
}

static void on_log_data(struct pump *p, const char *data, size_t len, void *ud) {
    struct entrypoint *e = ud;
    logfile_append(&e->log, data, len);
}

static void on_entry_exec(struct process *p, void *ud) {
    tell(ud, NULL);
}

static void on_entry_exit(struct process *p, int wstatus, const struct err *start, void *ud) {
    struct entrypoint *e = ud;

    e->process = NULL;
    e->wstatus = start ? 127 << 8 : wstatus;
    if (start) { /* whoever asked for the start decides what follows */
        tell(e, start);
        return;
    }
    if (e->log_pump)
        pump_finish(e->log_pump); /* never paused: delivers everything before it returns */
    finish(e);
}

static int open_log_pipe(struct entrypoint *e, const struct launch *l, int *ret_fd) {
    static const struct pump_ops ops = {.on_data = on_log_data};
    int p[2], r;

    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    if (l->identity.set)
        (void)!fchown(p[1], l->identity.uid, l->identity.gid);
    logfile_init(&e->log, e->agent->log_fd);
    r = pump_new(e->agent->loop, p[0], &ops, e, &e->log_pump);
    if (r < 0)
        fd_close(p[1]);
    else
        *ret_fd = p[1];
    return r;
}

int entrypoint_start(struct agent *a, const struct launch *l, enum entry_stdio stdio, entry_cb cb,
                     void *ud, struct err *err) {
    static const struct process_ops ops = {.on_exit = on_entry_exit, .on_exec = on_entry_exec};
    struct process_opts o = {.stdin_fd = 0, .stdout_fd = 1, .stderr_fd = 2, .mode = PROCESS_GROUP};
    struct entrypoint *e = calloc(1, sizeof *e);
    int out = -1, r = 0;

    if (!e)
        return err_set(err, -ENOMEM, "out of memory");
    *e = (struct entrypoint){.agent = a, .cb = cb, .ud = ud, .log.fd = -1};
    launch_apply(l, &o);
    if (stdio != ENTRY_INHERIT)
        o.stdin_fd = processes_null_fd(a->processes);
    if (stdio == ENTRY_LOG) {
        r = open_log_pipe(e, l, &out);
        o.stdout_fd = o.stderr_fd = out;
    }
    if (r < 0)
        err_sys(err, r, "cannot make the entrypoint's log");
    else
        r = process_start(a->processes, &o, &ops, e, &e->process, err);
    fd_close(out);
    if (r < 0) {
        pump_free(e->log_pump);
        free(e);
        return r;
    }
    a->entrypoint = e;
    return 0;
}

void entrypoint_free(struct agent *a) {
    timer_free(TAKE_PTR(a->stop_timer));
    if (!a->entrypoint)
        return;
    if (a->entrypoint->process)
        process_forget(a->entrypoint->process);
    pump_free(a->entrypoint->log_pump);
    free(a->entrypoint);
    a->entrypoint = NULL;
}

static bool entry_runs(const struct agent *a) {
    return a->entrypoint && a->entrypoint->process;
}

static void end_without_entrypoint(struct agent *a) {
    if (entry_runs(a))
        return;
    write_state(a, 0);
    agent_exit(a, 0);
}

static void on_stop_grace(void *ud) {
    struct agent *a = ud;

    processes_signal_all(a->processes, SIGKILL);
    end_without_entrypoint(a); /* else its end ends us */
}

static void on_drained(void *ud) {
    end_without_entrypoint(ud);
}

/* TERM (and INT, where nobody else gets it): everything is asked to end, then made to. */
static void stop(struct agent *a, int sig) {
    bool supervises = entry_runs(a);

    if (a->stopping)
        return;
    a->stopping = true;
    if (supervises || a->native)
        processes_signal_all(a->processes, sig);
    else
        commands_signal_foreground(a->commands, sig);
    a->stop_timer = timer_new(a->loop, on_stop_grace, a);
    timer_start(a->stop_timer, supervises ? STOP_GRACE_MS : PLAIN_STOP_GRACE_MS, 0);
    if (!supervises) /* requests in flight end first: the commands they wait for were just told to
                      */
        h1_server_drain(a->server, PLAIN_STOP_GRACE_MS - 100, on_drained, a);
}

void init_on_signal(int sig, void *ud) {
    struct agent *a = ud;

    if (sig != SIGTERM && sig != SIGINT) {
        if (entry_runs(a))
            process_signal(a->entrypoint->process, sig);
        return;
    }
    if (a->stopping && entry_runs(a))
        process_signal(a->entrypoint->process, sig);
    stop(a, sig);
}
