/*
 * Writing one uploaded file (execd.md 5.5): into a temporary name beside it and renamed over, so
 * readers see the old or the new content; straight into it where a rename would break what it is (a
 * link, a device, a file with several names, a mount point). Worker thread; no shared state.
 */
#pragma once

#include "execd/perm.h"

struct target {
    char *path, *temp; /* temp NULL: written in place */
    int fd;
};
#define TARGET_INIT \
    { .fd = -1 }

/* Opens it for writing from the start; parents are made. */
int target_open(struct target *t, const char *path, const struct perm *perm, struct err *err);
int target_write(struct target *t, const char *data, size_t len, struct err *err);
/* Permissions, then the rename. */
int target_commit(struct target *t, const struct perm *perm, struct err *err);
void target_done(struct target *t); /* removes a temporary file that was not committed */
