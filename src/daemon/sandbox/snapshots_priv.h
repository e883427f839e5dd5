/* What the files of the snapshots share. */
#pragma once

#include "daemon/sandbox/internal.h"
#include "daemon/sandbox/snapshots.h"

#define MAX_COMMITS 2 /* at a time; each stops its sandbox and fills the disk */

struct snapshots {
    struct service *svc;
    unsigned n_commits;  /* running */
    struct list waiting; /* struct commit_op */
    bool stopping;
    struct list retries; /* struct retry */
    size_t n_retries;
    uv_timer_t timer; /* for the first retry */
};

/* What a look-up of the table or a driver cannot answer: 500 for the client. */
enum fault snapshot_none_here(struct err *err);
/* The image of a row, also when the row does not name it yet; malloc'd. */
char *snapshot_image(const struct snap_row *row);

/* ---- snapshot_remove.c; blocking, for workers and the start ---- */
/* Everything of a delete. *ret_retry: the record stays in Deleting and has to be tried again. */
enum fault snapshot_delete_now(struct service *s, const char *id, bool *ret_retry, struct err *err);

/* ---- snapshot_make.c; blocking, for workers ---- */
/* Ends the state Creating by the rules for records that changed meanwhile. Negative: the repository
 * did not answer. */
int snapshot_settle(struct service *s, const char *id, const struct snap_change *c,
                    struct err *err);

/* ---- snapshot_retry.c; loop thread ---- */
/* Tries a removal again, later and later, until it is done. */
void snapshot_retry_delete(struct snapshots *sn, const char *id);
/* The same for the outcome of a commit that could not be written. */
void snapshot_retry_settle(struct snapshots *sn, const char *id, const struct snap_change *c);
int snapshot_retry_open(struct snapshots *sn);
void snapshot_retry_close(struct snapshots *sn); /* frees sn, once its timer is closed */
