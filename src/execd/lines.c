/*
 * Line splitting (see lines.h). Owns the incomplete line. Invariants: buf holds no terminator
 * except one trailing CR while cr_waits; each byte is searched and costed once, so slowly growing
 * lines stay linear. Used by one command stream each, on the loop thread.
 */
#include "execd/lines.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#define SLICE ((size_t)64 << 10)
#define KEEP_CAPACITY ((size_t)256 << 10) /* a larger buffer is given back after its line */

void lines_init(struct lines *l, enum lines_mode mode) {
    *l = (struct lines){.mode = mode};
    buf_init(&l->buf, LINES_MAX_COST + 2 * SLICE);
}

void lines_done(struct lines *l) {
    buf_done(&l->buf);
}

static void reset(struct lines *l) {
    if (l->buf.cap > KEEP_CAPACITY)
        buf_done(&l->buf);
    else
        buf_clear(&l->buf);
    l->counted = l->cost = 0;
}

/* Upper bound of what a byte takes inside a JSON string. */
static size_t byte_cost(unsigned char c) {
    if (c < 0x20)
        return 6;
    if (c == '"' || c == '\\')
        return 2;
    return c < 0x80 ? 1 : 3;
}

static size_t cost_of(struct lines *l) {
    if (l->buf.len * 6 <= LINES_MAX_COST)
        return 0; /* cannot be too long, whatever it holds */
    for (; l->counted < l->buf.len; l->counted++)
        l->cost += byte_cost((unsigned char)l->buf.data[l->counted]);
    return l->cost;
}

/* Length of s without a multi-byte sequence that is cut off at its end. */
static size_t whole_points(const char *s, size_t len) {
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)s[len - back];
        if ((c & 0xc0) == 0x80)
            continue;
        return c >= 0xc0 && utf8_next(s + len - back, back) == -1 ? len - back : len;
    }
    return len;
}

static int add_partial(struct lines *l, const char *p, size_t n, lines_cb cb, void *ud) {
    int r = buf_append(&l->buf, p, n);

    if (r < 0)
        return r;
    if (cost_of(l) <= LINES_MAX_COST)
        return 0;
    size_t whole = whole_points(l->buf.data, l->buf.len);
    char rest[4];
    size_t left = l->buf.len - whole;
    memcpy(rest, l->buf.data + whole, left);
    cb(l->buf.data, whole, ud);
    reset(l);
    return buf_append(&l->buf, rest, left);
}

/* Hands out buf + p[0..n) as one line and empties buf. */
static int emit(struct lines *l, const char *p, size_t n, lines_cb cb, void *ud) {
    if (l->buf.len == 0) {
        cb(p, n, ud);
        return 0;
    }
    int r = buf_append(&l->buf, p, n);
    if (r == 0)
        cb(l->buf.data, l->buf.len, ud);
    reset(l);
    return r;
}

static int emit_stripped(struct lines *l, const char *p, size_t n, lines_cb cb, void *ud) {
    if (l->buf.len == 0 && n == 0) {
        cb("\n", 1, ud);
        return 0;
    }
    return emit(l, p, n, cb, ud);
}

/* What an earlier CR means for the first byte of new data. Returns the bytes used. */
static size_t after_cr(struct lines *l, const char *p, lines_cb cb, void *ud, int *ret) {
    size_t used = 0;

    if (l->cr_waits) {
        l->cr_waits = false;
        used = *p == '\n';
        *ret = emit(l, p, used, cb, ud);
    } else if (l->skip_lf) {
        l->skip_lf = false;
        used = *p == '\n';
    }
    return used;
}

static int take_line(struct lines *l, const char **pp, const char *q, const char *end, lines_cb cb,
                     void *ud) {
    const char *p = *pp;
    bool is_cr = *q == '\r';
    size_t ends = 1;
    int r;

    if (is_cr && q + 1 < end && q[1] == '\n')
        ends = 2;
    if (l->mode == LINES_STRIP) {
        r = emit_stripped(l, p, (size_t)(q - p), cb, ud);
        l->skip_lf = is_cr && q + 1 == end;
    } else if (is_cr && q + 1 == end) {
        r = buf_append(&l->buf, p, (size_t)(q + 1 - p));
        l->cr_waits = r == 0;
    } else {
        r = emit(l, p, (size_t)(q - p) + ends, cb, ud);
    }
    *pp = q + ends;
    return r;
}

static int feed_slice(struct lines *l, const char *p, const char *end, lines_cb cb, void *ud) {
    const char *cr = NULL; /* the next CR at or after p, or end; searched once per CR */
    int r = 0;

    p += after_cr(l, p, cb, ud, &r);
    while (p < end && r == 0) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *stop = nl ? nl : end;
        if (!cr || cr < p) {
            cr = memchr(p, '\r', (size_t)(end - p));
            cr = cr ? cr : end;
        }
        const char *q = cr < stop ? cr : nl;
        r = q ? take_line(l, &p, q, end, cb, ud) : add_partial(l, p, (size_t)(end - p), cb, ud);
        if (!q)
            break;
    }
    return r;
}

int lines_feed(struct lines *l, const char *data, size_t len, lines_cb cb, void *ud) {
    while (len > 0) {
        size_t n = MIN(len, SLICE);
        int r = feed_slice(l, data, data + n, cb, ud);
        if (r < 0)
            return r;
        data += n;
        len -= n;
    }
    return 0;
}

void lines_flush_cr(struct lines *l, lines_cb cb, void *ud) {
    if (!l->cr_waits)
        return;
    l->cr_waits = false;
    emit(l, "", 0, cb, ud);
}

void lines_finish(struct lines *l, lines_cb cb, void *ud) {
    l->cr_waits = l->skip_lf = false;
    if (l->buf.len > 0)
        emit(l, "", 0, cb, ud);
}
