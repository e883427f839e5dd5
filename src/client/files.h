/* What copying shares: one transfer's context and the agent's file routes (execd.md 5). */
#pragma once

#include "client/internal.h"

struct transfer {
    struct cove_client *c;
    const char *sandbox_id;
    struct cove_copy_options o;
    uint64_t done, total;
};
void transfer_init(struct transfer *t, struct cove_client *c, const char *id,
                   const struct cove_copy_options *o);
void transfer_skip(struct transfer *t, const char *path, const char *why);

struct remote_info {
    char type; /* 'f' file, 'd' directory, 'l' link, 'o' other */
    unsigned mode;
    uint64_t size;
};
/* -ENOENT: nothing there. Links are not followed. */
int remote_stat(struct transfer *t, const char *path, struct remote_info *ret,
                struct cove_error *err);
int remote_info_parse(const json_t *j, struct remote_info *ret);
/* mkdir -p; the leaf gets `mode` when it is made here. */
int remote_mkdir(struct transfer *t, const char *path, unsigned mode, struct cove_error *err);
int remote_chmod(struct transfer *t, const char *path, unsigned mode, struct cove_error *err);
/* Entries of a directory: array of objects with "path" and what remote_info_parse() reads. */
int remote_list(struct transfer *t, const char *path, json_t **ret, struct cove_error *err);
int remote_upload(struct transfer *t, int fd, const char *path, unsigned mode,
                  struct cove_error *err);
int remote_download(struct transfer *t, const char *path, int fd, struct cove_error *err);
/* Runs a program of the sandbox; stdout (at most 64 KiB) in *ret_out. -ENOENT: there is no such
 * program. */
int remote_run(struct transfer *t, const char *const *argv, char **ret_out, int *ret_code,
               struct cove_error *err);

/* 0755 -> 755 and back: the agent writes modes in decimal digits. */
int mode_to_digits(unsigned mode);
unsigned mode_from_digits(int64_t digits);
/* The last component of an absolute path when `path` lies directly in `dir`, else NULL. */
const char *child_name(const char *dir, const char *path);

#define COPY_MAX_DEPTH 200
