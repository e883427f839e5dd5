/*
 * Start-up: the database says what was promised, the driver what exists. Rows of unfinished creates
 * and removals are not promised: the driver removes whatever exists of them, the service what
 * belonged to them (volumes, mounts), then the rows go. Promised sandboxes are adopted as the
 * driver finds them. One that a runtime of our own has lost (a reboot) stays listed as such until
 * it is deleted or expires; where others may remove sandboxes too (driver.h, found) it counts as
 * removed. Sandboxes that exist and that no row knows become rows. Runs once, before the first
 * request, on the loop thread.
 */
#include <errno.h>

#include "base/log.h"
#include "daemon/sandbox/internal.h"
#include "daemon/sandbox/ossfs.h"
#include "daemon/sandbox/volumes.h"

struct undone {
    char id[SANDBOX_ID_MAX + 1];
    enum row_state state;
    struct sandbox *sb; /* NULL: its record is not readable */
};

struct loaded {
    struct strv known, undone; /* ids */
    struct sandbox **sb;       /* of known */
    struct undone *un;         /* of undone */
    size_t n, cap, n_un, cap_un;
    struct err *err;
};

static int make_room(void **p, size_t *cap, size_t n, size_t size) {
    if (n < *cap)
        return 0;
    size_t more = *cap ? *cap * 2 : 64;
    void *q = reallocarray(*p, more, size);
    if (!q)
        return -ENOMEM;
    *p = q;
    *cap = more;
    return 0;
}

static int load_undone(struct loaded *l, const struct statedb_row *row) {
    struct undone u = {.state = row->state};
    struct err err = {0};

    if (make_room((void **)&l->un, &l->cap_un, l->n_un, sizeof *l->un) < 0)
        return -ENOMEM;
    str_copy(u.id, sizeof u.id, row->id);
    if (record_from_row(row, &u.sb, &err) < 0)
        log_warn("an unfinished operation has no readable record", LOG_STR("sandbox", row->id),
                 LOG_ERR(&err));
    l->un[l->n_un++] = u;
    return strv_add(&l->undone, row->id);
}

static int load_row(const struct statedb_row *row, void *ud) {
    struct loaded *l = ud;

    if (row->state != ROW_ACTIVE)
        return load_undone(l, row);
    if (make_room((void **)&l->sb, &l->cap, l->n, sizeof *l->sb) < 0)
        return -ENOMEM;
    struct sandbox *sb;
    int r = record_from_row(row, &sb, l->err);
    if (r < 0)
        return r;
    l->sb[l->n++] = sb;
    return strv_add(&l->known, row->id);
}

/* false: it is not there any more. */
static bool adopt_state(struct service *s, struct sandbox *sb) {
    struct driver *d = s->o.driver;
    struct instance_info info = {0};
    struct err err = {0};
    int64_t changed_us = sb->changed_us;
    int r = d->ops->inspect(d, sb->spec.id, &info, &err);

    sb->started_us = info.started_us ? info.started_us : sb->created_us;
    if (r == -ENOENT || (r == 0 && info.state == INST_GONE)) {
        sb->state = SB_LOST;
        sb->changed_us = service_now(s);
        return false;
    }
    if (r < 0) {
        sb->state = SB_UNKNOWN;
        log_error("cannot inspect a sandbox", LOG_STR("sandbox", sb->spec.id), LOG_ERR(&err));
        return true;
    }
    sandbox_apply_state(sb, &info, service_now(s));
    if (info.state != INST_EXITED)
        sb->changed_us = changed_us;
    return true;
}

static int count_mounts(struct service *s, const struct sandbox *sb) {
    int r = 0;

    for (size_t i = 0; i < sb->spec.oss_mounts.n && r >= 0; i++)
        r = ossfs_restore(s->oss, sb->spec.oss_mounts.v[i],
                          i < sb->oss_tags.n ? sb->oss_tags.v[i] : "");
    return r;
}

static int enter(struct service *s, struct sandbox *sb, struct err *err) {
    int r = count_mounts(s, sb);

    if (r >= 0)
        r = table_add(s, sb);
    if (r < 0) {
        sandbox_free(sb);
        return err_sys(err, r, "adopting a sandbox");
    }
    sb->fire_us = sb->expires_us;
    expiry_schedule(s, sb);
    return 0;
}

/* Another hand has removed it while we were away. */
static int drop(struct service *s, struct sandbox *sb, struct err *err) {
    struct driver *d = s->o.driver;
    struct err ignored = {0};

    log_warn("a sandbox was removed by another hand", LOG_STR("sandbox", sb->spec.id));
    d->ops->remove(d, sb->spec.id, &ignored); /* what belonged to it there */
    volumes_forget(s, &sb->spec, NULL);
    int r = statedb_delete(s->o.store, sb->spec.id, err);
    sandbox_free(sb);
    return r;
}

static int adopt_known(struct service *s, struct loaded *l, struct err *err) {
    int r = 0;

    for (size_t i = 0; i < l->n && r >= 0; i++) {
        if (!adopt_state(s, l->sb[i])) {
            if (s->o.driver->ops->found)
                continue; /* after all others: mounts may be shared with them */
            log_warn("the runtime has lost a sandbox", LOG_STR("sandbox", l->sb[i]->spec.id));
        }
        r = enter(s, TAKE_PTR(l->sb[i]), err);
    }
    return r;
}

/* ---- what no row knows ---- */

struct finder {
    struct service *svc;
    struct err *err;
    size_t n;
};

static struct sandbox *sandbox_of(struct found_sandbox *f) {
    struct sandbox *sb = calloc(1, sizeof *sb);

    if (!sb)
        return NULL;
    list_init(&sb->ops);
    list_init(&sb->by_age);
    sb->spec = f->spec;
    f->spec = (struct sandbox_spec){0};
    sb->metadata = f->metadata ? TAKE_PTR(f->metadata) : json_object();
    sb->platform = TAKE_PTR(f->platform);
    sb->extensions = sb->spec.extensions ? json_deep_copy(sb->spec.extensions) : NULL;
    sb->created_us = sb->changed_us = f->created_us;
    sb->expires_us = f->expires_us;
    found_sandbox_done(f);
    if (sb->metadata)
        return sb;
    sandbox_free(sb);
    return NULL;
}

/* A label is anybody's word: what was never ours to mount is not ours to unmount. */
static void keep_our_mounts(struct service *s, struct sandbox *sb) {
    struct strv *v = &sb->spec.oss_mounts;
    size_t n = 0;

    for (size_t i = 0; i < v->n; i++) {
        if (ossfs_is_place(s->oss, v->v[i])) {
            v->v[n++] = v->v[i];
            continue;
        }
        log_warn("a mount outside of storage.ossfs_mount_root is left alone",
                 LOG_STR("sandbox", sb->spec.id), LOG_STR("path", v->v[i]));
        free(v->v[i]);
    }
    for (size_t i = n; i < v->n; i++)
        v->v[i] = NULL;
    v->n = n;
}

static int insert_row(struct service *s, const struct sandbox *sb, struct err *err) {
    _cleanup_free_ char *record = record_to_text(sb);
    _cleanup_free_ char *metadata = json_dumps(sb->metadata, JSON_COMPACT);
    struct statedb_row row = {
        .state = ROW_ACTIVE,
        .record = record,
        .metadata = metadata,
        .created_us = sb->created_us,
        .expires_us = sb->expires_us,
    };

    if (!record || !metadata)
        return err_set(err, -ENOMEM, "out of memory");
    str_copy(row.id, sizeof row.id, sb->spec.id);
    return statedb_insert(s->o.store, &row, err);
}

static int take_found(struct found_sandbox *f, void *ud) {
    struct finder *x = ud;
    struct service *s = x->svc;

    if (!f->spec.id[0] || map_has(s->table, f->spec.id)) {
        found_sandbox_done(f);
        return 0;
    }
    struct sandbox *sb = sandbox_of(f);
    if (!sb)
        return err_set(x->err, -ENOMEM, "out of memory");
    keep_our_mounts(s, sb);
    int r = insert_row(s, sb, x->err);
    if (r < 0) {
        sandbox_free(sb);
        return r;
    }
    adopt_state(s, sb);
    x->n++;
    log_info("took a sandbox over", LOG_STR("sandbox", sb->spec.id));
    return enter(s, sb, x->err);
}

static int adopt_found(struct service *s, struct err *err) {
    struct driver *d = s->o.driver;
    struct finder x = {.svc = s, .err = err};

    return d->ops->found ? d->ops->found(d, take_found, &x, err) : 0;
}

/* ---- what is not promised ---- */

static int forget_undone(struct service *s, struct loaded *l, struct err *err) {
    for (size_t i = 0; i < l->n_un; i++) {
        const struct undone *u = &l->un[i];
        /* of a create the row lists what may have been made; of a removal what was */
        if (u->sb)
            volumes_forget(s, &u->sb->spec, u->state == ROW_CREATING ? u->id : NULL);
        int r = statedb_delete(s->o.store, u->id, err);
        if (r < 0)
            return r;
        log_info("undid an unfinished operation", LOG_STR("sandbox", u->id));
    }
    return 0;
}

static int drop_gone(struct service *s, struct loaded *l, struct err *err) {
    int r = 0;

    for (size_t i = 0; i < l->n && r >= 0; i++)
        if (l->sb[i])
            r = drop(s, TAKE_PTR(l->sb[i]), err);
    return r;
}

static int reconcile(struct service *s, struct loaded *l, struct err *err) {
    static const char *const none[] = {NULL};
    struct driver *d = s->o.driver;
    int r = d->ops->recover(d, l->known.v ? (const char *const *)l->known.v : none,
                            l->undone.v ? (const char *const *)l->undone.v : none, err);

    if (r < 0)
        return err_wrap(err, "cannot reconcile with the runtime");
    if ((r = adopt_known(s, l, err)) < 0 || (r = adopt_found(s, err)) < 0 ||
        (r = forget_undone(s, l, err)) < 0)
        return r;
    return drop_gone(s, l, err);
}

int service_recover(struct service *s, struct err *err) {
    struct loaded l = {.err = err};
    int r = statedb_each(s->o.store, load_row, &l, err);

    if (r < 0 && !err->code)
        err_sys(err, r, "reading the state database");
    if (r >= 0)
        r = reconcile(s, &l, err);
    for (size_t i = 0; i < l.n; i++)
        sandbox_free(l.sb[i]);
    for (size_t i = 0; i < l.n_un; i++)
        sandbox_free(l.un[i].sb);
    free(l.sb);
    free(l.un);
    strv_done(&l.known);
    strv_done(&l.undone);
    return r;
}
