/*
 * Start-up reconciliation (native-runtime.md 18): what the service has acknowledged and still
 * exists is adopted; everything else of this driver goes. Runs before the first request, alone.
 *
 * Sources of truth, in this order: the records on disk, then what carries our instance's name in
 * the cgroup tree and in the runtime's state directory without having a record.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/crash.h"
#include "daemon/driver/native/nat.h"
#include "daemon/driver/native/native_priv.h"

static bool is_known(const char *const *known, const char *id) {
    for (size_t i = 0; known && known[i]; i++)
        if (str_eq(known[i], id))
            return true;
    return false;
}

/* Names in a directory, without those that start with a dot. */
static int list_names(int dir_fd, struct strv *ret) {
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!d) {
        fd_close(fd);
        return -errno;
    }
    while (r == 0 && (e = readdir(d)))
        if (e->d_name[0] != '.')
            r = strv_add(ret, e->d_name);
    closedir(d);
    return r;
}

/* Opens what we hold of a running sandbox; false when its process is not there any more. */
static bool reopen(struct native *n, struct box *b) {
    char path[64];
    uint64_t ticks;

    b->pidfd = (int)syscall(SYS_pidfd_open, b->pid, 0);
    if (b->pidfd < 0)
        return false;
    /* the descriptor is taken first: from here on the number cannot mean another process */
    if (process_start_ticks(b->pid, &ticks) < 0 || ticks != b->start_ticks ||
        !cgroups_contains(n->cgroups, b->key, b->pid))
        return false;
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)b->pid);
    b->netns_fd = open(path, O_RDONLY | O_CLOEXEC);
    return b->netns_fd >= 0;
}

static int adopt(struct native *n, struct box *b, bool same_boot) {
    if (b->has_slot && slots_claim(n->slots, b->slot) < 0) {
        log_error("the id range of a sandbox is in use elsewhere", LOG_STR("sandbox", b->id));
        b->has_slot = false;
        return -EBUSY;
    }
    if (b->state == BOX_RUNNING && same_boot && reopen(n, b)) {
        b->paused = cgroups_is_frozen(n->cgroups, b->key);
        if (watch_add(n->watch, b) < 0)
            return -EIO;
    } else {
        b->state = BOX_EXITED;
        box_read_exit(n, b);
        (void)cgroups_kill(n->cgroups, b->key, 5000);
        b->pidfd = fd_close(b->pidfd);
        b->netns_fd = fd_close(b->netns_fd);
    }
    pthread_mutex_lock(&n->lock);
    int r = map_set(n->boxes, b->id, b, NULL);
    pthread_mutex_unlock(&n->lock);
    if (r == 0)
        (void)box_record_write(n, b);
    return r;
}

/* One directory below sandboxes/. */
static int recover_one(struct native *n, const char *key, const char *const *known,
                       struct err *err) {
    bool same_boot = false;
    struct box *b = NULL;
    int r;

    if (strlen(key) > SANDBOX_ID_MAX)
        return path_remove_tree_at(n->sandboxes_fd, key);
    if (box_record_read(n, key, &b, &same_boot) < 0 && !(b = box_new(key, key)))
        return err_set(err, -ENOMEM, "out of memory");
    if ((b->state == BOX_RUNNING || b->state == BOX_EXITED) && is_known(known, b->id) &&
        b->started_us) {
        r = adopt(n, b, same_boot);
        if (r == 0)
            return 0;
        watch_remove(n->watch, b);
    }
    log_info("removing the rest of a sandbox", LOG_STR("sandbox", b->id));
    if (b->has_slot && slots_claim(n->slots, b->slot) < 0)
        b->has_slot = false;
    r = box_teardown(n, b, err);
    box_free(b);
    return r;
}

/* What has our name but no record: children parked by a killed daemon, or a directory that is gone.
 */
static int remove_strays(struct native *n, struct err *err) {
    _cleanup_strv_ struct strv names = {0};
    int r = cgroups_list(n->cgroups, &names);

    if (r == 0)
        r = list_names(n->runtime_fd, &names);
    if (r < 0)
        return err_sys(err, r, "listing what runs");
    for (size_t i = 0; i < names.n; i++) {
        _cleanup_(box_freep) struct box *stray = NULL;
        size_t at = 0;
        const char *id;
        void *value;
        bool used = false;
        while (!used && map_next(n->boxes, &at, &id, &value))
            used = str_eq(((struct box *)value)->key, names.v[i]);
        if (used || strlen(names.v[i]) > SANDBOX_ID_MAX)
            continue;
        stray = box_new(names.v[i], names.v[i]);
        r = stray ? box_teardown(n, stray, err) : -ENOMEM;
        if (r < 0)
            return r;
    }
    return 0;
}

/* Sandboxes of daemons that were killed and whose state directory was then deleted (private
 * daemons, tests): nobody else would ever end them. */
static void end_orphans(const char *state_dir, void *ud) {
    struct native *n = ud;
    _cleanup_(cgroups_freep) struct cgroups *c = NULL;
    _cleanup_strv_ struct strv keys = {0};
    char instance[9];

    instance_name(state_dir, instance);
    if (str_eq(instance, n->instance) || cgroups_open(instance, &c, NULL) < 0)
        return;
    log_info("removing what a daemon without state directory left",
             LOG_STR("state_dir", state_dir));
    (void)cgroups_list(c, &keys);
    for (size_t k = 0; k < keys.n; k++) {
        (void)cgroups_kill(c, keys.v[k], 2000);
        (void)cgroups_remove(c, keys.v[k]);
    }
    native_nat_collect(instance);
}

int native_recover(struct driver *d, const char *const *known, const char *const *undone,
                   struct err *err) {
    struct native *n = native_of(d);
    _cleanup_strv_ struct strv keys = {0};
    int r = list_names(n->sandboxes_fd, &keys);

    if (r < 0)
        return err_sys(err, r, "reading %s/sandboxes", n->state_dir);
    for (size_t i = 0; i < keys.n; i++) {
        r = recover_one(n, keys.v[i], known, err);
        if (r < 0)
            return err_wrap(err, "recovering sandbox %s", keys.v[i]);
        crash_point("recover-one");
    }
    r = remove_strays(n, err);
    if (r < 0)
        return r;
    native_nat_recover(n);
    slots_collect_dead(n->slots, end_orphans, n);
    if (n->config.parked_pool && parked_new(n, &n->parked) < 0)
        return err_set(err, -EIO, "starting the pool of launcher children");
    if (n->warm_image && n->config.warm_pool &&
        warm_new(n, n->warm_image, n->config.warm_pool, &n->warm) < 0)
        return err_set(err, -EIO, "starting the pool of started sandboxes");
    return 0;
}
