/* What people write as values of options: sizes, times, numbers of CPUs, mounts, variables. Pure
 * functions. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* "512m", "1.5g", "1048576", "64Ki": bytes, in powers of 1024. Zero is refused. */
int parse_size(const char *s, uint64_t *ret_bytes, struct err *err);
/* "2", "0.5", "1.25", "500m": thousandths of a CPU. */
int parse_cpu(const char *s, uint64_t *ret_millis, struct err *err);
/* "90" (seconds), "500ms", "30s", "5m", "2h", "1d": milliseconds; at most about 49 days. */
int parse_time(const char *s, uint64_t *ret_ms, struct err *err);
int parse_count(const char *s, const char *what, uint64_t min, uint64_t max, uint64_t *ret,
                struct err *err);
/* "1000" or "1000:1000"; *ret_gid -1 when it is not given. */
int parse_user(const char *s, int64_t *ret_uid, int64_t *ret_gid, struct err *err);

struct mount_arg {
    char *source, *target;
    bool read_only;
};
/*
 * "HOST:PATH[:ro|:rw]" or "HOST[:ro]" (PATH is then /workspace). With local_paths the source is
 * made absolute here and must exist; without (a daemon elsewhere) it must be absolute as given.
 */
int parse_mount(const char *s, bool local_paths, struct mount_arg *ret, struct err *err);
void mount_arg_done(struct mount_arg *m);

/* "NAME=VALUE", or "NAME" for the value in `environment` (skipped when it has none). Appends to
 * `env`. */
int parse_env(const char *s, struct strv *env, struct err *err);
/* "SANDBOX:PATH": where the path begins; NULL for a local name ("./a:b", "/a:b", "C" without
 * colon). */
const char *split_remote(const char *s);

/* "5s", "3m", "2h", "4d" for people. */
void format_age(int64_t us, char *ret, size_t size);
/* "12.3 MiB" */
void format_bytes(uint64_t bytes, char *ret, size_t size);
