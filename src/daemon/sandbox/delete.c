/*
 * Removal: asked for, because a sandbox has expired, or because the runtime has lost it. Intent in
 * the database, driver, then what belonged to it (volumes, mounts), row gone. One rule decides
 * between renewal and expiry: whoever has its turn first; an expiry that finds a later time when
 * its turn has come does nothing. Loop thread, but for run().
 */
#include <errno.h>
#include <string.h>

#include "base/crash.h"
#include "base/log.h"
#include "daemon/sandbox/internal.h"
#include "daemon/sandbox/snapshots.h"
#include "daemon/sandbox/volumes.h"
#include "daemon/telemetry/telemetry.h"

#define RETRY_US ((int64_t)30 * 1000000)

struct delete_op {
    struct op op;
    bool joined;  /* asked for while a removal was under way: its success is ours */
    bool by_us;   /* by the timer or a report; nobody waits for an answer */
    bool is_back; /* it was reported as lost, but there it is */
};

static bool is_due(const struct service *s, const struct sandbox *sb) {
    return sb->lost || (sb->expires_us && sb->expires_us <= service_now(s));
}

static bool start(struct op *o) {
    struct delete_op *d = container_of(o, struct delete_op, op);
    struct sandbox *sb = o->sb;

    if (sb->gone) {
        if (!d->joined) {
            err_set(&o->err, -ENOENT, "Sandbox %s not found.", sb->spec.id);
            o->fault = FAULT_NOT_FOUND;
        }
        return false;
    }
    if (d->by_us && !is_due(o->svc, sb)) {
        sb->fire_us = sb->expires_us; /* renewed meanwhile */
        expiry_schedule(o->svc, sb);
        return false;
    }
    sb->removing = true;
    sandbox_touch(sb);
    return true;
}

static bool is_there(struct driver *d, const char *id) {
    struct instance_info info = {0};
    struct err ignored = {0};
    int r = d->ops->inspect(d, id, &info, &ignored);
    return r < 0 ? r != -ENOENT : info.state != INST_GONE;
}

static int remove_all(struct op *o) {
    struct driver *d = o->svc->o.driver;
    struct sandbox *sb = o->sb;
    int r = d->ops->remove(d, sb->spec.id, &o->err);

    crash_point("service-delete-removed");
    if (r < 0 && r != -ENOENT)
        return r;
    o->err = (struct err){0};
    if (!sb->released) {
        sb->released = true;
        volumes_release(o->svc, &sb->spec);
        crash_point("service-delete-released");
    }
    return 0;
}

static void run(struct op *o) {
    struct delete_op *d = container_of(o, struct delete_op, op);
    struct statedb *st = o->svc->o.store;
    const char *id = o->sb->spec.id;
    struct err ignored = {0};

    if (d->by_us && o->sb->lost && is_there(o->svc->o.driver, id)) {
        d->is_back = true;
        return;
    }
    int r = statedb_set_state(st, id, ROW_DELETING, &o->err);
    if (r == -ENOSPC) { /* removing is what makes room; killed now, the next start finds it gone */
        log_warn("a sandbox is removed without a note of it", LOG_STR("sandbox", id),
                 LOG_ERR(&o->err));
        r = 0;
    }
    if (r >= 0 || r == -ENOENT) {
        o->err = (struct err){0};
        crash_point("service-delete-intent");
        r = remove_all(o);
        if (r < 0) /* it is still there, so it stays known */
            statedb_set_state(st, id, ROW_ACTIVE, &ignored);
        else
            r = statedb_delete(st, id, &o->err);
    }
    if (r < 0)
        o->fault = FAULT_DELETE;
}

static void go_on_living(struct op *o, bool again) {
    struct sandbox *sb = o->sb;

    sb->removing = false;
    sandbox_touch(sb);
    sb->fire_us = again ? service_now(o->svc) + RETRY_US : sb->expires_us;
    expiry_schedule(o->svc, sb);
}

static void end(struct op *o) {
    struct delete_op *d = container_of(o, struct delete_op, op);
    struct sandbox *sb = o->sb;

    if (d->is_back) {
        sb->lost = false;
        go_on_living(o, false);
    } else if (o->fault == FAULT_DELETE) {
        telemetry_op(d->by_us ? TELEMETRY_EXPIRE : TELEMETRY_DELETE, false);
        log_error("removal failed", LOG_STR("sandbox", sb->spec.id), LOG_ERR(&o->err));
        go_on_living(o, d->by_us);
    } else if (sb->removing && !sb->gone) {
        sb->gone = true;
        table_remove(o->svc, sb);
        if (sb->spec.snapshot_id)
            snapshots_user_gone(o->svc, sb->spec.snapshot_id);
        if (!sb->lost)
            telemetry_op(d->by_us ? TELEMETRY_EXPIRE : TELEMETRY_DELETE, true);
        log_info(!d->by_us  ? "sandbox deleted"
                 : sb->lost ? "sandbox was removed by another hand"
                            : "sandbox expired",
                 LOG_STR("sandbox", sb->spec.id));
    }
    if (o->cb)
        o->cb(o->fault, &o->err, NULL, o->ud);
}

static void enqueue(struct delete_op *d) {
    d->op.start = start;
    d->op.run = run;
    d->op.end = end;
    list_foreach (it, &d->op.sb->ops) {
        const struct op *other = list_entry(it, struct op, link);
        if (other->run == run)
            d->joined = true;
    }
    op_enqueue(&d->op);
}

static void begin_by_us(struct service *s, struct sandbox *sb) {
    struct delete_op *d = s->refusing ? NULL : calloc(1, sizeof *d);

    if (!d) { /* shutting down, or no memory just now: the next start or the next round does it */
        sb->fire_us = service_now(s) + RETRY_US;
        expiry_schedule(s, sb);
        return;
    }
    d->op.svc = s;
    d->op.sb = sb;
    d->by_us = true;
    enqueue(d);
}

void delete_expired(struct service *s, struct sandbox *sb) {
    begin_by_us(s, sb);
}

void delete_lost(struct service *s, struct sandbox *sb) {
    if (sb->lost)
        return;
    sb->lost = true;
    begin_by_us(s, sb);
}

/* ---- what no row knows ---- */

struct unknown_op {
    struct job job;
    struct service *svc;
    char id[SANDBOX_ID_MAX + 1];
    int code;
    struct err err;
    op_cb cb;
    void *ud;
};

static void unknown_run(struct job *j) {
    struct unknown_op *u = container_of(j, struct unknown_op, job);
    struct driver *d = u->svc->o.driver;
    u->code = d->ops->remove(d, u->id, &u->err);
}

static void unknown_done(struct job *j) {
    struct unknown_op *u = container_of(j, struct unknown_op, job);
    struct service *s = u->svc;
    enum fault f = u->code == -ENOENT ? FAULT_NOT_FOUND : u->code < 0 ? FAULT_DELETE : FAULT_NONE;

    if (f == FAULT_NOT_FOUND)
        err_set(&u->err, -ENOENT, "Sandbox %s not found.", u->id);
    map_remove(s->unknown, u->id);
    u->cb(f, &u->err, NULL, u->ud);
    free(u);
    service_ended_one(s);
}

static bool is_id(const char *id) {
    size_t n = strlen(id);
    return n > 0 && n <= SANDBOX_ID_MAX &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == n;
}

/* A runtime that others use too may hold what a lost sandbox has left (its guard, its volumes), or
 * a sandbox that another server of this wire has made since our start. */
static bool delete_unknown(struct service *s, const char *id, op_cb cb, void *ud) {
    struct unknown_op *u;

    if (!s->o.driver->ops->found || !is_id(id) || map_has(s->creating, id) ||
        map_has(s->unknown, id) || !(u = calloc(1, sizeof *u)))
        return false;
    str_copy(u->id, sizeof u->id, id);
    u->svc = s;
    u->cb = cb;
    u->ud = ud;
    u->job.run = unknown_run;
    u->job.done = unknown_done;
    if (map_set(s->unknown, id, u, NULL) < 0) {
        free(u);
        return false;
    }
    s->n_pending++;
    work_submit(s->pool, &u->job);
    return true;
}

void service_delete(struct service *s, const char *id, op_cb cb, void *ud) {
    if (!map_has(s->table, id) && delete_unknown(s, id, cb, ud))
        return;
    struct delete_op *d = op_new(s, id, sizeof *d, cb, ud);
    if (d)
        enqueue(d);
}
