/*
 * One child cgroup per process in a native sandbox ("x-<n>" below the directory the driver gave
 * us). A cgroup whose processes live on after their leader is kept until it is empty, then removed.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "base/list.h"

struct cgroups; /* the parent directory */
struct cgroup;

/* Takes dir_fd. -ENOTSUP when it is no cgroup2 directory. */
int cgroups_new(uv_loop_t *loop, int dir_fd, struct cgroups **ret, struct err *err);
void cgroups_free(struct cgroups *cs);

int cgroup_make(struct cgroups *cs, struct cgroup **ret, struct err *err);
int cgroup_fd(const struct cgroup *c);
int cgroup_kill(struct cgroup *c); /* SIGKILL to every process in it */
/* The leader is gone: removes it now or as soon as it is empty. */
void cgroup_release(struct cgroup *c);
