/*
 * Removing a snapshot: Deleting into the record, the image, the record. What stops in between is
 * taken up by the next delete, by the retries (snapshot_retry.c) or by the next start; every step
 * may find its work done already. Blocking, any worker, several at once also for one snapshot.
 */
#include <errno.h>

#include "base/crash.h"
#include "base/log.h"
#include "daemon/sandbox/snapshots_priv.h"

static enum fault missing(struct err *err, const char *id) {
    err_set(err, -ENOENT, "Snapshot %s not found.", id);
    return FAULT_SNAPSHOT_MISSING;
}

static enum fault wrong_state(struct err *err, const struct snap_row *row) {
    err_set(err, -EALREADY, "Snapshot %s cannot be removed while its state is %s.", row->id,
            snap_state_name(row->state));
    return FAULT_SNAPSHOT_STATE;
}

/* Deleting is in the record afterwards. *ret_gone: there is none any more. */
static enum fault mark(struct service *s, struct snap_row *row, bool *ret_gone, struct err *err) {
    const struct snap_change c = {
        .state = SNAP_DELETING,
        .reason = "snapshot_delete_requested",
        .message = "Snapshot is being removed.",
        .now_us = service_now(s),
    };
    struct snap_row now = {0};

    if (row->state == SNAP_DELETING)
        return FAULT_NONE;
    int r = snapdb_change(s->o.snapshots, row->id, row->state, &c, err);
    if (r == 0)
        return FAULT_NONE;
    if (r == -ESTALE && (r = snapdb_get(s->o.snapshots, row->id, &now, err)) == 0) {
        enum fault f = now.state == SNAP_DELETING ? FAULT_NONE : wrong_state(err, &now);
        snap_row_done(&now);
        return f;
    }
    *ret_gone = r == -ENOENT; /* somebody else was faster: a success */
    return r == -ENOENT ? FAULT_NONE : FAULT_QUERY;
}

static enum fault finish(struct service *s, const struct snap_row *row, struct err *err) {
    struct driver *d = s->o.driver;
    _cleanup_free_ char *image = snapshot_image(row);

    if (!image) {
        err_set(err, -ENOMEM, "out of memory");
        return FAULT_QUERY;
    }
    crash_point("snapshot-delete-intent");
    int r = d->ops->snapshot_remove(d, image, err);
    if (r < 0 && r != -ENOENT)
        return r == -EBUSY ? FAULT_SNAPSHOT_BUSY : FAULT_SNAPSHOT_REMOVE;
    crash_point("snapshot-delete-image");
    r = snapdb_remove(s->o.snapshots, row->id, SNAP_DELETING, err);
    crash_point("snapshot-delete-row");
    return r < 0 && r != -ENOENT ? FAULT_QUERY : FAULT_NONE;
}

enum fault snapshot_delete_now(struct service *s, const char *id, bool *ret_retry,
                               struct err *err) {
    struct snap_row row = {0};
    bool gone = false;

    *ret_retry = false;
    int r = snapdb_get(s->o.snapshots, id, &row, err);
    if (r < 0)
        return r == -ENOENT ? missing(err, id) : FAULT_QUERY;
    enum fault f = row.state == SNAP_CREATING ? wrong_state(err, &row) : mark(s, &row, &gone, err);
    if (f == FAULT_NONE && !gone) {
        f = finish(s, &row, err);
        *ret_retry = f != FAULT_NONE;
    }
    snap_row_done(&row);
    return f;
}
