/*
 * Snapshots at the surface (see snapshots.h): look-ups, list and the answer to a create. Making the
 * image is in snapshot_make.c, removing in snapshot_remove.c. Loop thread, but for run() and
 * snapshots_resolve().
 */
#include "daemon/sandbox/snapshots.h"

#include <errno.h>
#include <string.h>

#include "daemon/sandbox/internal.h"

bool service_has_snapshots(const struct service *s) {
    return s->o.snapshots && s->o.driver->rules.snapshots;
}

static enum fault none_here(struct err *err) {
    err_set(err, -EOPNOTSUPP, "Snapshots are not supported by this runtime.");
    return FAULT_SNAPSHOT;
}

enum fault snapshots_resolve(struct service *s, const char *snapshot_id, char **ret_image,
                             struct err *err) {
    struct snap_row row = {0};
    enum fault f = FAULT_NONE;

    if (!service_has_snapshots(s))
        return none_here(err);
    int r = snapdb_get(s->o.snapshots, snapshot_id, &row, err);
    if (r < 0)
        return r == -ENOENT ? FAULT_SNAPSHOT_MISSING : FAULT_QUERY;
    if (row.state != SNAP_READY) {
        err_set(err, -EAGAIN, "Snapshot %s is not ready: its state is %s.", snapshot_id,
                snap_state_name(row.state));
        f = FAULT_SNAPSHOT_NOT_READY;
    } else if (str_is_empty(row.image)) {
        err_set(err, -ENODATA, "Snapshot %s has no image to start from.", snapshot_id);
        f = FAULT_SNAPSHOT_RESTORE;
    } else {
        *ret_image = TAKE_PTR(row.image);
    }
    snap_row_done(&row);
    return f;
}
