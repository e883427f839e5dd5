/*
 * Lines of JSON out of a stream of bytes (progress of a pull, events). Incremental; a line has a
 * maximum; blank lines are skipped.
 */
#pragma once

#include "base/json.h"

struct json_lines {
    struct buf line; /* the unfinished one; its max is the limit */
};

void json_lines_init(struct json_lines *l, size_t max_line);
void json_lines_done(struct json_lines *l);
#define _cleanup_lines_ _cleanup_(json_lines_done)
/* Next line: 1 with *ret (new reference); 0 = all bytes are used; -EBADMSG no JSON, -EMSGSIZE too
 * long, -ENOMEM. *data and *len move on. */
int json_lines_next(struct json_lines *l, const char **data, size_t *len, json_t **ret,
                    struct err *err);
/* The stream is over: a last line without its end; 1 or 0 or an error as above. */
int json_lines_end(struct json_lines *l, json_t **ret, struct err *err);
