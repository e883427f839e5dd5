/* Pause and resume. The effect is complete when the answer comes. Loop thread, but for run(). */
#include <errno.h>

#include "daemon/sandbox/internal.h"
#include "daemon/telemetry/telemetry.h"

struct pause_op {
    struct op op;
    bool resume;
    int64_t at_us;
    bool has_seen;
    struct instance_info seen; /* after a failure */
};

static bool start(struct op *o) {
    struct pause_op *p = container_of(o, struct pause_op, op);
    struct sandbox *sb = o->sb;

    if (sb->gone) {
        err_set(&o->err, -ENOENT, "Sandbox %s not found.", sb->spec.id);
        o->fault = FAULT_NOT_FOUND;
    } else if (p->resume && sb->state != SB_PAUSED) {
        err_set(&o->err, -EALREADY, "Sandbox is not in a paused state.");
        o->fault = FAULT_NOT_PAUSED;
    } else if (!p->resume && sb->state != SB_RUNNING) {
        err_set(&o->err, -EALREADY, "Sandbox is not in a running state.");
        o->fault = FAULT_NOT_RUNNING;
    }
    return o->fault == FAULT_NONE;
}

static void run(struct op *o) {
    struct pause_op *p = container_of(o, struct pause_op, op);
    struct driver *d = o->svc->o.driver;
    const char *id = o->sb->spec.id;
    int r = p->resume ? d->ops->resume(d, id, &o->err) : d->ops->pause(d, id, &o->err);

    if (r >= 0) { /* best effort: only the time of the last change depends on it */
        struct err ignored = {0};
        p->at_us = service_now(o->svc);
        statedb_set_changed(o->svc->o.store, id, p->at_us, &ignored);
    }
    if (r == -EALREADY)
        o->fault = p->resume ? FAULT_NOT_PAUSED : FAULT_NOT_RUNNING;
    else if (r == -ENOENT)
        o->fault = FAULT_NOT_FOUND;
    else
        o->fault = fault_of(r, p->resume ? FAULT_RESUME : FAULT_PAUSE);
    if (o->fault != FAULT_NONE) { /* it may be half done, and stay so */
        struct err ignored = {0};
        p->has_seen = d->ops->inspect(d, id, &p->seen, &ignored) >= 0;
        p->at_us = service_now(o->svc);
    }
}

static void set_state(struct pause_op *p, enum sandbox_state state) {
    struct sandbox *sb = p->op.sb;

    sb->state = state;
    sb->changed_us = p->at_us;
    sandbox_touch(sb);
}

static void end(struct op *o) {
    struct pause_op *p = container_of(o, struct pause_op, op);
    struct sandbox *sb = o->sb;

    /* it may have ended by itself meanwhile: then that stays */
    if (o->fault == FAULT_NONE && sb->state == (p->resume ? SB_PAUSED : SB_RUNNING))
        set_state(p, p->resume ? SB_RUNNING : SB_PAUSED);
    else if (p->has_seen && sb->state == SB_RUNNING && p->seen.state == INST_PAUSED)
        set_state(p, SB_PAUSED);
    else if (p->has_seen && sb->state == SB_PAUSED && p->seen.state == INST_RUNNING)
        set_state(p, SB_RUNNING);
    telemetry_op(p->resume ? TELEMETRY_RESUME : TELEMETRY_PAUSE, o->fault == FAULT_NONE);
    o->cb(o->fault, &o->err, o->fault ? NULL : sb, o->ud);
}

static void begin(struct service *s, const char *id, bool resume, op_cb cb, void *ud) {
    struct pause_op *p = op_new(s, id, sizeof *p, cb, ud);
    if (!p)
        return;
    p->resume = resume;
    p->op.start = start;
    p->op.run = run;
    p->op.end = end;
    op_enqueue(&p->op);
}

void service_pause(struct service *s, const char *id, op_cb cb, void *ud) {
    begin(s, id, false, cb, ud);
}

void service_resume(struct service *s, const char *id, op_cb cb, void *ud) {
    begin(s, id, true, cb, ud);
}
