/*
 * The OCI runtime's config.json, written from a plain structure in one pass (native-runtime.md 8).
 * The writer adds what every sandbox has in common; it copies no labels and no annotations of
 * others, since runtimes act on annotation keys.
 */
#pragma once

#include <sys/resource.h>

#include "base/buf.h"
#include "base/err.h"

struct rt_mount {
    const char *target; /* absolute path inside */
    const char *type;   /* "bind", "tmpfs" ... */
    const char *source;
    const char *const *options; /* NULL-terminated */
};
/* Option lists for binds (static). */
extern const char *const rt_bind_ro[]; /* bind,ro,nosuid,nodev */
extern const char *const rt_bind_rw[]; /* bind,rw,nosuid,nodev */

struct rt_namespace {
    const char *type; /* "pid", "ipc", "uts", "mount", "cgroup", "network", "user" */
    const char *path; /* NULL = a new one */
};

struct rt_idmap {
    uint32_t inside, outside, size;
};

struct rt_rlimit {
    const char *type; /* "RLIMIT_NOFILE" */
    int resource;     /* RLIMIT_NOFILE: both values are clamped to this process's own hard limit */
    uint64_t soft, hard;
};

/* Strings and arrays are borrowed. Arrays of strings are NULL-terminated. Start with
 * runtime_config_init(). */
struct runtime_config {
    const char *const *args; /* required */
    const char *const *env;
    const char *cwd;       /* "/" */
    const char *hostname;  /* NULL: none (then no uts namespace should be asked for) */
    const char *root_path; /* "rootfs" (relative to the bundle) */
    bool root_readonly;
    const char *const *caps;         /* bounding = effective = permitted; required */
    bool no_new_privs;               /* true */
    int oom_score_adj;               /* 0 */
    const struct rt_rlimit *rlimits; /* NOFILE 65536, CORE 0 */
    size_t n_rlimits;
    bool standard_mounts; /* true: /proc /dev /dev/pts /dev/shm /dev/mqueue, before `mounts` */
    uint64_t shm_bytes;   /* size of /dev/shm; 64 MiB */
    const struct rt_mount *mounts; /* in this order */
    size_t n_mounts;
    const struct rt_namespace *namespaces; /* pid, ipc, uts, mount, cgroup: all new */
    size_t n_namespaces;
    const struct rt_idmap *uid_map, *gid_map; /* only with a new user namespace */
    size_t n_uid_map, n_gid_map;
    const char *seccomp_bpf_base64; /* crun's annotation; NULL = none */
    const char *const *masked_paths;
    const char *const *readonly_paths;
};

/* Sets the defaults named above; args and caps stay NULL. */
void runtime_config_init(struct runtime_config *c);

/*
 * Appends the JSON text to `out`. -EINVAL with the field when a required one is missing, a path is
 * not absolute where it must be, or a string is not UTF-8; -ENOBUFS when `out` is full.
 */
int runtime_config_write(const struct runtime_config *c, struct buf *out, struct err *err);
