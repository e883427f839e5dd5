/*
 * Responses of one request, parsed by pulling: give bytes, get one event. Strict: what another
 * reader could take for a message of another length is refused. No I/O. Part of the HTTP client.
 */
#pragma once

#include <llhttp.h>

#include "base/buf.h"
#include "base/err.h"
#include "net/h1_server.h" /* struct h1_header */

#define H1_RESPONSE_MAX_HEAD ((size_t)64 << 10)
#define H1_RESPONSE_MAX_HEADERS 256

enum h1_response_event {
    H1_RESPONSE_MORE,    /* all bytes are used, more are needed */
    H1_RESPONSE_HEAD,    /* status, headers, length are set */
    H1_RESPONSE_DATA,    /* a piece of the body */
    H1_RESPONSE_END,     /* complete; bytes left over do not belong to it */
    H1_RESPONSE_UPGRADE, /* 101; what follows is the other protocol's */
};

struct h1_response {
    llhttp_t parser;
    bool is_head_request, accept_upgrade;
    enum { RESPONSE_IN_HEAD, RESPONSE_IN_BODY, RESPONSE_DONE } phase;
    bool head_done, ended, until_close, keep_alive, is_chunked;
    /* scanner of the raw head */
    size_t head_bytes, line_bytes;
    char last;
    unsigned n_interim;
    size_t framing_bytes; /* chunk extensions and trailers */
    /* name NUL value NUL ... of the head */
    struct buf text;
    struct h1_header *headers; /* into text; ended by {NULL, NULL} */
    size_t n_headers;
    int status;
    int64_t length; /* Content-Length, or -1 */
    const char *piece;
    size_t piece_len;
};

void h1_response_init(struct h1_response *p, bool is_head_request, bool accept_upgrade);
void h1_response_done(struct h1_response *p);
/* Frees the head's memory (a stream may last for days after it). status and length stay. */
void h1_response_drop_head(struct h1_response *p);
/* Next event, or -EBADMSG with the reason in err (final). *data and *len move on; the piece points
 * into *data. */
int h1_response_next(struct h1_response *p, const char **data, size_t *len, struct err *err);
/* The peer ended the stream: 0 = that completes the response, -EBADMSG = truncated, -ECONNRESET =
 * nothing came. */
int h1_response_eof(const struct h1_response *p, struct err *err);
