/* FileInfo objects (execd.md 5.2). */
#pragma once

#include "base/json.h"
#include "execd/users.h"

/* lstat semantics. `shown` is the absolute path for the answer. -errno of the failure; *ret is a
 * new reference. */
int fileinfo_get(const char *path, const struct users *u, json_t **ret, struct err *err);
