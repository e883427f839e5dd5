/*
 * The unpacker's jail (see unpack.h): what a taken-over libarchive could still do is write into the
 * layer being made, and that layer is thrown away when the program does not end well.
 *
 * Called once, single-threaded, after everything that needs files (libraries, locale, OpenSSL's
 * algorithms) is loaded. Every step fails closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/path.h"
#include "oci/unpack.h"

/* The sanitizer's run time needs address space and system calls that we refuse. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
#if SANITIZED
/* The leak check at the end reads /proc, which is not there any more; the core's own test does it.
 */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0";
}
#endif

#define MEMORY_MAX ((rlim_t)1 << 30)
#define FDS_MAX 1024 /* removing a tree holds one per level */

static int enter_namespaces(int rootfd, int *ret_rootfd, struct err *err) {
    /* private: a copy of a shared mount (every mount, under systemd) is shared too, and pivot_root
     * refuses that */
    struct mount_attr attr = {.propagation = MS_PRIVATE,
                              .attr_set = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};

    /* Before unshare: a copy can be made of mounts of one's own namespace only, but it can be
     * attached anywhere. */
    _cleanup_close_ int tree = (int)syscall(SYS_open_tree, rootfd, "",
                                            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (tree < 0)
        return err_sys(err, -errno, "open_tree of the layer's directory");
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
        return err_sys(err, -errno, "new namespaces");
    /* Fails in a chroot, where a mount of ours could reach the host's table: then nothing is
     * unpacked. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, -errno, "private mounts");
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return err_sys(err, -errno, "mount_setattr of the layer's directory");
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_sys(err, -errno, "mounting the layer's directory");
    if (fchdir(tree) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return err_sys(err, -errno, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        return err_sys(err, -errno, "detaching the old root");
    if (chdir("/") < 0)
        return err_sys(err, -errno, "chdir");
    *ret_rootfd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_rootfd < 0 ? err_sys(err, -errno, "the new root") : 0;
}

static int limit_resources(uint64_t max_file_bytes, struct err *err) {
    const struct {
        int resource;
        rlim_t max;
    } limits[] = {
        {RLIMIT_AS, SANITIZED ? RLIM_INFINITY : MEMORY_MAX},
        {RLIMIT_FSIZE, (rlim_t)max_file_bytes},
        {RLIMIT_NOFILE, FDS_MAX},
        {RLIMIT_CORE, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        struct rlimit old, l;
        if (getrlimit(limits[i].resource, &old) < 0)
            return err_sys(err, -errno, "getrlimit");
        l.rlim_cur = l.rlim_max = MIN(limits[i].max, old.rlim_max);
        if (setrlimit(limits[i].resource, &l) < 0)
            return err_sys(err, -errno, "setrlimit");
    }
    return 0;
}

/* Owners and modes of others' files, whiteout nodes, file capabilities; SYS_ADMIN for
 * trusted.overlay.opaque alone. */
static int drop_capabilities(struct err *err) {
    static const int keep[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER,   CAP_FSETID,
                               CAP_MKNOD, CAP_SETFCAP,      CAP_SYS_ADMIN};
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct now[2], d[2] = {0};
    uint64_t mask = 0;

    for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
        mask |= (uint64_t)1 << keep[i];
    for (int c = 0; c < 64; c++)
        if (!(mask >> c & 1) && prctl(PR_CAPBSET_READ, c) == 1 && prctl(PR_CAPBSET_DROP, c) < 0 &&
            errno != EPERM)
            return err_sys(err, -errno, "bounding set");
    if (syscall(SYS_capget, &h, now) < 0)
        return err_sys(err, -errno, "capget");
    for (int i = 0; i < 2; i++)
        d[i].effective = d[i].permitted = now[i].permitted & (uint32_t)(mask >> (32 * i));
    if (syscall(SYS_capset, &h, d) < 0)
        return err_sys(err, -errno, "capset");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
        return err_sys(err, -errno, "no new privileges");
    return 0;
}

static int add_rules(scmp_filter_ctx ctx) {
    static const int plain[] = {
        /* data */
        SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(pwrite64), SCMP_SYS(lseek), SCMP_SYS(ftruncate),
        SCMP_SYS(close),
        /* names */
        SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(mkdirat), SCMP_SYS(mknodat), SCMP_SYS(linkat),
        SCMP_SYS(symlinkat), SCMP_SYS(unlinkat), SCMP_SYS(readlinkat), SCMP_SYS(getdents64),
        SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(fcntl),
        /* attributes */
        SCMP_SYS(fchown), SCMP_SYS(fchownat), SCMP_SYS(fchmod), SCMP_SYS(fchmodat),
        SCMP_SYS(utimensat), SCMP_SYS(fsetxattr), SCMP_SYS(fgetxattr), SCMP_SYS(flistxattr),
        /* memory, time, end; sysinfo is glibc's qsort() of long lists */
        SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(futex),
        SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(getrandom),
        SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask), SCMP_SYS(restart_syscall),
        SCMP_SYS(sysinfo), SCMP_SYS(exit), SCMP_SYS(exit_group)};
    const struct scmp_arg_cmp no_exec = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(plain); i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, plain[i], 0);
    if (r == 0)
        r = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, &no_exec);
    if (r == 0)
        r = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, &no_exec);
    return r;
}

static int filter_syscalls(struct err *err) {
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int r = ctx ? add_rules(ctx) : -ENOMEM;

    if (r == 0)
        r = seccomp_load(ctx);
    if (ctx)
        seccomp_release(ctx);
    return r < 0 ? err_sys(err, r, "seccomp filter") : 0;
}

int unpack_jail(int rootfd, uint64_t max_file_bytes, int *ret_rootfd, struct err *err) {
    int fd = -1;
    int r = enter_namespaces(rootfd, &fd, err);

    if (r == 0)
        r = limit_resources(max_file_bytes, err);
    if (r == 0)
        r = drop_capabilities(err);
    if (r == 0 && !SANITIZED)
        r = filter_syscalls(err);
    if (r < 0) {
        fd_close(fd);
        return err_wrap(err, "locking the unpacker in");
    }
    *ret_rootfd = fd;
    return 0;
}
