/*
 * Allocation failures in the parsers and header rules: every run fails one allocation later than
 * the one before, until one goes through. None may crash, leak, or claim success with less than the
 * whole result.
 */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "base/test.h"
#include "net/h1_client_parser.h"
#include "net/multipart.h"
#include "net/proxy_headers.h"
#include "net/test-nomem.h"
#include "net/ws_frame.h"

static size_t seen;

static int on_part(const struct multipart_part *p, void *ud) {
    ASSERT_STR(p->name, "a");
    ASSERT_STR(p->filename, "x y");
    return 0;
}

static int on_data(const char *data, size_t len, void *ud) {
    seen += len;
    return 0;
}

static int run_multipart(void) {
    static const struct multipart_ops ops = {.on_part = on_part, .on_data = on_data};
    static const char body[] =
        "--B\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name=a; "
        "filename=f; filename*=utf-8''x%20y\r\n\r\ndata\r\n--B--";
    struct multipart *m;
    struct err err;
    int r = multipart_new("multipart/form-data; boundary=B", &ops, NULL, &m, &err);

    if (r < 0)
        return r;
    seen = 0;
    for (size_t i = 0; r == 0 && i < sizeof body - 1; i++)
        r = multipart_feed(m, body + i, 1, &err);
    if (r == 0)
        r = multipart_end(m, &err);
    multipart_free(m);
    ASSERT(r < 0 || seen == 4);
    return r;
}

static int run_response(void) {
    const char *s = "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\n\r\nabc";
    size_t len = strlen(s), body = 0;
    struct h1_response p;
    struct err err;
    int r;

    h1_response_init(&p, false, false);
    while ((r = h1_response_next(&p, &s, &len, &err)) > 0 && r != H1_RESPONSE_END)
        body += r == H1_RESPONSE_DATA ? p.piece_len : 0;
    ASSERT(r < 0 || (body == 3 && p.status == 200 && p.n_headers == 2));
    h1_response_done(&p);
    return r < 0 ? r : 0;
}

static int run_ws(void) {
    const char *s = "\x01\x03Hel\x80\x02lo";
    size_t len = 9;
    struct ws_decoder d;
    struct ws_event ev;
    int r;

    ws_decoder_init(&d, false, 100);
    r = ws_decode(&d, &s, &len, &ev);
    ASSERT(r < 0 ? d.fail_code == 1011 : ev.len == 5);
    ws_decoder_done(&d);
    return r < 0 ? r : 0;
}

static const struct h1_header in[] = {
    {"Host", "h"}, {"Connection", "X-A, close"}, {"X-A", "1"}, {"Location", "/l"}};

static int run_request_headers(void) {
    static const struct proxy_opts o = {.keep_forwarded = true};
    const struct proxy_request q = {.headers = in, .n_headers = ARRAY_SIZE(in), .peer = "1.1.1.1"};
    struct header_set set = {0};
    int r = proxy_request_headers(&o, &q, &set);

    ASSERT(r < 0 ? set.v == NULL : set.n == 4);
    header_set_done(&set);
    return r;
}

static int run_response_headers(void) {
    static const struct proxy_opts o = {.location_prefix = "/p"};
    struct header_set set = {0};
    int r = proxy_response_headers(&o, in, ARRAY_SIZE(in), false, &set);

    ASSERT(r < 0 ? set.v == NULL : set.n == 2 && str_eq(set.v[1].value, "/p/l"));
    header_set_done(&set);
    return r;
}

TEST(multipart) {
    nomem_exhaust(run_multipart, false);
}

TEST(response) {
    nomem_exhaust(run_response, false);
}

TEST(ws_message) {
    nomem_exhaust(run_ws, false);
}

TEST(proxy_headers) {
    nomem_exhaust(run_request_headers, false);
    nomem_exhaust(run_response_headers, false);
}

TEST_MAIN()
