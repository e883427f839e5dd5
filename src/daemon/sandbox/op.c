/*
 * The queue of operations per sandbox (see internal.h). Owns the order: an operation starts only
 * when the one before it has ended; a light one need not wait for a long one that lets it by (a
 * renewal must not wait for a commit of minutes). A sandbox that is gone stays allocated until its
 * last operation has been answered. Loop thread only, except op->run.
 */
#include <errno.h>

#include "daemon/sandbox/internal.h"

static void pump(struct sandbox *sb);

static void job_run(struct job *j) {
    struct op *o = container_of(j, struct op, job);
    o->run(o);
}

static void finish(struct op *o) {
    struct service *s = o->svc;
    o->end(o);
    list_remove(&o->link);
    free(o);
    service_ended_one(s);
}

static void job_done(struct job *j) {
    struct op *o = container_of(j, struct op, job);
    struct sandbox *sb = o->sb;
    finish(o);
    pump(sb);
}

static struct op *after(const struct sandbox *sb, const struct list *l) {
    return l->next == &sb->ops ? NULL : list_entry(l->next, struct op, link);
}

/* The one that may start now: the first, or a light one right behind a first that lets it by. */
static struct op *next_to_start(const struct sandbox *sb) {
    struct op *o = after(sb, &sb->ops);

    if (o && o->started && o->lets_by) {
        o = after(sb, &o->link);
        if (o && !o->light)
            return NULL;
    }
    return o && !o->started ? o : NULL;
}

static void pump(struct sandbox *sb) {
    struct op *o;

    while ((o = next_to_start(sb))) {
        o->started = true;
        if (!o->start(o))
            finish(o);
        else if (!o->deferred)
            work_submit(o->svc->pool, &o->job);
    }
    if (sb->gone && list_is_empty(&sb->ops))
        sandbox_free(sb);
}

void op_enqueue(struct op *o) {
    struct sandbox *sb = o->sb;

    o->job.run = job_run;
    o->job.done = job_done;
    o->svc->n_pending++;
    list_append(&sb->ops, &o->link);
    pump(sb);
}

void op_follow(struct op *first, struct op *o) {
    o->job.run = job_run;
    o->job.done = job_done;
    o->svc->n_pending++;
    list_append(first->link.next, &o->link);
}

void op_go(struct op *o) {
    work_submit(o->svc->pool, &o->job);
}

void *op_new(struct service *s, const char *id, size_t size, op_cb cb, void *ud) {
    struct err err = {0};

    struct sandbox *sb = map_get(s->table, id);
    if (!sb) {
        err_set(&err, -ENOENT, "Sandbox %s not found.", id);
        cb(FAULT_NOT_FOUND, &err, NULL, ud);
        return NULL;
    }
    struct op *o = calloc(1, size);
    if (!o) {
        err_set(&err, -ENOMEM, "out of memory");
        cb(FAULT_QUERY, &err, NULL, ud);
        return NULL;
    }
    o->svc = s;
    o->sb = sb;
    o->cb = cb;
    o->ud = ud;
    return o;
}

enum fault fault_of(int code, enum fault otherwise) {
    switch (code) {
    case 0:
        return FAULT_NONE;
    case -EINVAL:
        return FAULT_INVALID;
    case -EOPNOTSUPP:
        return FAULT_UNSUPPORTED;
    case -ENOSPC:
        return FAULT_FULL;
    case DRIVER_IMAGE_PULL:
        return FAULT_PULL;
    case DRIVER_AGENT_START:
        return FAULT_AGENT_START;
    case DRIVER_AGENT_COPY:
        return FAULT_AGENT_COPY;
    case DRIVER_BOOTSTRAP:
        return FAULT_BOOTSTRAP;
    case DRIVER_VOLUME_INSPECT:
        return FAULT_VOLUME_INSPECT;
    default:
        return otherwise;
    }
}
