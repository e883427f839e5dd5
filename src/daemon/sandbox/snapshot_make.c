/*
 * Making a snapshot: the record first (what the client is answered with), then the commit as the
 * very next operation of the sandbox, then the outcome into the record. At most MAX_COMMITS run at
 * a time, the others wait without a thread; a second snapshot of the same sandbox is refused until
 * the first is made, which bounds what waits. A killed daemon finds the record in Creating at its
 * next start (snapshots.c). Loop thread, but for run().
 */
#include <errno.h>
#include <string.h>

#include "base/crash.h"
#include "base/id.h"
#include "base/log.h"
#include "daemon/sandbox/snapshots_priv.h"

struct commit_op {
    struct op op;
    struct list waiting; /* in snapshots.waiting */
    char id[37];
    bool has_turn; /* one of MAX_COMMITS */
    bool given_up; /* the daemon ends: nothing is made any more */
    bool lost;     /* the outcome could not be written */
    struct snap_change outcome;
    struct err why; /* its message */
    char *image;
};

struct accept_op {
    struct op op;
    struct snap_row row;
    struct commit_op *commit; /* what follows; made before anything is promised */
    snapshot_cb cb;
    void *ud;
};

/* ---- the outcome ---- */

static void drop_image(struct service *s, const char *id, const char *image) {
    struct driver *d = s->o.driver;
    struct err err = {0};

    if (image && d->ops->snapshot_remove(d, image, &err) < 0)
        log_warn("the image of a removed snapshot stays behind", LOG_STR("snapshot", id),
                 LOG_ERR(&err));
}

int snapshot_settle(struct service *s, const char *id, const struct snap_change *c,
                    struct err *err) {
    struct snap_row row = {0};
    int r = snapdb_change(s->o.snapshots, id, SNAP_CREATING, c, err);

    if (r == -ESTALE)
        r = snapdb_get(s->o.snapshots, id, &row, err);
    else if (r == 0)
        return 0;
    if (r == -ENOENT) { /* removed by somebody else meanwhile */
        drop_image(s, id, c->image);
        r = 0;
    } else if (r == 0 && row.state == SNAP_DELETING) {
        drop_image(s, id, c->image);
        r = snapdb_remove(s->o.snapshots, id, SNAP_DELETING, err);
        r = r == -ENOENT || r == -ESTALE ? 0 : r;
    }
    snap_row_done(&row);
    return r;
}

static void describe(struct commit_op *c, int r) {
    c->outcome = (struct snap_change){.state = SNAP_FAILED};
    c->outcome.message = c->why.msg;
    if (r == 0 && !str_is_empty(c->image)) {
        c->outcome.state = SNAP_READY;
        c->outcome.reason = "snapshot_runtime_ready";
        c->outcome.image = c->image;
        err_set(&c->why, 0, "Snapshot image is ready.");
    } else if (r == 0) {
        c->outcome.reason = "snapshot_runtime_missing_image";
        err_set(&c->why, -ENODATA, "The runtime made no image.");
    } else if (r == -ETIMEDOUT || strstr(c->why.msg, "timed out")) {
        c->outcome.reason = "snapshot_runtime_timeout";
    } else {
        c->outcome.reason = "snapshot_runtime_failed";
    }
}

/* ---- the commit ---- */

static void commit_run(struct op *o) {
    struct commit_op *c = container_of(o, struct commit_op, op);
    struct driver *d = o->svc->o.driver;
    int r;

    if (c->given_up)
        r = err_set(&c->why, -ESHUTDOWN, "The daemon ended before the snapshot was made.");
    else
        r = d->ops->snapshot_create(d, o->sb->spec.id, c->id, &c->image, &c->why);
    crash_point("snapshot-committed");
    describe(c, r);
    c->outcome.now_us = service_now(o->svc);
    c->lost = snapshot_settle(o->svc, c->id, &c->outcome, &o->err) < 0;
    crash_point("snapshot-done");
}

static void give_turns(struct snapshots *sn) {
    while (!list_is_empty(&sn->waiting) && (sn->stopping || sn->n_commits < MAX_COMMITS)) {
        struct commit_op *c = list_entry(sn->waiting.next, struct commit_op, waiting);
        list_remove(&c->waiting);
        c->given_up = sn->stopping;
        c->has_turn = !sn->stopping;
        sn->n_commits += c->has_turn;
        op_go(&c->op);
    }
}

static bool commit_start(struct op *o) {
    struct commit_op *c = container_of(o, struct commit_op, op);
    struct snapshots *sn = o->svc->snaps;

    o->deferred = true;
    list_append(&sn->waiting, &c->waiting);
    give_turns(sn);
    return true;
}

static void commit_end(struct op *o) {
    struct commit_op *c = container_of(o, struct commit_op, op);
    struct snapshots *sn = o->svc->snaps;

    if (c->lost) {
        log_error("the outcome of a snapshot could not be stored yet", LOG_STR("snapshot", c->id),
                  LOG_ERR(&o->err));
        snapshot_retry_settle(sn, c->id, &c->outcome);
    } else if (c->outcome.state == SNAP_READY) {
        log_info("snapshot made", LOG_STR("snapshot", c->id), LOG_STR("sandbox", o->sb->spec.id));
    } else {
        log_error("snapshot failed", LOG_STR("snapshot", c->id), LOG_STR("sandbox", o->sb->spec.id),
                  LOG_ERR(&c->why));
    }
    if (c->has_turn)
        sn->n_commits--;
    free(c->image);
    give_turns(sn);
}

/* ---- the record ---- */

static bool accept_start(struct op *o) {
    struct accept_op *a = container_of(o, struct accept_op, op);
    const char *id = o->sb->spec.id;

    if (o->sb->gone) {
        err_set(&o->err, -ENOENT, "Sandbox %s not found.", id);
        o->fault = FAULT_NOT_FOUND;
    } else if (sandbox_state_of(o->sb) != SB_RUNNING) {
        err_set(&o->err, -EALREADY, "Sandbox %s must be running for a snapshot.", id);
        o->fault = FAULT_SNAPSHOT_SOURCE;
    }
    a->row.created_us = a->row.updated_us = a->row.changed_us = service_now(o->svc);
    return o->fault == FAULT_NONE;
}

static void accept_run(struct op *o) {
    struct accept_op *a = container_of(o, struct accept_op, op);

    if (snapdb_insert(o->svc->o.snapshots, &a->row, &o->err) < 0)
        o->fault = FAULT_QUERY;
    crash_point("snapshot-row");
}

static void accept_end(struct op *o) {
    struct accept_op *a = container_of(o, struct accept_op, op);

    if (o->fault == FAULT_NONE)
        op_follow(o, &TAKE_PTR(a->commit)->op);
    a->cb(o->fault, &o->err, o->fault ? NULL : &a->row, a->ud);
    free(a->commit);
    snap_row_done(&a->row);
}

static int fill_row(struct snap_row *row, const struct sandbox *sb, const char *name) {
    char id[37];

    id_uuid(id);
    *row = (struct snap_row){
        .id = strdup(id),
        .sandbox_id = strdup(sb->spec.id),
        .name = name ? strdup(name) : NULL,
        .reason = strdup("snapshot_accepted"),
        .message = strdup("Snapshot creation accepted."),
        .state = SNAP_CREATING,
    };
    return row->id && row->sandbox_id && row->reason && row->message && (row->name || !name)
               ? 0
               : -ENOMEM;
}

static struct accept_op *prepare(struct service *s, struct sandbox *sb, const char *name) {
    struct accept_op *a = calloc(1, sizeof *a);
    struct commit_op *c = calloc(1, sizeof *c);

    if (!a || !c || fill_row(&a->row, sb, name) < 0) {
        if (a)
            snap_row_done(&a->row);
        free(a);
        free(c);
        return NULL;
    }
    str_copy(c->id, sizeof c->id, a->row.id);
    list_init(&c->waiting);
    c->op.svc = a->op.svc = s;
    c->op.sb = a->op.sb = sb;
    c->op.start = commit_start;
    c->op.run = commit_run;
    c->op.end = commit_end;
    c->op.lets_by = true;
    a->commit = c;
    a->op.start = accept_start;
    a->op.run = accept_run;
    a->op.end = accept_end;
    return a;
}

/* A snapshot of it waits or is being made. */
static bool is_being_made(const struct sandbox *sb) {
    list_foreach (it, &sb->ops) {
        const struct op *o = list_entry(it, struct op, link);
        if (o->run == accept_run || o->run == commit_run)
            return true;
    }
    return false;
}

static enum fault check(struct service *s, const struct sandbox *sb, const char *id,
                        struct err *err) {
    if (!sb) {
        err_set(err, -ENOENT, "Sandbox %s not found.", id);
        return FAULT_NOT_FOUND;
    }
    if (sandbox_state_of(sb) != SB_RUNNING) {
        err_set(err, -EALREADY, "Sandbox %s must be running for a snapshot.", id);
        return FAULT_SNAPSHOT_SOURCE;
    }
    if (!service_has_snapshots(s))
        return snapshot_none_here(err);
    if (is_being_made(sb)) {
        err_set(err, -EALREADY, "Sandbox %s is just having a snapshot made.", id);
        return FAULT_SNAPSHOT_SOURCE;
    }
    if (s->refusing) {
        err_set(err, -ESHUTDOWN, "the daemon is shutting down");
        return FAULT_STOPPING;
    }
    return FAULT_NONE;
}

void service_snapshot_create(struct service *s, const char *sandbox_id, const char *name,
                             snapshot_cb cb, void *ud) {
    struct sandbox *sb = service_get(s, sandbox_id);
    struct err err = {0};
    enum fault f = check(s, sb, sandbox_id, &err);
    struct accept_op *a = f ? NULL : prepare(s, sb, name);

    if (!a) {
        if (!f)
            err_set(&err, -ENOMEM, "out of memory");
        cb(f ? f : FAULT_QUERY, &err, NULL, ud);
        return;
    }
    a->cb = cb;
    a->ud = ud;
    op_enqueue(&a->op);
}

void snapshots_stop(struct service *s) {
    if (!s->snaps)
        return;
    s->snaps->stopping = true;
    give_turns(s->snaps);
}
