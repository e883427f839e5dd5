/*
 * Every control group of every sandbox belongs to the driver; the runtime touches none
 * (native-runtime.md 10). Process trees, freezing and killing always use cgroup2; limits use the
 * hierarchy that has the controller: cgroup2 where it is there, version 1 on hybrid and old hosts.
 *
 *   <root>/<key>        limits, freeze, kill           (v2, and in each v1 hierarchy)
 *   <root>/<key>/box    the agent; delegated to it     (v2 only)
 *
 * <root> is /cove-<instance> at the top of the hierarchy, or below a unit delegated to us in whose
 * subgroup we run.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct cgroups;

enum cgroup_controller {
    CG_MEMORY,
    CG_PIDS,
    CG_CPU,
    CG_CPUACCT,
    CG_DEVICES,
    CG_BLKIO,
    CG_CONTROLLERS
};

struct cgroup_limits {
    uint64_t memory_bytes, cpu_millis, pids; /* 0 = none */
};

struct cgroup_usage {
    uint64_t memory_bytes, cpu_us, pids;
    uint64_t oom_kills;
};

/* Finds the hierarchies and makes <root>. */
int cgroups_open(const char *instance, struct cgroups **ret, struct err *err);
struct cgroups *cgroups_free(struct cgroups *c); /* removes <root> when it is empty; returns NULL */
DEFINE_CLEANUP(struct cgroups, cgroups_free)

const char *cgroups_layout(const struct cgroups *c); /* "v2", "hybrid", "v1" */
const char *cgroups_mount_path(
    const struct cgroups *c); /* where cgroup2 is mounted on the host, "" = nowhere */
bool cgroups_has(const struct cgroups *c, enum cgroup_controller which);

/* Makes the cgroups of a sandbox. owner: the first id of its range, 0 = root. -EOPNOTSUPP names a
 * limit without controller. */
int cgroups_make(struct cgroups *c, const char *key, const struct cgroup_limits *limits,
                 unsigned owner, struct err *err);
int cgroups_set_limits(struct cgroups *c, const char *key, const struct cgroup_limits *limits,
                       struct err *err);

#define CGROUP_ENTER_MAX 8
/* What a launcher child needs to enter: the box directory and a cgroup.procs per v1 hierarchy. The
 * caller closes all. */
struct cgroup_entry {
    int box;
    int enter[CGROUP_ENTER_MAX];
    size_t n_enter;
};
int cgroups_entry(struct cgroups *c, const char *key, struct cgroup_entry *ret, struct err *err);
void cgroup_entry_done(struct cgroup_entry *e);
/* The box as a detached mount whose ".." is itself: what the agent gets. Descriptor or -errno. */
int cgroups_agent_fd(struct cgroups *c, const char *key);
/* Is the process where it must be, in every hierarchy that has limits? */
bool cgroups_contains(struct cgroups *c, const char *key, pid_t pid);

/* Kills everything inside and waits until it is empty; 0 also when it does not exist. -ETIMEDOUT
 * after timeout_ms. */
int cgroups_kill(struct cgroups *c, const char *key, int timeout_ms);
/* Removes the (empty) cgroups; 0 also when there are none. */
int cgroups_remove(struct cgroups *c, const char *key);
int cgroups_freeze(struct cgroups *c, const char *key, bool frozen, int timeout_ms,
                   struct err *err);
bool cgroups_is_frozen(struct cgroups *c, const char *key);
int cgroups_usage(struct cgroups *c, const char *key, struct cgroup_usage *ret);
/* Names below <root>, in any hierarchy, for recovery; NULL-terminated strings in ret. */
int cgroups_list(struct cgroups *c, struct strv *ret);
