/*
 * Renewal: a new expiry time, later or earlier, written before it counts. Excludes expiry of the
 * same sandbox by the order of operations (op.c). Loop thread, but for run().
 */
#include <errno.h>

#include "daemon/sandbox/internal.h"
#include "daemon/telemetry/telemetry.h"

struct renew_op {
    struct op op;
    int64_t expires_us;
    int64_t extend_us; /* > 0: by use; expires_us is decided when its turn has come */
};

/* By use: a life that reaches further stays as it is, whoever asked for it while this one waited.
 */
static void decide(struct renew_op *n) {
    const struct sandbox *sb = n->op.sb;

    n->expires_us = MAX(service_now(n->op.svc) + n->extend_us, sb->expires_us);
    if (sandbox_state_of(sb) != SB_RUNNING) {
        err_set(&n->op.err, -EALREADY, "Sandbox is not in a running state.");
        n->op.fault = FAULT_NOT_RUNNING;
    }
}

static bool start(struct op *o) {
    struct renew_op *n = container_of(o, struct renew_op, op);
    struct sandbox *sb = o->sb;

    if (n->extend_us > 0)
        decide(n);
    if (sb->gone) {
        err_set(&o->err, -ENOENT, "Sandbox %s not found.", sb->spec.id);
        o->fault = FAULT_NOT_FOUND;
    } else if (n->expires_us <= service_now(o->svc)) {
        err_set(&o->err, -EINVAL, "New expiration time must be in the future.");
        o->fault = FAULT_EXPIRY_PAST;
    } else if (!sb->expires_us) {
        err_set(&o->err, -EALREADY, "Sandbox %s does not have automatic expiration enabled.",
                sb->spec.id);
        o->fault = FAULT_NO_EXPIRY;
    }
    return o->fault == FAULT_NONE;
}

static void run(struct op *o) {
    struct renew_op *n = container_of(o, struct renew_op, op);
    struct driver *d = o->svc->o.driver;
    const char *id = o->sb->spec.id;
    int r = statedb_set_expires(o->svc->o.store, id, n->expires_us, &o->err);

    o->fault = r == -ENOENT ? FAULT_NOT_FOUND : r < 0 ? FAULT_QUERY : FAULT_NONE;
    if (r >= 0 && d->ops->note_expiry)
        d->ops->note_expiry(d, id, n->expires_us);
}

static void end(struct op *o) {
    struct renew_op *n = container_of(o, struct renew_op, op);

    if (o->fault == FAULT_NONE) {
        o->sb->expires_us = o->sb->fire_us = n->expires_us;
        expiry_schedule(o->svc, o->sb);
        sandbox_touch(o->sb);
    }
    telemetry_op(TELEMETRY_RENEW, o->fault == FAULT_NONE);
    o->cb(o->fault, &o->err, o->fault ? NULL : o->sb, o->ud);
}

static void begin(struct service *s, const char *id, const struct renew_op *how, op_cb cb,
                  void *ud) {
    struct renew_op *n = op_new(s, id, sizeof *n, cb, ud);
    if (!n)
        return;
    n->expires_us = how->expires_us;
    n->extend_us = how->extend_us;
    n->op.start = start;
    n->op.run = run;
    n->op.end = end;
    n->op.light = true;
    op_enqueue(&n->op);
}

void service_renew(struct service *s, const char *id, int64_t expires_us, op_cb cb, void *ud) {
    begin(s, id, &(struct renew_op){.expires_us = expires_us}, cb, ud);
}

void renew_extend(struct service *s, const char *id, int64_t extend_us, op_cb cb, void *ud) {
    begin(s, id, &(struct renew_op){.extend_us = extend_us}, cb, ud);
}
