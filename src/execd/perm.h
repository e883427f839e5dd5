/* Permission objects of file requests (execd.md 5.3): owner, group, mode in decimal digits that
 * mean octal. */
#pragma once

#include "base/json.h"
#include "base/str.h"

struct perm {
    char *owner, *group; /* NULL or "" = leave */
    bool has_mode;
    mode_t mode;
};

int perm_parse(const json_t *obj, struct perm *ret, struct err *err); /* -EINVAL with a text */
void perm_done(struct perm *p);
/* Ownership, then mode, of an open file. An unknown name is -ENXIO. */
int perm_apply_fd(const struct perm *p, int fd, struct err *err);
int perm_apply_path(const struct perm *p, const char *path, struct err *err); /* follows links */
/* Makes missing directories above `path` (0777 minus umask); the new ones get the ownership. */
int perm_make_parents(const struct perm *p, const char *path, struct err *err);
