/* Shared by cgroups.c and cgroups_run.c only. */
#pragma once

#include <limits.h>

#include "daemon/driver/native/cgroups.h"

#define CGROUP_KEY_MAX 64

struct cgroup_v1 {
    int fd, parent; /* <root> in this hierarchy, and the directory above it */
    dev_t dev;
    unsigned controllers; /* bits of enum cgroup_controller */
};

struct cgroups {
    int v2, v2_parent;
    unsigned v2_controllers;
    struct cgroup_v1 v1[CGROUP_ENTER_MAX];
    size_t n_v1;
    char leaf[32]; /* "cove-<instance>" */
    char mount_path[PATH_MAX], root_name[256];
};

/* The v1 hierarchy with that controller, or NULL. */
const struct cgroup_v1 *cgroups_v1(const struct cgroups *c, enum cgroup_controller which);
int cgroup_write(int root, const char *key, const char *file, const char *value);
