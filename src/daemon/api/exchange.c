/*
 * Exchanges (see exchange.h). Owns the standard headers, the envelope of errors and the life time
 * of an exchange: one reference belongs to the HTTP request, one to each operation under way.
 */
#include "daemon/api/exchange.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/log.h"
#include "daemon/api/schema.h"

#define MAX_BODY_DEFAULT ((size_t)1 << 20)

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct xch *x = ud;
    x->req = NULL;
    xch_release(x);
}

#define CODE_TOO_LARGE "GENERAL::BODY_TOO_LARGE"

static size_t max_body(const struct xch *x) {
    return x->api->o.max_body ? x->api->o.max_body : MAX_BODY_DEFAULT;
}

static void too_large(struct xch *x) {
    xch_error(x, 413, CODE_TOO_LARGE, "The request body may have at most %zu bytes.", max_body(x));
}

/* A body whose size was not told in advance, or that does not come. */
static void on_fault(struct h1_req *r, int status, const char *text, void *ud) {
    struct xch *x = ud;

    if (status == 413)
        too_large(x);
    else
        xch_error(x, status, "GENERAL::BAD_REQUEST", "%s", text);
}

static const struct h1_req_ops ops = {.on_close = on_close, .on_fault = on_fault};

/* The client's own id when it is usable in a header and a log line. */
static void take_request_id(struct xch *x) {
    const char *s = h1_req_header(x->req, "X-Request-ID");
    size_t n;

    s = s ? s + strspn(s, " \t") : "";
    n = strlen(s);
    while (n && strchr(" \t", s[n - 1]))
        n--;
    bool usable = n > 0 && n <= REQUEST_ID_MAX;
    for (size_t i = 0; i < n && usable; i++)
        usable = s[i] >= 0x20 && s[i] < 0x7f;
    if (usable) {
        memcpy(x->request_id, s, n);
        x->request_id[n] = '\0';
    } else {
        id_hex32(x->request_id);
    }
}

struct xch *xch_new(struct api *a, struct h1_req *r) {
    struct xch *x = calloc(1, sizeof *x);

    if (!x) {
        h1_abort(r);
        return NULL;
    }
    long uid = sock_peer_uid(h1_req_sock(r));
    x->api = a;
    x->req = r;
    x->refs = 1;
    x->is_local = uid >= 0;
    x->is_operator = uid == 0;
    take_request_id(x);
    h1_req_set_data(r, x);
    h1_req_set_ops(r, &ops, x);
    return x;
}

void xch_take_events(struct xch *x) {
    if (x->req)
        h1_req_set_ops(x->req, &ops, x);
}

void xch_hold(struct xch *x) {
    x->refs++;
}

void xch_release(struct xch *x) {
    if (--x->refs > 0)
        return;
    free(x->memo);
    free(x->extra_text);
    free(x);
}

const struct h1_header *xch_headers(struct xch *x, const char *type) {
    const char *origin = h1_req_header(x->req, "Origin");
    struct h1_header *h = x->std;

    *h++ = (struct h1_header){"X-Request-ID", x->request_id};
    if (type)
        *h++ = (struct h1_header){"Content-Type", type};
    *h++ = (struct h1_header){"Vary", "Origin"};
    if (origin) {
        *h++ = (struct h1_header){"Access-Control-Allow-Origin", origin};
        *h++ = (struct h1_header){"Access-Control-Allow-Credentials", "true"};
        *h++ = (struct h1_header){"Access-Control-Expose-Headers", "OPEN-SANDBOX-ORIGIN"};
    }
    for (size_t i = 0; i < x->n_extra; i++)
        *h++ = x->extra[i];
    *h = (struct h1_header){NULL, NULL};
    return x->std;
}

void xch_respond(struct xch *x, int status, const char *type, const void *body, size_t len) {
    if (x->req && !h1_is_started(x->req))
        h1_respond(x->req, status, xch_headers(x, type), body, len);
}

void xch_json_text(struct xch *x, int status, const char *text, size_t len) {
    xch_respond(x, status, "application/json", text, len);
}

void xch_json(struct xch *x, int status, json_t *body) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);

    if (x->req) {
        if (body && buf_json(&b, body) == 0)
            xch_json_text(x, status, b.data, b.len);
        else
            xch_error(x, 500, "GENERAL::UNKNOWN_ERROR", "the answer could not be put together");
    }
    json_decref(body);
}

void xch_empty(struct xch *x, int status) {
    xch_respond(x, status, NULL, NULL, 0);
}

static json_t *envelope(const char *code, const char *message) {
    return json_pack("{s:s,s:s}", "code", code, "message",
                     *message ? message : "An unexpected error occurred.");
}

void xch_error(struct xch *x, int status, const char *code, const char *fmt, ...) {
    _cleanup_buf_ struct buf b = BUF_INIT(4096), text = BUF_INIT(16384);
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    const char *message = b.data && b.len ? b.data : "An unexpected error occurred.";
    if (status >= 500)
        log_warn("request failed", LOG_REQ(x->request_id), LOG_STR("code", code),
                 LOG_STR("message", message));
    buf_str(&text, "{\"code\":");
    buf_json_str(&text, code, strlen(code));
    buf_str(&text, ",\"message\":");
    buf_json_str(&text, message, strlen(message));
    buf_char(&text, '}');
    xch_json_text(x, status, text.data, text.len);
}

void xch_error_detail(struct xch *x, int status, const char *code, const char *text) {
    json_t *e = envelope(code, text);
    json_object_set_new(e, "detail", json_string(text));
    xch_json(x, status, e);
}

void xch_violations(struct xch *x, json_t *detail) {
    _cleanup_free_ char *line = violations_line(detail);
    json_t *e = envelope("GENERAL::VALIDATION_ERROR", line ? line : "");
    json_object_set_new(e, "detail", detail);
    xch_json(x, 422, e);
}

static void on_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    void (*cb)(struct xch *, const char *, size_t) = ud;
    cb(h1_req_data(r), data, len);
}

void xch_collect(struct xch *x, void (*cb)(struct xch *x, const char *data, size_t len)) {
    if (h1_req_content_length(x->req) > (int64_t)max_body(x)) {
        too_large(x);
        return;
    }
    h1_req_collect(x->req, max_body(x), on_body, cb);
}
