/*
 * Per-process cgroups (see cgroup.h). Owns the directory descriptor, each child's descriptor and
 * the poll handles of those that outlive their leader. "Empty" is told by the kernel (POLLPRI on
 * cgroup.events), never asked for repeatedly.
 */
#include "execd/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/log.h"
#include "base/path.h"

struct cgroups {
    uv_loop_t *loop;
    int dir;
    uint64_t next;
    struct list lingering;
};

struct cgroup {
    struct cgroups *parent;
    struct list node; /* in lingering after the release */
    char name[32];
    int fd, events_fd;
    uv_poll_t poll;
};

int cgroups_new(uv_loop_t *loop, int dir_fd, struct cgroups **ret, struct err *err) {
    struct statfs sf;
    struct cgroups *cs;

    if (fstatfs(dir_fd, &sf) < 0 || sf.f_type != CGROUP2_SUPER_MAGIC) {
        fd_close(dir_fd);
        return err_set(err, -ENOTSUP, "descriptor %d is not a cgroup2 directory", dir_fd);
    }
    cs = calloc(1, sizeof *cs);
    if (!cs) {
        fd_close(dir_fd);
        return err_set(err, -ENOMEM, "out of memory");
    }
    cs->loop = loop;
    cs->dir = dir_fd;
    list_init(&cs->lingering);
    *ret = cs;
    return 0;
}

int cgroup_make(struct cgroups *cs, struct cgroup **ret, struct err *err) {
    struct cgroup *c = calloc(1, sizeof *c);
    int r;

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->parent = cs;
    c->fd = c->events_fd = -1;
    list_init(&c->node);
    do { /* a number may be taken by what an earlier agent left */
        snprintf(c->name, sizeof c->name, "x-%llu", (unsigned long long)++cs->next);
        r = mkdirat(cs->dir, c->name, 0755) < 0 ? -errno : 0;
    } while (r == -EEXIST);
    if (r == 0) {
        c->fd = openat(cs->dir, c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = c->fd < 0 ? -errno : 0;
    }
    if (r < 0) {
        free(c);
        return err_sys(err, r, "cannot make a cgroup for the command");
    }
    *ret = c;
    return 0;
}

int cgroup_fd(const struct cgroup *c) {
    return c->fd;
}

int cgroup_kill(struct cgroup *c) {
    return path_write_value_at(c->fd, "cgroup.kill", "1");
}

static void on_handle_closed(uv_handle_t *h) {
    struct cgroup *c = container_of((uv_poll_t *)h, struct cgroup, poll);
    fd_close(c->events_fd);
    free(c);
}

static void cgroup_free(struct cgroup *c) {
    list_remove(&c->node);
    fd_close(c->fd);
    if (c->events_fd >= 0)
        uv_close((uv_handle_t *)&c->poll, on_handle_closed);
    else
        free(c);
}

static bool try_remove(struct cgroup *c) {
    return unlinkat(c->parent->dir, c->name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

static void on_event(uv_poll_t *h, int status, int events) {
    struct cgroup *c = container_of(h, struct cgroup, poll);
    char text[256];

    (void)!pread(c->events_fd, text, sizeof text, 0); /* reading rearms the notification */
    if (try_remove(c))
        cgroup_free(c);
}

void cgroup_release(struct cgroup *c) {
    if (try_remove(c)) {
        cgroup_free(c);
        return;
    }
    c->events_fd = openat(c->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    list_append(&c->parent->lingering, &c->node);
    if (c->events_fd < 0 || uv_poll_init(c->parent->loop, &c->poll, c->events_fd) < 0) {
        log_warn("cgroup of a command is left behind", LOG_STR("cgroup", c->name));
        c->events_fd = fd_close(c->events_fd);
        cgroup_free(c);
        return;
    }
    uv_poll_start(&c->poll, UV_PRIORITIZED, on_event);
    if (try_remove(c)) /* it may have emptied before the poll began */
        cgroup_free(c);
}

void cgroups_free(struct cgroups *cs) {
    if (!cs)
        return;
    list_foreach_safe (it, &cs->lingering)
        cgroup_free(list_entry(it, struct cgroup, node));
    fd_close(cs->dir);
    free(cs);
}
