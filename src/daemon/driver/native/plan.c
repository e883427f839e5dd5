/*
 * What cove-launch is to do for one sandbox: the plan as plain data, and the descriptors that go
 * with it (launch_proto.h). Called by create.c; nothing here outlives the call.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/path.h"
#include "daemon/driver/native/create_priv.h"

struct fd_list {
    struct launch_fd v[CGROUP_ENTER_MAX + BINDS_MAX + 16];
    size_t n;
    int own[BINDS_MAX + 8]; /* closed with the list */
    size_t n_own;
};

static void fd_list_done(struct fd_list *l) {
    while (l->n_own)
        fd_close(l->own[--l->n_own]);
}

static void add_fd(struct fd_list *l, const char *role, int fd) {
    l->v[l->n++] = (struct launch_fd){role, fd};
}

struct bind {
    int fd; /* O_PATH */
    const char *target, *what;
    bool read_only, idmap;
    bool stays; /* nothing may be mounted over it */
};

/* A detached mount of it: made here, since a mount namespace gives nothing to another one. */
static int add_bind(struct fd_list *l, json_t *binds, const struct bind *b, struct err *err) {
    int tree = b->fd < 0 ? b->fd
                         : (int)syscall(SYS_open_tree, b->fd, "",
                                        OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (tree < 0)
        return err_sys(err, -EIO, "preparing the mount of %s (%s)", b->what, strerror(errno));
    l->own[l->n_own++] = tree;
    add_fd(l, "bind", tree);
    return json_array_append_new(binds, json_pack("{s:s, s:b, s:b, s:b, s:s}", "target", b->target,
                                                  "read_only", b->read_only, "idmap", b->idmap,
                                                  "stays", b->stays, "what", b->what));
}

/* Our own files first, so that a volume may lie over /etc/hosts. */
static json_t *plan_binds(struct create *c, struct fd_list *fds, struct err *err) {
    static const char *const names[] = {"hostname", "hosts", "resolv.conf"};
    static const char *const targets[] = {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"};
    static const char *const agents[] = {AGENT_TARGET, "/opt/opensandbox/execd"};
    json_t *binds = json_array();
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(agents) && r == 0; i++)
        r = add_bind(fds, binds,
                     &(struct bind){c->n->agent_fd, agents[i], "the agent", true, false, true},
                     err);
    for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++) {
        _cleanup_close_ int fd = openat(c->dir, names[i], O_PATH | O_CLOEXEC);
        r = add_bind(fds, binds, &(struct bind){fd, targets[i], names[i], false, true}, err);
    }
    for (size_t i = 0; i < c->n_mounts && r == 0; i++) {
        const struct mount_spec *m = &c->spec->mounts[i];
        r = add_bind(fds, binds,
                     &(struct bind){c->mount_fds[i], m->target, m->source, m->read_only, true},
                     err);
    }
    if (r == 0)
        return binds;
    json_decref(binds);
    return NULL;
}

/* The overlays with absolute directories. */
static json_t *plan_overlays(struct create *c, const char *dir) {
    json_t *o;
    size_t i;

    json_array_foreach(c->root.overlays, i, o) {
        _cleanup_free_ char *path = path_join(dir, c->root.dirs.v[i]);
        if (!path || json_object_set_new(o, "dir", json_string(path)) < 0)
            return NULL;
    }
    return json_incref(c->root.overlays);
}

static json_t *make_plan(struct create *c, struct fd_list *fds, struct err *err) {
    struct native *n = c->n;
    _cleanup_free_ char *dir = str_printf("%s/sandboxes/%s", n->state_dir, c->box->key);
    _cleanup_free_ char *pid = dir ? path_join(dir, "pid") : NULL;
    json_t *binds = pid ? plan_binds(c, fds, err) : NULL, *overlays;

    if (!binds)
        return NULL;
    overlays = plan_overlays(c, dir);
    json_t *argv = json_pack("[s, s, s, s, s, s, s, s, s, s, s, s]", n->runtime,
                             "--cgroup-manager=disabled", "--root", n->runtime_root, "run",
                             "--detach", "--bundle", dir, "--pid-file", pid, "--preserve-fds", "4");
    if (argv)
        json_array_append_new(argv, json_string(c->box->key));
    return json_pack("{s:o, s:s, s:s, s:I, s:o, s:o, s:i}", "argv", argv, "dir", dir, "rootfs",
                     n->mount_point, "userns", (json_int_t)box_uid_base(n, c->box), "overlays",
                     overlays, "binds", binds, "timeout_ms", (int)n->config.start_timeout_ms);
}

int create_launch(struct create *c, struct err *err) {
    _cleanup_(fd_list_done) struct fd_list fds = {.n = 0};
    int r;

    if (!c->parked) {
        r = cgroups_entry(c->n->cgroups, c->box->key, &c->entry, err);
        if (r < 0)
            return r;
        add_fd(&fds, "box", c->entry.box);
        for (size_t i = 0; i < c->entry.n_enter; i++)
            add_fd(&fds, "enter", c->entry.enter[i]);
    }
    add_fd(&fds, "netns", c->box->netns_fd);
    add_fd(&fds, "keep", c->listen); /* 3, 4, 5, 6: see COVE_FDS in files.c */
    add_fd(&fds, "keep", c->cgroup);
    add_fd(&fds, "keep", c->log);
    add_fd(&fds, "keep", c->state);
    _cleanup_json_ json_t *plan = make_plan(c, &fds, err);
    if (!plan)
        return err->code ? err->code : err_set(err, -ENOMEM, "out of memory");
    while (sem_wait(&c->n->launching) < 0 && errno == EINTR)
        ;
    r = launcher_launch(c->n->launcher, c->parked, plan, fds.v, fds.n, &c->launched, err);
    sem_post(&c->n->launching);
    return r;
}
