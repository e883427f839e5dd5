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
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/path.h"
#include "daemon/driver/native/agent_call.h"
#include "daemon/driver/native/create_priv.h"
#include "daemon/driver/native/nat.h"

#define MEMORY_MIN ((uint64_t)8 << 20) /* runtime and agent do not start in less */

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
        size_t n = strlen(target);
        if (strncmp(target, ours[i], n) == 0 && ours[i][n] == '/')
            return err_set(err, -EINVAL,
                           "mount target %s would cover %s, which the sandbox needs itself", target,
                           ours[i]);
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
    if (!m->source)
        return err_set(err, -EINVAL, "the mount at %s names no source", m->target);
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

    if (mkdirat(dir, name, 0700) < 0)
        return -errno;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || mkdirat(fd, "upper", 0755) < 0 || mkdirat(fd, "work", 0700) < 0)
        return -errno;
    return 0;
}

static int step_dirs(struct create *c, struct err *err) {
    struct native *n = c->n;
    struct box *b = c->box;
    int r = mkdirat(n->sandboxes_fd, b->key, 0700) < 0 ? -errno : 0;

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

static int step_launch(struct create *c, struct err *err) {
    struct native *n = c->n;
    int r = create_launch(c, err);

    if (r == -ESRCH && c->parked) { /* it went away with an earlier cove-launch */
        c->parked = 0;
        r = create_launch(c, err);
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
    /* now, since an entrypoint that the claim starts may end at once; 0 when the agent is gone
     * already */
    if (process_start_ticks(c->box->pid, &c->box->start_ticks) < 0)
        c->box->start_ticks = 0;
    /* one that has ended already is in no cgroup any more: the claim says why it ended */
    struct pollfd ended = {.fd = c->box->pidfd, .events = POLLIN};
    if (!cgroups_contains(n->cgroups, c->box->key, c->box->pid) && poll(&ended, 1, 0) == 0)
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
    /* "" = no token from now on; absent, the one of the start would stay, which no client knows */
    return json_pack("{s:s, s:o, s:o, s:s, s:s}", "sandbox_id", s->id, "env", env, "entrypoint",
                     argv, "cwd", s->cwd ? s->cwd : c->root.cwd, "access_token",
                     s->access_token ? s->access_token : "");
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
        c->agent_lost = true;
        launcher_text(c->launched.text_fd, text, sizeof text);
        return err_set(err, -EIO, "the agent ended before it answered%s%s", *text ? ": " : "",
                       text);
    }
    return r < 0 ? err_wrap(err, "starting the sandbox") : 0;
}

static int step_commit(struct create *c, struct err *err) {
    struct native *n = c->n;
    struct box *b = c->box;
    int r;

    pthread_mutex_lock(&n->lock);
    b->state = BOX_RUNNING;
    b->started_us = clock_wall_us();
    pthread_mutex_unlock(&n->lock);
    r = box_record_write(n, b);
    if (r == 0)
        r = watch_add(n->watch, b);
    return r < 0 ? err_sys(err, r == -ENOENT ? -EIO : r, "recording the sandbox") : 0;
}

/* ---- the tables ---- */

struct step {
    const char *name;
    int (*run)(struct create *c, struct err *err);
};
static const struct step first[] = {{"check", step_check}};
static const struct step build[] = {
    {"slot", step_slot},       {"dirs", step_dirs},     {"cgroup", step_cgroup},
    {"network", step_network}, {"config", step_config}, {"launch", step_launch},
};
static const struct step adopt[] = {{"adopt", warm_adopt}};
static const struct step finish[] = {{"claim", step_claim}, {"commit", step_commit}};

static int run_steps(struct create *c, const struct step *steps, size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++) {
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

void create_init(struct create *c, struct native *n, const struct sandbox_spec *spec) {
    *c = (struct create){.n = n,
                         .spec = spec,
                         .dir = -1,
                         .listen = -1,
                         .cgroup = -1,
                         .log = -1,
                         .state = -1,
                         .entry = {.box = -1},
                         .launched = {.pidfd = -1, .text_fd = -1}};
}

void create_done(struct create *c) {
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

int create_build(struct create *c, struct err *err) {
    int r = run_steps(c, first, ARRAY_SIZE(first), err);
    return r < 0 ? r : run_steps(c, build, ARRAY_SIZE(build), err);
}

/* Did the agent that we were given end meanwhile? Then its rests are taken apart, and the create
 * starts anew. */
static bool start_over(struct create *c) {
    if (!c->agent_lost || box_teardown(c->n, c->box, NULL) < 0)
        return false;
    str_copy(c->box->key, sizeof c->box->key, c->box->id);
    c->dir = fd_close(c->dir);
    c->launched.text_fd = fd_close(c->launched.text_fd);
    return true;
}

static int create_all(struct create *c, struct err *err) {
    int r = run_steps(c, first, ARRAY_SIZE(first), err);

    if (r == 0 && warm_take(c->n->warm, c)) {
        r = run_steps(c, adopt, ARRAY_SIZE(adopt), err);
        if (r == 0)
            r = run_steps(c, finish, ARRAY_SIZE(finish), err);
        if (r == 0 || !start_over(c))
            return r;
        r = 0;
    }
    if (r == 0)
        r = run_steps(c, build, ARRAY_SIZE(build), err);
    return r < 0 ? r : run_steps(c, finish, ARRAY_SIZE(finish), err);
}

/* Puts a new box under its id, so that nobody else takes it. */
static int reserve(struct create *c, struct err *err) {
    struct native *n = c->n;
    const char *id = c->spec->id;

    if (!id[0] || id[0] == '.' || strchr(id, '/') || str_starts(id, "pool-"))
        return err_set(err, -EINVAL, "%s cannot be the id of a sandbox", id);
    _cleanup_(box_freep) struct box *b = box_new(id, id);
    if (!b)
        return err_set(err, -ENOMEM, "out of memory");
    b->net = c->spec->net;
    if (box_note_volumes(n, b, c->spec) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_lock(&n->lock);
    int r = native_find(n, id) ? -EALREADY : map_set(n->boxes, id, b, NULL);
    pthread_mutex_unlock(&n->lock);
    if (r < 0)
        return err_set(err, r, r == -EALREADY ? "a sandbox with this id exists" : "out of memory");
    c->box = TAKE_PTR(b);
    return 0;
}

int native_create(struct driver *d, const struct sandbox_spec *spec, struct instance_info *ret,
                  struct step_times *ret_steps, struct err *err) {
    struct native *n = native_of(d);
    struct err own = {0};
    struct create c;
    int r;

    if (!err)
        err = &own;
    create_init(&c, n, spec);
    r = reserve(&c, err);
    if (r < 0)
        return r;
    r = create_all(&c, err);
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
    warm_refill(n->warm);
    stock_refill(n->netns_pool);
    stock_refill(n->parked);
    return r;
}
