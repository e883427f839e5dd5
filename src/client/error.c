/* Errors of libcove: sentences for people, with the server's own words where there are any. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/internal.h"

static _printf_(3, 0) int cerr_vset(struct cove_error *e, int code, const char *fmt, va_list ap) {
    if (e) {
        char msg[sizeof(e->message) + 8];
        vsnprintf(msg, sizeof(msg), fmt, ap);
        memset(e, 0, sizeof(*e));
        e->code = code;
        str_copy(e->message, sizeof(e->message), msg);
    }
    return code;
}

int cerr_set(struct cove_error *e, int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    cerr_vset(e, code, fmt, ap);
    va_end(ap);
    return code;
}

int cerr_sys(struct cove_error *e, int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    cerr_vset(e, code, fmt, ap);
    va_end(ap);
    if (e) {
        size_t n = strlen(e->message);
        char text[128];
        snprintf(text, sizeof(text), ": %s", strerror(-code));
        str_copy(e->message + n, sizeof(e->message) - n, text);
    }
    return code;
}

int cerr_wrap(struct cove_error *e, const char *fmt, ...) {
    if (!e)
        return -EIO;
    char context[sizeof(e->message)], both[2 * sizeof(e->message) + 4];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof(context), fmt, ap);
    va_end(ap);
    snprintf(both, sizeof(both), "%s: %s", context, e->message);
    str_copy(e->message, sizeof(e->message), both);
    return e->code;
}

int cerr_oom(struct cove_error *e) {
    return cerr_set(e, -ENOMEM, "out of memory");
}

static int code_of_status(int status) {
    switch (status) {
    case 400:
    case 422:
        return -EINVAL;
    case 401:
    case 403:
        return -EACCES;
    case 404:
        return -ENOENT;
    case 409:
        return -EALREADY;
    case 413:
        return -EFBIG;
    case 429:
    case 503:
        return -EAGAIN;
    case 501:
        return -EOPNOTSUPP;
    case 504:
        return -ETIMEDOUT;
    default:
        return -EIO;
    }
}

/* `detail` is a text, or a list of violations whose first one says enough. */
static const char *detail_text(const json_t *answer) {
    json_t *d = json_object_get(answer, "detail");
    if (json_is_string(d))
        return json_string_value(d);
    return json_str(json_array_get(d, 0), "msg");
}

int cerr_from_response(struct cove_error *e, int status, const char *body, size_t len,
                       const char *doing) {
    _cleanup_json_ json_t *j = len ? json_parse_first(body, len, NULL) : NULL;
    const char *kind = json_str(j, "code"), *text = json_str(j, "message");
    char raw[201];
    if (!text)
        text = detail_text(j);
    if (!text && !j && len && utf8_is_valid(body, len)) {
        _cleanup_free_ char *copy = str_ndup(body, MIN(len, (size_t)1024));
        str_copy(raw, sizeof(raw), copy ? copy : "");
        raw[strcspn(raw, "\r\n")] = '\0';
        text = raw;
    }
    int code = code_of_status(status);
    if (str_is_empty(text))
        cerr_set(e, code, "cannot %s: the server answered with status %d", doing, status);
    else
        cerr_set(e, code, "cannot %s: %s", doing, text);
    if (e) {
        e->http_status = status;
        str_copy(e->kind, sizeof(e->kind), kind ? kind : "");
    }
    return code;
}
