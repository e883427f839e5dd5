/* Helpers over jansson: strict parsing with positions in errors, lookups with types, output into a
 * buf. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

#define _cleanup_json_ _cleanup_(json_decrefp) /* json_decrefp is jansson's own */

/* Strict UTF-8 JSON, duplicate keys refused, NUL in strings refused, depth <= 64. Any value type.
 */
json_t *json_parse(const char *data, size_t len, struct err *err);
/* Same, but only the first value is read: bytes after it are ignored (execd.md 1.4). */
json_t *json_parse_first(const char *data, size_t len, struct err *err);

const char *json_str(const json_t *obj, const char *key); /* NULL when absent or not a string */
int64_t json_int(const json_t *obj, const char *key, int64_t dflt);
bool json_bool(const json_t *obj, const char *key, bool dflt);
/* Compact text, appended. */
int buf_json(struct buf *b, const json_t *j);
