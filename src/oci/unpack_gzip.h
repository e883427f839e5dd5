/* gzip as a stream, checked: libarchive's own filter ignores the checksum and the length at the
 * end. */
#pragma once

#include "base/err.h"

struct gzip;

bool gzip_is_magic(const void *data, size_t len);
/* `next` gives blocks of input: bytes, 0 at the end, negative errno. NULL on -ENOMEM. */
struct gzip *gzip_new(ssize_t (*next)(void *ud, const void **ret), void *ud);
struct gzip *gzip_free(struct gzip *g);
/*
 * The next decompressed bytes, valid until the next call; *ret_len 0 = the end. Several members
 * follow each other (RFC 1952); zeros behind the last one are padding, anything else is refused.
 * -EINVAL damaged or cut off (`err` is set), or what `next` returned (whose caller knows why).
 */
int gzip_read(struct gzip *g, const void **ret, size_t *ret_len, struct err *err);
