/*
 * Streaming multipart/form-data parser (push). Nothing is buffered but part headers (bounded, 16
 * KiB) and a possible boundary at a chunk's edge. Quoted boundaries, quoted pairs in parameters,
 * preamble and epilogue are understood. Errors are final.
 */
#pragma once

#include "base/err.h"

struct multipart;

struct multipart_part {
    const char *name, *filename,
        *content_type; /* filename NULL = a plain field; content_type may be NULL */
};
struct multipart_ops { /* a negative return stops the parse with that error */
    int (*on_part)(const struct multipart_part *p, void *ud);
    int (*on_data)(const char *data, size_t len, void *ud);
    int (*on_part_end)(void *ud);
};
/* From the Content-Type header's value; -EINVAL when it is not multipart/form-data or has no
 * boundary. */
int multipart_new(const char *content_type, const struct multipart_ops *ops, void *ud,
                  struct multipart **ret, struct err *err);
int multipart_feed(struct multipart *m, const char *data, size_t len, struct err *err);
int multipart_end(struct multipart *m,
                  struct err *err); /* -EBADMSG when the closing boundary was missing */
struct multipart *multipart_free(struct multipart *m);
