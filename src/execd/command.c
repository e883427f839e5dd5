/*
 * The table of commands (see command.h). Owns the records, their processes, timers and background
 * logs. Invariants: a record is in the table before its id leaves the agent; it is finished before
 * anybody is told of the end; a running one is never evicted.
 */
#include "execd/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/map.h"
#include "execd/command_stream.h"
#include "execd/groupwait.h"
#include "execd/pump.h"
#include "execd/timer.h"

#define KEEP_RECORDS 4096
#define KEEP_CONTENT ((size_t)8 << 20)
#define KEEP_LOGS ((uint64_t)256 << 20)
#define INTERRUPT_GRACE_MS 3000
#define KILL_GRACE_MS 5000

struct commands {
    struct agent *agent;
    struct map *by_id;
    struct list order;
    size_t content_bytes; /* of all records */
    uint64_t log_bytes;   /* kept by all logs */
};

int commands_new(struct agent *a, struct commands **ret) {
    struct commands *cs = calloc(1, sizeof *cs);

    if (!cs || !(cs->by_id = map_new())) {
        free(cs);
        return -ENOMEM;
    }
    cs->agent = a;
    list_init(&cs->order);
    *ret = cs;
    return 0;
}

static void command_free(struct commands *cs, struct command *c) {
    map_remove(cs->by_id, c->id);
    list_remove(&c->node);
    cs->content_bytes -= strlen(c->content);
    cs->log_bytes -= spool_size(&c->log);
    timer_free(c->timer);
    groupwait_free(c->rest);
    pump_discard(c->log_pump);
    spool_done(&c->log);
    free(c->error);
    free(c->content);
    free(c);
}

void commands_free(struct commands *cs) {
    if (!cs)
        return;
    list_foreach_safe (it, &cs->order) {
        struct command *c = list_entry(it, struct command, node);
        if (c->process)
            process_forget(c->process);
        if (c->stream)
            stream_abandoned(TAKE_PTR(c->stream));
        pump_free(TAKE_PTR(c->log_pump));
        command_free(cs, c);
    }
    map_free(cs->by_id);
    free(cs);
}

struct command *commands_find(struct commands *cs, const char *id) {
    return map_get(cs->by_id, id);
}

void commands_signal_foreground(struct commands *cs, int sig) {
    list_foreach (it, &cs->order) {
        struct command *c = list_entry(it, struct command, node);
        if (c->process && !c->background)
            process_signal(c->process, sig);
    }
}

/* Drops the oldest finished records while a cap is passed. */
static void enforce_caps(struct commands *cs) {
    list_foreach_safe (it, &cs->order) {
        struct command *c = list_entry(it, struct command, node);
        if (map_size(cs->by_id) <= KEEP_RECORDS && cs->content_bytes <= KEEP_CONTENT &&
            cs->log_bytes <= KEEP_LOGS)
            break;
        if (!c->running && !c->stream && !c->rest)
            command_free(cs, c);
    }
}

static char *content_of(const struct command_spec *s) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);

    if (s->command)
        return strdup(s->command);
    for (size_t i = 0; i < s->argv.n; i++) {
        buf_char(&b, i ? ',' : '[');
        buf_json_str(&b, s->argv.v[i], strlen(s->argv.v[i]));
    }
    buf_char(&b, ']');
    return buf_take(&b, NULL);
}

static struct command *command_new(struct agent *a, const struct command_spec *spec) {
    struct commands *cs = a->commands;
    struct command *c = calloc(1, sizeof *c);

    if (!c || !(c->content = content_of(spec))) {
        free(c);
        return NULL;
    }
    c->agent = a;
    c->background = spec->background;
    c->running = true;
    c->started_us = clock_wall_us();
    c->timeout_ms = spec->timeout_ms;
    list_init(&c->node);
    list_init(&c->waiters);
    spool_init(&c->log);
    id_hex32(c->id);
    if (map_set(cs->by_id, c->id, c, NULL) < 0) {
        free(c->content);
        free(c);
        return NULL;
    }
    list_append(&cs->order, &c->node);
    cs->content_bytes += strlen(c->content);
    enforce_caps(cs);
    return c;
}

static void tell_waiters(struct command *c, bool gone) {
    while (!list_is_empty(&c->waiters)) {
        struct command_waiter *w = list_entry(c->waiters.next, struct command_waiter, node);
        list_remove(&w->node);
        w->cb(w, gone);
    }
}

static void on_rest_gone(void *ud) {
    struct command *c = ud;

    groupwait_free(TAKE_PTR(c->rest));
    tell_waiters(c, true);
}

static void finish(struct command *c, int wstatus, const struct err *start) {
    char text[64];

    timer_free(TAKE_PTR(c->timer));
    if (c->interrupted && c->process) /* those who asked want the whole group gone */
        c->rest = groupwait_new(c->agent->loop, process_pid(c->process), INTERRUPT_GRACE_MS,
                                on_rest_gone, c);
    c->process = NULL;
    c->running = false;
    c->finished_us = clock_wall_us();
    c->exit_code = start ? 255 : process_exit_code(wstatus);
    process_status_text(wstatus, text, sizeof text);
    if (start || *text)
        c->error = strdup(start ? err_text(start) : text);
    if (c->stream)
        stream_ended(TAKE_PTR(c->stream), start);
    if (!c->rest)
        tell_waiters(c, true);
}

static void on_exit_cb(struct process *p, int wstatus, const struct err *start, void *ud) {
    finish(ud, wstatus, start);
}

static void on_exec_cb(struct process *p, void *ud) {
    struct command *c = ud;
    if (c->stream)
        stream_executed(TAKE_PTR(c->stream));
}

static void on_timeout(void *ud) {
    struct command *c = ud;
    c->timed_out = true;
    process_kill_tree(c->process);
}

static void on_log_data(struct pump *p, const char *data, size_t len, void *ud) {
    struct command *c = ud;
    uint64_t before = spool_size(&c->log);
    spool_append(&c->log, data, len);
    c->agent->commands->log_bytes += spool_size(&c->log) - before;
}

/* One pipe for both outputs, in write order. */
static int make_log(struct command *c, const struct identity *id, int *ret_fd, struct err *err) {
    static const struct pump_ops ops = {.on_data = on_log_data};
    int p[2], r;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, -errno, "pipe");
    if (id->set)
        (void)!fchown(p[1], id->uid, id->gid);
    r = pump_new(c->agent->loop, p[0], &ops, c, &c->log_pump);
    if (r < 0) {
        fd_close(p[1]);
        return err_sys(err, r, "pipe");
    }
    *ret_fd = p[1];
    return 0;
}

static int start_process(struct command *c, const struct launch *l, struct err *err) {
    struct process_ops ops = {.on_exit = on_exit_cb, .on_exec = c->background ? on_exec_cb : NULL};
    struct process_opts o = {.stdin_fd = processes_null_fd(c->agent->processes),
                             .mode = PROCESS_GROUP};
    int out = -1, errfd = -1, r;

    launch_apply(l, &o);
    r = c->background ? make_log(c, &l->identity, &out, err)
                      : stream_make_pipes(c->stream, &l->identity, &out, &errfd, err);
    if (r < 0)
        return r;
    o.stdout_fd = out;
    o.stderr_fd = errfd >= 0 ? errfd : out;
    r = process_start(c->agent->processes, &o, &ops, c, &c->process, err);
    fd_close(out);
    fd_close(errfd);
    if (r == 0 && c->timeout_ms > 0) {
        c->timer = timer_new(c->agent->loop, on_timeout, c);
        timer_start(c->timer, (uint64_t)c->timeout_ms, 0);
    }
    return r;
}

int command_start(struct agent *a, const struct command_spec *spec, struct stream *stream,
                  struct command **ret, struct err *err) {
    _cleanup_(launch_done) struct launch l = {0};
    struct err start = {0};
    struct command *c;
    int r = launch_prepare(a, spec->cwd, &spec->envs, spec->uid, spec->gid, &l, err);

    if (r < 0)
        return r;
    c = command_new(a, spec);
    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->stream = stream;
    r = spec->command ? launch_shell(&l, spec->command, &start)
                      : launch_argv(&l, &spec->argv, &start);
    if (r == -ENOMEM || (r == 0 && start_process(c, &l, err) < 0)) {
        r = r == -ENOMEM ? err_set(err, r, "out of memory") : err->code;
        command_free(a->commands, c);
        return r;
    }
    stream_started(stream, c);
    if (r < 0)
        finish(c, 0, &start);
    *ret = c;
    return 0;
}

static void on_interrupt_grace(void *ud) {
    struct command *c = ud;

    if (c->kill_sent) {
        tell_waiters(c, false); /* not even SIGKILL ends it: it hangs in the kernel */
        return;
    }
    c->kill_sent = true;
    process_kill_tree(c->process);
    timer_start(c->timer, KILL_GRACE_MS, 0);
}

void command_interrupt(struct command *c, struct command_waiter *w) {
    uint64_t grace = MIN(timer_due_in(c->timer), (uint64_t)INTERRUPT_GRACE_MS);

    list_append(&c->waiters, &w->node);
    if (c->interrupted)
        return;
    c->interrupted = true;
    process_signal(c->process, SIGTERM);
    timer_free(c->timer);
    c->timer = timer_new(c->agent->loop, on_interrupt_grace, c);
    timer_start(c->timer, grace, 0);
}
