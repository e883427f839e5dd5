/* HTTP client: the response parser by table in every split, then calls against scripted servers. */
#include "net/h1_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "base/test.h"
#include "net/h1_client_parser.h"
#include "net/test-peer.h"

/* ---- the parser ---- */

/* Renders what a response means: "200 len=3 |a=b| body <end>". */
static void parse(const char *text, size_t len, size_t first, size_t rest, bool head, bool upgrade,
                  struct buf *out) {
    struct h1_response p;
    struct err err = {0};
    int r = H1_RESPONSE_MORE;
    size_t n = first;

    h1_response_init(&p, head, upgrade);
    for (size_t pos = 0; pos < len && r >= 0; pos += n, n = rest) {
        n = MIN(n, len - pos);
        char *copy = malloc(n);
        const char *data = copy;
        size_t left = n;
        memcpy(copy, text + pos, n);
        do {
            r = h1_response_next(&p, &data, &left, &err);
            if (r == H1_RESPONSE_HEAD) {
                buf_printf(out, "%d len=%lld|", p.status, (long long)p.length);
                for (size_t i = 0; i < p.n_headers; i++)
                    buf_printf(out, "%s=%s|", p.headers[i].name, p.headers[i].value);
                h1_response_drop_head(&p);
            } else if (r == H1_RESPONSE_DATA) {
                buf_append(out, p.piece, p.piece_len);
            } else if (r == H1_RESPONSE_END) {
                buf_printf(out, "<end%s>", p.keep_alive ? " keep" : "");
            } else if (r == H1_RESPONSE_UPGRADE) {
                buf_str(out, "<upgrade>");
            }
        } while (r > H1_RESPONSE_MORE && r != H1_RESPONSE_END && r != H1_RESPONSE_UPGRADE);
        free(copy);
        if (r == H1_RESPONSE_END || r == H1_RESPONSE_UPGRADE)
            break;
    }
    if (r == H1_RESPONSE_MORE)
        r = h1_response_eof(&p, &err) == 0 ? buf_str(out, "<eof>") : buf_str(out, "<cut>");
    if (r == -EBADMSG) {
        ASSERT(err.code == -EBADMSG && err.msg[0]);
        buf_str(out, "<bad>");
    }
    h1_response_done(&p);
}

static void check(const char *text, const char *want, bool head, bool upgrade) {
    size_t len = strlen(text);

    for (size_t mode = 0; mode <= len + 1; mode++) {
        struct buf out = BUF_INIT(1 << 20);
        if (mode <= 1)
            parse(text, len, mode ? 1 : len, mode ? 1 : len, head, upgrade, &out);
        else
            parse(text, len, mode - 1, len, head, upgrade, &out);
        buf_str(&out, "");
        /* pieces before an error may differ; its being one may not */
        bool bad = str_ends(want, "<bad>");
        if (bad ? !str_ends(out.data, "<bad>") : strcmp(out.data, want) != 0)
            test_fail(__FILE__, __LINE__, "mode %zu of \"%.200s\": got \"%s\", expected \"%s\"",
                      mode, text, out.data, want);
        buf_done(&out);
    }
}

TEST(parser_good) {
    static const struct {
        const char *text, *want;
    } t[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
         "200 len=3|Content-Length=3|abc<end keep>"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcEXTRA",
         "200 len=3|Content-Length=3|abc<end keep>"},
        {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "200 len=0|Content-Length=0|<end keep>"},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:1\r\n\r\nx",
         "200 len=1|Connection=close|Content-Length=1|x<end>"},
        {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "200 len=1|Content-Length=1|x<end>"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
         "chunked\r\n\r\n3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
         "200 len=-1|Transfer-Encoding=chunked|abc0123456789<end keep>"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked  \r\n\r\n0\r\n\r\n",
         "200 len=-1|Transfer-Encoding=Chunked|<end keep>"},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "200 len=-1|until the end<eof>"},
        {"HTTP/1.1 204 No Content\r\n\r\n", "204 len=-1|<end keep>"},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
         "304 len=5|Content-Length=5|<end keep>"},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 "
         "Created\r\nContent-Length: 2\r\n\r\nok",
         "201 len=2|Content-Length=2|ok<end keep>"},
        {"HTTP/1.1 200 OK\r\nA:\r\nB:   x y \t\r\nA: 2\r\nC: \xc3\xa9\r\nContent-Length: 0\r\n\r\n",
         "200 len=0|A=|B=x y|A=2|C=\xc3\xa9|Content-Length=0|<end keep>"},
        {"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 1\r\n\r\nx",
         "200 len=1|Upgrade=h2c|Connection=Upgrade|Content-Length=1|x<end keep>"},
        /* cut short */
        {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", "200 len=4|Content-Length=4|abc<cut>"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
         "200 len=-1|Transfer-Encoding=chunked|abc<cut>"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
         "200 len=-1|Transfer-Encoding=chunked|abc<cut>"},
        {"HTTP/1.1 200 OK\r\nContent-Len", "<cut>"},
        {"HTTP/1.1 100 Continue\r\n\r\n", "<cut>"},
        {"HT", "<cut>"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        check(t[i].text, t[i].want, false, false);
    check("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "200 len=7|Content-Length=7|<end keep>",
          true, false);
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
          "200 len=-1|Transfer-Encoding=chunked|<end keep>", true, false);
    check("HTTP/1.1 200 OK\r\n\r\n", "200 len=-1|<end keep>", true, false);
    check(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81",
        "<upgrade>", false, true);
}

TEST(parser_bad) {
    static const char *const t[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: "
        "3\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nA: x\ry\r\nContent-Length: 0\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
        "<html>not http</html>\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2p1\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: "
        "websocket\r\n\r\n", /* not asked for */
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        check(t[i], "<bad>", false, false);
    check("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n", "<bad>", false, true);
}

TEST(parser_limits) {
    struct buf text = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

    for (size_t extra = 0; extra < 2; extra++) { /* the head: 65536 bytes pass, one more does not */
        buf_clear(&text);
        buf_clear(&out);
        buf_str(&text, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: ");
        while (text.len < 65536 - 4 + extra)
            buf_char(&text, 'x');
        buf_str(&text, "\r\n\r\n");
        parse(text.data, text.len, 1000, 1000, false, false, &out);
        ASSERT(str_ends(out.data, extra ? "<bad>" : "<end keep>"));
    }
    for (size_t extra = 0; extra < 2; extra++) { /* 256 headers pass */
        buf_clear(&text);
        buf_clear(&out);
        buf_str(&text, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
        for (size_t i = 0; i < 255 + extra; i++)
            buf_str(&text, "A: x\r\n");
        buf_str(&text, "\r\n");
        parse(text.data, text.len, 1000, 1000, false, false, &out);
        ASSERT(str_ends(out.data, extra ? "<bad>" : "<end keep>"));
    }
    /* interim responses, chunk extensions and trailers have an end, too */
    buf_clear(&text);
    for (int i = 0; i < 33; i++)
        buf_str(&text, "HTTP/1.1 100 Continue\r\n\r\n");
    buf_clear(&out);
    parse(text.data, text.len, 100, 100, false, false, &out);
    ASSERT_STR(out.data, "<bad>");
    for (int trailer = 0; trailer < 2; trailer++) {
        buf_clear(&text);
        buf_clear(&out);
        buf_str(&text, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        buf_str(&text, trailer ? "0\r\nT: " : "1;x=");
        for (int i = 0; i < 70000; i++)
            buf_char(&text, 'y');
        parse(text.data, text.len, 1000, 1000, false, false, &out);
        ASSERT(str_ends(out.data, "<bad>"));
    }
    buf_done(&text);
    buf_done(&out);
}

/* ---- calls ---- */

struct got {
    struct h1_call *call;
    int status, error;
    int64_t length;
    struct buf headers, body;
    unsigned heads, ends, drains;
    bool stale, is_over;
    struct sock *upgraded;
    char text[512];
    void (*on_head)(struct got *g);
    void (*on_data)(struct got *g);
    void (*on_drain)(struct got *g);
};

static void on_response(struct h1_call *c, int status, const struct h1_header *headers, size_t n,
                        int64_t length, void *ud) {
    struct got *g = ud;
    g->heads++;
    g->status = status;
    g->length = length;
    for (size_t i = 0; i < n; i++)
        buf_printf(&g->headers, "%s=%s|", headers[i].name, headers[i].value);
    ASSERT(headers[n].name == NULL);
    if (g->on_head)
        g->on_head(g);
}

static void on_data(struct h1_call *c, const char *data, size_t len, void *ud) {
    struct got *g = ud;
    ASSERT(len > 0 && !g->is_over);
    buf_append(&g->body, data, len);
    if (g->on_data)
        g->on_data(g);
}

static void on_drain(struct h1_call *c, void *ud) {
    struct got *g = ud;
    g->drains++;
    if (g->on_drain)
        g->on_drain(g);
}

static void on_upgrade(struct h1_call *c, const struct h1_header *headers, size_t n, struct sock *s,
                       void *ud) {
    struct got *g = ud;
    g->upgraded = s;
    g->is_over = true;
}

static void on_end(struct h1_call *c, int error, const struct err *err, void *ud) {
    struct got *g = ud;
    g->ends++;
    g->error = error;
    g->stale = h1_call_was_stale(c);
    g->is_over = true;
    str_copy(g->text, sizeof g->text, err->msg);
    ASSERT((error == 0) == (err->msg[0] == 0));
}

static const struct h1_call_ops call_ops = {on_response, on_data, on_drain, on_upgrade, on_end};

static void got_reset(struct got *g) {
    buf_done(&g->headers);
    buf_done(&g->body);
    *g = (struct got){.body = BUF_INIT(64 << 20), .headers = BUF_INIT(1 << 20)};
}

static struct h1_call_opts options(uint16_t port, const char *method, const char *target) {
    return (struct h1_call_opts){
        .addr = {.host = "127.0.0.1", .port = port}, .method = method, .target = target};
}

static void call(uv_loop_t *loop, const struct h1_call_opts *o, struct got *g) {
    got_reset(g);
    ASSERT_OK(h1_call(loop, o, &call_ops, g, &g->call));
    TURN_UNTIL(loop, g->is_over);
}

/* Answers every request of the connection with arg. */
static void answer_always(struct peer *p, int fd, unsigned nth) {
    while (peer_read_head(p, fd))
        peer_send(fd, p->arg);
}

static void answer_once(struct peer *p, int fd, unsigned nth) {
    if (peer_read_head(p, fd))
        peer_send(fd, p->arg);
    shutdown(fd, SHUT_WR);
    peer_wait_end(fd);
}

static void answer_then_reset(struct peer *p, int fd, unsigned nth) {
    if (peer_read_head(p, fd))
        peer_send(fd, p->arg);
    peer_reset(fd);
}

#define OK3 "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"

TEST(simple_get) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};
    struct h1_header headers[] = {{"X-A", "1"}, {"X-A", "2"}, {0}};

    uv_loop_init(&loop);
    peer_start(&p, answer_once, OK3);
    struct h1_call_opts o = options(p.port, "GET", "/a%2Fb?c=d+e");
    o.headers = headers;
    call(&loop, &o, &g);
    ASSERT_INT(g.error, 0);
    ASSERT(g.status == 200 && g.length == 3 && g.heads == 1 && g.ends == 1);
    ASSERT_STR(g.body.data, "abc");
    ASSERT_STR(g.headers.data, "Content-Length=3|");
    char want[256];
    snprintf(want, sizeof want,
             "GET /a%%2Fb?c=d+e HTTP/1.1\r\nX-A: 1\r\nX-A: 2\r\nHost: 127.0.0.1:%u\r\nConnection: "
             "close\r\n\r\n",
             p.port);
    ASSERT_STR(p.head, want);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

TEST(bad_requests_are_refused) {
    uv_loop_t loop;
    struct h1_call *c;
    struct got g = {0};
    static const struct h1_header bad[][2] = {{{"A", "x\r\nB: y"}},
                                              {{"A\r\n", "x"}},
                                              {{"", "x"}},
                                              {{"A b", "x"}},
                                              {{"Content-Length", "3"}},
                                              {{"transfer-encoding", "chunked"}},
                                              {{"Connection", "close"}},
                                              {{"A", NULL}}};
    static const char *const targets[] = {"", "/a b", "/\r\nX: y", "/\x7f", "/a\tb", NULL};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct h1_call_opts o = options(1, "GET", "/");
        o.headers = bad[i];
        ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    }
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        struct h1_call_opts o = options(1, "GET", targets[i]);
        ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    }
    struct h1_call_opts o = options(1, "GET /", "/");
    ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    o = options(1, "CONNECT", "/");
    ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    o = options(1, "GET", "/");
    o.addr.host = NULL;
    ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    o = options(1, NULL, "/");
    ASSERT_INT(h1_call(&loop, &o, &call_ops, &g, &c), -EINVAL);
    loop_done(&loop);
}

TEST(failures) {
    static const struct {
        peer_script script;
        const char *answer;
        int error, status;
    } t[] = {
        {answer_once, "", -ECONNRESET, 0},
        {answer_then_reset, "", -ECONNRESET, 0},
        {answer_once, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", -EBADMSG, 200},
        {answer_once, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", -EBADMSG,
         200},
        {answer_once,
         "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         -EBADMSG, 0},
        {answer_once, "garbage\r\n\r\n", -EBADMSG, 0},
        {answer_once, "HTTP/1.1 200 OK\r\nContent", -EBADMSG, 0},
        {answer_once, "HTTP/1.1 200 OK\r\n\r\nuntil the end", 0, 200},
        {answer_once,
         "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", -EBADMSG,
         0},
    };
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct peer p;
        peer_start(&p, t[i].script, t[i].answer);
        struct h1_call_opts o = options(p.port, "GET", "/");
        call(&loop, &o, &g);
        if (g.error != t[i].error || g.status != t[i].status || g.stale)
            test_fail(__FILE__, __LINE__, "case %zu: %d (%s), status %d", i, g.error, g.text,
                      g.status);
        peer_stop(&p);
    }
    struct h1_call_opts o = options(1, "GET", "/"); /* nobody listens there */
    call(&loop, &o, &g);
    ASSERT_INT(g.error, -ECONNREFUSED);
    ASSERT(strstr(g.text, "could not connect"));
    o = (struct h1_call_opts){
        .addr.unix_path = "/nowhere/cove-net2.sock", .method = "GET", .target = "/"};
    call(&loop, &o, &g);
    ASSERT_INT(g.error, -ENOENT);
    got_reset(&g);
    loop_done(&loop);
}

static void stay_silent(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    if (p->arg)
        peer_send(fd, p->arg);
    peer_wait_end(fd);
    p->flag = 1;
}

TEST(silence_times_out) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};

    uv_loop_init(&loop);
    peer_start(&p, stay_silent, "HTTP/1.1 100 Continue\r\n\r\n");
    struct h1_call_opts o = options(p.port, "GET", "/");
    o.silence_timeout_ms = 60;
    call(&loop, &o, &g);
    ASSERT_INT(g.error, -ETIMEDOUT);
    ASSERT(strstr(g.text, "60 ms"));
    peer_stop(&p);
    ASSERT(p.flag); /* our side was closed */

    /* a caller that is slow with the body is not the server's silence */
    peer_start(&p, stay_silent, NULL);
    o = options(p.port, "POST", "/");
    o.silence_timeout_ms = 60;
    o.body_length = -1;
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    turn_for(&loop, 250);
    ASSERT(!g.is_over);
    h1_call_end(g.call);
    TURN_UNTIL(&loop, g.is_over);
    ASSERT_INT(g.error, -ETIMEDOUT);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

TEST(connect_times_out) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), full[4];
    uv_loop_t loop;
    struct got g = {0};

    /* a full backlog drops further connects */
    ASSERT(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 0) == 0 &&
           getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(full); i++) {
        full[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(full[i], (struct sockaddr *)&a, sizeof a);
    }
    uv_loop_init(&loop);
    struct h1_call_opts o = options(ntohs(a.sin_port), "GET", "/");
    o.connect_timeout_ms = 60;
    call(&loop, &o, &g);
    ASSERT_INT(g.error, -EHOSTUNREACH);
    for (size_t i = 0; i < ARRAY_SIZE(full); i++)
        close(full[i]);
    close(fd);
    got_reset(&g);
    loop_done(&loop);
}

/* ---- bodies ---- */

/* Reads the request's head, then everything up to the last chunk or 1 MiB, slowly at first; answers
 * with the count. */
static void count_body(struct peer *p, int fd, unsigned nth) {
    static char data[1 << 16];
    size_t total = 0, want = (size_t)p->arg;
    char answer[128], count[32];
    ssize_t n;

    peer_read_head(p, fd);
    while (p->flag == 0)
        sched_yield(); /* nothing is read until the test saw the client stop */
    while (total < want && (n = recv(fd, data, MIN(sizeof data, want - total), 0)) > 0)
        total += (size_t)n;
    int k = snprintf(count, sizeof count, "%zu", total);
    snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", k, count);
    peer_send(fd, answer);
    peer_wait_end(fd);
}

#define BLOCK ((size_t)32 << 10)
#define BLOCKS 512u /* 16 MiB: more than all kernel buffers on the way */

struct upload {
    struct got g;
    unsigned sent;
    size_t max_queued;
};

static void push(struct got *g) {
    struct upload *u = container_of(g, struct upload, g);
    static char block[BLOCK];

    while (u->sent < BLOCKS) {
        ssize_t queued = h1_call_write(g->call, block, sizeof block);
        ASSERT(queued >= 0);
        u->sent++;
        u->max_queued = MAX(u->max_queued, (size_t)queued);
        if ((size_t)queued > SOCK_HIGH_WATER)
            return;
    }
    h1_call_end(g->call);
}

static void upload_streamed(bool chunked) {
    uv_loop_t loop;
    struct peer p;
    struct upload u = {0};
    size_t wire = BLOCKS * (BLOCK + (chunked ? 8 : 0)) + (chunked ? 5 : 0);
    char want[32];

    uv_loop_init(&loop);
    peer_start(&p, count_body, (const void *)wire);
    struct h1_call_opts o = options(p.port, "POST", "/");
    o.body_length = chunked ? -1 : (int64_t)(BLOCKS * BLOCK);
    got_reset(&u.g);
    u.g.on_drain = push;
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &u.g, &u.g.call));
    push(&u.g); /* before the connection stands */
    turn_for(&loop, 100);
    ASSERT(u.sent < BLOCKS && !u.g.is_over); /* held back */
    p.flag = 1;
    TURN_UNTIL(&loop, u.g.is_over);
    ASSERT_INT(u.g.error, 0);
    snprintf(want, sizeof want, "%zu", wire);
    ASSERT_STR(u.g.body.data, want);
    ASSERT(u.max_queued <= SOCK_HIGH_WATER + BLOCK + 16);
    ASSERT(strstr(p.head,
                  chunked ? "Transfer-Encoding: chunked\r\n" : "Content-Length: 16777216\r\n"));
    got_reset(&u.g);
    peer_stop(&p);
    loop_done(&loop);
}

TEST(upload_chunked) {
    upload_streamed(true);
}

TEST(upload_with_length) {
    upload_streamed(false);
}

TEST(whole_body_and_empty_bodies) {
    static const struct {
        const char *method;
        int64_t length;
        const char *body, *want;
    } t[] = {
        {"POST", 5, "hello", "Content-Length: 5\r\n"}, {"PUT", 0, NULL, "Content-Length: 0\r\n"},
        {"POST", 0, NULL, "Content-Length: 0\r\n"},    {"DELETE", 0, NULL, NULL},
        {"DELETE", 2, "xx", "Content-Length: 2\r\n"},
    };
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct peer p;
        peer_start(&p, answer_once, OK3);
        struct h1_call_opts o = options(p.port, t[i].method, "/");
        o.body_length = t[i].length;
        o.body = t[i].body;
        call(&loop, &o, &g);
        ASSERT_INT(g.error, 0);
        ASSERT(t[i].want ? strstr(p.head, t[i].want) != NULL : !strstr(p.head, "Content-Length"));
        peer_stop(&p);
    }
    got_reset(&g);
    loop_done(&loop);
}

TEST(body_length_is_kept) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};

    uv_loop_init(&loop);
    peer_start(&p, stay_silent, NULL);
    struct h1_call_opts o = options(p.port, "POST", "/");
    o.body_length = 3;
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    ASSERT_INT(h1_call_write(g.call, "abcd", 4), -EINVAL);
    ASSERT(h1_call_write(g.call, "ab", 2) > 0);
    h1_call_end(g.call); /* too early: the server would wait for the third byte for ever */
    ASSERT(!g.is_over);  /* never from inside a call */
    TURN_UNTIL(&loop, g.is_over);
    ASSERT_INT(g.error, -EINVAL);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

/* Answers before the body was read, and hangs up with a reset. */
static void refuse_early(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig");
    peer_reset(fd);
}

TEST(early_answer_survives_the_reset) {
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (int i = 0; i < 20; i++) {
        struct peer p;
        static char block[1 << 16];
        peer_start(&p, refuse_early, NULL);
        struct h1_call_opts o = options(p.port, "POST", "/");
        o.body_length = -1;
        got_reset(&g);
        ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
        h1_call_pause(g.call); /* the answer is not read while we go on sending */
        TURN_UNTIL(&loop, p.n_conns);
        peer_stop(&p); /* answer and reset are in our socket's buffers now */
        for (int k = 0; k < 4 && h1_call_write(g.call, block, sizeof block) >= 0; k++)
            ;
        h1_call_resume(g.call);
        TURN_UNTIL(&loop, g.is_over);
        ASSERT(g.status == 413 && g.error == 0);
    }
    got_reset(&g);
    loop_done(&loop);
}

static void pause_now(struct got *g) {
    h1_call_pause(g->call);
}

static void send_much(struct peer *p, int fd, unsigned nth) {
    static char block[BLOCK];

    peer_read_head(p, fd);
    peer_send(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (unsigned i = 0; i < BLOCKS; i++) {
        peer_send(fd, "8000\r\n");
        peer_send_bytes(fd, block, sizeof block);
        peer_send(fd, "\r\n");
        p->flag = i;
    }
    peer_send(fd, "0\r\n\r\n");
    peer_wait_end(fd);
}

TEST(download_is_held_back) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};

    uv_loop_init(&loop);
    peer_start(&p, send_much, NULL);
    struct h1_call_opts o = options(p.port, "GET", "/");
    got_reset(&g);
    g.on_head = pause_now;
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    TURN_UNTIL(&loop, g.heads);
    turn_for(&loop, 100);
    ASSERT(g.body.len == 0 &&
           p.flag < BLOCKS - 1); /* nothing after the pause, and the sender stalls */
    h1_call_resume(g.call);
    TURN_UNTIL(&loop, g.is_over);
    ASSERT(g.error == 0 && g.body.len == BLOCKS * BLOCK);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

/* Pausing after every piece, resuming from outside: every event comes once, the end too. */
TEST(pause_at_every_piece) {
    static const char *const answers[] = {OK3,
                                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
                                          "chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n",
                                          "HTTP/1.1 200 OK\r\n\r\nabc"};
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct peer p;
        unsigned resumes = 0;
        peer_start(&p, answer_once, answers[i]);
        struct h1_call_opts o = options(p.port, "GET", "/");
        got_reset(&g);
        g.on_head = g.on_data = pause_now;
        ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
        while (!g.is_over) {
            size_t before = g.body.len + g.heads;
            turn_for(&loop, 10);
            ASSERT(g.is_over || g.body.len + g.heads - before <= 3);
            if (!g.is_over)
                h1_call_resume(g.call);
            ASSERT(++resumes < 100);
        }
        ASSERT_INT(g.error, 0);
        ASSERT_STR(g.body.data, "abc");
        peer_stop(&p);
    }
    got_reset(&g);
    loop_done(&loop);
}

TEST(cancel_at_any_moment) {
    uv_loop_t loop;
    struct got g = {0};
    struct peer p;

    uv_loop_init(&loop);
    peer_start(&p, answer_always, OK3);
    for (int turns = 0; turns < 8; turns++) {
        struct h1_call_opts o = options(p.port, "POST", "/");
        o.body_length = -1;
        got_reset(&g);
        ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
        h1_call_write(g.call, "x", 1);
        for (int i = 0; i < turns && !g.is_over; i++)
            turn(&loop, 1);
        if (g.is_over)
            break;
        h1_call_cancel(g.call);
        unsigned heads = g.heads;
        size_t body = g.body.len;
        turn_for(&loop, 10);
        ASSERT(!g.ends && g.heads == heads && g.body.len == body);
    }
    got_reset(&g);
    h1_call_cancel(NULL);
    peer_stop(&p);
    loop_done(&loop);
}

static void cancel_now(struct got *g) {
    h1_call_cancel(g->call);
    g->is_over = true;
}

TEST(cancel_inside_callbacks) {
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (int i = 0; i < 2; i++) {
        struct peer p;
        peer_start(&p, answer_once, OK3);
        struct h1_call_opts o = options(p.port, "GET", "/");
        got_reset(&g);
        if (i == 0)
            g.on_head = cancel_now;
        else
            g.on_data = cancel_now;
        ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
        TURN_UNTIL(&loop, g.is_over);
        turn_for(&loop, 20);
        ASSERT(g.heads == 1 && g.ends == 0);
        peer_stop(&p);
    }
    got_reset(&g);
    loop_done(&loop);
}

/* ---- pool ---- */

TEST(connections_are_kept) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};

    uv_loop_init(&loop);
    struct h1_pool *pool = h1_pool_new(&loop, 4, 10000);
    peer_start(&p, answer_always, OK3);
    struct h1_call_opts o = options(p.port, "GET", "/");
    o.pool = pool;
    for (int i = 0; i < 5; i++) {
        call(&loop, &o, &g);
        ASSERT_INT(g.error, 0);
        ASSERT_STR(g.body.data, "abc");
    }
    ASSERT_INT(p.n_conns, 1);
    ASSERT(!strstr(p.head, "Connection:"));
    o.fresh = true;
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    turn_for(&loop, 50);
    ASSERT(!g.is_over); /* the server plays one connection at a time: a second one waits behind the
                           first */
    h1_pool_free(pool); /* closes the idle one, which ends its script */
    TURN_UNTIL(&loop, g.is_over);
    ASSERT_INT(g.error, 0);
    peer_stop(&p);
    ASSERT_INT(p.n_conns, 2);
    got_reset(&g);
    loop_done(&loop);
}

TEST(what_cannot_be_kept) {
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        OK3 "surplus",
    };
    uv_loop_t loop;
    struct got g = {0};

    uv_loop_init(&loop);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct h1_pool *pool = h1_pool_new(&loop, 4, 10000);
        struct peer p;
        peer_start(&p, answer_always, answers[i]);
        struct h1_call_opts o = options(p.port, "GET", "/");
        o.pool = pool;
        for (int k = 0; k < 2; k++) {
            call(&loop, &o, &g);
            ASSERT(g.error == 0 && strcmp(g.body.data, "abc") == 0);
        }
        h1_pool_free(pool);
        peer_stop(&p);
        ASSERT_INT(p.n_conns, 2);
    }
    got_reset(&g);
    loop_done(&loop);
}

/* Answers one request and hangs up, without having said so. arg: bytes sent before, as noise. */
static void answer_and_hang_up(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, OK3);
    if (nth == 0 && !p->arg) {
        shutdown(fd, SHUT_RDWR);
        p->flag = 2;
    }
    if (nth == 0 && p->arg) {
        while (!p->flag)
            sched_yield();
        peer_send(fd, p->arg);
        peer_wait_end(fd);
    }
}

TEST(dead_idle_connections_are_dropped) {
    for (int noise = 0; noise < 2; noise++) {
        uv_loop_t loop;
        struct peer p;
        struct got g = {0};

        uv_loop_init(&loop);
        struct h1_pool *pool = h1_pool_new(&loop, 4, 10000);
        peer_start(&p, answer_and_hang_up, noise ? "HTTP/1.1 408 Request Timeout\r\n\r\n" : NULL);
        struct h1_call_opts o = options(p.port, "GET", "/");
        o.pool = pool;
        call(&loop, &o, &g);
        ASSERT_INT(g.error, 0);
        if (noise) {
            p.flag = 1;
            turn_for(&loop, 50); /* the loop sees it */
        }
        while (!noise && p.flag != 2)
            sched_yield(); /* the loop does not turn: only the look at the socket tells */
        call(&loop, &o, &g);
        ASSERT(g.error == 0 && !g.stale && g.status == 200);
        ASSERT_INT(p.n_conns, 2);
        h1_pool_free(pool);
        peer_stop(&p);
        got_reset(&g);
        loop_done(&loop);
    }
}

/* The second request of a connection is read and answered by hanging up. */
static void die_at_second(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, OK3);
    if (peer_read_head(p, fd) && p->arg)
        peer_send(fd, p->arg);
}

TEST(stale_connections_say_so) {
    for (int some = 0; some < 2; some++) {
        uv_loop_t loop;
        struct peer p;
        struct got g = {0};

        uv_loop_init(&loop);
        struct h1_pool *pool = h1_pool_new(&loop, 4, 10000);
        peer_start(&p, die_at_second, some ? "HTTP" : NULL);
        struct h1_call_opts o = options(p.port, "GET", "/");
        o.pool = pool;
        call(&loop, &o, &g);
        ASSERT(g.error == 0 && !g.stale);
        call(&loop, &o, &g);
        ASSERT_INT(g.error, some ? -EBADMSG : -ECONNRESET);
        ASSERT_INT(g.stale, !some); /* a byte of a response: the request was seen */
        ASSERT_INT(p.n_conns, 1);
        h1_pool_free(pool);
        peer_stop(&p);
        got_reset(&g);
        loop_done(&loop);
    }
}

static void two_at_once(uv_loop_t *loop, const struct h1_call_opts *o) {
    struct got a = {0}, b = {0};

    got_reset(&a);
    got_reset(&b);
    ASSERT_OK(h1_call(loop, o, &call_ops, &a, &a.call));
    ASSERT_OK(h1_call(loop, o, &call_ops, &b, &b.call));
    TURN_UNTIL(loop, a.is_over && b.is_over);
    ASSERT(a.error == 0 && b.error == 0);
    got_reset(&a);
    got_reset(&b);
}

/* One connection per thread would be needed for two at once; this server answers without reading
 * whole heads. */
static void serve_many(struct peer *p, int fd, unsigned nth) {
    peer_read_head(p, fd);
    peer_send(fd, OK3);
    int keep = dup(fd); /* the connection outlives the script's turn; closed by the test's end */
    ASSERT(keep >= 0);
    ((int *)p->arg)[nth] = keep;
}

TEST(pool_limits) {
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};
    int kept[8] = {0};
    char c;

    uv_loop_init(&loop);
    struct h1_pool *pool = h1_pool_new(&loop, 1, 80);
    peer_start(&p, serve_many, kept);
    struct h1_call_opts o = options(p.port, "GET", "/");
    o.pool = pool;
    o.pool_key = "sandbox-1";
    two_at_once(&loop, &o);
    turn_for(&loop, 10);
    /* idle_max 1: of two only one was kept */
    int open = 0;
    for (int i = 0; i < 2; i++)
        open += recv(kept[i], &c, 1, MSG_DONTWAIT) < 0;
    ASSERT_INT(open, 1);
    /* idle_ms: it goes by itself */
    turn_for(&loop, 150);
    for (int i = 0; i < 2; i++)
        ASSERT_INT(recv(kept[i], &c, 1, MSG_DONTWAIT), 0);
    /* max_idle_ms: too old for this request, kept for others */
    call(&loop, &o, &g);
    turn_for(&loop, 30);
    o.max_idle_ms = 10;
    call(&loop, &o, &g);
    ASSERT_INT(p.n_conns, 4);
    /* drop: forgotten at once; a call in flight does not bring its connection back */
    h1_pool_drop(pool, "sandbox-1");
    h1_pool_drop(pool, "never-seen");
    turn_for(&loop, 10);
    ASSERT_INT(recv(kept[3], &c, 1, MSG_DONTWAIT), 0);
    o.max_idle_ms = 0;
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    h1_pool_drop(pool, "sandbox-1");
    TURN_UNTIL(&loop, g.is_over);
    turn_for(&loop, 10);
    ASSERT_INT(recv(kept[4], &c, 1, MSG_DONTWAIT), 0);
    /* a pool freed under a call */
    got_reset(&g);
    ASSERT_OK(h1_call(&loop, &o, &call_ops, &g, &g.call));
    h1_pool_free(pool);
    TURN_UNTIL(&loop, g.is_over);
    ASSERT_INT(g.error, 0);
    got_reset(&g);
    peer_stop(&p);
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if (kept[i])
            close(kept[i]);
    loop_done(&loop);
}

/* ---- upgrades ---- */

static void switch_protocols(struct peer *p, int fd, unsigned nth) {
    char c[16] = {0};

    peer_read_head(p, fd);
    peer_send(
        fd,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly");
    if (recv(fd, c, sizeof c - 1, 0) > 0)
        peer_send(fd, c);
    peer_wait_end(fd);
}

struct raw {
    struct buf in;
};

static void on_raw_read(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct raw *r = ud;
    if (len > 0)
        buf_append(&r->in, data, (size_t)len);
}

TEST(upgrade_hands_the_socket_over) {
    static const struct sock_ops raw_ops = {.on_read = on_raw_read};
    struct h1_header headers[] = {{"Connection", "Upgrade"}, {"Upgrade", "echo"}, {0}};
    uv_loop_t loop;
    struct peer p;
    struct got g = {0};
    struct raw raw = {0};

    uv_loop_init(&loop);
    peer_start(&p, switch_protocols, NULL);
    struct h1_call_opts o = options(p.port, "GET", "/");
    o.headers = headers;
    o.keep_upgrade = true;
    call(&loop, &o, &g);
    ASSERT(g.upgraded && g.ends == 0 && g.heads == 0);
    sock_set_ops(g.upgraded, &raw_ops, &raw);
    ASSERT(sock_write(g.upgraded, "-ping", 5) >= 0);
    sock_read_start(g.upgraded);
    TURN_UNTIL(&loop, raw.in.len >= 10);
    ASSERT_STR(raw.in.data, "early-ping");
    sock_close(g.upgraded, 0);
    buf_done(&raw.in);
    got_reset(&g);
    peer_stop(&p);
    loop_done(&loop);
}

TEST_MAIN()
