/*
 * The attached socket of a session (see pty_ws.h). Frames out: binary kind byte + bytes, and text
 * objects. Invariants: after an attachment the client gets the replay, then "connected", then live
 * output, without a gap or a repetition, since all of it happens in one callback of the loop; a
 * client that was taken over is cut from the session before its socket is closed.
 */
#include "execd/pty_ws.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/json.h"
#include "execd/errors.h"
#include "execd/feeder.h"
#include "net/ws.h"

#define MAX_FRAME ((size_t)32 << 10)
#define MAX_MESSAGE ((size_t)4 << 20)
#define PING_MS 30000
#define DEAD_MS 60000
#define CLOSE_TAKEN_OVER 4001

enum { KIND_STDIN = 0, KIND_STDOUT = 1, KIND_STDERR = 2, KIND_REPLAY = 3 };

struct pty_client {
    struct pty *pty; /* NULL: cut from the session, the socket is closing */
    struct ws *ws;
};

static void send_text(struct pty_client *c, const struct buf *b) {
    if (b->data && buf_ok(b))
        ws_send(c->ws, WS_TEXT, b->data, b->len);
}

static void send_error(struct pty_client *c, const char *code, const char *text) {
    _cleanup_buf_ struct buf b = BUF_INIT(16 << 10);

    buf_str(&b, "{\"type\":\"error\",\"error\":");
    buf_json_str(&b, text, strlen(text));
    buf_printf(&b, ",\"code\":\"%s\"}", code);
    send_text(c, &b);
}

/* The session goes on without this client; the socket gets a close frame and ends by itself. */
static void detach(struct pty_client *c, int code, const char *reason) {
    struct pty *p = c->pty;

    c->pty = NULL;
    if (p) {
        p->client = NULL;
        pty_pause(p, false);
    }
    ws_read_start(c->ws); /* for the peer's answer to the close frame */
    ws_close(c->ws, code, reason);
}

/* ---- from the session ---- */

void pty_client_output(struct pty *p, bool is_err, const char *data, size_t len) {
    static char frame[1 + MAX_FRAME];
    ssize_t queued = 0;

    frame[0] = is_err ? KIND_STDERR : KIND_STDOUT;
    while (p->client && len > 0) {
        size_t n = MIN(len, MAX_FRAME);
        memcpy(frame + 1, data, n);
        queued = ws_send(p->client->ws, WS_BINARY, frame, n + 1);
        data += n;
        len -= n;
    }
    if (p->client && queued > (ssize_t)SOCK_HIGH_WATER)
        pty_pause(p, true);
}

static void send_exit(struct pty_client *c) {
    struct pty *p = c->pty;
    _cleanup_buf_ struct buf b = BUF_INIT(1024);

    buf_printf(&b, "{\"type\":\"exit\",\"exit_code\":%d", process_exit_code(p->wstatus));
    if (WIFSIGNALED(p->wstatus) && signal_name(WTERMSIG(p->wstatus)))
        buf_printf(&b, ",\"signal\":\"%s\"", signal_name(WTERMSIG(p->wstatus)));
    buf_char(&b, '}');
    send_text(c, &b);
    detach(c, 1000, "process exited");
}

void pty_client_exit(struct pty *p) {
    if (p->client)
        send_exit(p->client);
}

void pty_client_failed(struct pty *p, const struct err *err) {
    struct pty_client *c = p->client;

    if (!c)
        return;
    /* with the errno's name, so that a client can tell 126 from 127 */
    _cleanup_buf_ struct buf b = BUF_INIT(16 << 10);
    const char *name = strerrorname_np(-err->code);
    buf_str(&b, "{\"type\":\"error\",\"error\":");
    buf_json_str(&b, err_text(err), strlen(err_text(err)));
    buf_printf(&b, ",\"code\":\"START_FAILED\",\"errno\":\"%s\"}", name ? name : "");
    send_text(c, &b);
    detach(c, 1011, "start failed");
}

void pty_client_input_ready(struct pty *p) {
    if (p->client)
        ws_read_start(p->client->ws);
}

void pty_client_input_failed(struct pty *p, int error) {
    struct pty_client *c = p->client;

    if (!c)
        return;
    ws_read_start(c->ws);
    /* A program that reads only part of its input is normal; an argv session still has its exit to
     * tell. */
    if (p->spec.argv.n > 0 || !p->process)
        return;
    send_error(c, "STDIN_WRITE_FAILED", strerrordesc_np(-error));
    detach(c, 1011, "stdin failed");
}

void pty_client_gone(struct pty *p) {
    if (!p->client)
        return;
    send_error(p->client, "SESSION_GONE", "the session was deleted");
    detach(p->client, 1000, "session deleted");
}

/* ---- from the socket ---- */

static void take_input(struct pty_client *c, const char *data, size_t len) {
    ssize_t queued = pty_input(c->pty, data, len);

    if (queued > (ssize_t)FEEDER_HIGH && c->pty)
        ws_read_stop(c->ws);
}

static void take_resize(struct pty_client *c, const json_t *j) {
    int64_t cols = json_int(j, "cols", 0), rows = json_int(j, "rows", 0);

    if (cols > 0 && rows > 0 && cols <= UINT16_MAX && rows <= UINT16_MAX)
        pty_resize(c->pty, (int)cols, (int)rows);
}

static void take_command(struct pty_client *c, const char *type, const json_t *j) {
    static const int allowed[] = {SIGINT, SIGTERM, SIGKILL, SIGQUIT, SIGHUP};
    const char *name = json_str(j, "signal"), *data = json_str(j, "data");

    if (strcmp(type, "stdin") == 0) {
        if (data)
            take_input(c, data, strlen(data));
    } else if (strcmp(type, "signal") == 0) {
        int sig = name ? signal_from_name(name) : -1;
        for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
            if (allowed[i] == sig)
                pty_signal(c->pty, sig);
    } else if (strcmp(type, "resize") == 0) {
        take_resize(c, j);
    } else if (strcmp(type, "eof") == 0) {
        pty_end_input(c->pty);
    } else if (strcmp(type, "ping") == 0) {
        ws_send(c->ws, WS_TEXT, "{\"type\":\"pong\"}", 15);
    } else {
        send_error(c, "INVALID_FRAME", "unknown type of frame");
    }
}

static void on_message(struct ws *w, enum ws_kind kind, const char *data, size_t len, void *ud) {
    struct pty_client *c = ud;

    if (!c->pty || len == 0)
        return;
    if (kind == WS_BINARY) {
        if (data[0] == KIND_STDIN && len > 1)
            take_input(c, data + 1, len - 1);
        return;
    }
    _cleanup_json_ json_t *j = json_parse(data, len, NULL);
    const char *type = json_str(j, "type");
    if (type)
        take_command(c, type, j);
}

static void on_drain(struct ws *w, void *ud) {
    struct pty_client *c = ud;
    if (c->pty)
        pty_pause(c->pty, false);
}

static void on_close(struct ws *w, int code, const char *reason, void *ud) {
    struct pty_client *c = ud;

    if (c->pty) {
        c->pty->client = NULL;
        pty_pause(c->pty, false);
    }
    free(c);
}

/* ---- attachment ---- */

static void send_replay(struct pty_client *c, uint64_t since) {
    struct pty *p = c->pty;
    uint64_t from = since;
    size_t len;

    if (since >= p->ring.end)
        return;
    char *frame = ring_copy(&p->ring, &from, 9, &len);
    if (!frame)
        return;
    frame[0] = KIND_REPLAY;
    for (int i = 0; i < 8; i++)
        frame[1 + i] = (char)(from >> (56 - 8 * i));
    ws_send(c->ws, WS_BINARY, frame, len + 9);
    free(frame);
}

static void send_connected(struct pty_client *c) {
    _cleanup_buf_ struct buf b = BUF_INIT(1024);

    buf_printf(&b,
               "{\"type\":\"connected\",\"session_id\":\"%s\",\"mode\":\"%s\",\"role\":\"holder\"}",
               c->pty->id, c->pty->terminal ? "pty" : "pipe");
    send_text(c, &b);
}

static void greet(struct pty_client *c, const struct attach_opts *o) {
    struct pty *p = c->pty;
    struct err err = {0};
    int r = 0;

    /* The old output first; what a fresh process writes comes live. */
    bool start = pty_may_start(p);
    send_replay(c, o->since);
    if (start)
        r = pty_start(p, !o->pipe_mode, &err);
    if (r < 0) {
        pty_client_failed(p, &err);
        return;
    }
    send_connected(c);
    if (!p->process && p->ended)
        send_exit(c);
}

void pty_attach(struct pty *p, struct h1_req *r, const struct attach_opts *o) {
    static const struct ws_ops ops = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    struct pty_client *c;

    if (p->client && !o->takeover) {
        reply_error(r, 409, ERR_CONNECTED, "another client is attached to the session");
        return;
    }
    c = calloc(1, sizeof *c);
    if (!c) {
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
        return;
    }
    if (ws_accept(r, NULL, &ops, c, &c->ws) < 0) { /* answered; nobody was evicted */
        free(c);
        return;
    }
    if (p->client) {
        send_error(p->client, "TAKEN_OVER", "another client took the session over");
        detach(p->client, CLOSE_TAKEN_OVER, "TAKEN_OVER");
    }
    c->pty = p;
    p->client = c;
    ws_set_max_message(c->ws, MAX_MESSAGE);
    ws_keepalive(c->ws, PING_MS, DEAD_MS);
    greet(c, o);
}
