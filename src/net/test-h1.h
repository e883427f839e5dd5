/* What the tests of the HTTP server share: a server with a demonstration handler, and a client end
 * of a socket pair. */
#pragma once

#include "base/buf.h"
#include "net/h1_internal.h"

/*
 * Paths of the handler:
 *   /hello         200 "hello"
 *   /empty         200 without a body; /204 and /304 accordingly
 *   /echo          collects at most 1000 bytes and sends them back
 *   /nothing       the same with at most 0 bytes
 *   /stream-echo   sends body bytes back as they come, in chunks
 *   /late          like /hello, from a timer
 *   /late-echo     starts the body from a timer, then as /echo
 *   /chunks        chunks "one" and "two"
 *   /events        one event; the stream stays open
 *   /fixed         Content-Length 6 in two writes
 *   /short         promises 6 bytes and sends 3
 *   /over          promises 3 bytes and sends 6
 *   /abort         aborts; /abort-late after some body
 *   /ignore        200 without reading the body
 *   /upgrade       101, then echoes raw bytes
 *   /inject        a header with CR LF in its value
 *   /info          method|target|path|query|content_length|upgrade|http10|X-A
 */
struct h1_fixture {
    uv_loop_t loop;
    struct h1_server *server;
    int client;                           /* -1 once closed */
    struct buf out;                       /* what the client received */
    bool client_eof;                      /* the server ended its side */
    int client_errno;                     /* ECONNRESET ... */
    unsigned requests, closes, completed; /* on_request, on_close, on_close(true) */
    struct sock *upgraded;
};

void h1_fixture_init(struct h1_fixture *f, const struct h1_limits *limits);
void h1_fixture_connect(struct h1_fixture *f); /* a fresh socket pair, one end served */
void h1_fixture_done(
    struct h1_fixture *f); /* fails the test when a request was not closed exactly once */
/* Sends as much as goes; returns bytes taken. */
size_t h1_fixture_send(struct h1_fixture *f, const char *data, size_t len);
void h1_fixture_turn(
    struct h1_fixture *f); /* one turn of the loop without waiting, then reads what came */
/* Turns until the client has n bytes (n = SIZE_MAX: until the server ends), at most limit_ms. False
 * on time-out. */
bool h1_fixture_wait(struct h1_fixture *f, size_t n, unsigned limit_ms);
/* Removes Date lines from text, in place. */
void strip_dates(struct buf *b);
