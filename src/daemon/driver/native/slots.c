/*
 * Leases of slots (see slots.h). A block file holds the path of the state directory of the daemon
 * it belongs to, and is locked while that daemon runs. A block whose daemon is dead but whose state
 * directory still has sandboxes stays that daemon's; otherwise it is free for anyone. Any thread.
 */
#include "daemon/driver/native/slots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"

struct block {
    int fd; /* locked; -1 = not ours */
    unsigned used;
    bool taken[SLOTS_PER_BLOCK];
};

struct slots {
    pthread_mutex_t lock;
    int dir;
    char *owner;
    unsigned blocks, next; /* next: where the search goes on, so a slot rests as long as possible */
    struct block block[SLOT_BLOCKS_MAX];
};

/* May processes of that daemon's sandboxes exist? A directory that is gone says nothing: see
 * slots_collect_dead. */
static bool may_have_sandboxes(const char *state_dir) {
    _cleanup_free_ char *path = path_join(state_dir, "sandboxes");
    DIR *d = path ? opendir(path) : NULL;
    struct dirent *e;
    bool found = !d && access(state_dir, F_OK) < 0;

    while (d && !found && (e = readdir(d)))
        found = e->d_name[0] != '.';
    if (d)
        closedir(d);
    return found;
}

/* Takes the block when it is free or was ours: 0, -EBUSY or -errno. With only_own, free ones are
 * left alone. */
static int lease_block(struct slots *s, unsigned k, bool only_own) {
    _cleanup_close_ int fd = -1;
    char name[32], owner[PATH_MAX];

    snprintf(name, sizeof name, "slots-%u", k);
    fd = openat(s->dir, name, O_RDWR | (only_own ? 0 : O_CREAT) | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    int n = fd_read_full(fd, owner, sizeof owner - 1);
    if (n < 0)
        return n;
    owner[n] = 0;
    if (!str_eq(owner, s->owner)) {
        if (only_own || (n && may_have_sandboxes(owner)))
            return -EBUSY;
        if (ftruncate(fd, 0) < 0 || pwrite(fd, s->owner, strlen(s->owner), 0) < 0)
            return -errno;
    }
    s->block[k].fd = TAKE_FD(fd);
    return 0;
}

static void release_block(struct slots *s, unsigned k) {
    if (s->block[k].fd < 0)
        return;
    if (s->block[k].used == 0 && ftruncate(s->block[k].fd, 0) < 0)
        return;
    s->block[k].fd = fd_close(s->block[k].fd);
}

int slots_open(const char *lease_dir, const char *owner, unsigned limit, struct slots **ret,
               struct err *err) {
    _cleanup_(slots_freep) struct slots *s = calloc(1, sizeof *s);
    int r;

    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&s->lock, NULL);
    s->dir = -1;
    s->blocks = MAX(MIN(limit / SLOTS_PER_BLOCK, SLOT_BLOCKS_MAX), 1u);
    for (unsigned k = 0; k < SLOT_BLOCKS_MAX; k++)
        s->block[k].fd = -1;
    s->owner = strdup(owner);
    r = path_mkdirs_at(AT_FDCWD, lease_dir, 0755);
    s->dir = r < 0 ? -1 : open(lease_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir < 0 || !s->owner)
        return err_sys(err, r < 0 ? r : -errno, "lease directory %s", lease_dir);
    for (unsigned k = 0; k < s->blocks; k++)
        (void)lease_block(s, k, true);
    *ret = TAKE_PTR(s);
    return 0;
}

struct slots *slots_free(struct slots *s) {
    if (!s)
        return NULL;
    for (unsigned k = 0; k < SLOT_BLOCKS_MAX; k++)
        release_block(s, k);
    fd_close(s->dir);
    pthread_mutex_destroy(&s->lock);
    free(s->owner);
    free(s);
    return NULL;
}

static int take_locked(struct slots *s, unsigned *ret) {
    unsigned total = s->blocks * SLOTS_PER_BLOCK;

    for (unsigned i = 0; i < total; i++) {
        unsigned slot = (s->next + i) % total;
        struct block *b = &s->block[slot / SLOTS_PER_BLOCK];
        if (b->fd < 0 || b->taken[slot % SLOTS_PER_BLOCK])
            continue;
        b->taken[slot % SLOTS_PER_BLOCK] = true;
        b->used++;
        s->next = slot + 1;
        *ret = slot;
        return 0;
    }
    return -ENOSPC;
}

int slots_take(struct slots *s, unsigned *ret, struct err *err) {
    pthread_mutex_lock(&s->lock);
    int r = take_locked(s, ret);
    for (unsigned k = 0; k < s->blocks && r == -ENOSPC; k++)
        if (s->block[k].fd < 0 && lease_block(s, k, false) == 0)
            r = take_locked(s, ret);
    pthread_mutex_unlock(&s->lock);
    if (r < 0)
        return err_set(err, r, "all %u id ranges and addresses of this machine are in use",
                       s->blocks * SLOTS_PER_BLOCK);
    return 0;
}

int slots_claim(struct slots *s, unsigned slot) {
    unsigned k = slot / SLOTS_PER_BLOCK, i = slot % SLOTS_PER_BLOCK;
    int r = 0;

    if (k >= s->blocks)
        return -ERANGE;
    pthread_mutex_lock(&s->lock);
    if (s->block[k].fd < 0)
        r = lease_block(s, k, false);
    if (r == 0 && s->block[k].taken[i])
        r = -EBUSY;
    if (r == 0) {
        s->block[k].taken[i] = true;
        s->block[k].used++;
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

void slots_collect_dead(struct slots *s, void (*end)(const char *state_dir, void *ud), void *ud) {
    for (unsigned k = 0; k < SLOT_BLOCKS_MAX; k++) {
        char name[32], owner[PATH_MAX];
        snprintf(name, sizeof name, "slots-%u", k);
        _cleanup_close_ int fd = openat(s->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0) /* also our own: they are locked */
            continue;
        int n = fd_read_full(fd, owner, sizeof owner - 1);
        if (n <= 0)
            continue;
        owner[n] = 0;
        if (access(owner, F_OK) == 0 || errno != ENOENT)
            continue;
        end(owner, ud);
        (void)!ftruncate(fd, 0); /* else it is done again */
    }
}

void slots_give_back(struct slots *s, unsigned slot) {
    unsigned k = slot / SLOTS_PER_BLOCK, i = slot % SLOTS_PER_BLOCK;

    pthread_mutex_lock(&s->lock);
    if (k < s->blocks && s->block[k].taken[i]) {
        s->block[k].taken[i] = false;
        s->block[k].used--;
    }
    pthread_mutex_unlock(&s->lock);
}
