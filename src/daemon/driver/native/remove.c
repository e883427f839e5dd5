/*
 * The end of a sandbox (native-runtime.md 17). Everything is found by the sandbox's key, every part
 * may be gone already, so the same function serves remove, a failed create and recovery.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"
#include "base/crash.h"
#include "daemon/driver/native/native_priv.h"

#define KILL_TIMEOUT_MS 5000

/* Drops the namespace and keeps its number from being reused while a dial may still hold it. */
static void netns_retire(struct native *n, int fd) {
    if (fd < 0)
        return;
    /* A dial may have read this number a moment ago. It must not meet another sandbox's namespace,
     * so the number stays taken for a while by something that is no namespace; the namespace itself
     * is dropped now. */
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0 && dup3(nothing, fd, O_CLOEXEC) >= 0)
        trash_close_later(n->trash, fd);
    else
        fd_close(fd);
    fd_close(nothing);
}

int box_teardown(struct native *n, struct box *b, struct err *err) {
    int r = cgroups_kill(n->cgroups, b->key, KILL_TIMEOUT_MS);

    if (r < 0)
        return err_set(err, r == -ETIMEDOUT ? r : -EIO,
                       "the sandbox's processes could not be killed: %s", strerror(-r));
    crash_point("remove-killed");
    pthread_mutex_lock(&n->lock);
    int netns = TAKE_FD(b->netns_fd), pidfd = TAKE_FD(b->pidfd);
    pthread_mutex_unlock(&n->lock);
    netns_retire(n, netns);
    fd_close(pidfd);
    r = path_remove_tree_at(n->runtime_fd, b->key);
    if (r < 0)
        log_warn("runtime state is left", LOG_STR("sandbox", b->id),
                 LOG_STR("error", strerror(-r)));
    crash_point("remove-runtime");
    r = cgroups_remove(n->cgroups, b->key);
    if (r < 0)
        log_warn("a cgroup is left", LOG_STR("sandbox", b->id), LOG_STR("error", strerror(-r)));
    crash_point("remove-cgroup");
    trash_put(n->trash, b->key);
    crash_point("remove-trash");
    if (b->has_slot)
        slots_give_back(n->slots, b->slot);
    b->has_slot = false;
    return 0;
}

int native_remove(struct driver *d, const char *id, struct err *err) {
    struct native *n = native_of(d);
    struct box *b;
    int r;

    pthread_mutex_lock(&n->lock);
    b = native_find(n, id);
    if (b)
        b->state = BOX_REMOVING;
    pthread_mutex_unlock(&n->lock);
    if (!b)
        return err_set(err, -ENOENT, "there is no sandbox %s", id);
    watch_remove(n->watch, b);
    (void)box_record_write(n, b); /* a daemon that dies now goes on with the removal */
    crash_point("remove-recorded");
    r = box_teardown(n, b, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&n->lock);
    map_remove(n->boxes, id);
    pthread_mutex_unlock(&n->lock);
    box_free(b);
    return 0;
}
