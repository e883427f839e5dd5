/*
 * Cgroups of running sandboxes: kill, removal, freeze, accounting (see cgroups.h). The kernel tells
 * when a cgroup is empty or frozen through cgroup.events; nothing here polls except the removal of
 * v1 directories, for which no event exists.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/path.h"
#include "daemon/driver/native/cgroups_priv.h"

static int cgroup_read(int root, const char *key, const char *file, char *ret, size_t size) {
    char path[CGROUP_KEY_MAX + 64];

    ret[0] = 0;
    snprintf(path, sizeof path, "%s/%s", key, file);
    _cleanup_close_ int fd = openat(root, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int n = fd_read_full(fd, ret, size - 1);
    ret[n > 0 ? n : 0] = 0;
    return n < 0 ? n : 0;
}

/* The number after "name " at the start of a line; 0 when there is none. */
static uint64_t field(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): terminated text */
        if (strncmp(p, name, n) == 0 && p[n] == ' ')
            return strtoull(p + n + 1, NULL, 10);
    }
    return 0;
}

static uint64_t read_u64(int root, const char *key, const char *file) {
    char text[64];
    return cgroup_read(root, key, file, text, sizeof text) < 0 ? 0 : strtoull(text, NULL, 10);
}

/* Waits until cgroup.events says `name want`. 0 also when the cgroup is gone, -ETIMEDOUT. */
static int wait_event(struct cgroups *c, const char *key, const char *name, uint64_t want,
                      int timeout_ms) {
    int64_t deadline = clock_mono_ms() + timeout_ms;
    char path[CGROUP_KEY_MAX + 64], text[256];

    snprintf(path, sizeof path, "%s/cgroup.events", key);
    _cleanup_close_ int fd = openat(c->v2, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLPRI};
        ssize_t n = pread(fd, text, sizeof text - 1, 0);
        if (n < 0)
            return errno == ENODEV ? 0 : -errno;
        text[n] = 0;
        if (field(text, name) == want)
            return 0;
        int64_t left = deadline - clock_mono_ms();
        if (left <= 0)
            return -ETIMEDOUT;
        if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
            return -errno;
    }
}

static void kill_listed(int dir) {
    _cleanup_free_ char *text = NULL;

    if (path_read_file_at(dir, "cgroup.procs", (size_t)1 << 20, &text, NULL) < 0)
        return;
    for (char *p = text; *p; p = strchrnul(p, '\n'), p += *p == '\n') {
        _cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)strtol(p, NULL, 10), 0);
        if (pidfd >= 0)
            syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    }
}

/* Kernels before 5.14: kill what is listed, in the whole tree. The cgroup is frozen meanwhile. */
static void kill_tree(int parent, const char *name) {
    struct dirent *e;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        fd_close(fd);
        return;
    }
    kill_listed(fd);
    while ((e = readdir(d)))
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            kill_tree(fd, e->d_name);
    closedir(d);
}

int cgroups_kill(struct cgroups *c, const char *key, int timeout_ms) {
    int r = cgroup_write(c->v2, key, "cgroup.kill", "1");

    if (r == 0)
        return wait_event(c, key, "populated", 0, timeout_ms);
    if (r != -ENOENT)
        return r;
    if (faccessat(c->v2, key, F_OK, 0) < 0)
        return 0;
    for (int64_t deadline = clock_mono_ms() + timeout_ms; clock_mono_ms() < deadline;) {
        (void)cgroup_write(c->v2, key, "cgroup.freeze", "1");
        kill_tree(c->v2, key);
        (void)cgroup_write(c->v2, key, "cgroup.freeze", "0");
        if (wait_event(c, key, "populated", 0, 50) != -ETIMEDOUT)
            return 0;
    }
    return -ETIMEDOUT;
}

/* rmdir of a cgroup and what is below it, innermost first. */
static int remove_below(int parent, const char *name) {
    struct dirent *e;
    int fd, r = 0;
    DIR *d;

    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        r = errno == ENOENT ? 0 : -errno;
        fd_close(fd);
        return r;
    }
    while ((e = readdir(d)))
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            (void)remove_below(fd, e->d_name);
    closedir(d);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

/* The last process may still be on its way out: a few tries, longer and longer apart, half a second
 * in all. */
static int remove_patiently(int root, const char *key) {
    int r = remove_below(root, key);
    for (int ms = 1; r == -EBUSY && ms <= 256; ms *= 2) {
        poll(NULL, 0, ms);
        r = remove_below(root, key);
    }
    return r;
}

int cgroups_remove(struct cgroups *c, const char *key) {
    int r = remove_patiently(c->v2, key);

    for (size_t i = 0; i < c->n_v1; i++) {
        int q = remove_patiently(c->v1[i].fd, key);
        if (r == 0)
            r = q;
    }
    return r;
}

int cgroups_freeze(struct cgroups *c, const char *key, bool frozen, int timeout_ms,
                   struct err *err) {
    int r = cgroup_write(c->v2, key, "cgroup.freeze", frozen ? "1" : "0");

    if (r == 0)
        r = wait_event(c, key, "frozen", frozen, timeout_ms);
    if (r == -ETIMEDOUT && frozen)
        (void)cgroup_write(c->v2, key, "cgroup.freeze", "0");
    if (r == -ETIMEDOUT)
        return err_set(err, r, "the sandbox did not %s within %d ms", frozen ? "freeze" : "thaw",
                       timeout_ms);
    return r < 0 ? err_sys(err, -EIO, "cgroup.freeze (%s)", strerror(-r)) : 0;
}

bool cgroups_is_frozen(struct cgroups *c, const char *key) {
    char text[256];
    return cgroup_read(c->v2, key, "cgroup.events", text, sizeof text) == 0 &&
           field(text, "frozen") == 1;
}

/* Does a line of /proc/<pid>/cgroup end in this cgroup or one below it? */
static bool line_is_inside(const char *line, const char *want) {
    const char *path = strchr(line, '/'), *at = path ? strstr(path, want) : NULL;
    size_t n = strlen(want);
    return at && (at[n] == 0 || at[n] == '/');
}

bool cgroups_contains(struct cgroups *c, const char *key, pid_t pid) {
    char path[64], want[CGROUP_KEY_MAX + 64];
    _cleanup_free_ char *text = NULL;
    size_t found = 0;

    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    snprintf(want, sizeof want, "/%s/%s", c->leaf, key);
    if (path_read_file_at(AT_FDCWD, path, 64 << 10, &text, NULL) < 0)
        return false;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        found += line_is_inside(line, want);
    return found == c->n_v1 + 1;
}

int cgroups_usage(struct cgroups *c, const char *key, struct cgroup_usage *ret) {
    const struct cgroup_v1 *mem = cgroups_v1(c, CG_MEMORY), *cpu = cgroups_v1(c, CG_CPUACCT),
                           *pids = cgroups_v1(c, CG_PIDS);
    char text[4096];

    *ret = (struct cgroup_usage){0};
    if (c->v2_controllers & (1u << CG_MEMORY)) {
        ret->memory_bytes = read_u64(c->v2, key, "memory.current");
        if (cgroup_read(c->v2, key, "memory.events", text, sizeof text) == 0)
            ret->oom_kills = field(text, "oom_kill");
    } else if (mem) {
        ret->memory_bytes = read_u64(mem->fd, key, "memory.usage_in_bytes");
        if (cgroup_read(mem->fd, key, "memory.oom_control", text, sizeof text) == 0)
            ret->oom_kills = field(text, "oom_kill");
    }
    if (cpu)
        ret->cpu_us = read_u64(cpu->fd, key, "cpuacct.usage") / 1000;
    else if (cgroup_read(c->v2, key, "cpu.stat", text, sizeof text) == 0)
        ret->cpu_us = field(text, "usage_usec");
    if (c->v2_controllers & (1u << CG_PIDS))
        ret->pids = read_u64(c->v2, key, "pids.current");
    else if (pids)
        ret->pids = read_u64(pids->fd, key, "pids.current");
    return faccessat(c->v2, key, F_OK, 0) < 0 ? -errno : 0;
}

static int list_root(int root, struct strv *ret) {
    struct dirent *e;
    int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        fd_close(fd);
        return -errno;
    }
    while (r == 0 && (e = readdir(d))) {
        bool known = e->d_type != DT_DIR || e->d_name[0] == '.';
        for (size_t i = 0; i < ret->n && !known; i++)
            known = str_eq(ret->v[i], e->d_name);
        if (!known)
            r = strv_add(ret, e->d_name);
    }
    closedir(d);
    return r;
}

int cgroups_list(struct cgroups *c, struct strv *ret) {
    int r = list_root(c->v2, ret);
    for (size_t i = 0; i < c->n_v1 && r == 0; i++)
        r = list_root(c->v1[i].fd, ret);
    return r;
}
