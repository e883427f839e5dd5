/*
 * Sandboxes that end by themselves. The driver reports from any of its threads; the report travels
 * to the loop as a posted job and is applied there. A report about something unknown is dropped.
 */
#include <string.h>

#include "base/log.h"
#include "daemon/sandbox/internal.h"

struct exit_job {
    struct job job;
    struct service *svc;
    struct instance_info info;
};

void sandbox_apply_exit(struct sandbox *sb, const struct instance_info *info, int64_t now_us) {
    bool failed = info->exit_code != 0 || info->oom_killed;

    sb->state = info->state == INST_GONE ? SB_LOST : failed ? SB_FAILED : SB_TERMINATED;
    sb->exit_code = info->exit_code;
    sb->oom_killed = info->oom_killed;
    sb->finished_us = info->finished_us ? info->finished_us : now_us;
    sb->changed_us = sb->finished_us;
    sandbox_touch(sb);
}

void sandbox_changed(struct service *s, struct sandbox *sb, const struct instance_info *info) {
    if (sb->removing)
        return;
    sandbox_apply_exit(sb, info, service_now(s));
    log_info("sandbox ended", LOG_STR("sandbox", info->id), LOG_INT("exit_code", info->exit_code));
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
