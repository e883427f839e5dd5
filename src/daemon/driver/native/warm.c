/*
 * Started sandboxes kept ready for one image (native-runtime.md 15, level 2): everything of a
 * create up to the agent's claim has been done, so taking one costs about a millisecond.
 *
 * A member has a directory, a record in state "creating" and cgroups under a name that begins with
 * "pool-": for recovery it is a create that never ended. What differs between sandboxes (limits,
 * host name, files below /etc, mounts, outbound network) is set when it is taken. A member is
 * handed out once and never comes back.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/id.h"
#include "base/log.h"
#include "daemon/driver/native/create_priv.h"
#include "daemon/driver/native/launch_mount.h"
#include "daemon/driver/native/nat.h"

#define WARM_MAX 64

struct member {
    struct box *box;
    int text_fd;
    char boot_token[33];
};

struct warm {
    struct native *n;
    char *image;
    struct stock *stock;
};

static void discard(void *ud, void *item) {
    struct warm *w = ud;
    struct member *m = item;

    (void)box_teardown(w->n, m->box, NULL);
    box_free(m->box);
    fd_close(m->text_fd);
    explicit_bzero(m->boot_token, sizeof m->boot_token);
}

static int make_in(struct warm *w, struct member *ret, struct err *err) {
    struct sandbox_spec spec = {.image = w->image, .net = NET_NONE};
    struct create c;
    char rnd[33];
    int r;

    id_hex32(rnd);
    snprintf(spec.id, sizeof spec.id, "pool-%.12s", rnd);
    create_init(&c, w->n, &spec);
    c.box = box_new(spec.id, spec.id);
    if (!c.box)
        return err_set(err, -ENOMEM, "out of memory");
    r = create_build(&c, err);
    *ret = (struct member){.box = c.box, .text_fd = TAKE_FD(c.launched.text_fd)};
    memcpy(ret->boot_token, c.boot_token, sizeof ret->boot_token);
    create_done(&c);
    if (r < 0)
        discard(w, ret);
    stock_refill(w->n->netns_pool);
    stock_refill(w->n->parked);
    return r;
}

static int make(void *ud, void *ret_item) {
    struct warm *w = ud;
    struct err err = {0};
    int r = make_in(w, ret_item, &err);

    if (r < 0)
        log_warn("no sandbox could be started ahead of time", LOG_STR("image", w->image),
                 LOG_ERR(&err));
    return r;
}

int warm_new(struct native *n, const char *image, unsigned size, struct warm **ret) {
    static const struct stock_kind kind = {
        .item_size = sizeof(struct member), .max = WARM_MAX, .make = make, .discard = discard};
    struct warm *w = calloc(1, sizeof *w);
    int r = w && (w->image = strdup(image)) ? 0 : -ENOMEM;

    if (r == 0) {
        w->n = n;
        r = stock_new(&kind, size, w, &w->stock);
    }
    if (r < 0) {
        warm_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct warm *warm_free(struct warm *w) {
    if (!w)
        return NULL;
    stock_free(w->stock);
    free(w->image);
    free(w);
    return NULL;
}

/* Alive, and made of the layers that the image has now? */
static bool is_usable(const struct member *m, const struct strv *layers) {
    struct pollfd p = {.fd = m->box->pidfd, .events = POLLIN};

    if (poll(&p, 1, 0) != 0 || m->box->layers.n != layers->n)
        return false;
    for (size_t i = 0; i < layers->n; i++)
        if (!str_eq(m->box->layers.v[i], layers->v[i]))
            return false;
    return true;
}

/* The sandbox changes its name: everything but the id is the member's. */
static void take_over(struct create *c, struct member *m) {
    struct box *b = c->box, *from = m->box;

    pthread_mutex_lock(&c->n->lock);
    str_copy(b->key, sizeof b->key, from->key);
    b->has_slot = from->has_slot;
    b->slot = from->slot;
    b->netns_fd = TAKE_FD(from->netns_fd);
    b->pidfd = TAKE_FD(from->pidfd);
    b->pid = from->pid;
    b->start_ticks = from->start_ticks;
    pthread_mutex_unlock(&c->n->lock);
    c->launched.text_fd = m->text_fd;
    memcpy(c->boot_token, m->boot_token, sizeof c->boot_token);
    explicit_bzero(m->boot_token, sizeof m->boot_token);
    box_free(from);
}

bool warm_take(struct warm *w, struct create *c) {
    if (!w || !str_eq(c->spec->image, w->image))
        return false;
    struct member m;
    while (stock_take(w->stock, &m)) {
        if (is_usable(&m, &c->box->layers)) {
            take_over(c, &m);
            return true;
        }
        discard(w, &m);
    }
    return false;
}

void warm_refill(struct warm *w) {
    if (w)
        stock_refill(w->stock);
}

/* The host name belongs to the sandbox's namespace, which a thread may visit. */
static int set_hostname(pid_t pid, const char *name) {
    char path[40];
    int r = 0;

    snprintf(path, sizeof path, "/proc/%d/ns/uts", (int)pid);
    _cleanup_close_ int own = open("/proc/thread-self/ns/uts", O_RDONLY | O_CLOEXEC);
    _cleanup_close_ int there = open(path, O_RDONLY | O_CLOEXEC);
    if (own < 0 || there < 0 || setns(there, CLONE_NEWUTS) < 0)
        return -errno;
    if (sethostname(name, strlen(name)) < 0)
        r = -errno;
    if (setns(own, CLONE_NEWUTS) < 0)
        abort(); /* this thread must not go on under a sandbox's name */
    return r;
}

/* What a thread needs to attach the mounts of a specification to a sandbox that runs. */
struct attach {
    struct create *c;
    int mnt_ns, user_ns;
    int trees[BINDS_MAX]; /* detached mounts */
    struct err *err;
    int result;
};

/* In the sandbox's mount namespace, as the owner of its files. The thread is of no other use
 * afterwards. */
static void *attach_mounts(void *arg) {
    struct attach *a = arg;
    const struct create *c = a->c;
    uint32_t base = box_uid_base(c->n, c->box);

    if (unshare(CLONE_FS) < 0 || setns(a->mnt_ns, CLONE_NEWNS) < 0)
        a->result = -errno;
    if (a->result == 0 && base)
        a->result = mount_become_owner(base);
    if (a->result < 0)
        err_sys(a->err, -EIO, "entering the sandbox's mount namespace (%s)", strerror(-a->result));
    for (size_t i = 0; i < c->n_mounts && a->result == 0; i++) {
        const struct mount_spec *m = &c->spec->mounts[i];
        a->result =
            mount_bind(a->trees[i], "/", m->target, m->read_only, base ? a->user_ns : -1, a->err);
        if (a->result < 0)
            err_wrap(a->err, "mounting %s at %s", m->source, m->target);
    }
    return NULL;
}

/* The mounts' copies are made here, in our namespace, and attached there. */
static int add_mounts(struct create *c, struct err *err) {
    struct attach a = {.c = c, .err = err};
    char mnt[40], user[40];
    pthread_t thread;
    size_t n = 0;
    int r = 0;

    snprintf(mnt, sizeof mnt, "/proc/%d/ns/mnt", (int)c->box->pid);
    snprintf(user, sizeof user, "/proc/%d/ns/user", (int)c->box->pid);
    a.mnt_ns = open(mnt, O_RDONLY | O_CLOEXEC);
    a.user_ns = open(user, O_RDONLY | O_CLOEXEC);
    if (a.mnt_ns < 0 || a.user_ns < 0) {
        c->agent_lost = true;
        r = err_sys(err, -EIO, "entering the sandbox (%s)", strerror(errno));
    }
    for (; n < c->n_mounts && r == 0; n++) {
        a.trees[n] = (int)syscall(SYS_open_tree, c->mount_fds[n], "",
                                  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (a.trees[n] < 0)
            r = err_sys(err, -EIO, "preparing the mount of %s (%s)", c->spec->mounts[n].source,
                        strerror(errno));
    }
    if (r == 0 && pthread_create(&thread, NULL, attach_mounts, &a) != 0)
        r = err_set(err, -EIO, "starting a thread");
    else if (r == 0) {
        pthread_join(thread, NULL);
        r = a.result == 0 ? 0 : a.result == -EINVAL ? -EINVAL : -EIO;
    }
    while (n)
        fd_close(a.trees[--n]);
    fd_close(a.mnt_ns);
    fd_close(a.user_ns);
    return r;
}

int warm_adopt(struct create *c, struct err *err) {
    struct native *n = c->n;
    struct box *b = c->box;
    const struct cgroup_limits limits = {.memory_bytes = c->spec->memory_bytes,
                                         .cpu_millis = c->spec->cpu_millis,
                                         .pids = c->spec->pids ? c->spec->pids
                                                               : n->config.default_pids};
    char host[HOSTNAME_SIZE];
    int r = box_record_write(n, b);

    c->dir = openat(n->sandboxes_fd, b->key, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r < 0 || c->dir < 0)
        return err_sys(err, -EIO, "recording the sandbox (%s)", strerror(r < 0 ? -r : errno));
    r = cgroups_set_limits(n->cgroups, b->key, &limits, err);
    if (r == 0)
        r = box_write_etc(n, b, c->spec, c->dir, err);
    if (r < 0)
        return r;
    box_hostname(b, c->spec, host);
    r = set_hostname(b->pid, host);
    if (r < 0) {
        c->agent_lost = true; /* nothing else makes its namespace unreachable */
        return err_sys(err, -EIO, "setting the host name (%s)", strerror(-r));
    }
    r = c->n_mounts ? add_mounts(c, err) : 0;
    if (r == 0 && b->net == NET_NAT)
        r = native_nat_attach(n, b->slot, b->netns_fd, err);
    return r;
}
