/*
 * What may take long at the end of a sandbox, on a thread of its own: deleting its files, and
 * closing descriptor numbers that must rest for a moment. Directories are moved to sandboxes/.trash
 * at once, so a killed daemon finds them there and nothing of them counts as a sandbox.
 *
 * The thread has the priority of all others: a lower one that is preempted with the file system's
 * journal in hand makes every create wait (measured: creates took twice as long).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/path.h"
#include "daemon/driver/native/native_priv.h"

#define TRASH ".trash"
#define FD_REST_MS 2000

struct resting {
    struct list node;
    int fd;
    int64_t until_ms;
};

struct trash {
    struct native *n;
    int dir;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop, work;
    struct list fds; /* oldest first */
};

/* Deletes what is there now. Called without the lock. */
static void empty(struct trash *t) {
    int fd = openat(t->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!d) {
        fd_close(fd);
        return;
    }
    while ((e = readdir(d))) {
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        int r = path_remove_tree_at(t->dir, e->d_name);
        if (r < 0)
            log_warn("files of a removed sandbox are left", LOG_STR("name", e->d_name),
                     LOG_STR("error", strerror(-r)));
    }
    closedir(d);
}

/* Closes what has rested; with `all`, everything. Under the lock. Milliseconds until the next one,
 * -1 for none. */
static int64_t close_rested(struct trash *t, bool all) {
    int64_t now = clock_mono_ms();

    list_foreach_safe (it, &t->fds) {
        struct resting *f = list_entry(it, struct resting, node);
        if (!all && f->until_ms > now)
            return f->until_ms - now;
        list_remove(&f->node);
        fd_close(f->fd);
        free(f);
    }
    return -1;
}

static void *run(void *arg) {
    struct trash *t = arg;

    thread_is_background();
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        int64_t rest = close_rested(t, false);
        if (t->work) {
            t->work = false;
            pthread_mutex_unlock(&t->lock);
            empty(t);
            pthread_mutex_lock(&t->lock);
        } else if (rest < 0)
            pthread_cond_wait(&t->wake, &t->lock);
        else {
            int64_t at = clock_wall_us() + (rest + 1) * 1000;
            struct timespec ts = {.tv_sec = at / 1000000, .tv_nsec = at % 1000000 * 1000};
            pthread_cond_timedwait(&t->wake, &t->lock, &ts);
        }
    }
    close_rested(t, true);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int trash_new(struct native *n, struct trash **ret) {
    struct trash *t = calloc(1, sizeof *t);
    int r;

    if (!t)
        return -ENOMEM;
    t->n = n;
    list_init(&t->fds);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    r = mkdirat(n->sandboxes_fd, TRASH, 0700) < 0 && errno != EEXIST ? -errno : 0;
    t->dir = r < 0 ? r : openat(n->sandboxes_fd, TRASH, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0)
        r = t->dir < 0 ? -errno : -pthread_create(&t->thread, NULL, run, t);
    if (r < 0) {
        fd_close(t->dir);
        free(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct trash *trash_free(struct trash *t) {
    if (!t)
        return NULL;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    empty(t); /* what came while it stopped */
    fd_close(t->dir);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t);
    return NULL;
}

void trash_put(struct trash *t, const char *key) {
    trash_put_from(t, t->n->sandboxes_fd, key);
}

void trash_put_from(struct trash *t, int dir_fd, const char *key) {
    char name[NAME_MAX + 1], rnd[33];

    id_hex32(rnd);
    snprintf(name, sizeof name, "%.200s.%.8s", key, rnd);
    if (renameat(dir_fd, key, t->dir, name) < 0 && errno != ENOENT)
        log_warn("files of something that was removed are left", LOG_STR("name", key),
                 LOG_STR("error", strerror(errno)));
    pthread_mutex_lock(&t->lock);
    t->work = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

void trash_close_later(struct trash *t, int fd) {
    struct resting *f = malloc(sizeof *f);

    if (!f) {
        fd_close(fd);
        return;
    }
    *f = (struct resting){.fd = fd, .until_ms = clock_mono_ms() + FD_REST_MS};
    pthread_mutex_lock(&t->lock);
    list_append(&t->fds, &f->node);
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
}
