/* Percent-encoding and queries (see url.h). Pure functions. */
#include "net/url.h"

#include <errno.h>
#include <string.h>

#define QUERY_MAX_PAIRS 1000

static int hex_value(char c) {
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* The byte of the escape at s ("%41"), or -1. */
static int escaped_byte(const char *s, size_t len) {
    int hi, lo;

    if (len < 3 || s[0] != '%')
        return -1;
    hi = hex_value(s[1]);
    lo = hex_value(s[2]);
    return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

int url_decode(const char *s, size_t len, char **ret) {
    char *out = malloc(len + 1);
    size_t n = 0;

    if (!out)
        return -ENOMEM;
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)s[i];
        if (c == '%') {
            c = escaped_byte(s + i, len - i);
            i += 2;
        }
        if (c <= 0) {
            free(out);
            return -EINVAL;
        }
        out[n++] = (char)c;
    }
    out[n] = 0;
    *ret = out;
    return 0;
}

static bool is_unreserved(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~", c));
}

char *url_encode(const char *s, bool keep_slash) {
    static const char digits[] = "0123456789ABCDEF";
    size_t len = strlen(s), n = 0;
    char *out = len > SIZE_MAX / 4 ? NULL : malloc(len * 3 + 1);

    if (!out)
        return NULL;
    for (; *s; s++) {
        if (is_unreserved(*s) || (keep_slash && *s == '/')) {
            out[n++] = *s;
        } else {
            out[n++] = '%';
            out[n++] = digits[(unsigned char)*s >> 4];
            out[n++] = digits[(unsigned char)*s & 15];
        }
    }
    out[n] = 0;
    return out;
}

/* Form decoding that keeps what it does not understand; a NUL byte ends the text. */
static char *form_decode(const char *s, size_t len) {
    char *out = malloc(len + 1);
    size_t n = 0;

    if (!out)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        int c = s[i] == '%' ? escaped_byte(s + i, len - i) : -1;
        if (c >= 0)
            i += 2;
        else
            c = s[i] == '+' ? ' ' : s[i];
        out[n++] = (char)c;
    }
    out[n] = 0;
    return out;
}

static int add_pair(struct query *q, const char *s, size_t len) {
    const char *eq = memchr(s, '=', len);
    size_t key_len = eq ? (size_t)(eq - s) : len;
    char *key = form_decode(s, key_len);
    char *value = form_decode(s + key_len + (eq ? 1 : 0), eq ? len - key_len - 1 : 0);
    int r;

    if (!key || !value) {
        free(key);
        free(value);
        return -ENOMEM;
    }
    r = strv_take(&q->keys, key);
    if (r < 0) {
        free(value);
        return r;
    }
    return strv_take(&q->values, value);
}

int query_parse(const char *raw, size_t len, struct query *ret) {
    struct query q = {0};
    const char *end = raw ? raw + len : NULL;

    while (raw < end && q.keys.n < QUERY_MAX_PAIRS) {
        const char *amp = memchr(raw, '&', (size_t)(end - raw));
        const char *stop = amp ? amp : end;

        if (stop > raw) {
            int r = add_pair(&q, raw, (size_t)(stop - raw));
            if (r < 0) {
                query_done(&q);
                return r;
            }
        }
        raw = stop + 1;
    }
    *ret = q;
    return 0;
}

void query_done(struct query *q) {
    strv_done(&q->keys);
    strv_done(&q->values);
}

const char *query_get(const struct query *q, const char *key) {
    for (size_t i = q->values.n; i-- > 0;)
        if (str_eq(q->keys.v[i], key))
            return q->values.v[i];
    return NULL;
}
