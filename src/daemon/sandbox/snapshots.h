/*
 * Snapshots: a sandbox's root file system kept as an image that new sandboxes start from. A
 * snapshot outlives its sandbox. Its record is in the repository (store/snapdb.h), whose calls run
 * on workers; answers come on the loop thread, exactly once. The commit is an operation of the
 * sandbox (op.c), so nothing else happens to it meanwhile.
 */
#pragma once

#include "daemon/sandbox/service.h"
#include "daemon/store/snapdb.h"

typedef void (*snapshot_cb)(enum fault f, const struct err *err, const struct snap_row *row,
                            void *ud); /* row is borrowed; NULL on a fault and after a delete */
typedef void (*snapshot_list_cb)(enum fault f, const struct err *err, const struct snap_page *page,
                                 void *ud);

/* Answers when the record is stored; the image is made afterwards. name may be NULL. */
void service_snapshot_create(struct service *s, const char *sandbox_id, const char *name,
                             snapshot_cb cb, void *ud);
void service_snapshot_get(struct service *s, const char *id, snapshot_cb cb, void *ud);
/* q is copied. */
void service_snapshot_list(struct service *s, const struct snap_query *q, snapshot_list_cb cb,
                           void *ud);
/* What cannot be removed now (an image in use) is tried again in the background. */
void service_snapshot_delete(struct service *s, const char *id, snapshot_cb cb, void *ud);
/* Can snapshots be made and used here? */
bool service_has_snapshots(const struct service *s);

/*
 * For a create: the image that a sandbox from this snapshot starts from (malloc'd). Blocks: for
 * worker threads. FAULT_SNAPSHOT (none here), FAULT_SNAPSHOT_MISSING, FAULT_SNAPSHOT_NOT_READY,
 * FAULT_SNAPSHOT_RESTORE, FAULT_QUERY.
 */
enum fault snapshots_resolve(struct service *s, const char *snapshot_id, char **ret_image,
                             struct err *err);

/* ---- for the service itself ---- */
/* A sandbox that was made from it is removed: its image may be free now. */
void snapshots_user_gone(struct service *s, const char *snapshot_id);
/* Finishes what a killed daemon left (blocking, before the first request). */
int snapshots_open(struct service *s, struct err *err);
void snapshots_stop(struct service *s); /* before the workers end: commits that wait are given up */
void snapshots_free(struct service *s); /* the workers have ended */
