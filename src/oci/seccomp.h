/*
 * Security profiles and their base seccomp filter (native-runtime.md 13.2), from
 * containers-common's profile, compiled for the native architecture alone.
 */
#pragma once

#include "base/err.h"

enum security_profile {
    PROFILE_STRICT, /* fewest capabilities */
    PROFILE_DEFAULT,
    PROFILE_DOCKER, /* + NET_RAW, AUDIT_WRITE; MKNOD with user namespaces */
    PROFILE_NESTED, /* system calls for sandboxes inside; only with user namespaces */
};

/* "strict", "default", "docker", "nested"; -EINVAL with the choices. */
int security_profile_parse(const char *name, enum security_profile *ret, struct err *err);
const char *security_profile_name(enum security_profile p);
/* NULL-terminated "CAP_..." list (static). -EOPNOTSUPP when the profile needs user namespaces and
 * `userns` is false. */
int security_profile_caps(enum security_profile p, bool userns, const char *const **ret,
                          struct err *err);

struct seccomp_filter {
    char hash[65]; /* cache key */
    void *bpf;     /* struct sock_filter[] */
    size_t bpf_bytes;
    char *bpf_base64; /* for the annotation run.oci.seccomp_bpf_data */
};
void seccomp_filter_done(struct seccomp_filter *f);

#define SECCOMP_SOURCE "/usr/share/containers/seccomp.json"

/*
 * The base filter of a profile. `store_fd` is the directory of the image store (its "seccomp"
 * folder is the cache; key = hash of the source file, profile, architecture and our version of the
 * rules). libseccomp runs only when the cache misses. clone and clone3 stay allowed: the agent's
 * small filter restricts its clients. -ENOENT when `source` (NULL = SECCOMP_SOURCE) is missing,
 * with the package that ships it.
 */
int seccomp_base_filter(int store_fd, const char *source, enum security_profile p, bool userns,
                        struct seccomp_filter *ret, struct err *err);
