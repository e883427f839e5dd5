/* Parts of a file that a download asks for: byte ranges and line ranges (execd.md 5.6). Pure
 * functions. */
#pragma once

#include "base/buf.h"

enum range_result { RANGE_FULL, RANGE_PART, RANGE_BAD };
/* Header Range (NULL: full) against a size. PART: [*ret_start, *ret_end] inclusive, the first
 * satisfiable range. */
enum range_result range_parse(const char *header, uint64_t size, uint64_t *ret_start,
                              uint64_t *ret_end);

/* Selects lines of a byte stream: without trailing CRs, joined by LF, none after the last. */
struct line_range {
    uint64_t first, count; /* from 1; count UINT64_MAX = all */
    uint64_t line;         /* number of the line being read, from 1 */
    uint64_t held_cr;      /* CRs that are only written when the line goes on */
    bool in_line, done;
};
void line_range_init(struct line_range *l, uint64_t first, uint64_t count);
/* Appends the wanted part of data to out. `done` is set after the last wanted line. */
int line_range_feed(struct line_range *l, const char *data, size_t len, struct buf *out);

/* "Sun, 06 Nov 1994 08:49:37 GMT" */
void http_date_format(int64_t seconds, char ret[40]);
int http_date_parse(const char *s, int64_t *ret_seconds); /* that form only; -EINVAL */
