/*
 * Renewal by use (see access.h). Owns a table of the sandboxes that were renewed lately, by age of
 * use: at most one renewal of a sandbox waits or runs, and after a success nothing happens to it
 * for min_interval. How far a life reaches is decided when the renewal has its turn in the
 * sandbox's queue (renew.c), so it never undoes one that was asked for before. Loop thread only.
 */
#include "daemon/sandbox/access.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/sandbox/access_priv.h"
#include "daemon/sandbox/internal.h"

struct entry {
    struct list by_use;
    struct access *owner;
    bool is_busy;     /* a renewal waits or runs */
    int64_t quiet_us; /* monotonic: nothing before then */
    char id[SANDBOX_ID_MAX + 1];
};

static void forget(struct access *a, struct entry *e) {
    map_remove(a->table, e->id);
    list_remove(&e->by_use);
    free(e);
}

/* NULL: no memory, or all that are remembered are being renewed just now. */
static struct entry *remember(struct access *a, const char *id) {
    struct entry *e = map_get(a->table, id);

    if (e) {
        list_remove(&e->by_use);
        list_append(&a->by_use, &e->by_use);
        return e;
    }
    if (map_size(a->table) >= ACCESS_MAX_SANDBOXES) {
        struct entry *oldest = NULL;
        list_foreach (it, &a->by_use) {
            oldest = list_entry(it, struct entry, by_use);
            if (!oldest->is_busy)
                break;
            oldest = NULL;
        }
        if (!oldest)
            return NULL;
        forget(a, oldest);
    }
    if (!(e = calloc(1, sizeof *e)))
        return NULL;
    e->owner = a;
    str_copy(e->id, sizeof e->id, id);
    if (map_set(a->table, e->id, e, NULL) < 0) {
        free(e);
        return NULL;
    }
    list_append(&a->by_use, &e->by_use);
    return e;
}

static void on_renewed(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    struct entry *e = ud;

    e->is_busy = false;
    if (f == FAULT_NONE)
        e->quiet_us = clock_mono_us() + e->owner->interval_us;
    else if (f != FAULT_NOT_FOUND && f != FAULT_NOT_RUNNING && f != FAULT_NO_EXPIRY)
        log_warn("renewal by use failed", LOG_STR("sandbox", e->id), LOG_ERR(err));
}

void service_accessed(struct service *s, const char *id) {
    struct access *a = s->access;
    int64_t seconds;

    if (!a || s->refusing)
        return;
    const struct sandbox *sb = service_get(s, id);
    if (!sb || sandbox_state_of(sb) != SB_RUNNING || !sb->expires_us || !sb->spec.renew_extend ||
        str_to_i64(sb->spec.renew_extend, &seconds) < 0 || seconds <= 0 ||
        seconds > RENEW_EXTEND_MAX_S)
        return;
    struct entry *e = remember(a, sb->spec.id);
    if (!e || e->is_busy || clock_mono_us() < e->quiet_us)
        return;
    e->is_busy = true;
    renew_extend(s, e->id, seconds * 1000000, on_renewed, e);
}

int access_open(struct service *s, struct err *err) {
    if (!s->o.renew.enabled)
        return 0;
    struct access *a = calloc(1, sizeof *a);
    if (a)
        a->table = map_new();
    if (!a || !a->table) {
        free(a);
        return err_set(err, -ENOMEM, "out of memory");
    }
    a->svc = s;
    a->interval_us = (int64_t)s->o.renew.min_interval_s * 1000000;
    list_init(&a->by_use);
    s->access = a;
    return s->o.renew.redis_dsn ? access_queue_open(a, err) : 0;
}

void access_stop(struct service *s) {
    if (s->access)
        access_queue_close(s->access);
}

void access_free(struct service *s) {
    struct access *a = TAKE_PTR(s->access);

    if (!a)
        return;
    access_queue_close(a); /* of a service that did not open */
    list_foreach_safe (it, &a->by_use)
        forget(a, list_entry(it, struct entry, by_use));
    map_free(a->table);
    free(a);
}
