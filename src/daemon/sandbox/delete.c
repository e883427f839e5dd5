/*
 * Removal: asked for, or because a sandbox has expired. Intent in the database, driver, row gone.
 * One rule decides between renewal and expiry: whoever has its turn first; an expiry that finds a
 * later time when its turn has come does nothing. Loop thread, but for run().
 */
#include <errno.h>

#include "base/crash.h"
#include "base/log.h"
#include "daemon/sandbox/internal.h"

#define RETRY_US ((int64_t)30 * 1000000)

struct delete_op {
    struct op op;
    bool joined;  /* asked for while a removal was under way: its success is ours */
    bool expired; /* by the timer; nobody waits for an answer */
};

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
    if (d->expired && (!sb->expires_us || sb->expires_us > service_now(o->svc))) {
        sb->fire_us = sb->expires_us; /* renewed meanwhile */
        expiry_schedule(o->svc, sb);
        return false;
    }
    sb->removing = true;
    sandbox_touch(sb);
    return true;
}

static void run(struct op *o) {
    struct driver *d = o->svc->o.driver;
    const char *id = o->sb->spec.id;
    struct err ignored = {0};

    int r = statedb_set_state(o->svc->o.store, id, ROW_DELETING, &o->err);
    if (r >= 0 || r == -ENOENT) {
        o->err = (struct err){0};
        crash_point("service-delete-intent");
        r = d->ops->remove(d, id, &o->err);
        crash_point("service-delete-removed");
        if (r == -ENOENT)
            r = 0;
        if (r < 0)
            statedb_set_state(o->svc->o.store, id, ROW_ACTIVE,
                              &ignored); /* it is still there, so it stays known */
        else
            r = statedb_delete(o->svc->o.store, id, &o->err);
    }
    if (r < 0)
        o->fault = FAULT_DELETE;
}

static void end(struct op *o) {
    struct delete_op *d = container_of(o, struct delete_op, op);
    struct sandbox *sb = o->sb;

    if (o->fault == FAULT_DELETE) {
        sb->removing = false;
        sandbox_touch(sb);
        log_error("removal failed", LOG_STR("sandbox", sb->spec.id), LOG_ERR(&o->err));
        if (d->expired) {
            sb->fire_us = service_now(o->svc) + RETRY_US;
            expiry_schedule(o->svc, sb);
        }
    } else if (sb->removing && !sb->gone) {
        sb->gone = true;
        table_remove(o->svc, sb);
        log_info(d->expired ? "sandbox expired" : "sandbox deleted",
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

void service_delete(struct service *s, const char *id, op_cb cb, void *ud) {
    struct delete_op *d = op_new(s, id, sizeof *d, cb, ud);
    if (d)
        enqueue(d);
}

void delete_expired(struct service *s, struct sandbox *sb) {
    struct delete_op *d = s->refusing ? NULL : calloc(1, sizeof *d);

    if (!d) { /* shutting down, or no memory just now: the next start or the next round does it */
        sb->fire_us = service_now(s) + RETRY_US;
        expiry_schedule(s, sb);
        return;
    }
    d->op.svc = s;
    d->op.sb = sb;
    d->expired = true;
    enqueue(d);
}
