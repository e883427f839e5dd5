/* Literal replacement inside a file (POST /files/replace). */
#pragma once

#include "base/err.h"

#define REPLACE_MAX_FILE ((uint64_t)256 << 20)

/*
 * Replaces all non-overlapping occurrences, byte-wise, in place: inode, mode and owner stay.
 * Without any the file is not touched. *ret = how many. -EFBIG above REPLACE_MAX_FILE.
 */
int replace_in_file(const char *path, const char *old, const char *new, uint64_t *ret,
                    struct err *err);
