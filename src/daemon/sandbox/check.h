/*
 * The rules a create request and a metadata patch must pass before anything is done, in the order
 * in which clients may observe them. Pure functions, no I/O; any thread.
 */
#pragma once

#include "daemon/sandbox/service.h"

#define CHECK_MAX_MAP 256
#define CHECK_MAX_VOLUMES 64
#define CHECK_MAX_ENTRYPOINT 1024
/* Bytes. Runtimes show both in every list of all sandboxes, which has an end too. */
#define CHECK_MAX_ENTRYPOINT_BYTES ((size_t)128 << 10)
#define CHECK_MAX_EXTENSIONS_BYTES ((size_t)32 << 10)

/* Amounts: 0 and what they stand for, or -EINVAL for what is no positive amount ("512Mi", "1G";
 * "500m", "1.5"; "256"). */
int parse_memory(const char *s, uint64_t *ret_bytes);
int parse_cpu(const char *s, uint64_t *ret_nanos);
int parse_count(const char *s, uint64_t *ret);
int parse_gpu(const char *s, int64_t *ret); /* -1 = all */

enum fault check_metadata(const json_t *metadata, struct err *err);
/* Additions are checked, removals (null) are free; reserved keys never may be touched. */
enum fault check_metadata_patch(const json_t *patch, struct err *err);

enum fault create_no_memory(struct err *err); /* FAULT_CREATE */
/* How messages name the driver. */
const char *provider_title(const struct driver_rules *r);

/* The rules before the source of the sandbox is looked up (lifecycle.md §4, 1-3). */
enum fault check_source(const struct service_opts *o, const struct create_request *rq,
                        struct sandbox_spec *spec, struct err *err);
/*
 * The rest that needs no waiting (4-13); a snapshot's image and entrypoint are in rq by now. On
 * success `spec` has everything but id, token, environment and mounts (the entrypoint split, limits
 * parsed). May normalise rq (platform words) and takes image and registry credentials from it.
 */
enum fault check_create(const struct service_opts *o, struct create_request *rq,
                        struct sandbox_spec *spec, struct err *err);
/* Fills spec->env and spec->guard_env (15); id and policy are set. */
enum fault check_env(const struct create_request *rq, struct sandbox_spec *spec, struct err *err);
enum fault check_limits(const struct driver_rules *rules, const json_t *limits,
                        struct sandbox_spec *spec, struct err *err);
enum fault check_windows_limits(const json_t *limits, struct err *err);
/* Splits like a POSIX shell without expansions; -EINVAL on an open quote. */
int shell_split(const char *s, struct strv *ret);
/* Names and paths of one volume request against those before it (lexical rules only). */
enum fault check_volumes(const struct service_opts *o, const struct create_request *rq,
                         struct err *err);
