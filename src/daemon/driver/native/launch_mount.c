/*
 * Mounts of one sandbox (see launch_mount.h). Runs in a forked child of cove-launch, after
 * unshare(CLONE_NEWNS): whatever it makes vanishes with the namespace, so there is no undo.
 *
 * Overlay options name the layers as "5:6:7" relative to /proc/self/fd: short enough for 500 layers
 * in the one page the kernel takes, no host path shows in the sandbox's mountinfo, and detached
 * id-mapped clones have no other name anyway.
 */
#include "daemon/driver/native/launch_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/path.h"
#include "base/str.h"

#define ID_RANGE 65536
#define LAYERS_MAX 500

static int sys_open_tree(int dirfd, const char *path, unsigned flags) {
    long r = syscall(SYS_open_tree, dirfd, path, flags);
    return r < 0 ? -errno : (int)r;
}

static int sys_mount_setattr(int fd, struct mount_attr *attr) {
    return syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, attr, sizeof *attr) < 0 ? -errno : 0;
}

static int hold_namespace(void *arg) {
    for (;;)
        pause();
    return 0;
}

static int write_map(pid_t pid, const char *file, unsigned base) {
    char path[64], line[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    snprintf(line, sizeof line, "0 %u %d\n", base, ID_RANGE);
    return path_write_value_at(AT_FDCWD, path, line);
}

int mount_userns(unsigned base) {
    static char stack[16384] __attribute__((aligned(16)));
    char path[64];
    int fd, r;
    /* Shares our memory: no page tables are copied, and it never touches anything. */
    pid_t pid =
        clone(hold_namespace, stack + sizeof stack, CLONE_NEWUSER | CLONE_VM | SIGCHLD, NULL);

    if (pid < 0)
        return -errno;
    r = write_map(pid, "uid_map", base);
    if (r == 0)
        r = write_map(pid, "gid_map", base);
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    fd = r < 0 ? r : open(path, O_RDONLY | O_CLOEXEC);
    if (r == 0 && fd < 0)
        fd = -errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return fd;
}

int mount_become_owner(unsigned base) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];

    if (syscall(SYS_capget, &head, caps) < 0)
        return -errno;
    setfsgid(base);
    setfsuid(base);
    /* setfsuid away from 0 drops the file capabilities from the effective set */
    if (syscall(SYS_capset, &head, caps) < 0)
        return -errno;
    return (unsigned)setfsuid((uid_t)-1) == base ? 0 : -EPERM;
}

/* A descriptor that names `path` as a layer: an id-mapped clone, or just the directory. */
static int open_layer(const char *path, int userns_fd) {
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP,
                              .userns_fd = (uint64_t)(unsigned)userns_fd};
    int fd, r;

    if (userns_fd < 0) {
        fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }
    fd = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (fd < 0)
        return fd;
    r = sys_mount_setattr(fd, &attr);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    return fd;
}

/* The layers of one overlay, open until it is mounted. */
struct layers {
    struct buf opt; /* mount options */
    int fds[LAYERS_MAX];
    bool is_clone[LAYERS_MAX]; /* a detached mount, not just a directory */
    size_t n;
};

static void layers_done(struct layers *l) {
    while (l->n)
        fd_close(l->fds[--l->n]);
    buf_done(&l->opt);
}

static int add_layer(struct layers *l, const char *path, int userns_fd, struct err *err) {
    int fd = l->n < LAYERS_MAX ? open_layer(path, userns_fd) : -E2BIG;

    if (fd == -E2BIG)
        return err_set(err, fd, "more than %d layers", LAYERS_MAX);
    if (fd < 0)
        return err_sys(err, fd, "layer %s", path);
    l->is_clone[l->n] = userns_fd >= 0;
    l->fds[l->n++] = fd;
    return fd;
}

static int add_lowers(struct layers *l, const char *const *paths, size_t n, int userns_fd,
                      struct err *err) {
    for (size_t i = 0; i < n; i++) {
        int fd = add_layer(l, paths[i], userns_fd, err);
        if (fd < 0)
            return fd;
        buf_printf(&l->opt, "%s%d", str_ends(l->opt.data, "=") ? "" : ":", fd);
    }
    return 0;
}

static int mount_at(const char *where, const struct layers *l) {
    return mount("overlay", where, "overlay", MS_NODEV, l->opt.data) < 0 ? -errno : 0;
}

/*
 * Kernels before 6.6 or so take no detached mounts as layers. There the clones are attached while
 * the overlay is mounted, one over the other on the writable layer's directory: an overlay keeps
 * copies of its layers' mounts.
 */
static int mount_attached(const char *where, const struct layers *l, const char *dir) {
    size_t attached = 0;
    int r = 0;

    for (size_t i = 0; i < l->n && r == 0; i++) {
        if (!l->is_clone[i])
            continue;
        if (syscall(SYS_move_mount, l->fds[i], "", AT_FDCWD, dir, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            r = -errno;
        else
            attached++;
    }
    if (r == 0)
        r = mount_at(where, l);
    while (attached-- > 0)
        umount2(dir, MNT_DETACH);
    return r;
}

static int mount_either(const char *where, const struct layers *l, const struct overlay_spec *o) {
    int r = mount_at(where, l);

    return r == -EINVAL && o->userns_fd >= 0 ? mount_attached(where, l, o->dir) : r;
}

/*
 * A file system that could not write something back (it was full) refuses volatile overlays with
 * EIO until somebody has been told of that. A syncfs of a new descriptor is being told.
 */
static void see_write_errors(const char *dir) {
    _cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0)
        (void)syncfs(fd);
}

static int open_target(const char *rootfs, const char *at, int flags) {
    _cleanup_close_ int root = open(rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -errno;
    return path_open_in_root(root, at, flags, 0);
}

/* Without room for its work directory an overlay becomes read-only instead of failing. */
static int check_writable(const struct overlay_spec *o) {
    _cleanup_close_ int fd = open_target(o->rootfs, o->at, O_PATH | O_DIRECTORY);
    struct statvfs s;

    if (fd < 0)
        return fd;
    if (fstatvfs(fd, &s) < 0)
        return -errno;
    return s.f_flag & ST_RDONLY ? -ENOSPC : 0;
}

static int describe(const struct overlay_spec *o, struct layers *l, struct err *err) {
    int r, up;

    buf_str(&l->opt, "lowerdir=");
    if (!l->opt.data)
        return err_set(err, -ENOMEM, "out of memory");
    r = add_lowers(l, o->lowers, o->n_lowers, o->userns_fd, err);
    if (r == 0)
        r = add_lowers(l, o->plain, o->n_plain, -1, err);
    if (r < 0)
        return r;
    up = add_layer(l, o->dir, o->userns_fd, err); /* one clone: upper and work must share a mount */
    if (up < 0)
        return up;
    buf_printf(&l->opt, ",upperdir=%d/upper,workdir=%d/work,volatile", up, up);
    buf_str(&l->opt, ",index=off,metacopy=off,redirect_dir=nofollow");
    if (!buf_ok(&l->opt))
        return err_set(err, -ENOBUFS, "too many layers: the mount options exceed 4096 bytes");
    return 0;
}

int mount_overlay(const struct overlay_spec *o, struct err *err) {
    _cleanup_(layers_done) struct layers l = {.opt = BUF_INIT(4096)};
    _cleanup_close_ int target = -1;
    char where[40];
    int r = describe(o, &l, err);

    if (r < 0)
        return r;
    target = open_target(o->rootfs, o->at, O_PATH | O_DIRECTORY);
    if (target < 0)
        return err_sys(err, target, "mount point %s", o->at);
    if (chdir("/proc/self/fd") < 0)
        return err_sys(err, -errno, "/proc/self/fd");
    snprintf(where, sizeof where, "/proc/self/fd/%d", target);
    r = mount_either(where, &l, o);
    if (r == -EIO) {
        see_write_errors(o->dir);
        r = mount_either(where, &l, o);
    }
    if (r < 0)
        return err_sys(err, r, "mount(overlay, %s)", l.opt.data);
    r = check_writable(o);
    return r < 0 ? err_sys(err, r, "its writable layer %s", o->dir) : 0;
}

/* Makes what is missing of `path` (relative) inside root; the last component is a file when asked.
 */
static int make_target(int root, const char *path, bool is_file) {
    for (const char *s = path, *end; *s; s = *end ? end + 1 : end) {
        end = strchrnul(s, '/');
        _cleanup_free_ char *upto = str_ndup(path, (size_t)(end - path));
        _cleanup_free_ char *before = str_ndup(path, (size_t)(s - path));
        _cleanup_close_ int fd = -1, parent = -1;

        if (!upto || !before)
            return -ENOMEM;
        fd = path_open_in_root(root, upto, O_PATH, 0);
        if (fd >= 0)
            continue;
        if (fd != -ENOENT)
            return fd;
        parent = path_open_in_root(root, before, O_RDONLY | O_DIRECTORY, 0);
        if (parent < 0)
            return parent;
        if (!is_file || *end) {
            if (mkdirat(parent, upto + (s - path), 0755) < 0)
                return -errno;
            continue;
        }
        fd = openat(parent, upto + (s - path), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    0644);
        if (fd < 0)
            return -errno;
    }
    return 0;
}

int mount_bind(int tree, const char *rootfs, const char *target, bool read_only, int userns_fd,
               struct err *err) {
    /* private: on most hosts the source is a shared mount, and its copy would pass mounts on */
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                              .propagation = MS_PRIVATE};
    _cleanup_close_ int root = -1, at = -1;
    struct stat st;
    int r;

    if (fstat(tree, &st) < 0)
        return err_sys(err, -errno, "source");
    if (read_only)
        attr.attr_set |= MOUNT_ATTR_RDONLY;
    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)(unsigned)userns_fd;
    }
    r = sys_mount_setattr(tree, &attr);
    if (r < 0)
        return err_sys(err, r, "%s",
                       userns_fd >= 0
                           ? "its file system cannot be mounted with shifted ids (mount_setattr)"
                           : "mount_setattr");
    root = open(rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(err, -errno, "root file system");
    at = path_open_in_root(root, target, O_PATH, 0);
    if (at == -ENOENT) {
        r = make_target(root, target + 1, !S_ISDIR(st.st_mode));
        if (r < 0)
            return err_sys(err, r, "making the mount point");
        at = path_open_in_root(root, target, O_PATH, 0);
    }
    if (at < 0)
        return err_sys(err, at, "mount point");
    if (syscall(SYS_move_mount, tree, "", at, "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_sys(err, -errno, "move_mount");
    return 0;
}

int mount_is_at(int tree, const char *rootfs, const char *target, struct err *err) {
    _cleanup_close_ int fd = open_target(rootfs, target, O_PATH);
    struct stat want, have;

    if (fstat(tree, &want) < 0 || (fd >= 0 && fstat(fd, &have) < 0))
        return err_sys(err, -errno, "%s", target);
    if (fd < 0 || have.st_dev != want.st_dev || have.st_ino != want.st_ino)
        return err_set(err, -EBUSY, "a volume covers %s, which the sandbox needs itself", target);
    return 0;
}

int mount_sysfs(const char *rootfs, struct err *err) {
    _cleanup_close_ int target = open_target(rootfs, "/sys", O_PATH | O_DIRECTORY);
    char where[40];

    if (target < 0)
        return err_sys(err, target, "mount point /sys");
    snprintf(where, sizeof where, "/proc/self/fd/%d", target);
    if (mount("sysfs", where, "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return err_sys(err, -errno, "mount(sysfs)");
    return 0;
}
