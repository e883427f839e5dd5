/*
 * Making a sandbox (native-runtime.md 7.1): a table of steps. Everything a step makes outside this
 * process carries the sandbox's key, and the record comes first; so one function, box_teardown(),
 * undoes any number of steps, after a failure here as well as in recover() after kill -9.
 *
 * The agent's first answer, to the claim, is the proof that the sandbox lives. The listening socket
 * exists before the agent does, so the call waits in its backlog and nothing has to be tried again.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/path.h"
#include "daemon/driver/native/agent_call.h"
#include "daemon/driver/native/crash.h"
#include "daemon/driver/native/nat.h"
#include "daemon/driver/native/native_priv.h"

#define MEMORY_MIN ((uint64_t)8 << 20) /* runtime and agent do not start in less */
#define BINDS_MAX 64

struct create {
    struct native *n;
    const struct sandbox_spec *spec;
    struct box *box;
    struct root_plan root;
    char boot_token[33]; /* the agent's until the claim replaces it */
    int dir, listen, cgroup, log, state;
    struct cgroup_entry entry;
    int64_t parked;
    struct launch_result launched;
    int mount_fds[BINDS_MAX];
    size_t n_mounts;
    struct step_times times;
};

static void note(struct create *c, const char *name, int64_t us) {
    if (c->times.n < ARRAY_SIZE(c->times.t))
        c->times.t[c->times.n++] = (struct step_time){name, us};
}

/* ---- validate ---- */

static int check_target(const char *target, struct err *err) {
    static const char *const ours[] = {"/proc", "/sys", "/dev", "/opt/cove", "/opt/opensandbox"};
    _cleanup_free_ char *clean = path_clean(target);

    if (!clean)
        return err_set(err, -ENOMEM, "out of memory");
    if (target[0] != '/' || !str_eq(clean, target) || str_eq(target, "/"))
        return err_set(err, -EINVAL,
                       "mount target %s must be an absolute path without \"..\", not \"/\"",
                       target);
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
        size_t len = strlen(ours[i]);
        if (strncmp(target, ours[i], len) == 0 && (target[len] == 0 || target[len] == '/'))
            return err_set(err, -EINVAL,
                           "mount target %s lies in %s, which the sandbox needs itself", target,
                           ours[i]);
    }
    return 0;
}

/* Opened without any symbolic link on the way: what was checked is what is mounted. */
static int open_mount(struct create *c, const struct mount_spec *m, struct err *err) {
    _cleanup_close_ int top = -1;
    int fd, r = check_target(m->target, err);

    if (r < 0)
        return r;
    if (c->n_mounts >= BINDS_MAX)
        return err_set(err, -EINVAL, "a sandbox has at most %d mounts", BINDS_MAX);
    if (m->source[0] != '/')
        return err_set(err, -EINVAL, "mount source %s must be an absolute path", m->source);
    top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    fd = top < 0 ? -errno : path_open_no_links(top, m->source + 1, O_PATH);
    if (fd == -ELOOP)
        return err_set(err, -EINVAL, "mount source %s contains a symbolic link: name the real path",
                       m->source);
    if (fd < 0)
        return err_set(err, -EINVAL, "mount source %s: %s", m->source, strerror(-fd));
    c->mount_fds[c->n_mounts++] = fd;
    return 0;
}

static int step_check(struct create *c, struct err *err) {
    const struct sandbox_spec *s = c->spec;
    int r;

    if (strchr(s->id, '/') || s->id[0] == '.' || str_starts(s->id, "pool-") || !s->id[0])
        return err_set(err, -EINVAL, "%s cannot be the id of a sandbox", s->id);
    if (s->disk_bytes)
        return err_set(err, -EOPNOTSUPP,
                       "the disk limit is not supported by the native driver yet");
    if (s->memory_bytes && s->memory_bytes < MEMORY_MIN)
        return err_set(err, -EINVAL,
                       "a memory limit below 8 MiB leaves no room for the sandbox itself");
    if (s->pids && s->pids < 8)
        return err_set(err, -EINVAL, "a pids limit below 8 leaves no room for the sandbox itself");
    for (size_t i = 0; i < s->n_mounts; i++) {
        r = open_mount(c, &s->mounts[i], err);
        if (r < 0)
            return r;
    }
    r = root_plan_make(c->n, s->image, &c->root, err);
    if (r < 0)
        return r;
    return strv_copy(&c->box->layers, (const char *const *)c->root.layers.v);
}

/* ---- slot, directories, cgroups ---- */

static int step_slot(struct create *c, struct err *err) {
    struct box *b = c->box;
    int r;

    if (parked_take(c->n->parked, &b->slot, b->key, sizeof b->key, &c->parked)) {
        b->has_slot = true;
        return 0;
    }
    r = slots_take(c->n->slots, &b->slot, err);
    b->has_slot = r == 0;
    return r;
}

static int make_layer_dirs(int dir, const char *name) {
    _cleanup_close_ int fd = -1;

    if (mkdirat(dir, name, 0711) < 0)
        return -errno;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || mkdirat(fd, "upper", 0755) < 0 || mkdirat(fd, "work", 0700) < 0)
        return -errno;
    return 0;
}

static int step_dirs(struct create *c, struct err *err) {
    struct native *n = c->n;
    struct box *b = c->box;
    int r = mkdirat(n->sandboxes_fd, b->key, 0711) < 0 ? -errno : 0;

    if (r == 0)
        r = box_record_write(n, b);
    crash_point("create-recorded");
    if (r == 0)
        c->dir = openat(n->sandboxes_fd, b->key, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && c->dir < 0)
        r = -errno;
    for (size_t i = 0; i < c->root.dirs.n && r == 0; i++)
        r = make_layer_dirs(c->dir, c->root.dirs.v[i]);
    if (r == 0) {
        c->log = openat(c->dir, "output.log", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        c->state = openat(c->dir, "exit.json", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (c->log < 0 || c->state < 0)
            r = -errno;
    }
    if (r == 0)
        return box_write_etc(n, b, c->spec, c->dir, err);
    return err_sys(err, r == -ENOENT ? -EIO : r, "making the sandbox's directories in %s",
                   n->state_dir);
}

static int step_cgroup(struct create *c, struct err *err) {
    struct native *n = c->n;
    const struct cgroup_limits limits = {.memory_bytes = c->spec->memory_bytes,
                                         .cpu_millis = c->spec->cpu_millis,
                                         .pids = c->spec->pids ? c->spec->pids
                                                               : n->config.default_pids};
    int r = c->parked
                ? cgroups_set_limits(n->cgroups, c->box->key, &limits, err)
                : cgroups_make(n->cgroups, c->box->key, &limits, box_uid_base(n, c->box), err);

    if (r < 0)
        return r;
    c->cgroup = cgroups_agent_fd(n->cgroups, c->box->key);
    return c->cgroup < 0
               ? err_sys(err, -EIO, "opening the agent's cgroup (%s)", strerror(-c->cgroup))
               : 0;
}

static int step_network(struct create *c, struct err *err) {
    struct box *b = c->box;

    b->netns_fd = netns_pool_take(c->n->netns_pool);
    if (b->netns_fd < 0)
        return err_sys(err, -EIO, "making a network namespace (%s)", strerror(-b->netns_fd));
    if (b->net == NET_NAT) {
        int r = native_nat_attach(c->n, b->slot, b->netns_fd, err);
        if (r < 0)
            return r;
    }
    c->listen = netns_listen(b->netns_fd, AGENT_PORT);
    return c->listen < 0 ? err_sys(err, -EIO, "listening for the agent (%s)", strerror(-c->listen))
                         : 0;
}

static int step_config(struct create *c, struct err *err) {
    id_hex32(c->boot_token);
    return box_write_config(c->n, c->box, c->spec, c->boot_token, c->dir, err);
}

/* ---- launch ---- */

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
    return json_array_append_new(binds,
                                 json_pack("{s:s, s:b, s:b, s:s}", "target", b->target, "read_only",
                                           b->read_only, "idmap", b->idmap, "what", b->what));
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
                     &(struct bind){c->n->agent_fd, agents[i], "the agent", true, false}, err);
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

/* One try, by a parked child or a fresh one. */
static int launch_once(struct create *c, struct err *err) {
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
    return launcher_launch(c->n->launcher, c->parked, plan, fds.v, fds.n, &c->launched, err);
}

static int step_launch(struct create *c, struct err *err) {
    struct native *n = c->n;
    int r = launch_once(c, err);

    if (r == -ESRCH && c->parked) { /* it went away with an earlier cove-launch */
        c->parked = 0;
        r = launch_once(c, err);
    }
    c->listen =
        fd_close(c->listen); /* from now on only the agent holds it: its end shows as a reset */
    if (r < 0)
        return r;
    note(c, "enter", c->launched.enter_us);
    note(c, "mounts", c->launched.mount_us);
    pthread_mutex_lock(&n->lock);
    c->box->pid = c->launched.pid;
    c->box->pidfd = TAKE_FD(c->launched.pidfd);
    pthread_mutex_unlock(&n->lock);
    if (!cgroups_contains(n->cgroups, c->box->key, c->box->pid))
        return err_set(err, -EIO, "the sandbox is not in its cgroups: its limits would not hold");
    return 0;
}

/* ---- claim ---- */

static json_t *claim_body(struct create *c) {
    const struct sandbox_spec *s = c->spec;
    json_t *env = json_object(), *argv = json_array();

    for (size_t i = 0; i < c->root.env.n + s->env.n; i++) {
        const char *kv = i < c->root.env.n ? c->root.env.v[i] : s->env.v[i - c->root.env.n],
                   *eq = strchr(kv, '=');
        _cleanup_free_ char *key = eq ? str_ndup(kv, (size_t)(eq - kv)) : NULL;
        if (key)
            json_object_set_new(env, key, json_string(eq + 1));
    }
    for (size_t i = 0; i < s->entrypoint.n; i++)
        json_array_append_new(argv, json_string(s->entrypoint.v[i]));
    return json_pack("{s:s, s:o, s:o, s:s, s:s*}", "sandbox_id", s->id, "env", env, "entrypoint",
                     argv, "cwd", s->cwd ? s->cwd : c->root.cwd, "access_token", s->access_token);
}

static int step_claim(struct create *c, struct err *err) {
    const struct agent_call call = {.netns_fd = c->box->netns_fd,
                                    .pidfd = c->box->pidfd,
                                    .port = AGENT_PORT,
                                    .token = c->boot_token,
                                    .timeout_ms = (int)c->n->config.start_timeout_ms};
    _cleanup_json_ json_t *body = claim_body(c);
    char text[512];
    int r;

    if (!body)
        return err_set(err, -EINVAL, "environment or entrypoint is not valid UTF-8");
    r = agent_claim(&call, body, err);
    if (r == -ESRCH) {
        launcher_text(c->launched.text_fd, text, sizeof text);
        return err_set(err, -EIO, "the agent ended before it answered%s%s", *text ? ": " : "",
                       text);
    }
    return r < 0 ? err_wrap(err, "starting the sandbox") : 0;
}

static int step_commit(struct create *c, struct err *err) {
    struct native *n = c->n;
    struct box *b = c->box;
    int r = process_start_ticks(b->pid, &b->start_ticks);

    if (r < 0)
        return err_set(err, -EIO, "the sandbox ended as soon as it had started");
    pthread_mutex_lock(&n->lock);
    b->state = BOX_RUNNING;
    b->started_us = clock_wall_us();
    pthread_mutex_unlock(&n->lock);
    r = box_record_write(n, b);
    if (r == 0)
        r = watch_add(n->watch, b);
    return r < 0 ? err_sys(err, r == -ENOENT ? -EIO : r, "recording the sandbox") : 0;
}

/* ---- the table ---- */

static const struct step {
    const char *name;
    int (*run)(struct create *c, struct err *err);
} steps[] = {
    {"check", step_check},   {"slot", step_slot},       {"dirs", step_dirs},
    {"cgroup", step_cgroup}, {"network", step_network}, {"config", step_config},
    {"launch", step_launch}, {"claim", step_claim},     {"commit", step_commit},
};

static void create_done(struct create *c) {
    fd_close(c->dir);
    fd_close(c->listen);
    fd_close(c->cgroup);
    fd_close(c->log);
    fd_close(c->state);
    fd_close(c->launched.pidfd);
    fd_close(c->launched.text_fd);
    cgroup_entry_done(&c->entry);
    while (c->n_mounts)
        fd_close(c->mount_fds[--c->n_mounts]);
    root_plan_done(&c->root);
    explicit_bzero(c->boot_token, sizeof c->boot_token);
}

static int run_steps(struct create *c, struct err *err) {
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        char at[48];
        int64_t t0 = clock_mono_us();
        int r = steps[i].run(c, err);
        note(c, steps[i].name, clock_mono_us() - t0);
        snprintf(at, sizeof at, "create-%s", steps[i].name);
        crash_point(at);
        if (r < 0)
            return r;
    }
    return 0;
}

int native_create(struct driver *d, const struct sandbox_spec *spec, struct instance_info *ret,
                  struct step_times *ret_steps, struct err *err) {
    struct native *n = native_of(d);
    struct create c = {.n = n,
                       .spec = spec,
                       .dir = -1,
                       .listen = -1,
                       .cgroup = -1,
                       .log = -1,
                       .state = -1,
                       .entry = {.box = -1},
                       .launched = {.pidfd = -1, .text_fd = -1}};
    struct err own = {0};
    int r;

    if (!err)
        err = &own;
    c.box = box_new(spec->id, spec->id);
    if (!c.box)
        return err_set(err, -ENOMEM, "out of memory");
    c.box->net = spec->net;
    pthread_mutex_lock(&n->lock);
    r = native_find(n, spec->id) ? -EALREADY : map_set(n->boxes, spec->id, c.box, NULL);
    pthread_mutex_unlock(&n->lock);
    if (r < 0) {
        box_free(c.box);
        return err_set(err, r, r == -EALREADY ? "a sandbox with this id exists" : "out of memory");
    }
    r = run_steps(&c, err);
    if (r == 0) {
        pthread_mutex_lock(&n->lock);
        box_info(c.box, ret);
        pthread_mutex_unlock(&n->lock);
        if (ret_steps)
            *ret_steps = c.times;
    }
    create_done(&c);
    if (r < 0) {
        pthread_mutex_lock(&n->lock);
        map_remove(n->boxes, spec->id);
        pthread_mutex_unlock(&n->lock);
        (void)box_teardown(n, c.box, NULL);
        box_free(c.box);
    }
    return r;
}
