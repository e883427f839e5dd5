/*
 * WebSocket connections over a sock (see ws.h): handshake, close handshake, keepalive,
 * back-pressure.
 *
 * Owns the sock from ws_accept/ws_client on. A connection is OPEN, then CLOSING (our close frame is
 * out and we wait for the peer's, at most 2 s, throwing away what else comes), then dead: on_close
 * was called or ws_free was, the sock is gone, and the memory goes with the timer's close callback.
 * So `w` stays readable, though dead, until the loop turns: every function may check `is_dead`
 * after a callback. Loop thread only.
 */
#include "net/ws.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/str.h"
#include "net/h1_server.h"
#include "net/sha1.h"
#include "net/ws_frame.h"

#define CLOSE_WAIT_MS 2000
#define BROKEN_WAIT_MS 1000
#define ACCEPT_GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

struct ws {
    struct sock *sock;
    struct ws_ops ops;
    void *ud;
    bool is_server, is_dead, is_closing, is_read_stopped;
    struct ws_decoder decoder;
    uv_timer_t timer; /* keepalive while open, the limit of the close handshake afterwards */
    int fail_code;    /* we ended it: the code that on_close reports, whatever the peer answers */
    char fail_reason[64];
    unsigned ping_ms, dead_ms;
    uint64_t last_ping_ms, last_input_ms; /* uv_now */
    /* the latest ping that could not be answered because the peer does not read */
    bool has_pong;
    size_t pong_len;
    char pong[WS_MAX_CONTROL];
};

/* ---- the end ---- */

static void on_timer_closed(uv_handle_t *h) {
    struct ws *w = h->data;
    ws_decoder_done(&w->decoder);
    free(w);
}

static void bury(struct ws *w, unsigned linger_ms) {
    w->is_dead = true;
    sock_close(TAKE_PTR(w->sock), linger_ms);
    uv_close((uv_handle_t *)&w->timer, on_timer_closed);
}

void ws_free(struct ws *w) {
    if (w && !w->is_dead)
        bury(w, 0);
}

static void finish(struct ws *w, int code, const char *reason, unsigned linger_ms) {
    struct ws_ops ops = w->ops;
    void *ud = w->ud;

    if (w->is_dead)
        return;
    bury(w, linger_ms);
    if (ops.on_close)
        ops.on_close(w, code, reason, ud);
}

/* The connection ended under us. */
static void lost(struct ws *w) {
    if (w->fail_code)
        finish(w, w->fail_code, w->fail_reason, 0);
    else
        finish(w, 1006, "", 0);
}

static void on_broken(uv_timer_t *t) {
    lost(t->data);
}

/* ---- output ---- */

static ssize_t write_frame(struct ws *w, enum ws_opcode op, const void *data, size_t len) {
    unsigned char head[WS_MAX_HEADER], mask[4];
    size_t n;

    if (w->is_server) {
        n = ws_encode_header(head, op, len, NULL);
        uv_buf_t bufs[2] = {uv_buf_init((char *)head, (unsigned)n),
                            {.base = (char *)data, .len = len}};
        return sock_writev(w->sock, bufs, len ? 2 : 1);
    }
    random_bytes(mask, sizeof mask);
    n = ws_encode_header(head, op, len, mask);
    _cleanup_free_ char *frame = malloc(n + len);
    if (!frame)
        return -ENOMEM;
    memcpy(frame, head, n);
    if (len)
        memcpy(frame + n, data, len);
    ws_mask(frame + n, len, mask, 0);
    return sock_write(w->sock, frame, n + len);
}

/*
 * A failed write does not call back. Reading goes on, since the peer's close frame may be there
 * already, and reports the end; the timer is for when nobody reads. The callback never comes from
 * inside a send.
 */
static ssize_t send_frame(struct ws *w, enum ws_opcode op, const void *data, size_t len) {
    ssize_t r = write_frame(w, op, data, len);

    if (r < 0 && r != -ENOBUFS)
        uv_timer_start(&w->timer, on_broken, w->is_read_stopped ? 0 : BROKEN_WAIT_MS, 0);
    return r;
}

ssize_t ws_send(struct ws *w, enum ws_kind kind, const void *data, size_t len) {
    if (w->is_dead || w->is_closing)
        return -EPIPE;
    return send_frame(w, kind == WS_TEXT ? WS_OP_TEXT : WS_OP_BINARY, data, len);
}

ssize_t ws_ping(struct ws *w) {
    if (w->is_dead || w->is_closing)
        return -EPIPE;
    return send_frame(w, WS_OP_PING, NULL, 0);
}

size_t ws_queued(const struct ws *w) {
    return w->sock ? sock_queued(w->sock) : 0;
}

/* A peer that sends pings and reads nothing must not fill our queue: only its latest ping is
 * remembered. */
static void answer_ping(struct ws *w, const char *data, size_t len) {
    if (sock_queued(w->sock) > SOCK_HIGH_WATER) {
        memcpy(w->pong, data, len);
        w->pong_len = len;
        w->has_pong = true;
        return;
    }
    (void)send_frame(w, WS_OP_PONG, data, len);
}

static void on_sock_drain(struct sock *s, void *ud) {
    struct ws *w = ud;

    if (w->has_pong && !w->is_closing) {
        w->has_pong = false;
        (void)send_frame(w, WS_OP_PONG, w->pong, w->pong_len);
    }
    if (!w->is_closing && w->ops.on_drain)
        w->ops.on_drain(w, w->ud);
}

/* ---- closing ---- */

static size_t cut_reason(const char *reason) {
    size_t n = reason ? strlen(reason) : 0;

    if (n > WS_MAX_CONTROL - 2)
        for (n = WS_MAX_CONTROL - 2; n > 0 && ((unsigned char)reason[n] & 0xc0) == 0x80;)
            n--;
    return n;
}

static void send_close(struct ws *w, int code, const char *reason) {
    char payload[WS_MAX_CONTROL] = {(char)(code >> 8), (char)code};
    size_t n = cut_reason(reason);

    if (reason && n)
        memcpy(payload + 2, reason, n);
    if (code == 1005)
        (void)send_frame(w, WS_OP_CLOSE, NULL, 0);
    else
        (void)send_frame(w, WS_OP_CLOSE, payload, n + 2);
}

static void begin_closing(struct ws *w, int code, const char *reason) {
    w->is_closing = true;
    uv_timer_start(&w->timer, on_broken, CLOSE_WAIT_MS, 0);
    send_close(w, code, reason);
    sock_read_start(
        w->sock); /* also when the owner had stopped: only the close frame is of interest now */
}

void ws_close(struct ws *w, int code, const char *reason) {
    if (w->is_dead || w->is_closing)
        return;
    begin_closing(w, ws_close_code_is_valid(code) || code == 1005 ? code : 1011, reason);
}

/* The peer broke the protocol (or memory ran out): tell it, then wait for it to hang up. */
static void fail(struct ws *w, int code, const char *reason) {
    w->fail_code = code;
    str_copy(w->fail_reason, sizeof w->fail_reason, reason);
    if (!w->is_closing)
        begin_closing(w, code, reason);
    sock_shutdown(w->sock);
}

static void on_peer_close(struct ws *w, const struct ws_event *ev) {
    char reason[WS_MAX_CONTROL + 1];

    memcpy(reason, ev->data, ev->len);
    reason[ev->len] = 0;
    if (!w->is_closing)
        send_close(w, ev->close_code, NULL);
    finish(w, ev->close_code, reason, CLOSE_WAIT_MS);
}

/* ---- input ---- */

static void on_event(struct ws *w, const struct ws_event *ev) {
    switch (ev->opcode) {
    case WS_OP_CLOSE:
        on_peer_close(w, ev);
        break;
    case WS_OP_PING:
        if (!w->is_closing)
            answer_ping(w, ev->data, ev->len);
        break;
    case WS_OP_TEXT:
    case WS_OP_BINARY:
        if (!w->is_closing && w->ops.on_message)
            w->ops.on_message(w, (enum ws_kind)ev->opcode, ev->data, ev->len, w->ud);
        break;
    default: /* a pong: that it came is all that counts */
        break;
    }
}

static void on_sock_read(struct sock *s, const char *data, ssize_t n, void *ud) {
    struct ws *w = ud;
    struct ws_event ev;
    size_t len = n > 0 ? (size_t)n : 0;
    int r = 1;

    if (n <= 0) {
        lost(w);
        return;
    }
    w->last_input_ms = uv_now(sock_loop(s));
    while (!w->fail_code && r > 0) {
        if (w->is_read_stopped && !w->is_closing) {
            if (len > 0 && sock_unread(s, data, len) < 0)
                fail(w, 1011, "out of memory");
            return;
        }
        r = ws_decode(&w->decoder, &data, &len, &ev);
        if (r > 0)
            on_event(w, &ev);
        if (w->is_dead)
            return;
    }
    if (r < 0)
        fail(w, w->decoder.fail_code, w->decoder.fail_reason);
}

void ws_read_stop(struct ws *w) {
    if (w->is_dead || w->is_read_stopped)
        return;
    w->is_read_stopped = true;
    if (!w->is_closing)
        sock_read_stop(w->sock);
}

void ws_read_start(struct ws *w) {
    if (w->is_dead || !w->is_read_stopped)
        return;
    w->is_read_stopped = false;
    w->last_input_ms =
        uv_now(sock_loop(w->sock)); /* silence while nobody listened does not count */
    sock_read_start(w->sock);
}

/* ---- keepalive ---- */

static void on_keepalive(uv_timer_t *t);

static void arm_keepalive(struct ws *w, uint64_t now) {
    uint64_t next = UINT64_MAX;

    if (w->ping_ms)
        next = w->last_ping_ms + w->ping_ms;
    if (w->dead_ms && !w->is_read_stopped)
        next = MIN(next, w->last_input_ms + w->dead_ms);
    else if (w->dead_ms)
        next = MIN(next, now + w->dead_ms);
    if (next == UINT64_MAX)
        uv_timer_stop(&w->timer);
    else
        uv_timer_start(&w->timer, on_keepalive, next > now ? next - now : 0, 0);
}

static void on_keepalive(uv_timer_t *t) {
    struct ws *w = t->data;
    uint64_t now = uv_now(t->loop);

    if (w->dead_ms && !w->is_read_stopped && now >= w->last_input_ms + w->dead_ms) {
        finish(w, 1006, "", 0);
        return;
    }
    if (w->ping_ms && now >= w->last_ping_ms + w->ping_ms) {
        w->last_ping_ms = now;
        if (sock_queued(w->sock) <= SOCK_HIGH_WATER)
            (void)ws_ping(w);
    }
    arm_keepalive(w, now);
}

void ws_keepalive(struct ws *w, unsigned ping_ms, unsigned dead_ms) {
    if (w->is_dead || w->is_closing)
        return;
    w->ping_ms = ping_ms;
    w->dead_ms = dead_ms;
    w->last_ping_ms = w->last_input_ms = uv_now(sock_loop(w->sock));
    arm_keepalive(w, w->last_input_ms);
}

/* ---- the beginning ---- */

void ws_set_max_message(struct ws *w, size_t bytes) {
    w->decoder.max_message = bytes;
    w->decoder.message.max = bytes ? bytes : 1;
}

static int ws_new(struct sock *s, bool is_server, const struct ws_ops *ops, void *ud,
                  struct ws **ret) {
    static const struct sock_ops sock_ops = {.on_read = on_sock_read, .on_drain = on_sock_drain};
    struct ws *w = calloc(1, sizeof *w);

    if (!w) {
        sock_close(s, 0);
        return -ENOMEM;
    }
    w->sock = s;
    w->is_server = is_server;
    w->ops = ops ? *ops : (struct ws_ops){0};
    w->ud = ud;
    ws_decoder_init(&w->decoder, is_server, WS_MAX_MESSAGE_DEFAULT);
    uv_timer_init(sock_loop(s), &w->timer);
    w->timer.data = w;
    sock_set_ops(s, &sock_ops, w);
    sock_read_start(s);
    *ret = w;
    return 0;
}

int ws_client(struct sock *s, const struct ws_ops *ops, void *ud, struct ws **ret) {
    return ws_new(s, false, ops, ud, ret);
}

void ws_make_key(char ret[25]) {
    unsigned char raw[16];

    random_bytes(raw, sizeof raw);
    _cleanup_free_ char *b64 = base64_encode(raw, sizeof raw);
    snprintf(ret, 25, "%s", b64 ? b64 : "");
}

void ws_accept_value(const char *key, char ret[29]) {
    unsigned char digest[20];
    char text[256];

    snprintf(text, sizeof text, "%.200s" ACCEPT_GUID, key);
    sha1(text, strlen(text), digest);
    _cleanup_free_ char *b64 = base64_encode(digest, sizeof digest);
    snprintf(ret, 29, "%s", b64 ? b64 : "");
}

static bool key_is_valid(const char *key) {
    _cleanup_free_ void *raw = NULL;
    size_t n = 0;

    return key && strlen(key) == 24 && base64_decode(key, 24, &raw, &n) == 0 && n == 16;
}

static int refuse(struct h1_req *r, int status, const char *text) {
    static const struct h1_header headers[] = {{"Content-Type", "text/plain; charset=utf-8"},
                                               {"Sec-WebSocket-Version", "13"},
                                               {"Upgrade", "websocket"},
                                               {0}};
    h1_respond(r, status, headers, text, strlen(text));
    return -EBADMSG;
}

int ws_accept(struct h1_req *r, const char *protocol, const struct ws_ops *ops, void *ud,
              struct ws **ret) {
    const char *key = h1_req_header(r, "Sec-WebSocket-Key");
    char accept[29];
    struct sock *s;

    if (!str_eq(h1_req_method(r), "GET") || h1_req_is_http10(r) || !h1_req_is_upgrade(r) ||
        !str_ieq(h1_req_header(r, "Upgrade"), "websocket"))
        return refuse(r, 426, "This address speaks WebSocket: an upgrade is required.\n");
    if (!str_eq(h1_req_header(r, "Sec-WebSocket-Version"), "13"))
        return refuse(r, 426, "Only version 13 of WebSocket is supported.\n");
    if (!key_is_valid(key) || h1_req_content_length(r) != 0)
        return refuse(r, 400, "The WebSocket handshake is malformed.\n");
    ws_accept_value(key, accept);
    const struct h1_header headers[] = {{"Upgrade", "websocket"},
                                        {"Connection", "Upgrade"},
                                        {"Sec-WebSocket-Accept", accept},
                                        {protocol ? "Sec-WebSocket-Protocol" : NULL, protocol},
                                        {0}};
    s = h1_upgrade(r, 101, headers);
    return s ? ws_new(s, true, ops, ud, ret) : -ECONNRESET;
}
