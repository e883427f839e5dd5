/*
 * One command in a sandbox over the agent's terminal WebSocket (execd.md 4): started by the attach,
 * streamed both ways with back-pressure, ended by the exit frame, which comes after all output.
 *
 * Invariants: `error` is set once and ends every later wait; the connection is not read while a
 * sink holds bytes back; nothing runs outside cove_exec_start/wait/free.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/exec.h"

/* ---- what arrives ---- */

int exec_fail(struct cove_exec *x, int code, const char *text) {
    if (!x->error) {
        x->error = code;
        cerr_set(&x->err, code, "%s", text);
    }
    return code;
}

/* A sink has caught up, or broke. */
void exec_on_sink_change(void *ud) {
    struct cove_exec *x = ud;
    int e = x->out.error ? x->out.error : x->errs.error;
    if (e)
        exec_fail(x, e,
                  e == -EPIPE ? "nobody reads the output any more" : "cannot write the output");
    else if (x->ws && sink_is_empty(&x->out) && sink_is_empty(&x->errs))
        ws_read_start(x->ws);
}

static void deliver(struct cove_exec *x, enum cove_stream stream, const char *data, size_t len) {
    x->offset += len;
    if (x->error)
        return;
    if (x->o.on_output) {
        int r = x->o.on_output(stream, data, len, x->o.ud);
        if (r < 0)
            exec_fail(x, r, "the receiver of the output ended the wait");
        return;
    }
    struct sink *s = stream == COVE_STDERR ? &x->errs : &x->out;
    int r = sink_write(s, data, len);
    if (r == -EPIPE)
        exec_fail(x, r, "nobody reads the output any more");
    else if (r < 0)
        exec_fail(x, r,
                  r == -ENOBUFS ? "more than 64 MiB of output wait for their reader"
                                : "cannot write the output");
    else if (!sink_is_empty(s))
        ws_read_stop(x->ws);
}

/* Output that was sent again or late: 8 bytes of offset, then the bytes. */
static void deliver_replay(struct cove_exec *x, const char *data, size_t len) {
    if (len < 8)
        return;
    uint64_t at = 0;
    for (size_t i = 0; i < 8; i++)
        at = at << 8 | (unsigned char)data[i];
    data += 8;
    len -= 8;
    if (at > x->offset) {
        exec_fail(x, -EIO, "a part of the output was lost: it came faster than it was read");
        return;
    }
    uint64_t known = x->offset - at;
    if (known < len)
        deliver(x, COVE_STDOUT, data + known, len - known);
}

static int signal_number(const char *name) {
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"SIGHUP", SIGHUP},   {"SIGINT", SIGINT},      {"SIGQUIT", SIGQUIT},
                   {"SIGILL", SIGILL},   {"SIGTRAP", SIGTRAP},    {"SIGABRT", SIGABRT},
                   {"SIGBUS", SIGBUS},   {"SIGFPE", SIGFPE},      {"SIGKILL", SIGKILL},
                   {"SIGUSR1", SIGUSR1}, {"SIGSEGV", SIGSEGV},    {"SIGUSR2", SIGUSR2},
                   {"SIGPIPE", SIGPIPE}, {"SIGALRM", SIGALRM},    {"SIGTERM", SIGTERM},
                   {"SIGXCPU", SIGXCPU}, {"SIGXFSZ", SIGXFSZ},    {"SIGSYS", SIGSYS},
                   {"SIGIO", SIGIO},     {"SIGPWR", SIGPWR},      {"SIGVTALRM", SIGVTALRM},
                   {"SIGPROF", SIGPROF}, {"SIGSTKFLT", SIGSTKFLT}};
    for (size_t i = 0; name && i < ARRAY_SIZE(signals); i++)
        if (str_eq(name, signals[i].name))
            return signals[i].number;
    uint64_t rt;
    if (name && str_starts(name, "SIGRTMIN+") && str_to_u64(name + 9, &rt) == 0 && rt < 31)
        return 34 + (int)rt;
    return 0;
}

void exit_from_frame(const json_t *frame, struct cove_exit *ret) {
    const char *name = json_str(frame, "signal");
    int64_t code = json_int(frame, "exit_code", -1);
    memset(ret, 0, sizeof(*ret));
    if (code >= 0 && code <= 255) {
        ret->code = (int)code;
        return;
    }
    int number = signal_number(name);
    str_copy(ret->signal, sizeof(ret->signal), name ? name : "SIGKILL");
    ret->code = 128 + (number ? number : SIGKILL);
}

/* -ENOENT: no such program; -EACCES: not executable; else -EIO. The agent names the errno where it
 * knows it. */
int start_error_code(const json_t *frame) {
    const char *name = json_str(frame, "errno"), *text = json_str(frame, "error");
    if (str_eq(name, "ENOENT") || (!name && text && strstr(text, "No such file")))
        return -ENOENT;
    if (str_eq(name, "EACCES") || str_eq(name, "ENOEXEC") || str_eq(name, "EISDIR") ||
        str_eq(name, "EPERM"))
        return -EACCES;
    if (!name && text && (strstr(text, "Permission denied") || strstr(text, "Exec format")))
        return -EACCES;
    return -EIO;
}

static void on_error_frame(struct cove_exec *x, const json_t *frame) {
    const char *code = json_str(frame, "code"), *text = json_str(frame, "error");
    if (str_eq(code, "INVALID_FRAME") || str_eq(code, "STDIN_WRITE_FAILED"))
        return; /* the command has closed its input, or an older agent does not know a frame: it
                   goes on */
    exec_fail(x, str_eq(code, "START_FAILED") ? start_error_code(frame) : -EIO,
              text ? text : "the agent gave no reason");
    str_copy(x->err.kind, sizeof(x->err.kind), code ? code : "");
}

static void on_text(struct cove_exec *x, const char *data, size_t len) {
    _cleanup_json_ json_t *frame = json_parse(data, len, NULL);
    const char *type = json_str(frame, "type");
    if (str_eq(type, "connected")) {
        x->connected = true;
    } else if (str_eq(type, "exit")) {
        exit_from_frame(frame, &x->exit);
        x->exited = true;
    } else if (str_eq(type, "error")) {
        on_error_frame(x, frame);
    }
}

static void on_message(struct ws *w, enum ws_kind kind, const char *data, size_t len, void *ud) {
    struct cove_exec *x = ud;
    if (kind == WS_TEXT)
        on_text(x, data, len);
    else if (len > 1 && data[0] == 1)
        deliver(x, COVE_STDOUT, data + 1, len - 1);
    else if (len > 1 && data[0] == 2)
        deliver(x, COVE_STDERR, data + 1, len - 1);
    else if (len > 1 && data[0] == 3)
        deliver_replay(x, data + 1, len - 1);
}

static void on_ws_drain(struct ws *w, void *ud) {
    struct cove_exec *x = ud;
    source_start(&x->in);
}

/* A proxy accepts the WebSocket and then tells that the agent did not: "… HTTP 409 …". */
static void on_refusal(struct cove_exec *x, const char *reason) {
    const char *p = reason ? strstr(reason, "HTTP ") : NULL;
    uint64_t status;

    if (p && str_to_u64n(p + 5, strspn(p + 5, "0123456789"), &status) == 0 && status >= 400 &&
        status < 600)
        x->error = cerr_from_response(&x->err, (int)status, "", 0, "start the command");
    else
        exec_fail(x, -EPROTO, "the agent refused the connection to the command");
}

static void on_close(struct ws *w, int code, const char *reason, void *ud) {
    struct cove_exec *x = ud;
    x->ws = NULL;
    source_stop(&x->in);
    if (x->exited || x->error)
        return;
    char text[200];
    if (code == 1008) {
        on_refusal(x, reason);
        return;
    }
    snprintf(text, sizeof(text),
             "the connection to the command was lost (code %d%s%s): was the sandbox removed?", code,
             str_is_empty(reason) ? "" : ", ", reason ? reason : "");
    exec_fail(x, -ECONNRESET, text);
}

const struct ws_ops exec_ws_ops = {
    .on_message = on_message, .on_drain = on_ws_drain, .on_close = on_close};

/* ---- what is sent ---- */

static int send_json(struct cove_exec *x, json_t *frame) {
    _cleanup_json_ json_t *j = frame;
    _cleanup_buf_ struct buf b = BUF_INIT(4096);
    if (!j || buf_json(&b, j) < 0)
        return -ENOMEM;
    if (!x->ws)
        return -ENOTCONN;
    ssize_t n = ws_send(x->ws, WS_TEXT, b.data, b.len);
    return n < 0 ? (int)n : 0;
}

void exec_on_input(const char *data, size_t len, void *ud) {
    struct cove_exec *x = ud;
    if (!x->ws)
        return;
    if (len == 0) {
        send_json(x, json_pack("{s:s}", "type", "eof"));
        return;
    }
    char frame[32769];
    frame[0] = 0;
    len = MIN(len, sizeof(frame) - 1); /* the source never reads more */
    memcpy(frame + 1, data, len);
    ssize_t queued = ws_send(x->ws, WS_BINARY, frame, len + 1);
    if (queued > (ssize_t)SOCK_HIGH_WATER)
        source_stop(&x->in);
}

int cove_exec_signal(struct cove_exec *x, const char *signal_name) {
    return signal_number(signal_name)
               ? send_json(x, json_pack("{s:s, s:s}", "type", "signal", "signal", signal_name))
               : -EINVAL;
}

int cove_exec_resize(struct cove_exec *x, unsigned short cols, unsigned short rows) {
    return cols && rows ? send_json(x, json_pack("{s:s, s:i, s:i}", "type", "resize", "cols", cols,
                                                 "rows", rows))
                        : -EINVAL;
}

/* ---- waiting ---- */

static void on_timeout(uv_timer_t *t) {
    struct cove_exec *x = t->data;
    x->timed_out = true;
}

static bool is_complete(const struct cove_exec *x) {
    return x->exited && sink_is_empty(&x->out) && sink_is_empty(&x->errs);
}

int cove_exec_wait(struct cove_exec *x, unsigned timeout_ms, struct cove_exit *ret,
                   struct cove_error *err) {
    int r = 0;
    x->timed_out = false;
    if (timeout_ms) {
        uv_update_time(&x->c->loop);
        uv_timer_start(&x->timer, on_timeout, timeout_ms, 0);
    }
    while (!x->error && !is_complete(x)) {
        if (client_take_interrupt(x->c)) {
            r = cerr_set(err, -EINTR, "interrupted");
            break;
        }
        if (x->timed_out) {
            r = cerr_set(err, -ETIMEDOUT, "the command did not end within %u ms", timeout_ms);
            break;
        }
        uv_run(&x->c->loop, UV_RUN_ONCE);
    }
    uv_timer_stop(&x->timer);
    if (r < 0)
        return r;
    if (x->error) {
        if (err)
            *err = x->err;
        return x->error;
    }
    *ret = x->exit;
    return 0;
}
