/*
 * Launcher children kept ready (native-runtime.md 15, level 1): each has a slot, has entered
 * cgroups made under a name of its own, and waits for a plan. On hosts with v1 controllers this
 * takes the wait for the kernel's grace period (up to 14 ms) off the path of a create. One thread
 * refills; a take never waits.
 *
 * The names start with "pool-": recover() removes such cgroups like any other without a record.
 */
#include <errno.h>
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

struct parked {
    struct native *n;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    unsigned size, count;
    bool stop;
    struct member m[PARKED_MAX];
};

static void unmake(struct native *n, const struct member *m) {
    if (m->parked)
        launcher_drop(n->launcher, m->parked);
    (void)cgroups_kill(n->cgroups, m->key, 1000);
    (void)cgroups_remove(n->cgroups, m->key);
    slots_give_back(n->slots, m->slot);
}

static int make(struct native *n, struct member *m, struct err *err) {
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

static void *fill(void *arg) {
    struct parked *p = arg;

    thread_is_background();
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        struct member m;
        struct err err = {0};
        if (p->count >= p->size) {
            pthread_cond_wait(&p->wake, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        int r = make(p->n, &m, &err);
        pthread_mutex_lock(&p->lock);
        if (r == 0)
            p->m[p->count++] = m;
        else { /* the next take is the next try */
            log_debug("no launcher child could be parked", LOG_ERR(&err));
            if (!p->stop)
                pthread_cond_wait(&p->wake, &p->lock);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int parked_new(struct native *n, unsigned size, struct parked **ret) {
    struct parked *p = calloc(1, sizeof *p);
    int r;

    if (!p)
        return -ENOMEM;
    p->n = n;
    p->size = MIN(size, PARKED_MAX);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    r = pthread_create(&p->thread, NULL, fill, p);
    if (r) {
        free(p);
        return -r;
    }
    *ret = p;
    return 0;
}

struct parked *parked_free(struct parked *p) {
    if (!p)
        return NULL;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    while (p->count)
        unmake(p->n, &p->m[--p->count]);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

bool parked_take(struct parked *p, unsigned *ret_slot, char *ret_key, size_t size,
                 int64_t *ret_parked) {
    bool found = false;

    if (!p)
        return false;
    pthread_mutex_lock(&p->lock);
    if (p->count) {
        struct member m = p->m[0];
        memmove(p->m, p->m + 1, --p->count * sizeof *p->m);
        *ret_slot = m.slot;
        *ret_parked = m.parked;
        str_copy(ret_key, size, m.key);
        found = true;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

void parked_refill(struct parked *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}
