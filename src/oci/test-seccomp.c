/* Profiles, the cache, and what the compiled base filter does to a process that has it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/path.h"
#include "base/str.h"
#include "base/test.h"
#include "oci/seccomp.h"

struct dir {
    char path[64];
    int fd;
};

static struct dir make_dir(void) {
    struct dir d = {.path = "/tmp/cove-test-seccomp-XXXXXX"};
    ASSERT(mkdtemp(d.path));
    d.fd = open(d.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT(d.fd >= 0);
    return d;
}

static void remove_dir(struct dir *d) {
    fd_close(d->fd);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, d->path));
}

static struct seccomp_filter get_filter(struct dir *d, enum security_profile p, bool userns) {
    struct seccomp_filter f = {0};
    struct err err = {0};
    if (seccomp_base_filter(d->fd, NULL, p, userns, &f, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err_text(&err));
    return f;
}

TEST(profile_names) {
    enum security_profile p;
    struct err err = {0};
    const char *const *caps;

    ASSERT_OK(security_profile_parse("nested", &p, &err));
    ASSERT_INT(p, PROFILE_NESTED);
    ASSERT_STR(security_profile_name(PROFILE_STRICT), "strict");
    ASSERT_INT(security_profile_parse("Default", &p, &err), -EINVAL);
    ASSERT(strstr(err_text(&err), "strict, default, docker or nested"));
    ASSERT_INT(security_profile_parse(NULL, &p, &err), -EINVAL);
    ASSERT_INT(security_profile_caps(PROFILE_NESTED, false, &caps, &err), -EOPNOTSUPP);
    ASSERT_OK(security_profile_caps(PROFILE_NESTED, true, &caps, &err));
}

static bool has_cap(enum security_profile p, bool userns, const char *cap) {
    const char *const *caps;
    ASSERT_OK(security_profile_caps(p, userns, &caps, NULL));
    for (; *caps; caps++)
        if (str_eq(*caps, cap))
            return true;
    return false;
}

TEST(capabilities) {
    ASSERT(has_cap(PROFILE_DEFAULT, true, "CAP_SYS_CHROOT"));
    ASSERT(!has_cap(PROFILE_DEFAULT, true, "CAP_MKNOD"));
    ASSERT(!has_cap(PROFILE_DEFAULT, true, "CAP_NET_RAW"));
    ASSERT(!has_cap(PROFILE_STRICT, true, "CAP_SYS_CHROOT"));
    ASSERT(has_cap(PROFILE_STRICT, true, "CAP_SETUID"));
    ASSERT(has_cap(PROFILE_DOCKER, true, "CAP_MKNOD"));
    ASSERT(!has_cap(PROFILE_DOCKER, false,
                    "CAP_MKNOD")); /* a device node would be real without a user namespace */
    for (int p = PROFILE_STRICT; p <= PROFILE_NESTED; p++)
        ASSERT(!has_cap((enum security_profile)p, true, "CAP_SYS_ADMIN"));
}

TEST(cache) {
    struct dir d = make_dir();
    struct seccomp_filter a = get_filter(&d, PROFILE_DEFAULT, true), b;
    char file[100];
    struct stat st, st2;

    snprintf(file, sizeof file, "seccomp/%s.bpf", a.hash);
    ASSERT_INT(fstatat(d.fd, file, &st, 0), 0);
    ASSERT_INT(st.st_size, a.bpf_bytes);
    ASSERT(a.bpf_bytes > 1000 && a.bpf_bytes % 8 == 0);
    b = get_filter(&d, PROFILE_DEFAULT, true);
    ASSERT_INT(fstatat(d.fd, file, &st2, 0), 0);
    ASSERT_INT(st.st_ino, st2.st_ino); /* not written again */
    ASSERT_STR(a.bpf_base64, b.bpf_base64);
    seccomp_filter_done(&b);

    /* A damaged file is made anew. */
    int fd = openat(d.fd, file, O_WRONLY | O_CLOEXEC);
    ASSERT_INT(ftruncate(fd, 5), 0);
    fd_close(fd);
    b = get_filter(&d, PROFILE_DEFAULT, true);
    ASSERT_INT(b.bpf_bytes, a.bpf_bytes);
    ASSERT(memcmp(a.bpf, b.bpf, a.bpf_bytes) == 0);
    seccomp_filter_done(&b);

    /* Other profile, other filter. */
    b = get_filter(&d, PROFILE_NESTED, true);
    ASSERT(!str_eq(a.hash, b.hash));
    ASSERT(a.bpf_bytes != b.bpf_bytes || memcmp(a.bpf, b.bpf, a.bpf_bytes) != 0);
    seccomp_filter_done(&b);
    seccomp_filter_done(&a);
    remove_dir(&d);
}

TEST(missing_and_damaged_source) {
    struct dir d = make_dir();
    struct seccomp_filter f;
    struct err err = {0};
    char path[128];
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"syscalls\":[]}",
        "{\"defaultAction\":\"SCMP_ACT_ERRNO\"}",
        "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[\"read\"],"
        "\"action\":\"SCMP_ACT_TRACE\"}]}",
        "{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[\"read\"],"
        "\"action\":\"SCMP_ACT_ALLOW\",\"args\":[{\"index\":9,\"op\":\"SCMP_CMP_EQ\"}]}]}"};

    ASSERT_INT(
        seccomp_base_filter(d.fd, "/nonexistent/seccomp.json", PROFILE_DEFAULT, true, &f, &err),
        -ENOENT);
    ASSERT(strstr(err_text(&err), "golang-github-containers-common"));
    snprintf(path, sizeof path, "%s/source.json", d.path);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ASSERT_OK(path_write_file_at(AT_FDCWD, path, bad[i], strlen(bad[i]), 0600, false));
        ASSERT_INT(seccomp_base_filter(d.fd, path, PROFILE_DEFAULT, true, &f, &err), -EINVAL);
        ASSERT(strstr(err_text(&err), "source.json"));
    }
    remove_dir(&d);
}

/* Runs fn under the filter; its result is an exit status. */
static int run_filtered(const struct seccomp_filter *f, int (*fn)(void)) {
    struct sock_fprog prog = {.len = (unsigned short)(f->bpf_bytes / 8), .filter = f->bpf};
    int st = 0;
    pid_t pid = fork();

    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
            _exit(100);
        _exit(fn());
    }
    ASSERT(pid > 0);
    ASSERT_INT(waitpid(pid, &st, 0), pid);
    ASSERT(WIFEXITED(st));
    return WEXITSTATUS(st);
}

/* 0 when the call fails with this errno, else a number that tells which line it was. */
#define FAILS_WITH(e, code)              \
    do {                                 \
        errno = 0;                       \
        if ((e) >= 0 || errno != (code)) \
            return __LINE__ % 90 + 1;    \
    } while (0)

static int clone3_with(uint64_t flags) {
    struct clone_args ca = {.flags = flags, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &ca, sizeof ca);

    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
    return pid > 0 ? 0 : -1;
}

static int denied_always(void) {
    FAILS_WITH(syscall(SYS_keyctl, 0, 0), EPERM);
    FAILS_WITH(syscall(SYS_io_uring_setup, 1, NULL), EPERM);
    FAILS_WITH(syscall(SYS_bpf, 0, NULL, 0), EPERM);
    FAILS_WITH(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0), EPERM);
    FAILS_WITH(syscall(SYS_userfaultfd, 0), EPERM);
    FAILS_WITH(syscall(SYS_open_by_handle_at, -1, NULL, 0), EPERM);
    FAILS_WITH(syscall(SYS_kexec_load, 0, 0, NULL, 0), EPERM);
    FAILS_WITH(syscall(SYS_syslog, 10, NULL, 0), EPERM);
    FAILS_WITH(syscall(SYS_init_module, NULL, 0, NULL), EPERM);
    FAILS_WITH(syscall(5555), ENOSYS);
    if (clone3_with(0) != 0) /* the agent starts its children with it */
        return 99;
    return 0;
}

static int denied_by_default(void) {
    FAILS_WITH(mount("x", "/", "tmpfs", 0, NULL), EPERM);
    FAILS_WITH(umount2("/", MNT_DETACH), EPERM);
    FAILS_WITH(unshare(CLONE_FS), EPERM);
    FAILS_WITH(syscall(SYS_setns, -1, 0), EPERM);
    FAILS_WITH(syscall(SYS_open_tree, -1, "", 0), EPERM);
    FAILS_WITH(syscall(SYS_fsopen, "tmpfs", 0), EPERM);
    return denied_always();
}

static int nested_works(void) {
    if (unshare(CLONE_FS) < 0)
        return 98;
    FAILS_WITH(syscall(SYS_setns, -1, 0), EBADF);
    return denied_always();
}

static int chroot_is_denied(void) {
    FAILS_WITH(chroot("/"), EPERM);
    return 0;
}

static int chroot_works(void) {
    return chroot("/") < 0 ? 97 : 0;
}

TEST(filters_in_action) {
    struct dir d = make_dir();
    struct seccomp_filter f = get_filter(&d, PROFILE_DEFAULT, true);

    ASSERT_INT(run_filtered(&f, denied_by_default), 0);
    ASSERT_INT(run_filtered(&f, chroot_works), 0);
    seccomp_filter_done(&f);
    f = get_filter(&d, PROFILE_STRICT, true);
    ASSERT_INT(run_filtered(&f, denied_by_default), 0);
    ASSERT_INT(run_filtered(&f, chroot_is_denied), 0);
    seccomp_filter_done(&f);
    f = get_filter(&d, PROFILE_DOCKER, false);
    ASSERT_INT(run_filtered(&f, denied_by_default), 0);
    seccomp_filter_done(&f);
    f = get_filter(&d, PROFILE_NESTED, true);
    ASSERT_INT(run_filtered(&f, nested_works), 0);
    seccomp_filter_done(&f);
    remove_dir(&d);
}

TEST_MAIN()
