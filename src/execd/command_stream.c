/*
 * One event stream (see command_stream.h). Held by two sides: the exchange, until on_close, and the
 * command, until its end; freed when both have let go. Invariants: output events only between init
 * and the terminal event, exactly one terminal event, and all that the leader wrote comes before
 * it. A slow client stops the reading of the pipes (the server cuts one that makes no progress); a
 * client that left stops nothing: output is then read and thrown away.
 */
#include "execd/command_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/path.h"
#include "execd/errors.h"
#include "execd/event.h"
#include "execd/lines.h"
#include "execd/pump.h"
#include "execd/timer.h"
#include "net/sse.h"

#define PING_MS 3000
#define CR_WAIT_MS 5
#define BATCH ((size_t)64 << 10)

struct side { /* stdout or stderr */
    struct stream *stream;
    const char *name;
    struct pump *pump;
    struct lines lines;
    bool ended;
};

struct stream {
    struct agent *agent;
    struct h1_req *req;      /* NULL: the client is gone */
    struct command *command; /* NULL: ended */
    unsigned refs;
    char id[33];
    bool background;
    struct side out, err;
    struct buf batch;    /* events not written yet */
    struct buf terminal; /* the last event, from the end of the command on */
    struct timer *ping, *cr;
};

static void unref(struct stream *s) {
    if (--s->refs > 0)
        return;
    timer_free(s->ping);
    timer_free(s->cr);
    pump_discard(s->out.pump);
    pump_discard(s->err.pump);
    lines_done(&s->out.lines);
    lines_done(&s->err.lines);
    buf_done(&s->batch);
    buf_done(&s->terminal);
    free(s);
}

static void pause_all(struct stream *s, bool pause) {
    struct pump *p[2] = {s->out.pump, s->err.pump};

    for (int i = 0; i < 2; i++) {
        if (p[i] && pause)
            pump_pause(p[i]);
        else if (p[i])
            pump_resume(p[i]);
    }
}

/* Sends what was gathered. A full output queue pauses the command's output until on_drain. */
static void flush(struct stream *s) {
    if (s->req && s->batch.len > 0) {
        if (!h1_is_started(s->req))
            sse_start(s->req);
        if (h1_write(s->req, s->batch.data, s->batch.len) > (ssize_t)SOCK_HIGH_WATER)
            pause_all(s, true);
    }
    if (s->batch.cap > 4 * BATCH)
        buf_done(&s->batch);
    else
        buf_clear(&s->batch);
}

/* Sends what was gathered, and the end of the response with it. */
static void finish(struct stream *s) {
    if (s->req) {
        if (!h1_is_started(s->req))
            sse_start(s->req);
        h1_end_with(s->req, s->batch.data, s->batch.len);
    }
    buf_clear(&s->batch);
}

static void on_line(const char *text, size_t len, void *ud) {
    struct side *d = ud;

    event_output(&d->stream->batch, d->name, text, len, clock_wall_ms());
    if (d->stream->batch.len > BATCH)
        flush(d->stream);
}

static void on_data(struct pump *p, const char *data, size_t len, void *ud) {
    struct side *d = ud;
    struct stream *s = d->stream;

    s->refs++;
    lines_feed(&d->lines, data, len, on_line, d);
    flush(s);
    if (lines_has_waiting_cr(&d->lines))
        timer_start(s->cr, CR_WAIT_MS, 0);
    unref(s);
}

static void on_cr_timer(void *ud) {
    struct stream *s = ud;

    s->refs++;
    lines_flush_cr(&s->out.lines, on_line, &s->out);
    lines_flush_cr(&s->err.lines, on_line, &s->err);
    flush(s);
    unref(s);
}

static void on_ping_timer(void *ud) {
    struct stream *s = ud;

    s->refs++;
    event_ping(&s->batch);
    flush(s);
    unref(s);
}

/* Both outputs are complete: the terminal event and the end of the response, in one write. */
static void complete(struct stream *s) {
    timer_stop(s->ping);
    timer_stop(s->cr);
    lines_finish(&s->out.lines, on_line, &s->out);
    lines_finish(&s->err.lines, on_line, &s->err);
    buf_append(&s->batch, s->terminal.data, s->terminal.len);
    finish(s);
}

static void on_pump_end(struct pump *p, void *ud) {
    struct side *d = ud;
    struct stream *s = d->stream;

    d->ended = true;
    if (s->command || !s->out.ended || !s->err.ended)
        return; /* the leader lives on, or the other side is not done */
    s->refs++;
    complete(s);
    unref(s);
}

static void on_drain(struct h1_req *r, void *ud) {
    struct stream *s = ud;

    s->refs++;
    pause_all(s, false);
    unref(s);
}

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct stream *s = ud;

    s->req = NULL;
    timer_free(TAKE_PTR(s->ping));
    timer_free(TAKE_PTR(s->cr));
    pump_discard(TAKE_PTR(s->out.pump));
    pump_discard(TAKE_PTR(s->err.pump));
    unref(s);
}

static int make_pipe(struct side *d, const struct identity *id, int *ret_fd) {
    static const struct pump_ops ops = {.on_data = on_data, .on_end = on_pump_end};
    int p[2], r;

    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    if (id->set) /* so that /dev/stdout can be opened by the command's user */
        (void)!fchown(p[1], id->uid, id->gid);
    r = pump_new(d->stream->agent->loop, p[0], &ops, d, &d->pump);
    if (r < 0)
        fd_close(p[1]);
    else
        *ret_fd = p[1];
    return r;
}

int stream_make_pipes(struct stream *s, const struct identity *id, int *ret_out, int *ret_err,
                      struct err *err) {
    int out = -1, errfd = -1;
    int r = make_pipe(&s->out, id, &out);

    if (r == 0)
        r = make_pipe(&s->err, id, &errfd);
    if (r < 0) {
        fd_close(out);
        return err_sys(err, r, "cannot make pipes for the command");
    }
    *ret_out = out;
    *ret_err = errfd;
    return 0;
}

void stream_started(struct stream *s, struct command *c) {
    s->refs++;
    s->command = c;
    str_copy(s->id, sizeof s->id, c->id);
    if (s->background)
        return;
    event_init(&s->batch, s->id);
    event_ping(&s->batch);
    s->ping = timer_new(s->agent->loop, on_ping_timer, s);
    s->cr = timer_new(s->agent->loop, on_cr_timer, s);
    timer_start(s->ping, PING_MS, PING_MS);
    flush(s);
}

static void answer_background(struct stream *s, const struct err *start) {
    event_init(&s->batch, s->id);
    if (start)
        event_error(&s->batch, "CommandExecError", err_text(start), err_text(start), NULL);
    else
        event_complete(&s->batch, (clock_wall_us() - s->command->started_us) / 1000);
    finish(s);
}

void stream_executed(struct stream *s) {
    answer_background(s, NULL);
    s->command = NULL;
    unref(s);
}

void stream_abandoned(struct stream *s) {
    s->command = NULL;
    unref(s);
}

static void build_terminal(struct stream *s, const struct command *c, const struct err *start) {
    char evalue[16], timeout[64];

    snprintf(evalue, sizeof evalue, "%d", c->exit_code);
    snprintf(timeout, sizeof timeout, "timeout: killed after %lld ms", (long long)c->timeout_ms);
    if (start)
        event_error(&s->terminal, "CommandExecError", err_text(start), err_text(start), NULL);
    else if (c->exit_code == 0)
        event_complete(&s->terminal, (c->finished_us - c->started_us) / 1000);
    else
        event_error(&s->terminal, "CommandExecError", evalue, c->error ? c->error : "failed",
                    c->timed_out ? timeout : NULL);
}

void stream_ended(struct stream *s, const struct err *start) {
    struct command *c = s->command;

    if (s->background) {
        answer_background(s, start);
        s->command = NULL;
        unref(s);
        return;
    }
    build_terminal(s, c, start);
    s->command = NULL;
    if (!s->req) {
        unref(s);
        return;
    }
    /* Each side delivers what its pipe holds at this moment; the later one to end completes the
     * stream. */
    if (s->out.pump && s->err.pump && !start) {
        bool both_were_done = s->out.ended && s->err.ended;
        pump_finish(s->out.pump);
        if (s->err.pump)
            pump_finish(s->err.pump);
        if (both_were_done)
            complete(s);
    } else {
        complete(s);
    }
    unref(s);
}

void stream_run(struct agent *a, struct h1_req *r, const struct command_spec *spec) {
    static const struct h1_req_ops ops = {.on_drain = on_drain, .on_close = on_close};
    struct stream *s = calloc(1, sizeof *s);
    struct err err = {0};
    struct command *c;
    int e;

    if (!s) {
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
        return;
    }
    *s = (struct stream){.agent = a, .req = r, .refs = 1, .background = spec->background};
    s->out = (struct side){.stream = s, .name = "stdout"};
    s->err = (struct side){.stream = s, .name = "stderr"};
    buf_init(&s->batch, 0);
    buf_init(&s->terminal, 1 << 20);
    lines_init(&s->out.lines, a->strip_line_ends ? LINES_STRIP : LINES_KEEP);
    lines_init(&s->err.lines, a->strip_line_ends ? LINES_STRIP : LINES_KEEP);
    h1_req_set_ops(r, &ops, s);
    e = command_start(a, spec, s, &c, &err);
    if (e == -EINVAL)
        reply_error(r, 400, ERR_BODY, "%s", err_text(&err));
    else if (e < 0)
        reply_error(r, 500, ERR_RUNTIME, "%s", err_text(&err));
}
