/*
 * Requests that try to be read in two ways, or to reach past a limit. Each must be refused with the
 * status given here, the connection must end, and the hello that follows each of them must never
 * reach a handler.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "base/test.h"
#include "net/test-h1.h"

#define H "Host: x\r\n"
#define POST "POST /echo HTTP/1.1\r\n" H
#define CH POST "Transfer-Encoding: chunked\r\n\r\n"
#define S(text) text, sizeof(text) - 1

static const struct hostile {
    const char *in;
    size_t len;
    int status;
    int requests; /* heads that were fine */
} table[] = {
    /* two lengths */
    {S(POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), 400, 0},
    {S(POST "Content-Length: 3, 3\r\n\r\nabc"), 400, 0},
    /* numbers */
    {S(POST "Content-Length: +3\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length: -3\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length: 0x3\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length: 3 3\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length: 3a\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length:\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length: 18446744073709551617\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length: 9223372036854775808\r\n\r\nabc"), 400, 0},
    {S(POST "Content-Length: 99999999999999999999999999\r\n\r\nabc"), 400, 0},
    /* encodings */
    {S(POST "Transfer-Encoding: identity\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding:\x0b"
            "chunked\r\n\r\n0\r\n\r\n"),
     400, 0},
    {S(POST "Transfer-Encoding:\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"), 400, 0},
    {S(POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"), 400, 0},
    {S("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, 0},
    /* lines */
    {S("GET /hello HTTP/1.1\n" H "\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\nHost: x\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "\n"), 400, 0},
    {S("\nGET /hello HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X: a\rX: b\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X: a\r\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "\rX: a\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X: a\r\n\tb\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n X: a\r\n" H "\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "no colon\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H ": no name\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "two words: x\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X\x80: y\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X(: y\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X: a\0b\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X\0: a\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X: a\x01\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H "X: a\x7f\r\n\r\n"), 400, 0},
    /* hosts */
    {S("GET /hello HTTP/1.1\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\n" H H "\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\nHost: a b\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\nHost: a@b\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1\r\nHost: a, b\r\n\r\n"), 400, 0},
    {S("GET http://y/hello HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET http://x@y/hello HTTP/1.1\r\n" H "\r\n"), 400, 0},
    /* request lines */
    {S("GET /hello\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/0.9\r\n\r\n"), 400, 0},
    {S("GET /hello HTTP/1.2\r\n" H "\r\n"), 400, 0},
    {S("GET /hello HTTP/2.0\r\n" H "\r\n"), 400, 0},
    {S("GET /hello http/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1 \r\n" H "\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1x\r\n" H "\r\n"), 400, 0},
    {S("GET /hello HTTP/1.1 HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET  /hello HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET /hello  HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET\t/hello HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET /he llo HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET /hello\0 HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET /hello\x80 HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET /hello#x HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET hello HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GET * HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("get /hello HTTP/1.1\r\n" H "\r\n"), 400, 0},
    {S("GETT /hello HTTP/1.1\r\n" H "\r\n"), 501, 0},
    {S("CONNECT x:80 HTTP/1.1\r\n" H "\r\n"), 501, 0},
    {S("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 400, 0},
    {S("HTTP/1.1 200 OK\r\n" H "\r\n"), 400, 0},
    {S("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 400, 0},
    /* chunks */
    {S(CH "0x3\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "+3\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "-1\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH " 3\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "3 \r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "g\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "3\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "3\r\nabc\n0\r\n\r\n"), 400, 1},
    {S(CH "3\r\nabcd\r\n0\r\n\r\n"), 400, 1},
    {S(CH "3\r\nabc0\r\n\r\n"), 400, 1},
    {S(CH "3;a\nb\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "3;a\rb\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "3;a=\"\0\"\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "10000000000000003\r\nabc\r\n0\r\n\r\n"), 400, 1},
    {S(CH "0\n\r\n"), 400, 1},
    {S(CH "0\r\n\n"), 400, 1},
    {S(CH "0\r\nX: y\n\r\n"), 400, 1},
    {S(CH "0\r\nno colon\r\n\r\n"), 400, 1},
};

static const char hello[] = "GET /hello HTTP/1.1\r\n" H "\r\n";

/* Sends it in pieces of `piece` bytes; the status of the first answer, 0 = none. */
static int converse(struct h1_fixture *f, const char *data, size_t len, size_t piece) {
    int status = 0;

    h1_fixture_connect(f);
    for (size_t done = 0; done < len && !f->client_eof;) {
        size_t n = h1_fixture_send(f, data + done, MIN(piece, len - done));
        if (!n) /* full: the server must read first */
            h1_fixture_wait(f, f->out.len + 1, 20);
        done += n;
        if (piece < 1000)
            h1_fixture_turn(f);
    }
    h1_fixture_wait(f, SIZE_MAX, 300);
    if (f->out.len > 12)
        sscanf(f->out.data, "HTTP/1.1 %d", &status);
    return status;
}

static void check(const struct hostile *h, size_t piece) {
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    struct h1_fixture f;
    int status;

    ASSERT_OK(buf_append(&in, h->in, h->len));
    ASSERT_OK(buf_str(&in, hello));
    h1_fixture_init(&f, NULL);
    status = converse(&f, in.data, in.len, piece);
    if (status != h->status || !f.client_eof || (int)f.requests != h->requests || f.completed)
        test_fail(__FILE__, __LINE__,
                  "in pieces of %zu: status %d, %s, %u requests for:\n%.*s\n--- got:\n%s", piece,
                  status, f.client_eof ? "ended" : "stayed open", f.requests, (int)h->len, h->in,
                  f.out.data ? f.out.data : "");
    if (!strstr(f.out.data, "Connection: close\r\n") ||
        !strstr(f.out.data, "{\"code\":\"GENERAL::BAD_REQUEST\",\"message\":\""))
        test_fail(__FILE__, __LINE__, "answer without close or code:\n%s", f.out.data);
    h1_fixture_done(&f);
}

TEST(refused_whole) {
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        check(&table[i], 1 << 20);
}

TEST(refused_byte_by_byte) {
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        check(&table[i], 1);
}

/* ---- limits ---- */

static const struct h1_limits small = {
    .max_target = 100, .max_headers = 200, .max_header_count = 5, .max_drain = 1000};

static void expect_limit(const char *in, size_t len, int status, const char *names) {
    struct h1_fixture f;

    for (size_t piece = 1; piece <= 1000; piece *= 10) {
        h1_fixture_init(&f, &small);
        int got = converse(&f, in, len, piece);
        if (got != status || !f.client_eof || (names && !strstr(f.out.data, names)))
            test_fail(__FILE__, __LINE__, "pieces of %zu: status %d, expected %d naming %s:\n%s",
                      piece, got, status, names, f.out.data ? f.out.data : "");
        h1_fixture_done(&f);
    }
}

static void repeat(struct buf *b, const char *s, unsigned n) {
    while (n--)
        ASSERT_OK(buf_str(b, s));
}

TEST(limits_of_heads) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);

    buf_str(&b, "GET /");
    repeat(&b, "a", 200);
    expect_limit(b.data, b.len, 414, "max_target"); /* refused without waiting for the line's end */
    buf_str(&b, " HTTP/1.1\r\n" H "\r\n");
    expect_limit(b.data, b.len, 414, "max_target");
    buf_clear(&b);
    buf_str(&b, "GET /hello HTTP/1.1\r\nX: ");
    repeat(&b, "a", 250);
    expect_limit(b.data, b.len, 431, "max_headers");
    buf_clear(&b);
    buf_str(&b, "GET /hello HTTP/1.1\r\n" H);
    repeat(&b, "X: y\r\n", 5);
    expect_limit(b.data, b.len, 431, "max_header_count");
}

TEST(limits_of_bodies) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);

    buf_str(&b, CH "1;");
    repeat(&b, "abcdefghij", 1700);
    buf_str(&b, "\r\na\r\n0\r\n\r\n");
    expect_limit(b.data, b.len, 400, "chunk extensions");
    buf_clear(&b);
    buf_str(&b, CH);
    repeat(&b, "1;x=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\na\r\n", 600);
    expect_limit(b.data, b.len, 400, "chunk extensions");
    buf_clear(&b);
    buf_str(&b, CH "0\r\n");
    repeat(&b, "X: yyyyyyyyyyyyyyyyyyy\r\n", 20);
    expect_limit(b.data, b.len, 431, "max_headers");
    buf_clear(&b);
    buf_str(&b, CH);
    repeat(&b, "1\r\na\r\n", 1001);
    expect_limit(b.data, b.len, 413, "larger than its limit");
}

/* Zeros before a chunk's size are legal, but not without end. */
TEST(endless_chunk_size) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);

    buf_str(&b, CH);
    repeat(&b, "0000000000", 3500);
    expect_limit(b.data, b.len, 400, "chunk");
}

/* An unread body in chunks longer than max_drain: the answer arrives whole, then the connection
 * ends. */
TEST(unread_body_is_bounded) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    struct h1_fixture f;

    buf_str(&b, "POST /ignore HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
    repeat(&b,
           "64\r\n012345678901234567890123456789012345678901234567890123456789012345678901234567890"
           "1234567890123456789\r\n",
           20);
    h1_fixture_init(&f, &small);
    ASSERT_INT(converse(&f, b.data, b.len, 100), 200);
    ASSERT(f.client_eof);
    ASSERT_INT(f.completed, 1);
    h1_fixture_done(&f);
}

TEST_MAIN()
