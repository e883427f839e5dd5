/*
 * The native driver: sandboxes made of kernel parts and an OCI runtime, no engine in between
 * (native-runtime.md). Needs root. One driver per state directory.
 */
#pragma once

#include "daemon/driver/driver.h"
#include "oci/seccomp.h"

struct native_config {
    const char *state_dir; /* "/var/lib/cove"; sandboxes/ is made below it */
    const char *store_dir; /* image store; NULL = <state_dir>/store */
    const char *run_dir;   /* "/run/cove": runtime state, hub of the network; on tmpfs */
    /* shared by all daemons of the machine; NULL = "/run/cove/leases". Others must be able to enter
     * it (o+x). */
    const char *lease_dir;
    const char *libexec_dir; /* holds cove-execd and cove-launch; NULL = COVE_LIBEXEC or next to the
                                program */
    const char *runtime;     /* path or name in PATH; NULL = "crun" */
    const char *subnet; /* "10.213.0.0/16" for outbound sandboxes, at least a /22; NULL = a free one
                           is chosen */
    const char *const *dns; /* name servers for sandboxes; NULL = the host's upstream servers */
    enum security_profile profile;
    bool userns;               /* one user namespace and id range per sandbox */
    uint32_t uid_base;         /* first id of all ranges; 0 = 1,000,000,000 */
    uint32_t uid_count;        /* ids in all ranges; 0 = 1,073,741,824 */
    uint64_t default_pids;     /* 0 = 1024 */
    unsigned netns_pool;       /* network namespaces kept ready */
    unsigned parked_pool;      /* launcher children kept ready inside their cgroups */
    const char *warm_image;    /* image of which started sandboxes are kept ready; NULL = none */
    unsigned warm_pool;        /* how many */
    unsigned start_timeout_ms; /* 0 = 20,000: runtime, and then the agent's first answer */
};
/* Everything NULL or 0, user namespaces on, the default profile, pools of 8 and 4. */
void native_config_init(struct native_config *c);

/* Checks the host, opens the store, starts cove-launch. Existing sandboxes are not touched before
 * recover(). The configuration is copied. */
int native_driver_new(const struct native_config *config, const struct driver_events *events,
                      struct driver **ret, struct err *err);

/* Places on the way of create and remove at which COVE_CRASH_AT=<name> kills the daemon, for tests;
 * NULL-terminated, empty in builds without them. */
extern const char *const native_crash_points[];

/* What the host offers, each by trying it. */
struct native_probe {
    char name[32];
    bool ok;
    bool required;    /* no native sandbox works without it */
    char detail[200]; /* what was found */
    char why[200];    /* what is missing without it */
    char fix[200];    /* command or setting that mends it; "" when nothing can */
};
#define NATIVE_PROBES_MAX 24
/* Absolute path of an OCI runtime; relative names are looked for in the system's program folders,
 * whatever PATH says. malloc'd, NULL when it is not there. */
char *native_find_runtime(const char *name);

/* Runs without a driver or daemon (as root). Number of entries filled in. */
size_t native_probe(const struct native_config *config, struct native_probe ret[NATIVE_PROBES_MAX]);
