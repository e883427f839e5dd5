/*
 * The worker's half of a create: the checks that wait for something, intent row, volumes, image,
 * driver, result row (lifecycle.md §4, 14-27). Whatever fails, what was made before it is unmade in
 * reverse order and the first error stays; a killed daemon finds the intent row at its next start
 * and unmakes from there, so the row names everything that may be made before any of it is.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "daemon/sandbox/check.h"
#include "daemon/sandbox/create_priv.h"
#include "daemon/sandbox/volumes.h"

static int64_t add_step(struct create_op *c, const char *name, int64_t since_us) {
    struct step_times *t = &c->steps;
    int64_t now = clock_mono_us();

    if (t->n < ARRAY_SIZE(t->t))
        t->t[t->n++] = (struct step_time){name, now - since_us};
    return now;
}

static enum fault check_slowly(struct create_op *c) {
    struct driver *d = c->svc->o.driver;
    enum fault f;
    int r = d->ops->check_network ? d->ops->check_network(d, &c->err) : 0;

    if (r < 0)
        return r == -EINVAL || r == -ENOENT ? FAULT_INVALID : FAULT_NETWORK;
    if ((f = check_env(&c->rq, &c->sb->spec, &c->err)))
        return f;
    return check_volumes(&c->svc->o, &c->rq, &c->err);
}

static int insert_intent(struct create_op *c) {
    _cleanup_free_ char *record = record_to_text(c->sb);
    _cleanup_free_ char *metadata = json_dumps(c->sb->metadata, JSON_COMPACT);
    struct statedb_row row = {
        .state = ROW_CREATING,
        .record = record,
        .metadata = metadata,
        .created_us = c->sb->created_us,
        .expires_us = c->sb->expires_us,
    };

    if (!record || !metadata)
        return err_set(&c->err, -ENOMEM, "out of memory");
    str_copy(row.id, sizeof row.id, c->sb->spec.id);
    return statedb_insert(c->svc->o.store, &row, &c->err);
}

static enum fault find_image(struct create_op *c) {
    struct driver *d = c->svc->o.driver;
    struct sandbox_spec *spec = &c->sb->spec;
    int r = d->ops->ensure_image(d, spec, &c->err);

    if (r < 0)
        return fault_of(r, FAULT_IMAGE);
    r = d->ops->check_late ? d->ops->check_late(d, spec, &c->err) : 0;
    return fault_of(r, FAULT_CREATE);
}

static enum fault commit(struct create_op *c) {
    _cleanup_free_ char *record = record_to_text(c->sb);
    int r = record ? statedb_commit(c->svc->o.store, c->sb->spec.id, record, &c->err)
                   : err_set(&c->err, -ENOMEM, "out of memory");
    return r < 0 ? FAULT_CREATE : FAULT_NONE;
}

/* It cannot be promised, so it must go; if even that fails, the next start finds its row. */
static enum fault unmake(struct create_op *c, enum fault f) {
    struct driver *d = c->svc->o.driver;
    struct err err = {0};
    int r = d->ops->remove(d, c->sb->spec.id, &err);

    if (r < 0 && r != -ENOENT) {
        c->stays = true;
        log_error("a sandbox that could not be written down stays until the next start",
                  LOG_STR("sandbox", c->sb->spec.id), LOG_ERR(&err));
    }
    return f;
}

static enum fault run_driver(struct create_op *c) {
    struct driver *d = c->svc->o.driver;
    struct step_times inner = {0};
    int64_t t = clock_mono_us();
    int r = d->ops->create(d, &c->sb->spec, &c->info, &inner, &c->err);

    if (r < 0)
        return r == -ENOENT ? FAULT_IMAGE : fault_of(r, FAULT_CREATE);
    crash_point("service-create-made");
    t = add_step(c, "driver", t);
    for (size_t i = 0; i < inner.n && c->steps.n < ARRAY_SIZE(c->steps.t) - 1; i++)
        c->steps.t[c->steps.n++] = inner.t[i];
    enum fault f = commit(c);
    if (f)
        return unmake(c, f);
    crash_point("service-create-committed");
    add_step(c, "result", t);
    return FAULT_NONE;
}

/* After the intent. */
static enum fault make(struct create_op *c) {
    struct sandbox_spec *spec = &c->sb->spec;
    int64_t t = clock_mono_us();
    enum fault f = volumes_resolve(c->svc, &c->rq, spec, &c->err);

    if (f)
        return f;
    crash_point("service-create-volumes");
    if (c->rq.n_volumes)
        t = add_step(c, "volumes", t);
    if ((f = find_image(c)))
        return f;
    t = add_step(c, "image", t);
    if (spec->oss_mounts.n) {
        if ((f = volumes_mount(c->svc, &c->rq, &c->err)))
            return f;
        crash_point("service-create-mounted");
        add_step(c, "mounts", t);
    }
    return run_driver(c);
}

void create_make(struct create_op *c) {
    struct sandbox_spec *spec = &c->sb->spec;
    struct err ignored = {0};
    int64_t t = clock_mono_us();

    if ((c->fault = check_slowly(c)) || (c->fault = volumes_plan(c->svc, &c->rq, c->sb, &c->err)))
        return;
    if (insert_intent(c) < 0) {
        c->fault = FAULT_CREATE;
        volumes_undo(c->svc, spec); /* nothing was made yet: reservations only */
        return;
    }
    crash_point("service-create-intent");
    add_step(c, "intent", t);
    c->fault = make(c);
    if (c->fault == FAULT_NONE || c->stays)
        return;
    volumes_undo(c->svc, spec);
    if (statedb_delete(c->svc->o.store, spec->id, &ignored) < 0)
        log_warn("the row of a failed create stays until the next start",
                 LOG_STR("sandbox", spec->id), LOG_ERR(&ignored));
}
