/*
 * Birth and end of the service (see service.h). Owns the table, the workers, the expiry timer and,
 * once open, the driver; the database is the caller's and outlives it. Order at the end: jobs that
 * use the driver, then the driver (no event comes after), then the events that were under way.
 */
#include <errno.h>

#include "base/clock.h"
#include "daemon/sandbox/access.h"
#include "daemon/sandbox/internal.h"
#include "daemon/sandbox/snapshots.h"
#include "daemon/sandbox/ossfs.h"

static void free_table(struct service *s) {
    size_t i = 0;
    void *sb;

    while (s->table && map_next(s->table, &i, NULL, &sb))
        sandbox_free(sb);
    map_free(s->table);
    map_free(s->creating);
    map_free(s->unknown);
}

static void dispose(struct service *s) {
    if (s->pool)
        work_pool_stop(s->pool);
    expiry_free(s->expiry);
    ossfs_free(s->oss);
    access_free(s);
    snapshots_free(s);
    free_table(s);
    free(s);
}

int service_open(const struct service_opts *opts, struct service **ret, struct err *err) {
    struct err own = {0};
    struct service *s = calloc(1, sizeof *s);
    int r;

    if (!err)
        err = &own;
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->o = *opts;
    if (!s->o.wall_us)
        s->o.wall_us = clock_wall_us;
    if (!s->o.oss_root)
        s->o.oss_root = OSS_ROOT;
    list_init(&s->by_age);
    s->table = map_new();
    s->creating = map_new();
    s->unknown = map_new();
    if (!s->table || !s->creating || !s->unknown ||
        ossfs_new(&(struct ossfs_opts){.root = s->o.oss_root}, &s->oss) < 0) {
        r = err_set(err, -ENOMEM, "out of memory");
    } else if ((r = work_pool_new(opts->loop, opts->max_workers, &s->pool)) < 0) {
        err_sys(err, r, "worker threads");
    } else if ((r = expiry_new(s, &s->expiry, err)) >= 0) {
        exit_setup(s);
        if (s->o.driver->ops->found) /* its sandboxes outlive the machine's power */
            r = statedb_set_durable(s->o.store, err);
        if (r >= 0)
            r = service_recover(s, err);
        if (r >= 0)
            r = snapshots_open(s, err);
        if (r >= 0)
            r = access_open(s, err);
    }
    if (r < 0) {
        s->o.driver->events = (struct driver_events){0};
        dispose(s);
        return r;
    }
    *ret = s;
    return 0;
}

void service_refuse(struct service *s) {
    s->refusing = true;
}

void service_ended_one(struct service *s) {
    if (--s->n_pending > 0 || !s->idle_cb)
        return;
    void (*cb)(void *) = TAKE_PTR(s->idle_cb);
    cb(s->idle_ud);
}

void service_when_idle(struct service *s, void (*cb)(void *ud), void *ud) {
    if (s->n_pending == 0) {
        cb(ud);
        return;
    }
    s->idle_cb = cb;
    s->idle_ud = ud;
}

size_t service_pending(const struct service *s) {
    return s->n_pending;
}

void service_load(struct service *s, struct service_load *ret) {
    struct work_load w;

    work_load(s->pool, &w);
    *ret = (struct service_load){
        .workers = w.threads, .workers_idle = w.idle, .workers_max = w.max, .waiting = w.waiting};
    list_foreach (it, &s->by_age)
        ret->by_state[sandbox_state_of(list_entry(it, struct sandbox, by_age))]++;
}

const char *service_driver_name(const struct service *s) {
    return s->o.driver->ops->name;
}

json_t *service_capabilities(struct service *s) {
    return s->o.driver->ops->capabilities(s->o.driver);
}

int service_layers_in_use(struct service *s, struct strv *ret) {
    struct driver *d = s->o.driver;
    return d->ops->layers_in_use ? d->ops->layers_in_use(d, ret) : 0;
}

void service_submit(struct service *s, struct job *j) {
    work_submit(s->pool, j);
}

void service_post(struct service *s, struct job *j) {
    work_post(s->pool, j);
}

void service_close(struct service *s) {
    if (!s)
        return;
    s->refusing = true;
    access_stop(s);
    snapshots_stop(s);
    if (s->o.driver->ops->stop)
        s->o.driver->ops->stop(s->o.driver);
    work_pool_drain(s->pool);
    s->o.driver->ops->free(s->o.driver);
    dispose(s);
}
