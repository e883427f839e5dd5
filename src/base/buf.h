/*
 * A growing byte buffer with a maximum. `data` is NUL-terminated whenever it is not NULL, `len`
 * does not count that NUL. Appends fail with -ENOBUFS past `max` and -ENOMEM; a failed append
 * changes nothing, and sets `failed`, so a run of appends may be checked once at its end with
 * buf_ok().
 */
#pragma once

#include <stdarg.h>

#include "base/macros.h"

struct buf {
    char *data;
    size_t len, cap, max; /* bytes; max 0 = BUF_DEFAULT_MAX */
    bool failed;
};

#define BUF_DEFAULT_MAX ((size_t)64 << 20)
#define BUF_INIT(max_bytes) \
    { .max = (max_bytes) }

void buf_init(struct buf *b, size_t max_bytes);
void buf_done(struct buf *b); /* frees; the buffer may be used again (same max) */
#define _cleanup_buf_ _cleanup_(buf_done)

int buf_reserve(struct buf *b, size_t extra);
int buf_append(struct buf *b, const void *data, size_t len);
int buf_str(struct buf *b, const char *s);
int buf_char(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
int buf_vprintf(struct buf *b, const char *fmt, va_list ap);
/* Removes the first n bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);
void buf_clear(struct buf *b);
static inline bool buf_ok(const struct buf *b) {
    return !b->failed;
}
/* Gives the memory away (caller frees); "" is allocated for an empty buffer. NULL on -ENOMEM or
 * failed. */
char *buf_take(struct buf *b, size_t *ret_len);
/*
 * Appends `s` as a quoted JSON string: invalid UTF-8 bytes become U+FFFD, control characters and
 * every Unicode line boundary (U+0085, U+2028, U+2029, VT, FF, FS..US) are escaped (execd.md 1.5).
 */
int buf_json_str(struct buf *b, const char *s, size_t len);
