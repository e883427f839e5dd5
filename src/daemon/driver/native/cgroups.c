/*
 * Cgroups of sandboxes: layout, making, limits (see cgroups.h; freeze, kill and accounting are in
 * cgroups_run.c). A `struct cgroups` is immutable after cgroups_open(): any thread may use it,
 * different keys at once. All work goes through directory descriptors, so what is mounted at
 * /sys/fs/cgroup later does not matter.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include "base/path.h"
#include "base/str.h"
#include "daemon/driver/native/cgroups_priv.h"

static const char *const controller_names[CG_CONTROLLERS] = {"memory",  "pids",    "cpu",
                                                             "cpuacct", "devices", "blkio"};

static bool is_fs(int fd, unsigned long magic) {
    struct statfs sf;
    return fstatfs(fd, &sf) == 0 && (unsigned long)sf.f_type == magic;
}

/* Makes (or finds) a directory below parent; descriptor or -errno. */
static int open_made(int parent, const char *name) {
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Mount point of the first cgroup2 file system that we see; "" when none is mounted. */
static int find_cgroup2(char *ret, size_t size) {
    _cleanup_free_ char *text = NULL;
    int r = path_read_file_at(AT_FDCWD, "/proc/self/mountinfo", (size_t)4 << 20, &text, NULL);

    *ret = 0;
    if (r < 0)
        return r;
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char point[PATH_MAX];
        if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1 &&
            str_copy(ret, size, point))
            return 0;
    }
    return 0;
}

/* The hierarchy without any mount: enough for us, who work by descriptor. */
static int mount_detached(void) {
    _cleanup_close_ int fs = (int)syscall(SYS_fsopen, "cgroup2", FSOPEN_CLOEXEC);
    if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Our own cgroup, or the one above it: descriptor and name. -ENOENT unless a service manager has
 * delegated it to us. */
static int open_delegated(int v2, bool above, char *ret_name, size_t size) {
    _cleanup_free_ char *text = NULL;
    _cleanup_close_ int fd = -1;
    char mark[8];

    if (path_read_file_at(AT_FDCWD, "/proc/self/cgroup", 64 << 10, &text, NULL) < 0)
        return -ENOENT;
    char *line = str_starts(text, "0::") ? text : strstr(text, "\n0::");
    line = line ? strchr(line, '/') : NULL;
    if (!line)
        return -ENOENT;
    *strchrnul(line, '\n') = 0;
    if (above)
        *strrchr(line, '/') = 0;
    if (!line[0] || !line[1])
        return -ENOENT;
    fd = path_open_beneath(v2, line + 1, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return -ENOENT;
    ssize_t n = fgetxattr(fd, "trusted.delegate", mark, sizeof mark);
    if (n < 0)
        n = fgetxattr(fd, "user.delegate", mark, sizeof mark);
    if (n < 1 || mark[0] != '1' || !str_copy(ret_name, size, line))
        return -ENOENT;
    return TAKE_FD(fd);
}

/* cgroup2 allows no process beside children with controllers: what is there moves to a leaf. */
static void evacuate(int dir) {
    _cleanup_close_ int leaf = open_made(dir, "daemon");

    for (int tries = 0; leaf >= 0 && tries < 16; tries++) { /* processes may fork meanwhile */
        _cleanup_free_ char *text = NULL;
        if (path_read_file_at(dir, "cgroup.procs", (size_t)1 << 20, &text, NULL) < 0 || !*text)
            return;
        for (char *save, *pid = strtok_r(text, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save))
            (void)path_write_value_at(leaf, "cgroup.procs", pid);
    }
}

static bool has_word(const char *text, const char *word) {
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += n)
        if ((p == text || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\n' || p[n] == 0))
            return true;
    return false;
}

static int enable_controller(int dir, const char *word) {
    int r = path_write_value_at(dir, "cgroup.subtree_control", word);

    if (r != -EBUSY ||
        faccessat(dir, "cgroup.type", F_OK, 0) < 0) /* the true root has no such rule */
        return r;
    evacuate(dir);
    return path_write_value_at(dir, "cgroup.subtree_control", word);
}

/* Hands the limits' controllers of cgroup2 down from `dir`; which of them are there is noted in c.
 */
static void enable_controllers(struct cgroups *c, int dir) {
    static const enum cgroup_controller wanted[] = {CG_MEMORY, CG_PIDS, CG_CPU};
    _cleanup_free_ char *text = NULL;

    if (path_read_file_at(dir, "cgroup.controllers", 4096, &text, NULL) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        char word[16];
        snprintf(word, sizeof word, "+%s", controller_names[wanted[i]]);
        if (has_word(text, word + 1) && enable_controller(dir, word) == 0)
            c->v2_controllers |= 1u << wanted[i];
        else
            c->v2_controllers &= ~(1u << wanted[i]);
    }
}

/*
 * Below which cgroup ours goes. In a subgroup of a delegated unit: that unit. Directly in a unit we
 * prefer the root, delegated or not: a service manager cannot start a daemon anew in a cgroup that
 * has children with controllers, and stops everything in it together with the daemon. Where the
 * root is not ours to write, our own cgroup.
 */
static int choose_parent(struct cgroups *c, int top, char *ret_name, size_t size) {
    int fd = open_delegated(top, true, ret_name, size);

    if (fd >= 0)
        return fd;
    if (mkdirat(top, c->leaf, 0755) == 0 || errno == EEXIST) {
        *ret_name = 0;
        fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }
    int r = -errno;
    fd = open_delegated(top, false, ret_name, size);
    return fd < 0 ? r : fd;
}

static int open_v2(struct cgroups *c, struct err *err) {
    _cleanup_close_ int top = -1;
    char parent[200];
    int r = find_cgroup2(c->mount_path, sizeof c->mount_path);

    if (r < 0)
        return err_sys(err, r, "/proc/self/mountinfo");
    top =
        *c->mount_path ? open(c->mount_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : mount_detached();
    if (top < 0)
        return err_set(err, -EOPNOTSUPP,
                       "native sandboxes need cgroup v2, which this kernel or container does "
                       "not offer (mounting cgroup2: %s)",
                       strerror(*c->mount_path ? errno : -top));
    c->v2_parent = choose_parent(c, top, parent, sizeof parent);
    if (c->v2_parent < 0)
        return err_set(err, -EOPNOTSUPP, "no cgroup can be made at %s (%s)", c->mount_path,
                       strerror(-c->v2_parent));
    snprintf(c->root_name, sizeof c->root_name, "%s/%s", parent, c->leaf);
    c->v2 = open_made(c->v2_parent, c->leaf);
    if (c->v2 < 0)
        return err_sys(err, c->v2, "making cgroup %s", c->root_name);
    enable_controllers(c, c->v2_parent);
    if (c->v2_controllers)
        enable_controllers(c, c->v2);
    return 0;
}

static void open_v1(struct cgroups *c) {
    for (int i = 0; i < CG_CONTROLLERS; i++) {
        char path[64];
        struct stat st;
        if ((c->v2_controllers & (1u << i)) || i == CG_BLKIO)
            continue;
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s", controller_names[i]);
        _cleanup_close_ int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent < 0 || !is_fs(parent, CGROUP_SUPER_MAGIC) || fstat(parent, &st) < 0)
            continue;
        size_t k = 0;
        while (k < c->n_v1 && c->v1[k].dev != st.st_dev)
            k++;
        if (k == c->n_v1) {
            int fd = open_made(parent, c->leaf);
            if (fd < 0)
                continue;
            c->v1[c->n_v1++] =
                (struct cgroup_v1){.fd = fd, .parent = TAKE_FD(parent), .dev = st.st_dev};
        }
        c->v1[k].controllers |= 1u << i;
    }
}

int cgroups_open(const char *instance, struct cgroups **ret, struct err *err) {
    _cleanup_(cgroups_freep) struct cgroups *c = calloc(1, sizeof *c);
    int r;

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->v2 = c->v2_parent = -1;
    snprintf(c->leaf, sizeof c->leaf, "cove-%s", instance);
    r = open_v2(c, err);
    if (r < 0)
        return r;
    open_v1(c);
    *ret = TAKE_PTR(c);
    return 0;
}

struct cgroups *cgroups_free(struct cgroups *c) {
    if (!c)
        return NULL;
    for (size_t i = 0; i < c->n_v1; i++) {
        unlinkat(c->v1[i].parent, c->leaf, AT_REMOVEDIR); /* EBUSY while sandboxes live */
        fd_close(c->v1[i].fd);
        fd_close(c->v1[i].parent);
    }
    if (c->v2 >= 0)
        unlinkat(c->v2_parent, c->leaf, AT_REMOVEDIR);
    fd_close(c->v2);
    fd_close(c->v2_parent);
    free(c);
    return NULL;
}

const char *cgroups_layout(const struct cgroups *c) {
    return c->n_v1 == 0 ? "v2" : *c->mount_path ? "hybrid" : "v1";
}

const char *cgroups_mount_path(const struct cgroups *c) {
    return c->mount_path;
}

const struct cgroup_v1 *cgroups_v1(const struct cgroups *c, enum cgroup_controller which) {
    for (size_t i = 0; i < c->n_v1; i++)
        if (c->v1[i].controllers & (1u << which))
            return &c->v1[i];
    return NULL;
}

bool cgroups_has(const struct cgroups *c, enum cgroup_controller which) {
    return (c->v2_controllers & (1u << which)) || cgroups_v1(c, which);
}

int cgroup_write(int root, const char *key, const char *file, const char *value) {
    char path[CGROUP_KEY_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", key, file);
    return path_write_value_at(root, path, value);
}

static int write_u64(int root, const char *key, const char *file, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return cgroup_write(root, key, file, text);
}

static int limit_memory(struct cgroups *c, const char *key, uint64_t bytes) {
    const struct cgroup_v1 *h = cgroups_v1(c, CG_MEMORY);
    int r;

    if (c->v2_controllers & (1u << CG_MEMORY)) {
        r = write_u64(c->v2, key, "memory.max", bytes);
        if (r == 0)
            (void)cgroup_write(c->v2, key, "memory.swap.max",
                               "0"); /* absent without swap accounting */
        return r;
    }
    if (!h)
        return -EOPNOTSUPP;
    r = write_u64(h->fd, key, "memory.limit_in_bytes", bytes);
    /* with swap accounting the second limit may not be below the first, so raising needs the other
     * order */
    int q = write_u64(h->fd, key, "memory.memsw.limit_in_bytes", bytes);
    return r < 0 && q == 0 ? write_u64(h->fd, key, "memory.limit_in_bytes", bytes) : r;
}

static int limit_cpu(struct cgroups *c, const char *key, uint64_t millis) {
    const struct cgroup_v1 *h = cgroups_v1(c, CG_CPU);
    uint64_t quota =
        MAX(millis * 100, 1000); /* microseconds of each 100 ms; the kernel's least is 1 ms */
    char text[64];

    if (c->v2_controllers & (1u << CG_CPU)) {
        snprintf(text, sizeof text, "%llu 100000", (unsigned long long)quota);
        return cgroup_write(c->v2, key, "cpu.max", text);
    }
    if (!h)
        return -EOPNOTSUPP;
    int r = write_u64(h->fd, key, "cpu.cfs_period_us", 100000);
    return r < 0 ? r : write_u64(h->fd, key, "cpu.cfs_quota_us", quota);
}

static int limit_pids(struct cgroups *c, const char *key, uint64_t pids) {
    const struct cgroup_v1 *h = cgroups_v1(c, CG_PIDS);

    if (c->v2_controllers & (1u << CG_PIDS))
        return write_u64(c->v2, key, "pids.max", pids);
    return h ? write_u64(h->fd, key, "pids.max", pids) : -EOPNOTSUPP;
}

int cgroups_set_limits(struct cgroups *c, const char *key, const struct cgroup_limits *l,
                       struct err *err) {
    const struct {
        const char *name;
        uint64_t value;
        int (*set)(struct cgroups *, const char *, uint64_t);
    } all[] = {{"memory", l->memory_bytes, limit_memory},
               {"cpu", l->cpu_millis, limit_cpu},
               {"pids", l->pids, limit_pids}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        int r = all[i].value ? all[i].set(c, key, all[i].value) : 0;
        if (r == -EOPNOTSUPP)
            return err_set(err, r,
                           "the %s limit cannot be honoured: this host has no %s cgroup controller",
                           all[i].name, all[i].name);
        if (r < 0)
            return err_sys(err, -EIO, "setting the %s limit (%s)", all[i].name, strerror(-r));
    }
    return 0;
}

/* Second line behind "no device can be made": only the harmless devices may be opened. */
static void restrict_devices(struct cgroups *c, const char *key) {
    static const char *const allowed[] = {"c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm",
                                          "c 1:9 rwm", "c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm"};
    const struct cgroup_v1 *h = cgroups_v1(c, CG_DEVICES);

    if (!h || cgroup_write(h->fd, key, "devices.deny", "a") < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
        (void)cgroup_write(h->fd, key, "devices.allow", allowed[i]);
}

/* The agent may make cgroups below box and move processes among them, nothing else. */
static int delegate_box(struct cgroups *c, const char *key, unsigned owner) {
    static const char *const files[] = {"", "cgroup.procs", "cgroup.threads",
                                        "cgroup.subtree_control"};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        char path[CGROUP_KEY_MAX + 64];
        snprintf(path, sizeof path, "%s/box/%s", key, files[i]);
        if (fchownat(c->v2, path, owner, owner, 0) < 0)
            return -errno;
    }
    return 0;
}

int cgroups_make(struct cgroups *c, const char *key, const struct cgroup_limits *limits,
                 unsigned owner, struct err *err) {
    char path[CGROUP_KEY_MAX + 64];
    int r = 0;

    if (strlen(key) > CGROUP_KEY_MAX)
        return err_set(err, -EINVAL, "the sandbox's name is longer than %d characters",
                       CGROUP_KEY_MAX);
    snprintf(path, sizeof path, "%s/box", key);
    if (mkdirat(c->v2, key, 0755) < 0 || mkdirat(c->v2, path, 0755) < 0)
        r = -errno;
    for (size_t i = 0; i < c->n_v1 && r == 0; i++)
        if (mkdirat(c->v1[i].fd, key, 0755) < 0)
            r = -errno;
    if (r == 0 && owner)
        r = delegate_box(c, key, owner);
    if (r < 0)
        r = err_sys(err, -EIO, "making the cgroup %s/%s (%s)", c->root_name, key, strerror(-r));
    else
        r = cgroups_set_limits(c, key, limits, err);
    if (r < 0) {
        cgroups_remove(c, key);
        return r;
    }
    restrict_devices(c, key);
    return 0;
}

int cgroups_entry(struct cgroups *c, const char *key, struct cgroup_entry *ret, struct err *err) {
    struct cgroup_entry e = {.box = -1};
    char path[CGROUP_KEY_MAX + 64];

    snprintf(path, sizeof path, "%s/box", key);
    e.box = openat(c->v2, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (e.box < 0)
        return err_sys(err, -EIO, "opening the cgroup (%s)", strerror(errno));
    snprintf(path, sizeof path, "%s/cgroup.procs", key);
    for (size_t i = 0; i < c->n_v1; i++) {
        e.enter[e.n_enter] = openat(c->v1[i].fd, path, O_WRONLY | O_CLOEXEC);
        if (e.enter[e.n_enter] < 0) {
            int r = errno;
            cgroup_entry_done(&e);
            return err_sys(err, -EIO, "opening the cgroup (%s)", strerror(r));
        }
        e.n_enter++;
    }
    *ret = e;
    return 0;
}

void cgroup_entry_done(struct cgroup_entry *e) {
    e->box = fd_close(e->box);
    while (e->n_enter)
        fd_close(e->enter[--e->n_enter]);
}

int cgroups_agent_fd(struct cgroups *c, const char *key) {
    char path[CGROUP_KEY_MAX + 64];

    snprintf(path, sizeof path, "%s/box", key);
    int fd = (int)syscall(SYS_open_tree, c->v2, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return fd < 0 ? -errno : fd;
}
