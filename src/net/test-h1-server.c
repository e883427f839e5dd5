/* Conversations with the HTTP server: bytes in, bytes out; each also cut at every byte and at
 * random. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "base/test.h"
#include "net/test-h1.h"

#define H "Host: x\r\n"
#define OK(n) "HTTP/1.1 200 OK\r\nContent-Length: " #n "\r\n"
#define HELLO OK(5) "\r\nhello"
#define HELLO_CLOSE OK(5) "Connection: close\r\n\r\nhello"
#define TEN "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define THOUSAND HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"

static const struct conversation {
    const char *name, *in, *out;
    bool ends;     /* the server closes */
    int requests;  /* handlers called */
    int completed; /* of them answered whole */
} table[] = {
    {"get", "GET /hello HTTP/1.1\r\n" H "\r\n", HELLO, false, 1, 1},
    {"empty lines before", "\r\n\r\nGET /hello HTTP/1.1\r\n" H "\r\n", HELLO, false, 1, 1},
    {"keep-alive", "GET /hello HTTP/1.1\r\n" H "\r\nGET /empty HTTP/1.1\r\n" H "\r\n",
     HELLO OK(0) "\r\n", false, 2, 2},
    {"close",
     "GET /hello HTTP/1.1\r\n" H "Connection: close\r\n\r\nGET /hello HTTP/1.1\r\n" H "\r\n",
     HELLO_CLOSE, true, 1, 1},
    {"close in a list", "GET /hello HTTP/1.1\r\n" H "Connection: x, Close\r\n\r\n", HELLO_CLOSE,
     true, 1, 1},
    {"1.0", "GET /hello HTTP/1.0\r\n\r\n", HELLO_CLOSE, true, 1, 1},
    {"1.0 keep-alive", "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
     OK(5) "Connection: keep-alive\r\n\r\nhello", false, 1, 1},
    {"1.0 stream ends with the connection",
     "GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
     "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nonetwo", true, 1, 1},
    {"head",
     "HEAD /hello HTTP/1.1\r\n" H "\r\nHEAD /chunks HTTP/1.1\r\n" H "\r\nHEAD /fixed HTTP/1.1\r\n" H
     "\r\n",
     OK(5) "\r\n" CHUNKED "\r\n" OK(6) "\r\n", false, 3, 3},
    {"204 and 304", "GET /204 HTTP/1.1\r\n" H "\r\nGET /304 HTTP/1.1\r\n" H "\r\n",
     "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n", false, 2, 2},
    {"late answer, pipelined",
     "GET /late HTTP/1.1\r\n" H "\r\nGET /late HTTP/1.1\r\n" H "\r\nGET /empty HTTP/1.1\r\n" H
     "\r\n",
     HELLO HELLO OK(0) "\r\n", false, 3, 3},
    {"chunked answer", "GET /chunks HTTP/1.1\r\n" H "\r\n",
     CHUNKED "\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n", false, 1, 1},
    {"fixed answer in pieces", "GET /fixed HTTP/1.1\r\n" H "\r\n", OK(6) "\r\nabcdef", false, 1, 1},
    {"too short an answer is cut", "GET /short HTTP/1.1\r\n" H "\r\n", OK(6) "\r\nabc", true, 1, 0},
    {"too long an answer is cut", "GET /over HTTP/1.1\r\n" H "\r\n", "", true, 1, 0},
    {"body by length",
     "POST /echo HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabcGET /hello HTTP/1.1\r\n" H "\r\n",
     OK(3) "\r\nabc" HELLO, false, 2, 2},
    {"body in chunks",
     "POST /echo HTTP/1.1\r\n" H
     "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\nT: v\r\n\r\n"
     "GET /hello HTTP/1.1\r\n" H "\r\n",
     OK(3) "\r\nabc" HELLO, false, 2, 2},
    {"trailers change nothing",
     "POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n00\r\n"
     "Content-Length: 99\r\nConnection: close\r\n\r\nGET /hello HTTP/1.1\r\n" H "\r\n",
     OK(1) "\r\na" HELLO, false, 2, 2},
    {"chunked in any case",
     "POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", OK(0) "\r\n", false,
     1, 1},
    {"body started late",
     "POST /late-echo HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabcGET /hello HTTP/1.1\r\n" H
     "\r\n",
     OK(3) "\r\nabc" HELLO, false, 2, 2},
    {"empty body collected", "POST /echo HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", OK(0) "\r\n",
     false, 1, 1},
    {"unread body is drained",
     "POST /ignore HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabcGET /hello HTTP/1.1\r\n" H "\r\n",
     HELLO HELLO, false, 2, 2},
    {"unread chunks are drained",
     "POST /ignore HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
     "GET /hello HTTP/1.1\r\n" H "\r\n",
     HELLO HELLO, false, 2, 2},
    {"large unread body closes",
     "POST /ignore HTTP/1.1\r\n" H "Content-Length: 10000000\r\n\r\nabc", HELLO_CLOSE, true, 1, 1},
    {"expect, read",
     "POST /echo HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
     "HTTP/1.1 100 Continue\r\n\r\n" OK(3) "\r\nabc", false, 1, 1},
    {"expect, not read",
     "POST /ignore HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", HELLO_CLOSE,
     true, 1, 1},
    {"too large by length", "POST /echo HTTP/1.1\r\n" H "Content-Length: 1001\r\n\r\n",
     "HTTP/1.1 413 Content Too Large\r\nContent-Type: application/json\r\nContent-Length: "
     "85\r\nConnection: close\r\n\r\n"
     "{\"code\":\"GENERAL::BAD_REQUEST\",\"message\":\"the request body is larger than its "
     "limit\"}",
     true, 1, 0},
    {"too large by chunk",
     "POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3e8\r\n" THOUSAND,
     "HTTP/1.1 413 Content Too Large\r\nContent-Type: application/json\r\nContent-Length: "
     "85\r\nConnection: close\r\n\r\n"
     "{\"code\":\"GENERAL::BAD_REQUEST\",\"message\":\"the request body is larger than its "
     "limit\"}",
     true, 1, 0},
    {"abort", "GET /abort HTTP/1.1\r\n" H "\r\n", "", true, 1, 0},
    {"abort inside the body", "POST /abort-late HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc", "",
     true, 1, 0},
    {"upgrade with early bytes",
     "GET /upgrade HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: echo\r\n\r\nraw",
     "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nraw", false,
     1, 1},
    {"no upgrade with a body",
     "POST /upgrade HTTP/1.1\r\n" H
     "Connection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 3\r\n\r\nabc"
     "GET /hello HTTP/1.1\r\n" H "\r\n",
     "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" HELLO, false, 2, 2},
    {"nothing allowed, nothing sent", "POST /nothing HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n",
     OK(0) "\r\n", false, 1, 1},
    {"nothing allowed, one byte sent",
     "POST /nothing HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na",
     "HTTP/1.1 413 Content Too Large\r\nContent-Type: application/json\r\nContent-Length: "
     "85\r\nConnection: close\r\n\r\n"
     "{\"code\":\"GENERAL::BAD_REQUEST\",\"message\":\"the request body is larger than its "
     "limit\"}",
     true, 1, 0},
    {"upgrade not taken",
     "GET /hello HTTP/1.1\r\n" H
     "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\nGET /hello HTTP/1.1\r\n" H "\r\n",
     HELLO HELLO, false, 2, 2},
    {"info", "GET /info?a=b%20c HTTP/1.1\r\n" H "x-A: \t v w \t\r\nX-A: 2\r\n\r\n",
     OK(41) "\r\nGET|/info?a=b%20c|/info|a=b%20c|0|0|0|v w", false, 1, 1},
    {"absolute form", "GET http://x/info HTTP/1.1\r\n" H "X-A:\r\n\r\n",
     OK(32) "\r\nGET|http://x/info|/info|-|0|0|0|", false, 1, 1},
    {"no response splitting", "GET /inject HTTP/1.1\r\n" H "\r\n",
     "HTTP/1.1 200 OK\r\nX-A: a  X-B: b\r\nContent-Length: 1\r\n\r\nx", false, 1, 1},
    {"events", "GET /events HTTP/1.1\r\n" H "\r\n",
     "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: "
     "no-cache\r\nX-Accel-Buffering: no\r\n"
     "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n4\r\n{}\n\n\r\n",
     false, 1, 0},
};

/* Sends `in` in pieces given by cut(); compares what came back. */
static void run_one(const struct conversation *c, unsigned (*cut)(unsigned *), unsigned seed,
                    const char *how) {
    struct h1_fixture f;
    size_t len = strlen(c->in), done = 0;
    unsigned completed;

    h1_fixture_init(&f, NULL);
    h1_fixture_connect(&f);
    while (done < len && !f.client_eof) {
        size_t n = cut(&seed), taken = h1_fixture_send(&f, c->in + done, MIN(n, len - done));

        if (!taken && !f.client_eof)
            h1_fixture_wait(&f, f.out.len + 1, 20);
        done += taken;
        h1_fixture_turn(&f);
    }
    h1_fixture_wait(&f, c->ends ? SIZE_MAX : strlen(c->out), 500);
    for (int i = 0; i < 3; i++)
        h1_fixture_turn(&f);
    strip_dates(&f.out);
    for (int i = 0; i < 100 && f.out.len < strlen(c->out) && !f.client_eof;
         i++) { /* dates made it look longer */
        h1_fixture_wait(&f, f.out.len + 1, 20);
        strip_dates(&f.out);
    }
    if (!str_eq(f.out.data ? f.out.data : "", c->out))
        test_fail(__FILE__, __LINE__, "%s (%s): got:\n%s\nexpected:\n%s", c->name, how, f.out.data,
                  c->out);
    if (f.client_eof != c->ends)
        test_fail(__FILE__, __LINE__, "%s (%s): the connection %s", c->name, how,
                  f.client_eof ? "was ended" : "stayed");
    if ((int)f.requests != c->requests)
        test_fail(__FILE__, __LINE__, "%s (%s): %u requests, expected %d", c->name, how, f.requests,
                  c->requests);
    completed = f.completed;
    if ((int)completed != c->completed)
        test_fail(__FILE__, __LINE__, "%s (%s): %u completed, expected %d", c->name, how, completed,
                  c->completed);
    h1_fixture_done(&f);
}

static unsigned whole(unsigned *seed) {
    return 1u << 20;
}

static unsigned single(unsigned *seed) {
    return 1;
}

static unsigned any(unsigned *seed) {
    return 1 + (unsigned)rand_r(seed) % 40;
}

TEST(conversations) {
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        run_one(&table[i], whole, 0, "whole");
}

TEST(conversations_byte_by_byte) {
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        run_one(&table[i], single, 0, "byte by byte");
}

TEST(conversations_cut_at_random) {
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        for (unsigned seed = 1; seed <= 10; seed++) {
            char how[32];
            snprintf(how, sizeof how, "seed %u", seed);
            run_one(&table[i], any, seed, how);
        }
}

TEST_MAIN()
