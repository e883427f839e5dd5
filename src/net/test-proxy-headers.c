/* Header rules of the reverse proxy, by table. */
#include "net/proxy_headers.h"

#include <string.h>

#include "base/buf.h"
#include "base/test.h"

/* "A: x|B: y" -> headers, in a buffer of the caller. */
static size_t split_headers(char *text, struct h1_header *ret) {
    size_t n = 0;

    for (char *save = NULL, *h = strtok_r(text, "|", &save); h; h = strtok_r(NULL, "|", &save)) {
        char *colon = strchr(h, ':');
        *colon = 0;
        ret[n++] = (struct h1_header){h, colon + 1 + strspn(colon + 1, " ")};
    }
    ret[n] = (struct h1_header){0};
    return n;
}

static void join_headers(const struct header_set *s, struct buf *out) {
    buf_clear(out);
    buf_str(out, "");
    for (size_t i = 0; i < s->n; i++)
        buf_printf(out, "%s%s: %s", i ? "|" : "", s->v[i].name, s->v[i].value);
}

static const struct h1_header extra_request[] = {{"X-Token", "t"}, {0}};
static const struct h1_header own_forwarding[] = {
    {"X-Forwarded-Proto", "https"}, {"x-forwarded-for", "7.7.7.7"}, {"X-Forwarded-Host", "o"}, {0}};
static const struct h1_header extra_response[] = {{"X-Request-ID", "r1"}, {0}};
static const char *const dropped[] = {"authorization", "open-sandbox-*", NULL};
static const char *const dropped_answer[] = {"server", NULL};

TEST(request_headers) {
    enum { KEEP = 1, OTHER_HOST = 2, UNIX_PEER = 4, EXTRA = 8, UPGRADE = 16, OWN = 32 };
    static const struct {
        const char *in;
        unsigned flags;
        const char *out;
    } t[] = {
        {"Host: h|A: 1|a: 2", 0,
         "Host: h|A: 1|a: 2|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: http|X-Forwarded-Host: h"},
        {"A: 1", 0, "A: 1|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: http"},
        {"Host: h", OTHER_HOST,
         "Host: up|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: http|X-Forwarded-Host: h"},
        {"Host: h", UNIX_PEER, "Host: h|X-Forwarded-Proto: http|X-Forwarded-Host: h"},
        /* hop-by-hop, framing, and what Connection names */
        {"Host: h|Connection: keep-alive, X-Secret ,,x-b|Keep-Alive: 5|TE: trailers|Trailer: "
         "x|Upgrade: h2c|"
         "Proxy-Authorization: p|Proxy-Connection: c|Transfer-Encoding: chunked|Content-Length: "
         "5|Expect: 100-continue|"
         "X-SECRET: s|X-B: b|X-C: c",
         0, "Host: h|X-C: c|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: http|X-Forwarded-Host: h"},
        {"Connection: Host|Host: h|Connection: X-Forwarded-For, x-d|X-D: d", 0,
         "Host: h|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: http|X-Forwarded-Host: h"},
        /* the caller's lists */
        {"Host: h|Authorization: b|OPEN-SANDBOX-API-KEY: k|Open-Sandbox-: x|Open-Sandboxes: "
         "y|X-Token: forged",
         EXTRA,
         "Host: h|Open-Sandboxes: y|X-Token: t|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: "
         "http|X-Forwarded-Host: h"},
        {"Connection: X-Token|Host: h", EXTRA,
         "Host: h|X-Token: t|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: http|X-Forwarded-Host: h"},
        /* what clients claim about themselves */
        {"Host: h|Forwarded: for=1.1.1.1|X-Forwarded-For: 1.1.1.1|X-Forwarded-Host: "
         "evil|X-Forwarded-Port: 1|"
         "X-Forwarded-Proto: https|X-Real-IP: 1.1.1.1",
         0, "Host: h|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: http|X-Forwarded-Host: h"},
        {"Host: h|X-Forwarded-For: 1.1.1.1, 2.2.2.2|X-Forwarded-Host: f|X-Forwarded-Proto: "
         "https|X-Real-IP: 3.3.3.3",
         KEEP,
         "Host: h|X-Real-IP: 3.3.3.3|X-Forwarded-For: 1.1.1.1, 9.9.9.9|X-Forwarded-Proto: http"},
        {"Host: h|X-Real-IP: 3.3.3.3", KEEP,
         "Host: h|X-Real-IP: 3.3.3.3|X-Forwarded-For: 3.3.3.3, 9.9.9.9|X-Forwarded-Proto: http"},
        {"Host: h", KEEP, "Host: h|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: http"},
        {"Host: h|X-Forwarded-For: 1.1.1.1", KEEP | UNIX_PEER,
         "Host: h|X-Forwarded-For: 1.1.1.1|X-Forwarded-Proto: http"},
        /* the caller's own word about forwarding is the only one */
        {"Host: h|X-Forwarded-Proto: gopher", OWN,
         "Host: h|X-Forwarded-Proto: https|x-forwarded-for: 7.7.7.7|X-Forwarded-Host: o"},
        /* upgrades */
        {"Host: h|Connection: Upgrade|Upgrade: websocket|Sec-WebSocket-Key: k|Origin: o", UPGRADE,
         "Host: h|Sec-WebSocket-Key: k|Origin: o|X-Forwarded-For: 9.9.9.9|X-Forwarded-Proto: "
         "http|X-Forwarded-Host: h|"
         "Connection: Upgrade|Upgrade: websocket"},
    };
    struct buf out = BUF_INIT(1 << 16);

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct h1_header in[32];
        char *text = strdup(t[i].in);
        struct header_set set;
        unsigned f = t[i].flags;
        struct proxy_opts o = {.host = f & OTHER_HOST ? "up" : NULL,
                               .keep_forwarded = f & KEEP,
                               .drop_request = f & EXTRA ? dropped : NULL,
                               .add_request = f & EXTRA ? extra_request
                                              : f & OWN ? own_forwarding
                                                        : NULL};
        struct proxy_request q = {.headers = in, .peer = f & UNIX_PEER ? NULL : "9.9.9.9"};
        q.n_headers = split_headers(text, in);
        q.upgrade = f & UPGRADE ? proxy_upgrade_protocol(in, q.n_headers) : NULL;
        ASSERT_OK(proxy_request_headers(&o, &q, &set));
        join_headers(&set, &out);
        ASSERT_STR(out.data, t[i].out);
        header_set_done(&set);
        free(text);
    }
    buf_done(&out);
}

TEST(response_headers) {
    static const struct {
        const char *in;
        bool extra, upgrade;
        const char *out;
    } t[] = {
        {"Content-Type: a/b|Set-Cookie: 1|SET-COOKIE: 2|Date: d|Content-Encoding: gzip", false,
         false, "content-type: a/b|set-cookie: 1|set-cookie: 2|date: d|content-encoding: gzip"},
        {"Connection: close, X-Hop|X-Hop: h|Keep-Alive: 1|Transfer-Encoding: "
         "chunked|Content-Length: 3|Trailer: t|"
         "Proxy-Authenticate: p|Upgrade: h2c|TE: x|A: b",
         false, false, "a: b"},
        {"Server: s|X-Request-Id: theirs|A: b", true, false, "a: b|X-Request-ID: r1"},
        {"Location: /login?x=/y", true, false, "location: /pre/login?x=/y|X-Request-ID: r1"},
        {"Location: //other/login", true, false, "location: //other/login|X-Request-ID: r1"},
        {"Location: http://x/", true, false, "location: http://x/|X-Request-ID: r1"},
        {"Location: relative", true, false, "location: relative|X-Request-ID: r1"},
        {"Location: /", true, false, "location: /pre/|X-Request-ID: r1"},
        {"Location: /login", false, false, "location: /login"},
        {"", false, false, ""},
        {"Connection: Upgrade|Upgrade: websocket|Sec-WebSocket-Accept: a", true, true,
         "upgrade: websocket|sec-websocket-accept: a|X-Request-ID: r1|connection: Upgrade"},
    };
    struct buf out = BUF_INIT(1 << 16);

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct h1_header in[32];
        char *text = strdup(t[i].in);
        size_t n = split_headers(text, in);
        struct header_set set;
        struct proxy_opts o = {.drop_response = t[i].extra ? dropped_answer : NULL,
                               .add_response = t[i].extra ? extra_response : NULL,
                               .location_prefix = t[i].extra ? "/pre" : NULL};
        ASSERT_OK(proxy_response_headers(&o, in, n, t[i].upgrade, &set));
        join_headers(&set, &out);
        ASSERT_STR(out.data, t[i].out);
        header_set_done(&set);
        free(text);
    }
    buf_done(&out);
}

TEST(upgrade_protocols) {
    static const struct {
        const char *in, *out;
    } t[] = {{"Upgrade: websocket", "websocket"},
             {"upgrade: WebSocket", "WebSocket"},
             {"Upgrade: tcp", "tcp"},
             {"Upgrade: h2c", NULL},
             {"Upgrade: H2C", NULL},
             {"Upgrade: HTTP/2.0", NULL},
             {"Upgrade: h2c, websocket", NULL},
             {"Upgrade: websocket, x", NULL},
             {"Upgrade: a|Upgrade: b", NULL},
             {"Upgrade: ", NULL},
             {"A: b", NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct h1_header in[8];
        char *text = strdup(t[i].in);
        const char *got = proxy_upgrade_protocol(in, split_headers(text, in));
        ASSERT(t[i].out ? str_eq(got, t[i].out) : !got);
        free(text);
    }
}

TEST_MAIN()
