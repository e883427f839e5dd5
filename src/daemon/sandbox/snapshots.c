/*
 * Snapshots at the surface (see snapshots.h): look-ups, list, and at the start what a killed daemon
 * left. Making the image is in snapshot_make.c, removing in snapshot_remove.c. Loop thread, but for
 * run() and snapshots_resolve().
 */
#include "daemon/sandbox/snapshots.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "daemon/sandbox/snapshots_priv.h"

#define OTHER_BACKEND "fsb" /* micro-VMs of other servers: their images are none of an engine's */

bool service_has_snapshots(const struct service *s) {
    return s->o.snapshots && s->o.driver->rules.snapshots;
}

enum fault snapshot_none_here(struct err *err) {
    err_set(err, -EOPNOTSUPP, "Snapshots are not supported by this runtime.");
    return FAULT_SNAPSHOT;
}

char *snapshot_image(const struct snap_row *row) {
    return row->image ? strdup(row->image) : str_printf("%s:%s", SNAPSHOT_REPOSITORY, row->id);
}

enum fault snapshots_resolve(struct service *s, const char *snapshot_id, char **ret_image,
                             struct err *err) {
    struct snap_row row = {0};
    enum fault f = FAULT_NONE;

    if (!service_has_snapshots(s))
        return snapshot_none_here(err);
    int r = snapdb_get(s->o.snapshots, snapshot_id, &row, err);
    if (r < 0)
        return r == -ENOENT ? FAULT_SNAPSHOT_MISSING : FAULT_QUERY;
    if (row.state != SNAP_READY) {
        err_set(err, -EAGAIN, "Snapshot %s is not ready: its state is %s.", snapshot_id,
                snap_state_name(row.state));
        f = FAULT_SNAPSHOT_NOT_READY;
    } else if (str_eq(row.backend, OTHER_BACKEND)) {
        err_set(err, -EOPNOTSUPP, "Snapshot %s was made by another backend (%s).", snapshot_id,
                row.backend);
        f = FAULT_SNAPSHOT_RESTORE;
    } else if (str_is_empty(row.image)) {
        err_set(err, -ENODATA, "Snapshot %s has no image to start from.", snapshot_id);
        f = FAULT_SNAPSHOT_RESTORE;
    } else {
        *ret_image = TAKE_PTR(row.image);
    }
    snap_row_done(&row);
    return f;
}

/* ---- look-ups and removals: one job each ---- */

struct snapshot_job {
    struct job job;
    struct service *svc;
    char *id;
    struct snap_row row;
    enum fault fault;
    struct err err;
    bool retry;
    snapshot_cb cb;
    void *ud;
};

static void get_run(struct job *j) {
    struct snapshot_job *g = container_of(j, struct snapshot_job, job);
    int r = snapdb_get(g->svc->o.snapshots, g->id, &g->row, &g->err);
    g->fault = r == -ENOENT ? FAULT_SNAPSHOT_MISSING : r < 0 ? FAULT_QUERY : FAULT_NONE;
}

static void delete_run(struct job *j) {
    struct snapshot_job *g = container_of(j, struct snapshot_job, job);
    g->fault = snapshot_delete_now(g->svc, g->id, &g->retry, &g->err);
}

static void job_done(struct job *j) {
    struct snapshot_job *g = container_of(j, struct snapshot_job, job);
    struct service *s = g->svc;

    if (g->retry)
        snapshot_retry_delete(s->snaps, g->id);
    g->cb(g->fault, &g->err, g->row.id ? &g->row : NULL, g->ud);
    snap_row_done(&g->row);
    free(g->id);
    free(g);
    service_ended_one(s);
}

static void submit(struct service *s, const char *id, void (*run)(struct job *j), snapshot_cb cb,
                   void *ud) {
    struct err err = {0};
    enum fault f = service_has_snapshots(s) ? FAULT_NONE : snapshot_none_here(&err);
    struct snapshot_job *g = f ? NULL : calloc(1, sizeof *g);

    if (!g || !(g->id = strdup(id))) {
        if (!f)
            err_set(&err, -ENOMEM, "out of memory");
        free(g);
        cb(f ? f : FAULT_QUERY, &err, NULL, ud);
        return;
    }
    g->svc = s;
    g->cb = cb;
    g->ud = ud;
    g->job.run = run;
    g->job.done = job_done;
    s->n_pending++;
    service_submit(s, &g->job);
}

void service_snapshot_get(struct service *s, const char *id, snapshot_cb cb, void *ud) {
    submit(s, id, get_run, cb, ud);
}

void service_snapshot_delete(struct service *s, const char *id, snapshot_cb cb, void *ud) {
    submit(s, id, delete_run, cb, ud);
}

/* ---- list ---- */

struct list_job {
    struct job job;
    struct service *svc;
    struct snap_query q;
    char *sandbox_id, *name;
    struct snap_page page;
    enum fault fault;
    struct err err;
    snapshot_list_cb cb;
    void *ud;
};

static void list_job_free(struct list_job *l) {
    if (!l)
        return;
    snap_page_done(&l->page);
    free(l->sandbox_id);
    free(l->name);
    free(l);
}

static void list_run(struct job *j) {
    struct list_job *l = container_of(j, struct list_job, job);
    if (snapdb_list(l->svc->o.snapshots, &l->q, &l->page, &l->err) < 0)
        l->fault = FAULT_QUERY;
}

static void list_done(struct job *j) {
    struct list_job *l = container_of(j, struct list_job, job);
    struct service *s = l->svc;

    l->cb(l->fault, &l->err, l->fault ? NULL : &l->page, l->ud);
    list_job_free(l);
    service_ended_one(s);
}

static int copy_query(struct list_job *l, const struct snap_query *q) {
    l->q = *q;
    l->q.sandbox_id = l->sandbox_id = q->sandbox_id ? strdup(q->sandbox_id) : NULL;
    l->q.name = l->name = q->name ? strdup(q->name) : NULL;
    return (q->sandbox_id && !l->sandbox_id) || (q->name && !l->name) ? -ENOMEM : 0;
}

void service_snapshot_list(struct service *s, const struct snap_query *q, snapshot_list_cb cb,
                           void *ud) {
    struct err err = {0};
    enum fault f = service_has_snapshots(s) ? FAULT_NONE : snapshot_none_here(&err);
    struct list_job *l = f ? NULL : calloc(1, sizeof *l);

    if (!l || copy_query(l, q) < 0) {
        if (!f)
            err_set(&err, -ENOMEM, "out of memory");
        list_job_free(l);
        cb(f ? f : FAULT_QUERY, &err, NULL, ud);
        return;
    }
    l->svc = s;
    l->cb = cb;
    l->ud = ud;
    l->job.run = list_run;
    l->job.done = list_done;
    s->n_pending++;
    service_submit(s, &l->job);
}

/* ---- birth and end ---- */

#define RECOVERY_PAGE 200

/* A commit whose daemon was killed: the image says how it ended. */
static int recover_creating(struct service *s, const struct snap_row *row, struct err *err) {
    _cleanup_free_ char *image = snapshot_image(row);
    struct driver *d = s->o.driver;
    struct snap_change c = {.state = SNAP_FAILED, .now_us = service_now(s)};
    struct err why = {0};

    if (!image)
        return err_set(err, -ENOMEM, "out of memory");
    int r = d->ops->snapshot_exists(d, image, &why);
    if (r == 0) {
        c.state = SNAP_READY;
        c.image = image;
        c.reason = "snapshot_recovery_ready";
        c.message = "Snapshot image was found at the start of the daemon.";
    } else if (r == -ENOENT) {
        c.reason = "snapshot_recovery_missing_image";
        c.message = "The daemon ended before the snapshot image was made.";
    } else {
        c.reason = "snapshot_recovery_inspect_failed";
        c.message = err_text(&why);
    }
    r = snapdb_change(s->o.snapshots, row->id, SNAP_CREATING, &c, err);
    if (r == 0)
        log_info("ended an unfinished snapshot", LOG_STR("snapshot", row->id),
                 LOG_STR("state", snap_state_name(c.state)));
    return r == -ENOENT || r == -ESTALE ? 0 : r;
}

/* false: it stays as it is. */
static bool recover_row(struct service *s, const struct snap_row *row) {
    struct err err = {0};
    bool retry = false;

    if (row->state == SNAP_CREATING) {
        if (recover_creating(s, row, &err) == 0)
            return true;
    } else if (snapshot_delete_now(s, row->id, &retry, &err) == FAULT_NONE) {
        log_info("finished the removal of a snapshot", LOG_STR("snapshot", row->id));
        return true;
    } else if (retry) {
        snapshot_retry_delete(s->snaps, row->id);
    }
    log_warn("a snapshot stays unfinished", LOG_STR("snapshot", row->id),
             LOG_STR("state", snap_state_name(row->state)), LOG_ERR(&err));
    return false;
}

static int recover(struct service *s, struct err *err) {
    struct snap_query q = {
        .states = 1u << SNAP_CREATING | 1u << SNAP_DELETING,
        .max = RECOVERY_PAGE,
    };
    size_t n;

    do { /* what was finished leaves the list, what was not is stepped over */
        struct snap_page page = {0};
        int r = snapdb_list(s->o.snapshots, &q, &page, err);
        if (r < 0)
            return err_wrap(err, "cannot look for unfinished snapshots");
        for (size_t i = 0; i < page.n; i++)
            q.skip += !recover_row(s, &page.rows[i]);
        n = page.n;
        snap_page_done(&page);
    } while (n > 0);
    return 0;
}

int snapshots_open(struct service *s, struct err *err) {
    struct snapshots *sn;
    int r;

    if (!service_has_snapshots(s))
        return 0;
    if (!(sn = calloc(1, sizeof *sn)))
        return err_set(err, -ENOMEM, "out of memory");
    sn->svc = s;
    list_init(&sn->waiting);
    if ((r = snapshot_retry_open(sn)) < 0) {
        free(sn);
        return err_sys(err, r, "snapshots");
    }
    s->snaps = sn;
    return recover(s, err);
}

void snapshots_free(struct service *s) {
    if (s->snaps)
        snapshot_retry_close(TAKE_PTR(s->snaps));
}
