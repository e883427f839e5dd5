/*
 * Request bodies: Content-Length and trailers counted here, chunks taken apart by llhttp. Delivery
 * to the handler, the limits, and the draining of what nobody reads.
 *
 * Invariant: on_body is called only while the body is wanted; a pause inside on_body stops the
 * parser at that byte and the rest stays with the connection. Trailers are counted and dropped.
 * Called by h1_conn.c alone.
 */
#include <errno.h>
#include <string.h>

#include "net/h1_internal.h"

bool h1_body_is_wanted(const struct h1_req *r) {
    if (r->body_done || r->cut)
        return false;
    /* After the response it is drained. */
    return r->closed || r->ended || (r->body_started && !r->body_paused);
}

static int fault(struct h1_req *r, int status, const char *text) {
    r->fault = (struct h1_fault){status, text};
    return -1;
}

/* One piece of body, whatever the framing. Returns -1 with the fault set when a limit is passed. */
static int deliver(struct h1_req *r, const char *data, size_t len) {
    r->body_bytes += len;
    if (r->closed || r->ended || !r->body_started || (!r->collecting && !r->ops.on_body)) {
        r->drained += len;
        if (r->drained > r->conn->server->opts.limits.max_drain)
            return fault(r, 413, "the unread request body is larger than max_drain");
        return 0;
    }
    if (r->body_bytes > r->body_limit)
        return fault(r, 413, "the request body is larger than its limit");
    if (r->collecting) {
        if (buf_append(&r->collected, data, len) < 0)
            return fault(r, 413, "the request body is larger than its limit");
        return 0;
    }
    r->ops.on_body(r, data, len, r->ud);
    return 0;
}

static int on_chunk_data(llhttp_t *p, const char *at, size_t len) {
    struct h1_req *r = p->data;

    if (deliver(r, at, len) < 0)
        return HPE_USER;
    return h1_body_is_wanted(r) ? 0 : HPE_PAUSED;
}

static int on_chunk_header(llhttp_t *p) {
    struct h1_req *r = p->data;

    if (p->content_length == 0) {
        /* The last chunk. What follows is ours: llhttp would take bare line feeds there. */
        r->in_trailers = true;
        return HPE_PAUSED;
    }
    return 0;
}

static int on_extension(llhttp_t *p, const char *at, size_t len) {
    struct h1_req *r = p->data;

    (void)at;
    r->ext_bytes += len;
    return r->ext_bytes > H1_MAX_CHUNK_EXTENSIONS
               ? fault(r, 400, "the chunk extensions are larger than 16384 bytes")
               : 0;
}

/* Trailers are checked like header lines and dropped. Returns bytes used or -1. */
static ssize_t feed_trailers(struct h1_req *r, const char *data, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];

        if (++r->trailer_bytes > r->conn->server->opts.limits.max_headers)
            return fault(r, 431, "the trailers are larger than max_headers");
        if (r->trailer.cr) {
            if (c != '\n')
                return fault(r, 400, "a trailer line holds CR without LF");
            if (!r->trailer.len) {
                r->body_done = true;
                return (ssize_t)i + 1;
            }
            if (!r->trailer.colon)
                return fault(r, 400, "a trailer line has no colon");
            r->trailer = (struct h1_trailer){0};
        } else if (c == '\r') {
            r->trailer.cr = true;
        } else if ((c < ' ' && c != '\t') || c == 0x7f ||
                   (!r->trailer.len && (c == ' ' || c == '\t' || c == ':'))) {
            return fault(r, 400, "a trailer line is malformed");
        } else {
            r->trailer.len++;
            r->trailer.colon |= c == ':';
        }
    }
    return (ssize_t)len;
}

static const llhttp_settings_t chunk_settings = {
    .on_body = on_chunk_data,
    .on_chunk_header = on_chunk_header,
    .on_chunk_extension_name = on_extension,
    .on_chunk_extension_value = on_extension,
};

/* Bytes that bring no body (leading zeros of a size, extensions) must come to an end. */
static int check_framing(struct h1_req *r, uint64_t body_before, size_t used) {
    r->frame_bytes = r->body_bytes == body_before ? r->frame_bytes + used : 0;
    return r->frame_bytes > 2 * H1_MAX_CHUNK_EXTENSIONS
               ? fault(r, 400, "the chunk header is larger than 32768 bytes")
               : 0;
}

static ssize_t feed_chunks(struct h1_req *r, const char *data, size_t len) {
    uint64_t before = r->body_bytes;
    llhttp_errno_t e;
    size_t used = len;

    r->parser.settings = (void *)&chunk_settings;
    llhttp_resume(&r->parser);
    e = llhttp_execute(&r->parser, data, len);
    if (e == HPE_PAUSED)
        used = (size_t)(llhttp_get_error_pos(&r->parser) - data);
    else if (e != HPE_OK && !r->fault.status)
        fault(r, 400, h1_parser_reason(&r->parser));
    return r->fault.status || check_framing(r, before, used) < 0 ? -1 : (ssize_t)used;
}

static ssize_t feed_chunked(struct h1_req *r, const char *data, size_t len) {
    ssize_t used = r->in_trailers ? 0 : feed_chunks(r, data, len), more = 0;

    if (used >= 0 && r->in_trailers)
        more = feed_trailers(r, data + used, len - (size_t)used);
    return used < 0 || more < 0 ? -EBADMSG : used + more;
}

static ssize_t feed_length(struct h1_req *r, const char *data, size_t len) {
    size_t n = (size_t)MIN((uint64_t)len, r->remaining);

    r->remaining -= n;
    if (!r->remaining)
        r->body_done = true;
    return deliver(r, data, n) < 0 ? -EBADMSG : (ssize_t)n;
}

ssize_t h1_body_feed(struct h1_req *r, const char *data, size_t len) {
    return r->body_mode == H1_BODY_CHUNKED ? feed_chunked(r, data, len) : feed_length(r, data, len);
}

bool h1_body_tell_end(struct h1_req *r) {
    if (!r->body_done || !r->body_started || r->body_paused || r->body_end_told || r->closed ||
        r->ended || r->cut)
        return false;
    r->body_end_told = true;
    if (r->collecting)
        r->collect_cb(r, r->collected.data ? r->collected.data : "", r->collected.len,
                      r->collect_ud);
    else if (r->ops.on_body_end)
        r->ops.on_body_end(r, r->ud);
    return true;
}

/* ---- what handlers call ---- */

void h1_req_set_ops(struct h1_req *r, const struct h1_req_ops *ops, void *ud) {
    r->ops = ops ? *ops : (struct h1_req_ops){0};
    r->ud = ud;
}

static void start(struct h1_req *r, uint64_t limit) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

    r->body_started = true;
    r->body_limit = limit;
    if (r->body_mode == H1_BODY_LENGTH && r->remaining > limit) {
        h1_conn_fault(r->conn, 413, "the request body is larger than its limit");
        return;
    }
    if (r->continue_due && !r->started) {
        r->continue_due = false;
        if (sock_write(r->conn->sock, go_on, sizeof go_on - 1) < 0) {
            h1_conn_break(r->conn);
            return;
        }
    }
    h1_conn_kick(r->conn);
}

void h1_req_body_start(struct h1_req *r, uint64_t max_body) {
    if (!r->body_started && !r->closed && !r->cut)
        start(r, max_body ? max_body : UINT64_MAX);
}

void h1_req_body_pause(struct h1_req *r) {
    r->body_paused = true;
    h1_conn_kick(r->conn);
}

void h1_req_body_resume(struct h1_req *r) {
    r->body_paused = false;
    h1_conn_kick(r->conn);
}

void h1_req_collect(struct h1_req *r, size_t max,
                    void (*cb)(struct h1_req *r, const char *data, size_t len, void *ud),
                    void *ud) {
    if (r->body_started || r->closed || r->cut)
        return;
    r->collecting = true;
    buf_init(&r->collected, max ? max : 1);
    r->collect_cb = cb;
    r->collect_ud = ud;
    start(r, max);
}
