/*
 * Responses: heads, bodies, chunks, upgrades. Content-Length, Transfer-Encoding and Connection are
 * made here; such headers given by a handler are left out (but "Connection: keep-alive" is kept
 * where it is true). So is Date, unless a handler gives one (that of an upstream). Control
 * characters in header values become blanks, so no handler can split a response.
 *
 * Invariant: what was promised in the head is kept or the connection is cut: never a clean end
 * after fewer bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "net/h1_internal.h"

const char *h1_reason(int status) {
    static const struct {
        int status;
        const char *text;
    } table[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {101, "Switching Protocols"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {423, "Locked"},
        {425, "Too Early"},
        {426, "Upgrade Required"},
        {428, "Precondition Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].status == status)
            return table[i].text;
    return "Unknown";
}

static void put_number(struct buf *b, uint64_t v) {
    char digits[20];
    size_t i = sizeof digits;

    do
        digits[--i] = (char)('0' + v % 10);
    while (v /= 10);
    buf_append(b, digits + i, sizeof digits - i);
}

static void put_clean(struct buf *b, const char *s) {
    size_t at = b->len;

    if (buf_str(b, s) < 0)
        return;
    for (char *p = b->data + at; *p; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
            *p = ' ';
}

static void put_header(struct buf *b, const char *name, const char *value) {
    put_clean(b, name);
    buf_append(b, ": ", 2);
    put_clean(b, value);
    buf_append(b, "\r\n", 2);
}

static bool is_ours(const char *name) {
    switch (*name | 32) {
    case 'c':
        return str_ieq(name, "Connection") || str_ieq(name, "Content-Length");
    case 'k':
        return str_ieq(name, "Keep-Alive");
    case 't':
        return str_ieq(name, "Transfer-Encoding");
    default:
        return false;
    }
}

static bool has_date(const struct h1_header *headers) {
    for (const struct h1_header *h = headers; h && h->name; h++)
        if (str_ieq(h->name, "Date"))
            return true;
    return false;
}

/* Needless in HTTP/1.1, but some answers are specified with it. */
static bool asks_keep_alive(const struct h1_header *headers) {
    for (const struct h1_header *h = headers; h && h->name; h++)
        if (str_ieq(h->name, "Connection") && str_ieq(h->value, "keep-alive"))
            return true;
    return false;
}

static void put_status_line(struct buf *b, int status) {
    if (status == 200) {
        buf_str(b, "HTTP/1.1 200 OK\r\n");
        return;
    }
    buf_str(b, "HTTP/1.1 ");
    put_number(b, (uint64_t)status);
    buf_char(b, ' ');
    buf_str(b, h1_reason(status));
    buf_append(b, "\r\n", 2);
}

static bool has_no_body(int status) {
    return status < 200 || status == 204 || status == 304;
}

/* Whether the connection can serve another request after this response. */
static bool can_keep(const struct h1_req *r) {
    const struct h1_conn *c = r->conn;
    const struct h1_limits *lim = &c->server->opts.limits;

    if (!r->keep_alive || c->server->draining || r->until_close || (c->eof && !h1_conn_input(c)))
        return false;
    if (r->body_done || (r->body_started && r->ops.on_body))
        return true;
    if (r->continue_due) /* nobody knows whether the client will send the body or not */
        return false;
    return r->body_mode == H1_BODY_CHUNKED || r->remaining <= lim->max_drain;
}

/* Decides the framing and writes the head into b. length -1 = not known. */
static int build_head(struct h1_req *r, struct buf *b, int status, const struct h1_header *headers,
                      int64_t length) {
    struct h1_server *s = r->conn->server;

    r->started = true;
    r->status = status;
    r->no_body = r->is_head || has_no_body(status);
    r->chunked = length < 0 && !r->http10 && !has_no_body(status);
    r->until_close = length < 0 && r->http10 && !r->no_body;
    r->out_left = length < 0 ? 0 : (uint64_t)length;
    if (!can_keep(r))
        r->conn->close_after = true;
    put_status_line(b, status);
    if (!has_date(headers))
        buf_str(b, h1_server_date(s));
    for (const struct h1_header *h = headers; h && h->name; h++)
        if (!is_ours(h->name))
            put_header(b, h->name, h->value ? h->value : "");
    if (s->extra_len)
        buf_append(b, s->extra, s->extra_len);
    if (r->chunked) {
        buf_str(b, "Transfer-Encoding: chunked\r\n");
    } else if (length >= 0 && !has_no_body(status)) {
        buf_str(b, "Content-Length: ");
        put_number(b, (uint64_t)length);
        buf_append(b, "\r\n", 2);
    }
    if (r->conn->close_after)
        buf_str(b, "Connection: close\r\n");
    else if (r->http10 || asks_keep_alive(headers))
        buf_str(b, "Connection: keep-alive\r\n");
    buf_append(b, "\r\n", 2);
    return buf_ok(b) ? 0 : -ENOMEM;
}

static bool is_over(const struct h1_req *r) {
    return !r->conn || r->closed || r->ended || r->cut || r->conn->broken || !r->conn->sock;
}

/* Writes the waiting head, if there is one, and the given pieces (at most 4) in one go. */
static ssize_t put(struct h1_req *r, const uv_buf_t *pieces, unsigned n) {
    uv_buf_t all[5];
    unsigned k = 0;
    ssize_t q;

    if (r->head.len)
        all[k++] = (uv_buf_t){.base = r->head.data, .len = r->head.len};
    for (unsigned i = 0; i < n; i++)
        if (pieces[i].len)
            all[k++] = pieces[i];
    q = sock_writev(r->conn->sock, all, k);
    buf_done(&r->head);
    if (q < 0)
        h1_conn_break(r->conn);
    else
        h1_conn_output_changed(r->conn);
    return q;
}

void h1_respond(struct h1_req *r, int status, const struct h1_header *headers, const void *body,
                size_t len) {
    struct buf *b;
    uv_buf_t pieces[2];

    if (is_over(r) || r->started)
        return;
    b = &r->conn->server->scratch;
    buf_clear(b);
    if (build_head(r, b, status, headers, (int64_t)len) < 0) {
        h1_conn_break(r->conn);
        return;
    }
    pieces[0] = (uv_buf_t){.base = b->data, .len = b->len};
    pieces[1] = (uv_buf_t){.base = (char *)body, .len = r->no_body ? 0 : len};
    r->out_left = 0;
    r->out_bytes = pieces[1].len;
    r->ended = true;
    (void)put(r, pieces, 2);
    h1_conn_kick(r->conn);
}

void h1_start(struct h1_req *r, int status, const struct h1_header *headers, int64_t length) {
    if (is_over(r) || r->started)
        return;
    buf_init(&r->head, 0);
    if (build_head(r, &r->head, status, headers, length) < 0) {
        h1_conn_break(r->conn);
        return;
    }
    h1_conn_kick(r->conn); /* the head goes out with the first bytes of the body, or at the end of
                              this turn */
}

ssize_t h1_write(struct h1_req *r, const void *data, size_t len) {
    char size_line[20];
    uv_buf_t pieces[3];
    unsigned n = 0;

    if (is_over(r) || !r->started)
        return -EPIPE;
    if (r->no_body || !len)
        return (ssize_t)sock_queued(r->conn->sock);
    if (!r->chunked && !r->until_close) {
        if (len > r->out_left) { /* more than promised: the client must not take the rest for a
                                    response */
            h1_conn_break(r->conn);
            return -EMSGSIZE;
        }
        r->out_left -= len;
    }
    if (r->chunked) {
        int k = snprintf(size_line, sizeof size_line, "%zx\r\n", len);
        pieces[n++] = (uv_buf_t){.base = size_line, .len = (size_t)k};
    }
    pieces[n++] = (uv_buf_t){.base = (char *)data, .len = len};
    if (r->chunked)
        pieces[n++] = (uv_buf_t){.base = (char *)"\r\n", .len = 2};
    r->out_bytes += len;
    return put(r, pieces, n);
}

void h1_end_with(struct h1_req *r, const void *data, size_t len) {
    char size_line[20];
    int k = snprintf(size_line, sizeof size_line, "%zx\r\n", len);

    if (!r->chunked || r->no_body || !len) {
        h1_write(r, data, len);
        h1_end(r);
        return;
    }
    if (is_over(r) || !r->started)
        return;
    const uv_buf_t pieces[] = {{.base = size_line, .len = (size_t)k},
                               {.base = (char *)data, .len = len},
                               {.base = (char *)"\r\n0\r\n\r\n", .len = 7}};
    r->out_bytes += len;
    r->ended = true;
    (void)put(r, pieces, 3);
    h1_conn_kick(r->conn);
}

void h1_end(struct h1_req *r) {
    uv_buf_t last = {.base = (char *)"0\r\n\r\n", .len = 5};
    bool chunks;

    if (is_over(r) || !r->started)
        return;
    if (r->out_left && !r->no_body) {
        h1_abort(r);
        return;
    }
    chunks = r->chunked && !r->no_body;
    r->ended = true;
    if (chunks || r->head.len)
        (void)put(r, &last, chunks ? 1 : 0);
    h1_conn_kick(r->conn);
}

void h1_abort(struct h1_req *r) {
    if (is_over(r))
        return;
    r->cut = true;
    if (r->head.len && !r->until_close)
        (void)put(r, NULL, 0);
    h1_conn_kick(r->conn);
}

void h1_flush_head(struct h1_req *r) {
    if (r->head.len && !is_over(r))
        (void)put(r, NULL, 0);
}

bool h1_is_started(const struct h1_req *r) {
    return r->started;
}

struct sock *h1_upgrade(struct h1_req *r, int status, const struct h1_header *headers) {
    struct buf *b;

    if (is_over(r) || r->started || !r->body_done)
        return NULL;
    b = &r->conn->server->scratch;
    buf_clear(b);
    put_status_line(b, status);
    for (const struct h1_header *h = headers; h && h->name; h++)
        put_header(b, h->name, h->value ? h->value : "");
    buf_append(b, "\r\n", 2);
    if (!buf_ok(b) || h1_conn_unread(r->conn) < 0 ||
        sock_write(r->conn->sock, b->data, b->len) < 0) {
        h1_conn_break(r->conn);
        return NULL;
    }
    r->started = r->ended = true;
    r->status = status;
    return h1_conn_detach(r->conn);
}

void h1_write_text(struct h1_conn *c, int status, const char *type, const char *body, size_t len) {
    struct buf *b = &c->server->scratch;
    uv_buf_t pieces[2];

    buf_clear(b);
    put_status_line(b, status);
    buf_str(b, h1_server_date(c->server));
    put_header(b, "Content-Type", type);
    if (c->server->extra_len)
        buf_append(b, c->server->extra, c->server->extra_len);
    buf_str(b, "Content-Length: ");
    put_number(b, len);
    buf_str(b, "\r\nConnection: close\r\n\r\n");
    if (!buf_ok(b))
        return;
    pieces[0] = (uv_buf_t){.base = b->data, .len = b->len};
    pieces[1] = (uv_buf_t){.base = (char *)body, .len = len};
    (void)sock_writev(c->sock, pieces, 2);
}

void h1_write_fault(struct h1_conn *c, int status, const char *text) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);

    buf_str(&body, status == 503 ? "{\"code\":\"GENERAL::UNAVAILABLE\",\"message\":"
                                 : "{\"code\":\"GENERAL::BAD_REQUEST\",\"message\":");
    buf_json_str(&body, text, strlen(text));
    buf_char(&body, '}');
    if (buf_ok(&body))
        h1_write_text(c, status, "application/json", body.data, body.len);
}

/* ---- the rest of what handlers ask ---- */

void h1_req_peer(const struct h1_req *r, char *ret_addr, size_t size, int *ret_port) {
    sock_peer(r->conn->sock, ret_addr, size, ret_port);
}

struct sock *h1_req_sock(const struct h1_req *r) {
    return r->conn->sock;
}

uv_loop_t *h1_req_loop(const struct h1_req *r) {
    return r->conn->server->loop;
}

void h1_req_end_with_client(struct h1_req *r) {
    r->ends_with_client = true;
}

void h1_req_set_data(struct h1_req *r, void *data) {
    r->data = data;
}

void *h1_req_data(const struct h1_req *r) {
    return r->data;
}
