/* Members of JSON request bodies (execd.md 1.4): names match in any case, null is absent, wrong
 * types are errors. */
#pragma once

#include "base/json.h"
#include "base/str.h"

#define MAX_JSON_BODY ((size_t)64 << 20)

/* Object in a body; an empty body is {} when `allow_empty` (null too), else -EINVAL. *ret is a new
 * reference. */
int body_parse(const char *data, size_t len, bool allow_empty, json_t **ret, struct err *err);
/* Value of a member or NULL when absent or null. */
json_t *body_member(const json_t *obj, const char *name);
bool body_has(const json_t *obj, const char *name); /* present, null included */
/* 0 with *ret untouched when absent; -EINVAL with a text for a wrong type. Strings are borrowed. */
int body_str(const json_t *obj, const char *name, const char **ret, struct err *err);
int body_bool(const json_t *obj, const char *name, bool *ret, struct err *err);
int body_int(const json_t *obj, const char *name, int64_t min, int64_t max, int64_t *ret,
             struct err *err);
int body_strv(const json_t *obj, const char *name, struct strv *ret, struct err *err);
/* Object of strings as "K=V"; names must be non-empty and without '='. */
int body_env(const json_t *obj, const char *name, struct strv *ret, struct err *err);
