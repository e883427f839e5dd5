/*
 * WebSocket: the frame codec by table in every split, and conversations of both sides against a raw
 * peer on the other end of a socket.
 */
#include "net/ws.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "base/test.h"
#include "net/h1_server.h"
#include "net/sha1.h"
#include "net/test-peer.h"
#include "net/ws_frame.h"

/* ---- frames ---- */

struct bytes {
    unsigned char data[256];
    size_t len;
};

/* "81 05 'Hello' 00" -> bytes: hex pairs and quoted text. */
static struct bytes unhex(const char *s) {
    struct bytes b = {0};

    while (*s) {
        if (*s == ' ') {
            s++;
        } else if (*s == '\'') {
            for (s++; *s != '\''; s++)
                b.data[b.len++] = (unsigned char)*s;
            s++;
        } else {
            ASSERT(hex_decode(s, 2, b.data + b.len++) == 0);
            s += 2;
        }
    }
    return b;
}

static void render(struct buf *out, const struct ws_event *ev) {
    static const char names[] = "?TB?????CPp";
    buf_char(out, names[ev->opcode]);
    if (ev->opcode == WS_OP_CLOSE)
        buf_printf(out, "%d", ev->close_code);
    buf_char(out, '(');
    for (size_t i = 0; i < ev->len; i++)
        if (ev->data[i] >= ' ' && ev->data[i] <= '~')
            buf_char(out, ev->data[i]);
        else
            buf_printf(out, "\\%02x", (unsigned char)ev->data[i]);
    buf_char(out, ')');
}

static void decode(const struct bytes *in, bool server, size_t max, size_t first, size_t rest,
                   struct buf *out) {
    struct ws_decoder d;
    struct ws_event ev;
    int r = 0;

    ws_decoder_init(&d, server, max);
    for (size_t pos = 0, n = first; pos < in->len && r >= 0; pos += n, n = rest) {
        n = MIN(n, in->len - pos);
        char *copy = malloc(n);
        const char *data = copy;
        size_t left = n;
        memcpy(copy, in->data + pos, n);
        while ((r = ws_decode(&d, &data, &left, &ev)) > 0)
            render(out, &ev);
        free(copy);
    }
    if (r < 0) {
        const char *data = "x";
        size_t left = 1;
        buf_printf(out, "!%d", d.fail_code);
        ASSERT(d.fail_reason && ws_decode(&d, &data, &left, &ev) == -EBADMSG); /* final */
    }
    ws_decoder_done(&d);
}

static void check(const char *frames, bool server, size_t max, const char *want) {
    struct bytes b = unhex(frames);

    for (size_t mode = 0; mode <= b.len + 1; mode++) {
        struct buf out = BUF_INIT(1 << 16);
        decode(&b, server, max,
               mode == 0   ? b.len
               : mode == 1 ? 1
                           : mode - 1,
               mode == 1 ? 1 : b.len, &out);
        buf_str(&out, "");
        if (strcmp(out.data, want) != 0)
            test_fail(__FILE__, __LINE__, "mode %zu of %s: got %s, expected %s", mode, frames,
                      out.data, want);
        buf_done(&out);
    }
}

TEST(frames_from_a_server) { /* unmasked: readable */
    static const struct {
        const char *frames, *want;
    } t[] = {
        {"81 05 'Hello'", "T(Hello)"},
        {"82 00", "B()"},
        {"81 00", "T()"},
        {"01 03 'Hel' 80 02 'lo'", "T(Hello)"},
        {"02 01 'a' 00 01 'b' 00 00 80 01 'c'", "B(abc)"},
        {"01 03 'Hel' 89 02 'hi' 8a 00 80 02 'lo' 81 01 'x'", "P(hi)p()T(Hello)T(x)"},
        {"01 00 80 00", "T()"},
        {"89 00 89 01 'p' 8a 01 'q'", "P()P(p)p(q)"},
        {"88 00", "C1005()"},
        {"88 02 03e8", "C1000()"},
        {"88 05 0bb8 'bye'", "C3000(bye)"},
        {"88 02 0fa1", "C4001()"},
        {"88 02 03f6", "C1014()"},
        /* UTF-8: whole, across fragments, wrong, cut */
        {"81 04 f09f9880", "T(\\f0\\9f\\98\\80)"},
        {"01 01 f0 00 02 9f98 80 01 80", "T(\\f0\\9f\\98\\80)"},
        {"01 01 c3 89 00 80 01 a9", "P()T(\\c3\\a9)"},
        {"81 02 c328", "!1007"},
        {"01 02 c328", "!1007"}, /* at once, not at the end of the message */
        {"81 04 f09f98 'x'", "!1007"},
        {"81 03 eda080", "!1007"}, /* a surrogate */
        {"81 04 f4908080", "!1007"},
        {"81 02 c080", "!1007"},
        {"81 01 c3", "!1007"},
        {"01 01 c3 80 00", "!1007"},
        {"82 02 c328", "B(\\c3()"},
        {"88 04 03e8 c328", "!1007"},
        /* what must not be */
        {"c1 00", "!1002"},
        {"a1 00", "!1002"},
        {"91 00", "!1002"}, /* reserved bits */
        {"83 00", "!1002"},
        {"87 00", "!1002"},
        {"8b 00", "!1002"},
        {"8f 00", "!1002"},                     /* opcodes */
        {"81 85 01020304 0000000000", "!1002"}, /* masked */
        {"09 00", "!1002"},
        {"08 00", "!1002"}, /* fragmented control */
        {"89 7e 007e", "!1002"},
        {"88 7f", "!1002"}, /* long control */
        {"80 01 'x'", "!1002"},
        {"00 01 'x'", "!1002"}, /* continuation of nothing */
        {"81 01 'x' 80 01 'y'", "T(x)!1002"},
        {"01 01 'x' 81 01 'y'", "!1002"},
        {"02 01 'x' 01 01 'y'", "!1002"}, /* a message inside another */
        {"88 01 03", "!1002"},
        {"88 02 03e7", "!1002"},
        {"88 02 03ec", "!1002"},
        {"88 02 03ed", "!1002"},
        {"88 02 03ee", "!1002"},
        {"88 02 03f7", "!1002"},
        {"88 02 07d0", "!1002"},
        {"88 02 0bb7", "!1002"},
        {"88 02 1388", "!1002"},
        {"88 02 0000", "!1002"},
        {"88 02 ffff", "!1002"},
        {"81 7e 0005 'Hello'", "!1002"},
        {"81 7f 0000000000000005 'Hello'", "!1002"}, /* not the shortest form */
        {"82 7f 8000000000000000", "!1002"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        check(t[i].frames, false, 1000, t[i].want);
}

TEST(frames_from_a_client) {
    check("81 85 37fa213d 7f9f4d5158", true, 1000, "T(Hello)"); /* the example of the RFC */
    check("81 80 01020304 8a 80 00000000", true, 1000, "T()p()");
    check("01 81 00000001 'a' 00 82 20000000 'Bc' 80 81 00000000 'd'", true, 1000, "T(abcd)");
    check("81 05 'Hello'", true, 1000, "!1002"); /* unmasked */
    check("89 00", true, 1000, "!1002");
}

TEST(frame_size_limits) {
    check("82 04 'abcd'", false, 4, "B(abcd)");
    check("82 05", false, 4, "!1009"); /* told by the header, before the payload */
    check("02 03 'abc' 80 02", false, 4, "!1009");
    check("02 03 'abc' 00 01 'd' 80 00", false, 4, "B(abcd)");
    check("82 7e 0100", false, 255, "!1009");
    check("82 7f 7fffffffffffffff", false, 1000, "!1009");
    check("02 01 'a' 80 7f 7fffffffffffffff", false, 1000, "!1009");
    check("82 04 'abcd' 82 04 'efgh'", false, 4, "B(abcd)B(efgh)"); /* per message */
    check("82 00 81 01", false, 0, "B()!1009");
}

TEST(headers_and_masks) {
    static const size_t lengths[] = {0, 1, 125, 126, 127, 65535, 65536, 100000};
    static char payload[100000], back[100000];
    unsigned char mask[4] = {0x12, 0x34, 0x56, 0x78}, head[WS_MAX_HEADER];

    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (char)(i * 7);
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
        for (int masked = 0; masked < 2; masked++) {
            struct ws_decoder d;
            struct ws_event ev;
            size_t n = ws_encode_header(head, WS_OP_BINARY, lengths[i], masked ? mask : NULL),
                   left = n;
            const char *p = (const char *)head;

            ws_decoder_init(&d, masked, sizeof payload);
            memcpy(back, payload, lengths[i]);
            if (masked)
                ws_mask(back, lengths[i], mask, 0);
            int r = ws_decode(&d, &p, &left, &ev);
            ASSERT_INT(r, lengths[i] == 0);
            for (size_t pos = 0, k = 1; pos < lengths[i];
                 pos += k, k = k * 3 % 1009 + 1) { /* odd pieces */
                p = back + pos;
                left = k = MIN(k, lengths[i] - pos);
                r = ws_decode(&d, &p, &left, &ev);
            }
            ASSERT(r == 1 && ev.len == lengths[i] && memcmp(ev.data, payload, ev.len) == 0);
            ws_decoder_done(&d);
        }
}

TEST(handshake_values) {
    char accept[29], key[25], other[25];
    unsigned char digest[20];
    char hex[41];

    ws_accept_value("dGhlIHNhbXBsZSBub25jZQ==", accept);
    ASSERT_STR(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="); /* the example of the RFC */
    ws_make_key(key);
    ws_make_key(other);
    ASSERT(strlen(key) == 24 && strcmp(key, other) != 0);
    /* SHA-1 around the block limits */
    static const struct {
        size_t n;
        const char *hex;
    } t[] = {{0, "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
             {55, "c1c8bbdc22796e28c0e15163d20899b65621d65a"},
             {56, "c2db330f6083854c99d4b5bfb6e8f29f201be699"},
             {64, "0098ba824b5c16427bd7a1122a5a442a25ec644d"},
             {1000, "291e9a6c66994949b57ba5e650361e98fc36b1ba"}};
    static char as[1000];
    memset(as, 'a', sizeof as);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        sha1(as, t[i].n, digest);
        hex_encode(digest, 20, hex);
        ASSERT_STR(hex, t[i].hex);
    }
}

/* ---- connections ---- */

struct side {
    uv_loop_t loop;
    struct h1_server *server;
    uint16_t port;
    struct ws *ws;
    int raw; /* the other end */
    struct buf log;
    unsigned messages, drains;
    bool is_closed, stop_at_message, free_at_message;
};

static void on_message(struct ws *w, enum ws_kind kind, const char *data, size_t len, void *ud) {
    struct side *s = ud;
    s->messages++;
    if (len < 1000)
        buf_printf(&s->log, "%c(%.*s)", kind == WS_TEXT ? 'T' : 'B', (int)len, data);
    else
        buf_printf(&s->log, "%c[%zu]", kind == WS_TEXT ? 'T' : 'B', len);
    if (s->stop_at_message)
        ws_read_stop(w);
    if (s->free_at_message) {
        ws_free(w);
        s->is_closed = true;
    }
}

static void on_ws_drain(struct ws *w, void *ud) {
    ((struct side *)ud)->drains++;
}

static void on_ws_close(struct ws *w, int code, const char *reason, void *ud) {
    struct side *s = ud;
    ASSERT(!s->is_closed);
    s->is_closed = true;
    buf_printf(&s->log, "closed %d %s", code, reason);
}

static const struct ws_ops ws_ops = {on_message, on_ws_drain, on_ws_close};

static void on_request(struct h1_req *r, void *ud) {
    struct side *s = ud;
    int e =
        ws_accept(r, strcmp(h1_req_target(r), "/proto") == 0 ? "chat" : NULL, &ws_ops, s, &s->ws);
    ASSERT(e == 0 || e == -EBADMSG);
}

/* Our side is the client: the raw end plays the server. */
static void client_side(struct side *s) {
    struct sock *sock;
    int fds[2];

    *s = (struct side){.log = BUF_INIT(1 << 20)};
    uv_loop_init(&s->loop);
    ASSERT_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    ASSERT_OK(sock_open(&s->loop, fds[0], &sock));
    ASSERT_OK(ws_client(sock, &ws_ops, s, &s->ws));
    s->raw = fds[1];
}

static void start_server(struct side *s) {
    const struct h1_server_opts o = {.on_request = on_request, .ud = s};

    *s = (struct side){.log = BUF_INIT(1 << 20), .raw = -1};
    uv_loop_init(&s->loop);
    ASSERT_OK(h1_server_new(&s->loop, &o, &s->server));
    ASSERT_OK(h1_server_listen_tcp(s->server, "127.0.0.1", 0, 16, &s->port, NULL));
}

static void raw_send(struct side *s, const char *hex) {
    struct bytes b = unhex(hex);
    ASSERT_INT(send(s->raw, b.data, b.len, MSG_NOSIGNAL), (ssize_t)b.len);
}

/* Next bytes at the raw end; turns the loop until n are there. */
static void raw_expect(struct side *s, const void *want, size_t n) {
    char got[512] = {0};
    size_t have = 0;
    ssize_t k;

    for (int i = 0; have < n && i < 500; i++) {
        k = recv(s->raw, got + have, n - have, MSG_DONTWAIT);
        if (k > 0)
            have += (size_t)k;
        else
            turn(&s->loop, 10);
    }
    ASSERT_INT(have, n);
    if (memcmp(got, want, n) != 0) {
        char hex[1025];
        hex_encode(got, n, hex);
        test_fail(__FILE__, __LINE__, "the peer got %s", hex);
    }
}

static void expect(struct side *s, const char *hex) {
    struct bytes b = unhex(hex);
    raw_expect(s, b.data, b.len);
}

/* Reads one masked frame of the client and returns its payload. */
static struct bytes expect_masked(struct side *s, unsigned char first) {
    unsigned char head[6];
    struct bytes b = {0};
    size_t have = 0;

    for (int i = 0; have < 6 && i < 500; i++) {
        ssize_t k = recv(s->raw, head + have, 6 - have, MSG_DONTWAIT);
        if (k > 0)
            have += (size_t)k;
        else
            turn(&s->loop, 10);
    }
    ASSERT(have == 6 && head[0] == first && (head[1] & 0x80));
    b.len = head[1] & 0x7f;
    if (b.len)
        ASSERT_INT(recv(s->raw, b.data, b.len, MSG_WAITALL), b.len);
    ws_mask((char *)b.data, b.len, head + 2, 0);
    return b;
}

static bool raw_ended(struct side *s) {
    char c[256];
    ssize_t n;

    for (int i = 0; i < 300; i++) {
        while ((n = recv(s->raw, c, sizeof c, MSG_DONTWAIT)) > 0)
            ;
        if (n == 0 || errno == ECONNRESET)
            return true;
        turn(&s->loop, 10);
    }
    return false;
}

static void side_done(struct side *s) {
    if (s->raw >= 0)
        close(s->raw);
    if (s->server)
        h1_server_free(s->server);
    buf_done(&s->log);
    loop_done(&s->loop);
}

#define KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define HANDSHAKE(target)                                                               \
    "GET " target                                                                       \
    " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n" \
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " KEY "\r\n\r\n"
#define SWITCHED                                                                        \
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" \
    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"

static void server_side(struct side *s) {
    start_server(s);
    s->raw = raw_connect(s->port);
    peer_send(s->raw, HANDSHAKE("/"));
    raw_expect(s, SWITCHED "\r\n", strlen(SWITCHED "\r\n"));
    ASSERT(s->ws);
}

TEST(accept_handshake) {
    struct side s;

    start_server(&s);
    s.raw = raw_connect(s.port);
    /* frames that came along with the handshake are not lost */
    peer_send(s.raw, HANDSHAKE("/proto"));
    raw_send(&s, "81 82 00000000 'hi'");
    raw_expect(&s, SWITCHED "Sec-WebSocket-Protocol: chat\r\n\r\n", strlen(SWITCHED) + 30 + 2);
    TURN_UNTIL(&s.loop, s.messages == 1);
    ASSERT_STR(s.log.data, "T(hi)");
    ws_free(s.ws);
    side_done(&s);
}

TEST(bad_handshakes) {
    static const struct {
        const char *request;
        int status;
    } t[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 426},
        {"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", 426},
        {"POST / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
         "Upgrade\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: " KEY "\r\nContent-Length: 0\r\n\r\n",
         426},
        {"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
         "Upgrade\r\nSec-WebSocket-Version: 8\r\n"
         "Sec-WebSocket-Key: " KEY "\r\n\r\n",
         426},
        {"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         "Sec-WebSocket-Key: " KEY "\r\n\r\n",
         426},
        {"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
         "Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n",
         400},
        {"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
         "Upgrade\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: c2hvcnQ=\r\n\r\n",
         400},
        {"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "
         "Upgrade\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: ????????????????????????\r\n\r\n",
         400},
    };
    struct side s;

    start_server(&s);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        char want[32];
        s.raw = raw_connect(s.port);
        peer_send(s.raw, t[i].request);
        snprintf(want, sizeof want, "HTTP/1.1 %d ", t[i].status);
        raw_expect(&s, want, strlen(want));
        close(s.raw);
    }
    ASSERT(!s.ws);
    s.raw = -1;
    side_done(&s);
}

TEST(server_conversation) {
    struct side s;

    server_side(&s);
    ASSERT(ws_send(s.ws, WS_TEXT, "hello", 5) >= 0);
    ASSERT(ws_send(s.ws, WS_BINARY, "", 0) >= 0);
    ASSERT(ws_ping(s.ws) >= 0);
    expect(&s, "81 05 'hello' 82 00 89 00");
    raw_send(&s, "89 82 01010101 6968 81 81 00000000 'x'");
    expect(&s, "8a 02 'hi'"); /* a pong with the ping's payload */
    TURN_UNTIL(&s.loop, s.messages == 1);
    /* the peer closes: its code is echoed, then our end */
    raw_send(&s, "88 85 00000000 0fa1 'bye'");
    expect(&s, "88 02 0fa1");
    TURN_UNTIL(&s.loop, s.is_closed);
    ASSERT(raw_ended(&s));
    ASSERT_STR(s.log.data, "T(x)closed 4001 bye");
    side_done(&s);
}

TEST(client_conversation) {
    struct side s;
    struct bytes b;

    client_side(&s);
    ASSERT(ws_send(s.ws, WS_TEXT, "hello", 5) >= 0);
    b = expect_masked(&s, 0x81);
    ASSERT(b.len == 5 && memcmp(b.data, "hello", 5) == 0);
    raw_send(&s, "01 02 'ab' 89 01 'z' 80 01 'c'");
    b = expect_masked(&s, 0x8a);
    ASSERT(b.len == 1 && b.data[0] == 'z');
    TURN_UNTIL(&s.loop, s.messages == 1);
    /* we close: the reason is cut at a character, sends are refused, on_close comes with the peer's
     * answer */
    char reason[140];
    memset(reason, 'r', sizeof reason);
    snprintf(reason + 121, 5, "\xe2\x82\xac\xe2");
    ws_close(s.ws, 4000, reason);
    ws_close(s.ws, 4002, "twice");
    ASSERT_INT(ws_send(s.ws, WS_TEXT, "x", 1), -EPIPE);
    ASSERT_INT(ws_ping(s.ws), -EPIPE);
    b = expect_masked(&s, 0x88);
    ASSERT(b.len == 2 + 121 && b.data[0] == 0x0f && b.data[1] == 0xa0);
    raw_send(&s, "81 01 'n' 88 02 0fa0"); /* what still comes is dropped */
    TURN_UNTIL(&s.loop, s.is_closed);
    ASSERT(raw_ended(&s));
    ASSERT_STR(s.log.data, "T(abc)closed 4000 ");
    side_done(&s);
}

TEST(violations_are_told) {
    static const struct {
        const char *send, *answer, *log;
    } t[] = {
        {"81 01 'x'", "88 23 03ea 'an unmasked frame from the client'",
         "closed 1002 an unmasked frame from the client"},
        {"81 82 00000000 c328", "88 17 03ef 'the text is not UTF-8'",
         "closed 1007 the text is not UTF-8"},
        {"82 e5 00000000", "88 1a 03f1 'the message is too large'",
         "closed 1009 the message is too large"},
        {"88 82 00000000 03ed", "88 23 03ea 'a close code that must not travel'",
         "closed 1002 a close code that must not travel"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct side s;
        server_side(&s);
        ws_set_max_message(s.ws, 100);
        raw_send(&s, t[i].send);
        expect(&s, t[i].answer);
        uint64_t before = uv_hrtime();
        ASSERT(raw_ended(&s) &&
               uv_hrtime() - before <
                   1000000000u); /* our half is closed: the peer knows that nothing follows */
        shutdown(s.raw, SHUT_WR);
        TURN_UNTIL(&s.loop, s.is_closed);
        ASSERT_STR(s.log.data, t[i].log);
        side_done(&s);
    }
}

TEST(lost_and_unanswered) {
    struct side s;

    client_side(&s); /* lost in the open */
    shutdown(s.raw, SHUT_RDWR);
    TURN_UNTIL(&s.loop, s.is_closed);
    ASSERT_STR(s.log.data, "closed 1006 ");
    side_done(&s);

    client_side(&s); /* our close is not answered: 2 s */
    ws_close(s.ws, 1000, NULL);
    uint64_t before = uv_hrtime();
    TURN_UNTIL(&s.loop, s.is_closed);
    ASSERT(uv_hrtime() - before > 1500000000u && uv_hrtime() - before < 4000000000u);
    ASSERT_STR(s.log.data, "closed 1006 ");
    side_done(&s);

    client_side(&s); /* a code that must not travel becomes 1011 */
    ws_close(s.ws, 1006, NULL);
    struct bytes b = expect_masked(&s, 0x88);
    ASSERT(b.len == 2 && b.data[0] == 0x03 && b.data[1] == 0xf3);
    ws_free(s.ws);
    side_done(&s);

    client_side(&s); /* a write that fails: reported from the loop, and also when nobody reads */
    ws_read_stop(s.ws);
    close(s.raw);
    s.raw = -1;
    ASSERT(ws_send(s.ws, WS_TEXT, "x", 1) < 0);
    ASSERT(!s.is_closed);
    TURN_UNTIL(&s.loop, s.is_closed);
    ASSERT_STR(s.log.data, "closed 1006 ");
    side_done(&s);
}

TEST(reading_stops_and_starts) {
    struct side s;

    client_side(&s);
    s.stop_at_message = true;
    raw_send(&s, "81 01 'a' 81 01 'b' 81 01 'c'");
    TURN_UNTIL(&s.loop, s.messages == 1);
    turn_for(&s.loop, 20);
    ASSERT_INT(s.messages, 1); /* of the same read */
    ws_read_start(s.ws);
    TURN_UNTIL(&s.loop, s.messages == 2);
    s.stop_at_message = false;
    ws_read_start(s.ws);
    TURN_UNTIL(&s.loop, s.messages == 3);
    ASSERT_STR(s.log.data, "T(a)T(b)T(c)");
    s.free_at_message = true;
    raw_send(&s, "81 01 'd' 81 01 'e'");
    TURN_UNTIL(&s.loop, s.is_closed);
    turn_for(&s.loop, 20);
    ASSERT_STR(s.log.data, "T(a)T(b)T(c)T(d)");
    side_done(&s);
}

TEST(big_messages_and_back_pressure) {
    struct side s;
    static char block[1 << 16], in[1 << 16];
    size_t total = 0, want, sent = 0;
    ssize_t q = 0, n;

    server_side(&s);
    while (q <= (ssize_t)SOCK_HIGH_WATER) {
        q = ws_send(s.ws, WS_BINARY, block, sizeof block);
        ASSERT(q >= 0);
        sent++;
    }
    ASSERT_INT(ws_queued(s.ws), q);
    /* pings of a peer that does not read are answered once it does, the latest only */
    for (int i = 0; i < 10; i++)
        raw_send(&s, "89 81 00000000 'x'");
    raw_send(&s, "89 81 00000000 'y'");
    turn_for(&s.loop, 20);
    ASSERT_INT(ws_queued(s.ws), q);
    want = sent * (sizeof block + 10) + 3;
    char tail[3] = {0};
    for (int i = 0; total < want && i < 10000; i++) {
        turn(&s.loop, 1);
        while ((n = recv(s.raw, in, sizeof in, MSG_DONTWAIT)) > 0) {
            total += (size_t)n;
            if (n >= 3)
                memcpy(tail, in + n - 3, 3);
        }
    }
    ASSERT_INT(total, want);
    ASSERT(memcmp(tail, "\x8a\x01y", 3) == 0);
    ASSERT_INT(s.drains, 1);
    /* a large message in */
    unsigned char head[WS_MAX_HEADER], mask[4] = {0};
    size_t k = ws_encode_header(head, WS_OP_BINARY, 5 * sizeof block, mask);
    ASSERT_INT(send(s.raw, head, k, 0), (ssize_t)k);
    for (size_t i = 0; i < 5; i++)
        for (size_t pos = 0; pos < sizeof block; pos += (size_t)MAX(n, 0)) {
            n = send(s.raw, block + pos, sizeof block - pos, MSG_DONTWAIT);
            turn(&s.loop, 1);
        }
    TURN_UNTIL(&s.loop, s.messages == 1);
    ASSERT_STR(s.log.data, "B[327680]");
    ws_free(s.ws);
    side_done(&s);
}

TEST(keepalive) {
    struct side s;

    client_side(&s);
    ws_keepalive(s.ws, 30, 150);
    for (int i = 0; i < 8; i++) { /* 240 ms of pings, all answered */
        (void)expect_masked(&s, 0x89);
        raw_send(&s, "8a 00");
    }
    ASSERT(!s.is_closed);
    ws_read_stop(s.ws); /* nobody listens: the peer is not to blame */
    turn_for(&s.loop, 250);
    ASSERT(!s.is_closed);
    ws_read_start(s.ws);
    turn_for(&s.loop, 50);
    ASSERT(!s.is_closed);
    TURN_UNTIL(&s.loop, s.is_closed); /* silence */
    ASSERT_STR(s.log.data, "closed 1006 ");
    side_done(&s);
}

TEST_MAIN()
