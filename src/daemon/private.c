/*
 * Private daemons (see private.h). Layout: STATE/private/NAME and RUN/private/NAME, NAME = 12 hex
 * digits. A directory belongs to a living daemon as long as the driver's lock on it is held.
 * Between its making and that lock the starting daemon holds a shared lock on the parent, which a
 * sweep needs for itself alone. Called before the loop starts and after it has ended.
 */
#include "daemon/private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/id.h"
#include "base/path.h"
#include "daemon/drivers.h"

#define NAME_LENGTH 12

static int replace(char **field, char *value, struct err *err) {
    if (!value)
        return err_set(err, -ENOMEM, "out of memory");
    free(*field);
    *field = value;
    return 0;
}

/* c's directories become those of the private daemon `name` below them. */
static int enter(struct config *c, const char *name, struct err *err) {
    int r;

    if (!c->store_dir && (r = replace(&c->store_dir, path_join(c->state_dir, "store"), err)) < 0)
        return r;
    if ((r = replace(&c->state_dir, str_printf("%s/private/%s", c->state_dir, name), err)) < 0 ||
        (r = replace(&c->run_dir, str_printf("%s/private/%s", c->run_dir, name), err)) < 0)
        return r;
    c->netns_pool = 0; /* one or two sandboxes: nothing is worth being kept ready */
    c->parked_pool = 0;
    c->warm_pool = 0;
    free(c->socket_path);
    c->socket_path = NULL;
    return 0;
}

int private_setup(struct config *c, int *ret_lock, struct err *err) {
    char hex[33];

    id_hex32(hex);
    hex[NAME_LENGTH] = '\0';
    /* the parents are shared: only root may look into them, everyone may pass */
    _cleanup_free_ char *parent = path_join(c->state_dir, "private");
    int r = parent ? path_mkdirs_at(AT_FDCWD, parent, 0711) : -ENOMEM;
    _cleanup_close_ int lock = r < 0 ? r : open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_SH) < 0)
        return err_sys(err, r < 0 ? r : -errno, "directory %s/private", c->state_dir);
    r = enter(c, hex, err);
    if (r == 0)
        *ret_lock = TAKE_FD(lock);
    return r;
}

void private_remove(const struct config *c) {
    const char *const dirs[] = {c->state_dir, c->run_dir};

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        int r = path_remove_tree_at(AT_FDCWD, dirs[i]);
        if (r < 0)
            log_warn("a directory of this private daemon stays behind",
                     LOG_STR("directory", dirs[i]));
    }
}

static bool is_name(const char *s) {
    return strlen(s) == NAME_LENGTH && strspn(s, "0123456789abcdef") == NAME_LENGTH;
}

static bool is_abandoned(int parent, const char *name) {
    _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* The driver takes the lock again: of two sweepers only one goes on. */
static void sweep_one(const struct config *base, const char *name) {
    static const char *const none[] = {NULL};
    struct config c = *base; /* a shallow copy: only what enter() replaces is owned */
    struct driver *d = NULL;
    struct err err = {0};

    c.state_dir = strdup(base->state_dir);
    c.run_dir = strdup(base->run_dir);
    c.store_dir = base->store_dir ? strdup(base->store_dir) : NULL;
    c.socket_path = NULL;
    if (c.state_dir && c.run_dir && enter(&c, name, &err) == 0 && driver_open(&c, &d, &err) == 0) {
        int r = d->ops->recover(d, none, none, &err);
        d->ops->free(d);
        if (r == 0) {
            private_remove(&c);
            log_info("removed what a killed private daemon had left", LOG_STR("name", name));
        }
    }
    if (err.code)
        log_warn("cannot clean up after a private daemon", LOG_STR("name", name), LOG_ERR(&err));
    free(c.state_dir);
    free(c.run_dir);
    free(c.store_dir);
}

void private_sweep(const struct config *base) {
    _cleanup_free_ char *path = path_join(base->state_dir, "private");
    DIR *dir = path ? opendir(path) : NULL;
    const struct dirent *e;

    if (!dir)
        return;
    if (flock(dirfd(dir), LOCK_EX | LOCK_NB) < 0) { /* somebody starts or sweeps: another time */
        closedir(dir);
        return;
    }
    while ((e = readdir(dir)))
        if (is_name(e->d_name) && is_abandoned(dirfd(dir), e->d_name))
            sweep_one(base, e->d_name);
    closedir(dir);
}
