/*
 * Sandboxes that change without being asked: they end, or another hand pauses, resumes, starts or
 * removes them. The driver reports from any of its threads; the report travels to the loop as a
 * posted job. A runtime of our own only reports ends, and these are applied as they come. Where
 * others have their hands in as well, a report only says that something is different: it may be
 * late, of what the service did itself, or of an attempt that the driver has taken back. So the
 * state is looked up by an operation of the sandbox (op.c), after those that wait already; a report
 * that comes during that look-up makes it start again. What is gone is removed like a deleted one.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "daemon/sandbox/internal.h"

struct exit_job {
    struct job job;
    struct service *svc;
    struct instance_info info;
};

struct sync_op {
    struct op op;
    struct instance_info info;
    int code; /* of the look-up */
    uint64_t n_reports;
};

static enum sandbox_state state_of(enum instance_state s) {
    switch (s) {
    case INST_RUNNING:
        return SB_RUNNING;
    case INST_PAUSED:
        return SB_PAUSED;
    case INST_PENDING:
        return SB_PENDING;
    default:
        return SB_UNKNOWN;
    }
}

static void sandbox_apply_exit(struct sandbox *sb, const struct instance_info *info,
                               int64_t now_us) {
    bool failed = info->exit_code != 0 || info->oom_killed;

    sb->state = info->state == INST_GONE ? SB_LOST : failed ? SB_FAILED : SB_TERMINATED;
    sb->exit_code = info->exit_code;
    sb->oom_killed = info->oom_killed;
    sb->finished_us = info->finished_us ? info->finished_us : now_us;
    sb->changed_us = sb->finished_us;
    sandbox_touch(sb);
}

void sandbox_apply_state(struct sandbox *sb, const struct instance_info *info, int64_t now_us) {
    if (info->state == INST_EXITED) {
        sandbox_apply_exit(sb, info, now_us);
        return;
    }
    if (sb->state == state_of(info->state))
        return;
    sb->state = state_of(info->state);
    sb->exit_code = 0;
    sb->oom_killed = false;
    sb->finished_us = 0;
    if (info->started_us)
        sb->started_us = info->started_us;
    sb->changed_us = now_us;
    sandbox_touch(sb);
}

static bool sync_start(struct op *o) {
    struct sync_op *y = container_of(o, struct sync_op, op);

    o->sb->sync_waits = false;
    y->n_reports = o->sb->n_reports;
    return !o->sb->gone;
}

static void sync_run(struct op *o) {
    struct sync_op *y = container_of(o, struct sync_op, op);
    struct driver *d = o->svc->o.driver;

    y->code = d->ops->inspect(d, o->sb->spec.id, &y->info, &o->err);
}

static void sync_enqueue(struct service *s, struct sandbox *sb);

static void sync_end(struct op *o) {
    struct sync_op *y = container_of(o, struct sync_op, op);
    struct sandbox *sb = o->sb;

    if (sb->gone || sb->removing || o->svc->refusing)
        return;
    if (y->n_reports != sb->n_reports) {
        sync_enqueue(o->svc, sb);
    } else if (y->code == -ENOENT || (y->code == 0 && y->info.state == INST_GONE)) {
        delete_lost(o->svc, sb);
    } else if (y->code < 0) {
        log_warn("the state of a sandbox cannot be looked up", LOG_STR("sandbox", sb->spec.id),
                 LOG_ERR(&o->err));
    } else {
        sandbox_apply_state(sb, &y->info, service_now(o->svc));
        log_info("sandbox changed", LOG_STR("sandbox", sb->spec.id),
                 LOG_STR("state", sandbox_state_name(sb->state)));
    }
}

static void sync_enqueue(struct service *s, struct sandbox *sb) {
    struct sync_op *y = sb->sync_waits ? NULL : calloc(1, sizeof *y);

    if (!y)
        return;
    sb->sync_waits = true;
    y->op.svc = s;
    y->op.sb = sb;
    y->op.start = sync_start;
    y->op.run = sync_run;
    y->op.end = sync_end;
    op_enqueue(&y->op);
}

/* Does the report say something that is not shown already? */
static bool is_news(const struct sandbox *sb, const struct instance_info *info) {
    if (info->state == INST_EXITED)
        return sb->state != SB_TERMINATED && sb->state != SB_FAILED;
    return info->state == INST_GONE || sb->state != state_of(info->state);
}

void sandbox_changed(struct service *s, struct sandbox *sb, const struct instance_info *info) {
    bool is_shared = s->o.driver->ops->found != NULL;

    if (sb->removing || sb->gone)
        return;
    sb->n_reports++;
    if (info->state == INST_EXITED && !is_shared) {
        sandbox_apply_exit(sb, info, service_now(s));
        log_info("sandbox ended", LOG_STR("sandbox", info->id),
                 LOG_INT("exit_code", info->exit_code));
    } else if (!s->refusing && is_news(sb, info)) {
        /* refusing: the driver may be gone already; the next start looks itself */
        sync_enqueue(s, sb);
    }
}

static void apply(struct job *j) {
    struct exit_job *e = container_of(j, struct exit_job, job);
    struct sandbox *sb = map_get(e->svc->table, e->info.id);

    if (sb)
        sandbox_changed(e->svc, sb, &e->info);
    else
        create_note_change(e->svc, &e->info);
    free(e);
}

static void on_change_event(const struct instance_info *info, void *ud) {
    struct service *s = ud;
    struct exit_job *e = calloc(1, sizeof *e);

    if (!e)
        return; /* the next inspect of a start-up shows it */
    e->svc = s;
    e->info = *info;
    e->job.done = apply;
    work_post(s->pool, &e->job);
}

void exit_setup(struct service *s) {
    s->o.driver->events = (struct driver_events){.on_change = on_change_event, .ud = s};
}
