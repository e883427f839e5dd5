/*
 * Object storage mounted on this host, for sandboxes that bind it. Owned by the service; worker
 * threads call, several at once.
 *
 * A mount is known by its path and by what was asked for there (bucket, prefix, endpoint, options
 * and credentials: the tag, a digest). The first gets <root>/<bucket>[/<prefix>]; whoever asks for
 * the same place with anything different, or for a place above or below one that is in use, gets a
 * directory of its own, <root>/<bucket>@<digest>: nobody sees a bucket through credentials that are
 * not theirs. Users are counted; a mount ends with its last user. Mounting and unmounting of one
 * path exclude each other; different paths do not wait for each other.
 */
#pragma once

#include "daemon/sandbox/service.h"

#define OSS_TAG_LEN 32
#define OSS_ROOT "/mnt/ossfs"

struct ossfs;

struct ossfs_opts {
    const char *root;                         /* absolute, else every use is refused */
    const char *temp_dir;                     /* of credential files; NULL = TMPDIR or /tmp */
    int mount_timeout_ms, unmount_timeout_ms; /* 0 = 30 s, 20 s */
};

int ossfs_new(const struct ossfs_opts *o, struct ossfs **ret);
void ossfs_free(struct ossfs *o); /* mounts stay */

/* Words and characters of a request. Pure. */
enum fault ossfs_check(const char *root, const struct volume_request *v, struct err *err);

/* Decides the path and counts a user. *ret_path is malloc'd; nothing is mounted yet. */
enum fault ossfs_reserve(struct ossfs *o, const struct volume_request *v, char **ret_path,
                         char ret_tag[OSS_TAG_LEN + 1], struct err *err);
/* Gives a reservation back that another one of the same sandbox covers. */
void ossfs_unreserve(struct ossfs *o, const char *path);
/* Mounts a reserved path unless it is; waits for others who do the same. */
enum fault ossfs_mount(struct ossfs *o, const char *path, const struct volume_request *v,
                       struct err *err);
/* One user less; unmounts with the last. An unknown path is left alone. Failures are logged. */
void ossfs_release(struct ossfs *o, const char *path);
/* Could we have mounted there? Labels of containers may say anything. */
bool ossfs_is_place(const struct ossfs *o, const char *path);
/* Start-up: a sandbox that lives uses it. tag "" = not known with what it was mounted. */
int ossfs_restore(struct ossfs *o, const char *path, const char *tag);
/* Start-up: a create or removal that did not end used it; unmounted unless it has users. */
void ossfs_drop(struct ossfs *o, const char *path);
unsigned ossfs_users(struct ossfs *o, const char *path); /* for tests */

/* ---- ossfs_mount.c: the programs ---- */
struct oss_mount {
    const char *path;
    const struct oss_request *rq;
    const char *prefix; /* "" = the whole bucket */
    const char *temp_dir;
    int timeout_ms;
};
/* "https://" is put before an endpoint without a scheme; malloc'd. */
char *oss_endpoint_url(const char *endpoint);
/* The command line, and what the credential file holds. */
int oss_command(const struct oss_mount *m, const char *file, struct strv *ret);
char *oss_file_text(const struct oss_mount *m);
/* Removes credential files that a killed daemon has left there. */
void oss_sweep_files(const char *temp_dir);
int oss_run_mount(const struct oss_mount *m, struct err *err);
int oss_run_unmount(const char *path, int timeout_ms, struct err *err);
/* Mount points at `path`; beside: or on the way to it below `root`. -errno when that cannot be
 * told. */
int oss_is_mounted(const char *path);
int oss_is_inside_mount(const char *root, const char *path);
