/*
 * What could not be done at once and must not be forgotten: removals whose image was in use, and
 * outcomes that the repository did not take. Owns the list of them and one timer; each is tried
 * again after a pause that doubles, or when a sandbox that stood on the image has gone, until it is
 * done or the daemon ends (its next start goes on).
 * Loop thread, but for run().
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/sandbox/snapshots_priv.h"

#define FIRST_PAUSE_MS 1000
#define LONGEST_PAUSE_MS (5 * 60 * 1000)
#define MAX_RETRIES 1024 /* what is beyond waits for the next start */

struct retry {
    struct list link;
    struct job job;
    struct snapshots *owner;
    char *id;
    bool settles; /* an outcome; else a removal */
    struct snap_change outcome;
    char *message, *image;
    bool is_running, again;
    int64_t due_ms, pause_ms;
    struct err err;
};

static void arm(struct snapshots *sn);

static void drop(struct retry *t) {
    list_remove(&t->link);
    t->owner->n_retries--;
    free(t->id);
    free(t->message);
    free(t->image);
    free(t);
}

static void run(struct job *j) {
    struct retry *t = container_of(j, struct retry, job);
    struct service *s = t->owner->svc;

    t->err = (struct err){0};
    if (t->settles) {
        t->again = snapshot_settle(s, t->id, &t->outcome, &t->err) < 0;
    } else {
        /* a repository that does not answer says nothing about the record */
        enum fault f = snapshot_delete_now(s, t->id, &t->again, &t->err);
        t->again |= f == FAULT_QUERY;
    }
}

static void done(struct job *j) {
    struct retry *t = container_of(j, struct retry, job);
    struct snapshots *sn = t->owner;
    struct service *s = sn->svc;

    t->is_running = false;
    if (t->again && !sn->stopping) {
        t->pause_ms = MIN(t->pause_ms * 2, LONGEST_PAUSE_MS);
        t->due_ms = clock_mono_ms() + t->pause_ms;
        log_debug("a snapshot has to wait", LOG_STR("snapshot", t->id), LOG_ERR(&t->err));
    } else {
        if (!t->again)
            log_info(t->settles ? "outcome of a snapshot stored" : "snapshot removed",
                     LOG_STR("snapshot", t->id));
        drop(t);
    }
    arm(sn);
    service_ended_one(s);
}

static void on_timer(uv_timer_t *h) {
    struct snapshots *sn = h->data;
    int64_t now = clock_mono_ms();

    list_foreach (it, &sn->retries) {
        struct retry *t = list_entry(it, struct retry, link);
        if (t->is_running || t->due_ms > now)
            continue;
        t->is_running = true;
        sn->svc->n_pending++;
        service_submit(sn->svc, &t->job);
    }
    arm(sn);
}

static void arm(struct snapshots *sn) {
    int64_t first = INT64_MAX, now = clock_mono_ms();

    list_foreach (it, &sn->retries) {
        struct retry *t = list_entry(it, struct retry, link);
        if (!t->is_running)
            first = MIN(first, t->due_ms);
    }
    if (first == INT64_MAX || sn->stopping)
        uv_timer_stop(&sn->timer);
    else
        uv_timer_start(&sn->timer, on_timer, (uint64_t)MAX(first - now, 0) + 1, 0);
}

static struct retry *add(struct snapshots *sn, const char *id) {
    struct retry *t;

    list_foreach (it, &sn->retries)
        if (str_eq(list_entry(it, struct retry, link)->id, id))
            return NULL;
    t = sn->n_retries < MAX_RETRIES && !sn->stopping ? calloc(1, sizeof *t) : NULL;
    if (!t || !(t->id = strdup(id))) {
        log_warn("a snapshot stays unfinished until the next start", LOG_STR("snapshot", id));
        free(t);
        return NULL;
    }
    t->owner = sn;
    t->job.run = run;
    t->job.done = done;
    t->pause_ms = FIRST_PAUSE_MS;
    t->due_ms = clock_mono_ms() + t->pause_ms;
    list_append(&sn->retries, &t->link);
    sn->n_retries++;
    return t;
}

void snapshot_retry_delete(struct snapshots *sn, const char *id) {
    if (add(sn, id))
        arm(sn);
}

void snapshots_user_gone(struct service *s, const char *snapshot_id) {
    if (!s->snaps)
        return;
    list_foreach (it, &s->snaps->retries) {
        struct retry *t = list_entry(it, struct retry, link);
        if (!str_eq(t->id, snapshot_id))
            continue;
        t->due_ms = clock_mono_ms();
        t->pause_ms = FIRST_PAUSE_MS;
        arm(s->snaps);
        return;
    }
}

void snapshot_retry_settle(struct snapshots *sn, const char *id, const struct snap_change *c) {
    struct retry *t = add(sn, id);

    if (!t)
        return;
    t->settles = true;
    t->outcome = *c;
    t->outcome.message = t->message = c->message ? strdup(c->message) : NULL;
    t->outcome.image = t->image = c->image ? strdup(c->image) : NULL;
    if (c->image && !t->image)
        drop(t); /* no memory: the next start looks for the image */
    arm(sn);
}

int snapshot_retry_open(struct snapshots *sn) {
    list_init(&sn->retries);
    int r = uv_timer_init(sn->svc->o.loop, &sn->timer);
    if (r == 0) {
        sn->timer.data = sn;
        uv_unref((uv_handle_t *)&sn->timer);
    }
    return r;
}

static void on_closed(uv_handle_t *h) {
    free(h->data);
}

void snapshot_retry_close(struct snapshots *sn) {
    list_foreach_safe (it, &sn->retries)
        drop(list_entry(it, struct retry, link));
    uv_timer_stop(&sn->timer);
    uv_close((uv_handle_t *)&sn->timer, on_closed);
}
