/* Common answers (see errors.h). */
#include "execd/errors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static const char json_content[] = "application/json; charset=utf-8";

void reply_error_with(struct h1_req *r, int status, const struct h1_header *headers,
                      const char *code, const char *msg) {
    struct h1_header all[8] = {{"Content-Type", json_content}};
    _cleanup_buf_ struct buf b = BUF_INIT(64 << 10);
    size_t n = 1;

    for (; headers && headers->name && n + 1 < ARRAY_SIZE(all); headers++)
        all[n++] = *headers;
    buf_str(&b, "{\"code\":");
    buf_json_str(&b, code, strlen(code));
    buf_str(&b, ",\"message\":");
    buf_json_str(&b, *msg ? msg : code, strlen(*msg ? msg : code));
    if (status == 401) { /* clients of the reference look for this member */
        buf_str(&b, ",\"error\":");
        buf_json_str(&b, msg, strlen(msg));
    }
    buf_char(&b, '}');
    h1_respond(r, status, all, b.data, b.len);
}

void reply_error(struct h1_req *r, int status, const char *code, const char *fmt, ...) {
    char msg[1536];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    reply_error_with(r, status, NULL, code, msg);
}

void reply_errno(struct h1_req *r, int error, const struct err *err) {
    if (error == -ENOENT)
        reply_error(r, 404, ERR_NOT_FOUND, "%s", err_text(err));
    else
        reply_error(r, 500, ERR_RUNTIME, "%s", err_text(err));
}

void reply_empty(struct h1_req *r) {
    h1_respond(r, 200, NULL, NULL, 0);
}

void reply_json(struct h1_req *r, int status, json_t *j) {
    static const struct h1_header headers[] = {{"Content-Type", json_content}, {NULL, NULL}};
    _cleanup_buf_ struct buf b = BUF_INIT(0);

    if (!j || buf_json(&b, j) < 0)
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
    else
        h1_respond(r, status, headers, b.data, b.len);
    json_decref(j);
}
