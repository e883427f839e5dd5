/*
 * Start-up: the database says what was promised, the driver what exists. Rows of unfinished creates
 * and removals are not promised: the driver removes whatever exists of them, then the rows go.
 * Promised sandboxes are adopted as the driver finds them; one that the runtime has lost (a reboot)
 * stays listed as such until it is deleted or expires. Runs once, before the first request, on the
 * loop thread.
 */
#include <errno.h>

#include "base/log.h"
#include "daemon/sandbox/internal.h"

struct loaded {
    struct strv known, undone; /* ids */
    struct sandbox **sb;
    size_t n, cap;
    struct err *err;
};

static int load_row(const struct statedb_row *row, void *ud) {
    struct loaded *l = ud;

    if (row->state != ROW_ACTIVE)
        return strv_add(&l->undone, row->id);
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct sandbox **p = reallocarray(l->sb, cap, sizeof *p);
        if (!p)
            return -ENOMEM;
        l->sb = p;
        l->cap = cap;
    }
    struct sandbox *sb;
    int r = record_from_row(row, &sb, l->err);
    if (r < 0)
        return r;
    l->sb[l->n++] = sb;
    return strv_add(&l->known, row->id);
}

static void adopt_state(struct service *s, struct sandbox *sb) {
    struct driver *d = s->o.driver;
    struct instance_info info = {0};
    struct err err = {0};
    int r = d->ops->inspect(d, sb->spec.id, &info, &err);

    sb->started_us = info.started_us ? info.started_us : sb->created_us;
    if (r == -ENOENT || (r == 0 && info.state == INST_GONE)) {
        sb->state = SB_LOST;
        sb->changed_us = service_now(s);
        log_warn("the runtime has lost a sandbox", LOG_STR("sandbox", sb->spec.id));
    } else if (r < 0) {
        sb->state = SB_LOST;
        log_error("cannot inspect a sandbox", LOG_STR("sandbox", sb->spec.id), LOG_ERR(&err));
    } else if (info.state == INST_EXITED) {
        sandbox_apply_exit(sb, &info, service_now(s));
    } else {
        sb->state = info.state == INST_PAUSED ? SB_PAUSED : SB_RUNNING;
    }
}

static int reconcile(struct service *s, struct loaded *l, struct err *err) {
    static const char *const none[] = {NULL};
    struct driver *d = s->o.driver;
    int r = d->ops->recover(d, l->known.v ? (const char *const *)l->known.v : none,
                            l->undone.v ? (const char *const *)l->undone.v : none, err);

    if (r < 0)
        return err_wrap(err, "cannot reconcile with the runtime");
    for (size_t i = 0; i < l->undone.n; i++) {
        if ((r = statedb_delete(s->o.store, l->undone.v[i], err)) < 0)
            return r;
        log_info("undid an unfinished operation", LOG_STR("sandbox", l->undone.v[i]));
    }
    for (size_t i = 0; i < l->n; i++) {
        struct sandbox *sb = TAKE_PTR(l->sb[i]);
        adopt_state(s, sb);
        if ((r = table_add(s, sb)) < 0) {
            sandbox_free(sb);
            return err_sys(err, r, "adopting a sandbox");
        }
        sb->fire_us = sb->expires_us;
        expiry_schedule(s, sb);
    }
    return 0;
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
    free(l.sb);
    strv_done(&l.known);
    strv_done(&l.undone);
    return r;
}
