/*
 * The mounts of one sandbox, made inside the private mount namespace of a launcher child.
 * Everything is per process and single-threaded: credentials for the file system are changed and
 * kept.
 */
#pragma once

#include "base/err.h"

/* A user namespace that maps 0..65535 to base..; a descriptor to it or -errno. */
int mount_userns(unsigned base);
/* From here on, files are made as id `base` of the host (setfsuid keeps the other capabilities):
 * what the overlay does on an id-mapped upper layer needs a mapped owner. 0 or -errno. */
int mount_become_owner(unsigned base);

struct overlay_spec {
    const char *rootfs;        /* absolute */
    const char *at;            /* where inside it, "/" for the root itself */
    const char *const *lowers; /* highest first, id-mapped when userns_fd >= 0 */
    size_t n_lowers;
    const char *const *plain; /* below them, never id-mapped */
    size_t n_plain;
    const char *dir; /* holds upper and work */
    int userns_fd;   /* -1: none */
};
int mount_overlay(const struct overlay_spec *o, struct err *err);

/* Attaches a detached mount (open_tree) of a file or directory at a path inside rootfs, which is
 * made when missing. nosuid and nodev always. */
int mount_bind(int tree, const char *rootfs, const char *target, bool read_only, int userns_fd,
               struct err *err);
/* Is it what one finds at that path inside rootfs? 0; -EBUSY: something else is. */
int mount_is_at(int tree, const char *rootfs, const char *target, struct err *err);
/* sysfs of the network namespace the caller is in, read-only, at rootfs/sys. */
int mount_sysfs(const char *rootfs, struct err *err);
