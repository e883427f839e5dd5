/* Growing byte buffer (see buf.h). Invariant: data == NULL or data[len] == 0 with cap > len. */
#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

void buf_init(struct buf *b, size_t max_bytes) {
    *b = (struct buf){.max = max_bytes};
}

void buf_done(struct buf *b) {
    free(b->data);
    *b = (struct buf){.max = b->max};
}

int buf_reserve(struct buf *b, size_t extra) {
    size_t max = b->max ? b->max : BUF_DEFAULT_MAX, need, cap;
    char *p;

    if (__builtin_add_overflow(b->len, extra, &need) || need > max) {
        b->failed = true;
        return -ENOBUFS;
    }
    if (need < b->cap)
        return 0;
    cap = MAX(b->cap * 2, (size_t)64);
    if (cap > max + 1)
        cap = max + 1;
    if (cap < need + 1)
        cap = need + 1;
    p = realloc(b->data, cap);
    if (!p) {
        b->failed = true;
        return -ENOMEM;
    }
    if (!b->data)
        p[0] = 0;
    b->data = p;
    b->cap = cap;
    return 0;
}

int buf_append(struct buf *b, const void *data, size_t len) {
    int r = buf_reserve(b, len);
    if (r < 0)
        return r;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    return 0;
}

int buf_str(struct buf *b, const char *s) {
    return buf_append(b, s, strlen(s));
}

int buf_char(struct buf *b, char c) {
    return buf_append(b, &c, 1);
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap) {
    va_list again;
    char small[256];
    int n, r;

    va_copy(again, ap);
    n = vsnprintf(small, sizeof small, fmt, ap);
    if (n < 0) {
        b->failed = true;
        r = -EINVAL;
    } else if ((size_t)n < sizeof small) {
        r = buf_append(b, small, (size_t)n);
    } else {
        r = buf_reserve(b, (size_t)n);
        if (r == 0) {
            vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
            b->len += (size_t)n;
        }
    }
    va_end(again);
    return r;
}

int buf_printf(struct buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int r = buf_vprintf(b, fmt, ap);
    va_end(ap);
    return r;
}

void buf_consume(struct buf *b, size_t n) {
    if (n >= b->len) {
        buf_clear(b);
        return;
    }
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

void buf_clear(struct buf *b) {
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = 0;
}

char *buf_take(struct buf *b, size_t *ret_len) {
    char *p;

    if (b->failed || buf_reserve(b, 0) < 0)
        return NULL;
    p = b->data;
    if (ret_len)
        *ret_len = b->len;
    *b = (struct buf){.max = b->max};
    return p;
}

/* What must not stand raw inside a JSON line: controls, quote, backslash, DEL-free; and Unicode
 * line boundaries. */
static int json_escape_one(struct buf *b, const char *s, int n) {
    unsigned char c = (unsigned char)s[0];

    if (n == 1) {
        switch (c) {
        case '"':
            return buf_append(b, "\\\"", 2);
        case '\\':
            return buf_append(b, "\\\\", 2);
        case '\n':
            return buf_append(b, "\\n", 2);
        case '\r':
            return buf_append(b, "\\r", 2);
        case '\t':
            return buf_append(b, "\\t", 2);
        default:
            return buf_printf(b, "\\u%04x", c);
        }
    }
    if (c == 0xc2)
        return buf_append(b, "\\u0085", 6);
    return buf_printf(b, "\\u20%02x", (unsigned char)s[2] - 0x80);
}

static bool json_needs_escape(const char *s, int n) {
    unsigned char c = (unsigned char)s[0];
    if (n == 1)
        return c < 0x20 || c == '"' || c == '\\';
    if (n == 2)
        return c == 0xc2 && (unsigned char)s[1] == 0x85;
    return n == 3 && c == 0xe2 && (unsigned char)s[1] == 0x80 &&
           ((unsigned char)s[2] == 0xa8 || (unsigned char)s[2] == 0xa9);
}

int buf_json_str(struct buf *b, const char *s, size_t len) {
    size_t i = 0, start = 0;

    buf_char(b, '"');
    while (i < len) {
        unsigned char c = (unsigned char)s[i];
        int n = c < 0x80 ? 1 : utf8_next(s + i, len - i);
        bool bad = n <= 0;
        if (!bad && !json_needs_escape(s + i, n)) {
            i += (size_t)n;
            continue;
        }
        buf_append(b, s + start, i - start);
        if (bad) {
            buf_append(b, "\xef\xbf\xbd", 3);
            i++;
        } else {
            json_escape_one(b, s + i, n);
            i += (size_t)n;
        }
        start = i;
    }
    buf_append(b, s + start, i - start);
    buf_char(b, '"');
    return b->failed ? -ENOBUFS : 0;
}
