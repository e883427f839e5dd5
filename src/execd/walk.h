/* Entries below a directory in byte-wise order, each directory directly followed by what is in it.
 * Links are not entered. */
#pragma once

#include "base/err.h"

struct walk_opts {
    unsigned max_depth;   /* levels below the root; UINT_MAX = all */
    bool skip_unreadable; /* else -EACCES of a directory ends the walk */
    /* path: absolute; type: d_type from lstat. Negative ends the walk with that error. */
    int (*visit)(const char *path, const char *name, bool is_dir, void *ud);
    void *ud;
};
/* What vanishes meanwhile is passed over. */
int walk_tree(const char *root, const struct walk_opts *o, struct err *err);
