/* Request targets and queries. */
#pragma once

#include "base/str.h"

/* Percent-decoding of a path part ('+' stays); -EINVAL on a bad escape or NUL. malloc'd. */
int url_decode(const char *s, size_t len, char **ret);
/* Percent-encodes everything but unreserved characters (and '/' when keep_slash). malloc'd, NULL on
 * -ENOMEM. */
char *url_encode(const char *s, bool keep_slash);

struct query {
    struct strv keys, values; /* parallel, in order, decoded: '+' and %20 are blanks */
};
/* Form-decodes a raw query (may be NULL/empty). Tolerant: a bad escape stays as it is; at most 1000
 * pairs. */
int query_parse(const char *raw, size_t len, struct query *ret);
void query_done(struct query *q);
const char *query_get(const struct query *q, const char *key); /* last value of key or NULL */
