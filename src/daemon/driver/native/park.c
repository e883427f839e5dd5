/*
 * Launcher children kept ready (native-runtime.md 15, level 1): each has a slot, has entered
 * cgroups made under a name of its own, and waits for a plan. On hosts with v1 controllers this
 * takes the wait for the kernel's grace period (up to 14 ms) off the path of a create.
 *
 * The names start with "pool-": recover() removes such cgroups like any other without a record.
 */
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/log.h"
#include "daemon/driver/native/native_priv.h"

#define PARKED_MAX 64

struct member {
    unsigned slot;
    char key[32];
    int64_t parked;
};

static void unmake(void *ud, void *item) {
    struct native *n = ud;
    struct member *m = item;

    if (m->parked)
        launcher_drop(n->launcher, m->parked);
    (void)cgroups_kill(n->cgroups, m->key, 1000);
    (void)cgroups_remove(n->cgroups, m->key);
    slots_give_back(n->slots, m->slot);
}

static int make_in(struct native *n, struct member *m, struct err *err) {
    const struct cgroup_limits none = {0};
    struct launch_fd fds[CGROUP_ENTER_MAX + 1];
    struct cgroup_entry entry = {.box = -1};
    struct box b = {0};
    char rnd[33];
    int r = slots_take(n->slots, &m->slot, err);

    if (r < 0)
        return r;
    id_hex32(rnd);
    snprintf(m->key, sizeof m->key, "pool-%.12s", rnd);
    m->parked = 0;
    b.slot = m->slot;
    r = cgroups_make(n->cgroups, m->key, &none, box_uid_base(n, &b), err);
    if (r < 0) {
        slots_give_back(n->slots, m->slot);
        return r;
    }
    r = cgroups_entry(n->cgroups, m->key, &entry, err);
    if (r == 0) {
        fds[0] = (struct launch_fd){"box", entry.box};
        for (size_t i = 0; i < entry.n_enter; i++)
            fds[i + 1] = (struct launch_fd){"enter", entry.enter[i]};
        r = launcher_park(n->launcher, box_uid_base(n, &b), fds, entry.n_enter + 1, &m->parked,
                          err);
        cgroup_entry_done(&entry);
    }
    if (r < 0)
        unmake(n, m);
    return r;
}

static int make(void *ud, void *ret_item) {
    struct err err = {0};
    int r = make_in(ud, ret_item, &err);

    if (r < 0)
        log_debug("no launcher child could be parked", LOG_ERR(&err));
    return r;
}

int parked_new(struct native *n, struct stock **ret) {
    static const struct stock_kind kind = {
        .item_size = sizeof(struct member), .max = PARKED_MAX, .make = make, .discard = unmake};
    return stock_new(&kind, n->config.parked_pool, n, ret);
}

bool parked_take(struct stock *pool, unsigned *ret_slot, char *ret_key, size_t size,
                 int64_t *ret_parked) {
    struct member m;

    if (!stock_take(pool, &m))
        return false;
    *ret_slot = m.slot;
    *ret_parked = m.parked;
    str_copy(ret_key, size, m.key);
    return true;
}
