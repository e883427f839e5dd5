/*
 * probe: what user code in a sandbox tries in order to get out. One line per attempt: name, a tab,
 * and "open" when it worked or the name of the errno. Static, so it runs in any image. Every
 * attempt that could change the process runs in a child of its own. test_native_probe.py holds
 * the expectations.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMESPACES \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)

static long open_write(const char *path, const char *value) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    long r = write(fd, value, strlen(value));
    int saved = errno;
    close(fd);
    errno = saved;
    return r;
}

/* Something readable and not empty? A mask of /dev/null or an empty directory counts as closed
 * (ENODATA). */
static long open_read(const char *path) {
    char b[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, b, sizeof b);
    int saved = n == 0 ? ENODATA : errno;
    close(fd);
    errno = saved;
    return n > 0 ? 0 : -1;
}

static long list_dir(const char *path) {
    DIR *d = opendir(path);
    struct dirent *e;
    int n = 0;
    if (!d)
        return -1;
    while ((e = readdir(d)))
        n += e->d_name[0] != '.';
    closedir(d);
    errno = ENODATA;
    return n ? 0 : -1;
}

static long clone3_newuser(void) {
    uint64_t a[11] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
    long pid = syscall(SYS_clone3, a, sizeof a);
    if (pid == 0)
        _exit(0);
    return pid;
}

static long clone_newuser(void) {
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return pid;
}

static long bpf_load(void) {
    union bpf_attr a = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a);
}

static long perf_open(void) {
    struct perf_event_attr a = {.type = PERF_TYPE_HARDWARE, .size = sizeof a};
    return syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
}

static long uring(void) {
    char params[120] = {0};
    return syscall(SYS_io_uring_setup, 4, params);
}

static long read_agent_memory(void) {
    char b[8];
    struct iovec to = {b, sizeof b}, from = {(void *)0x400000, sizeof b};
    return syscall(SYS_process_vm_readv, 1, &to, 1, &from, 1, 0);
}

static long take_agent_fd(void) {
    int p = (int)syscall(SYS_pidfd_open, 1, 0);
    return p < 0 ? -1 : syscall(SYS_pidfd_getfd, p, 3, 0);
}

static long by_handle(void) {
    struct file_handle *h = (struct file_handle *)(char[64]){8, 0, 0, 0, 1};
    return syscall(SYS_open_by_handle_at, AT_FDCWD, h, O_RDONLY);
}

static long push_input(void) {
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);
    return fd < 0 ? -1 : ioctl(fd, TIOCSTI, "x");
}

static long make_node(const char *path, mode_t type, unsigned major, unsigned minor) {
    return mknod(path, type | 0600, makedev(major, minor));
}

static long klog_read(void) {
    char b[256];
    return klogctl(3, b, sizeof b);
}

static long join_netns(void) {
    int fd = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : setns(fd, 0);
}

static long sock(int family, int type, int protocol) {
    return socket(family, type | SOCK_CLOEXEC, protocol);
}

struct attempt {
    const char *name;
    long (*run)(void);
};

#define A(fn, expr)              \
    static long try_##fn(void) { \
        return (expr);           \
    }
A(core_pattern, open_write("/proc/sys/kernel/core_pattern", "|/tmp/x"))
A(modprobe, open_write("/proc/sys/kernel/modprobe", "/tmp/x"))
A(drop_caches, open_write("/proc/sys/vm/drop_caches", "1"))
A(sysrq, open_write("/proc/sysrq-trigger", "h"))
A(uevent_helper, open_write("/sys/kernel/uevent_helper", "/tmp/x"))
A(binfmt, open_write("/proc/sys/fs/binfmt_misc/register", ":x:M::x::/tmp/x:"))
A(oom_score, open_write("/proc/self/oom_score_adj", "-1000"))
A(agent_oom_score, open_write("/proc/1/oom_score_adj", "1000"))
A(kcore, open_read("/proc/kcore"))
A(kmsg, open_read("/proc/kmsg"))
A(dev_kmsg, open_read("/dev/kmsg"))
A(keys, open_read("/proc/keys"))
A(timer_list, open_read("/proc/timer_list"))
A(sched_debug, open_read("/proc/sched_debug"))
A(cmdline, open_read("/proc/cmdline"))
A(firmware, list_dir("/sys/firmware"))
A(debugfs, list_dir("/sys/kernel/debug"))
A(cgroup_dir, list_dir("/sys/fs/cgroup"))
A(mount_tmpfs, mount("none", "/tmp", "tmpfs", 0, NULL))
A(mount_proc, mount("proc", "/tmp", "proc", 0, NULL))
A(remount_proc_sys, mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL))
A(umount_proc_sys, umount2("/proc/sys", MNT_DETACH))
A(bind_root, mount("/", "/tmp", NULL, MS_BIND, NULL))
A(open_tree, syscall(SYS_open_tree, AT_FDCWD, "/", 1))
A(fsopen, syscall(SYS_fsopen, "tmpfs", 0))
A(mount_setattr, syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, (uint64_t[4]){0}, 32))
A(pivot_root, syscall(SYS_pivot_root, "/", "/tmp"))
A(unshare_user, unshare(CLONE_NEWUSER))
A(unshare_mount, unshare(CLONE_NEWNS))
A(unshare_net, unshare(CLONE_NEWNET))
A(unshare_all, unshare(NAMESPACES))
A(mknod_disk, make_node("/tmp/disk", S_IFBLK, 254, 0))
A(mknod_mem, make_node("/tmp/mem", S_IFCHR, 1, 1))
A(mknod_whiteout, make_node("/tmp/whiteout", S_IFCHR, 0, 0))
A(ptrace_agent, ptrace(PTRACE_ATTACH, 1, 0, 0))
A(agent_mem, open_read("/proc/1/mem"))
A(agent_environ, open_read("/proc/1/environ"))
A(agent_fds, list_dir("/proc/1/fd"))
A(agent_root, open("/proc/1/root", O_RDONLY | O_DIRECTORY | O_CLOEXEC))
A(agent_cwd, open("/proc/1/cwd", O_RDONLY | O_DIRECTORY | O_CLOEXEC))
A(agent_exe_write, open("/proc/1/exe", O_WRONLY | O_CLOEXEC))
A(agent_file_write, open("/opt/cove/execd", O_WRONLY | O_CLOEXEC))
A(agent_file_unlink, unlink("/opt/cove/execd"))
A(userfaultfd, syscall(SYS_userfaultfd, 0))
A(add_key, syscall(SYS_add_key, "user", "x", "y", 1, -3))
A(keyctl, syscall(SYS_keyctl, 0, -3, 0))
A(kexec, syscall(SYS_kexec_load, 0, 0, 0, 0))
A(init_module, syscall(SYS_init_module, "", 0, ""))
A(swapon, swapon("/tmp/x", 0))
A(reboot, reboot(RB_DISABLE_CAD))
A(settime, syscall(SYS_settimeofday, &(struct { long s, u; }){0, 0}, NULL))
A(sethostname, sethostname("x", 1))
A(quotactl, syscall(SYS_quotactl, 0x800001, "/dev/x", 0, NULL))
A(iopl, syscall(SYS_iopl, 3))
A(packet, sock(AF_PACKET, SOCK_RAW, 0))
A(raw_icmp, sock(AF_INET, SOCK_RAW, 1))
A(vsock, sock(AF_VSOCK, SOCK_STREAM, 0))
A(alg, sock(AF_ALG, SOCK_SEQPACKET, 0))
A(nfnetlink, sock(AF_NETLINK, SOCK_RAW, 12))
A(tipc, sock(30, SOCK_SEQPACKET, 0))
A(inet, sock(AF_INET, SOCK_STREAM, 0))
A(unix_sock, sock(AF_UNIX, SOCK_STREAM, 0))
A(release_agent, open_write("/sys/fs/cgroup/memory/release_agent", "/tmp/x"))
A(cgroup_procs, open_write("/sys/fs/cgroup/cgroup.procs", "0"))
A(memory_max, open_write("/sys/fs/cgroup/memory.max", "max"))

static const struct attempt attempts[] = {
    {"write core_pattern", try_core_pattern},
    {"write modprobe", try_modprobe},
    {"write drop_caches", try_drop_caches},
    {"write sysrq-trigger", try_sysrq},
    {"write uevent_helper", try_uevent_helper},
    {"register binfmt", try_binfmt},
    {"lower own oom_score_adj", try_oom_score},
    {"raise the agent's oom_score_adj", try_agent_oom_score},
    {"read kcore", try_kcore},
    {"read kmsg", try_kmsg},
    {"read /dev/kmsg", try_dev_kmsg},
    {"read keys", try_keys},
    {"read timer_list", try_timer_list},
    {"read sched_debug", try_sched_debug},
    {"read /proc/cmdline", try_cmdline},
    {"syslog", klog_read},
    {"list /sys/firmware", try_firmware},
    {"list debugfs", try_debugfs},
    {"list /sys/fs/cgroup", try_cgroup_dir},
    {"mount tmpfs", try_mount_tmpfs},
    {"mount proc", try_mount_proc},
    {"remount /proc/sys", try_remount_proc_sys},
    {"umount /proc/sys", try_umount_proc_sys},
    {"bind /", try_bind_root},
    {"open_tree", try_open_tree},
    {"fsopen", try_fsopen},
    {"mount_setattr", try_mount_setattr},
    {"pivot_root", try_pivot_root},
    {"unshare user", try_unshare_user},
    {"unshare mount", try_unshare_mount},
    {"unshare net", try_unshare_net},
    {"unshare all", try_unshare_all},
    {"clone user", clone_newuser},
    {"clone3 user", clone3_newuser},
    {"setns net of the agent", join_netns},
    {"mknod disk", try_mknod_disk},
    {"mknod mem", try_mknod_mem},
    {"mknod whiteout", try_mknod_whiteout},
    {"ptrace the agent", try_ptrace_agent},
    {"read the agent's mem", try_agent_mem},
    {"read the agent's environ", try_agent_environ},
    {"list the agent's fds", try_agent_fds},
    {"open the agent's root", try_agent_root},
    {"open the agent's cwd", try_agent_cwd},
    {"write the agent's exe", try_agent_exe_write},
    {"write the agent's file", try_agent_file_write},
    {"unlink the agent's file", try_agent_file_unlink},
    {"pidfd_getfd from the agent", take_agent_fd},
    {"process_vm_readv of the agent", read_agent_memory},
    {"open_by_handle_at", by_handle},
    {"bpf", bpf_load},
    {"perf_event_open", perf_open},
    {"io_uring", uring},
    {"userfaultfd", try_userfaultfd},
    {"add_key", try_add_key},
    {"keyctl", try_keyctl},
    {"kexec_load", try_kexec},
    {"init_module", try_init_module},
    {"swapon", try_swapon},
    {"reboot", try_reboot},
    {"settimeofday", try_settime},
    {"sethostname", try_sethostname},
    {"quotactl", try_quotactl},
    {"iopl", try_iopl},
    {"socket packet", try_packet},
    {"socket raw icmp", try_raw_icmp},
    {"socket vsock", try_vsock},
    {"socket alg", try_alg},
    {"socket nfnetlink", try_nfnetlink},
    {"socket tipc", try_tipc},
    {"socket inet", try_inet},
    {"socket unix", try_unix_sock},
    {"write release_agent", try_release_agent},
    {"write cgroup.procs", try_cgroup_procs},
    {"write memory.max", try_memory_max},
    {"TIOCSTI", push_input},
};

static void attempt(const struct attempt *a) {
    int status = 0;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        long r = a->run();
        _exit(r < 0 ? errno : 0);
    }
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s\tsignal %d\n", a->name, WTERMSIG(status));
    else
        printf("%s\t%s\n", a->name,
               WEXITSTATUS(status) ? strerrorname_np(WEXITSTATUS(status)) : "open");
}

int main(void) {
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
        attempt(&attempts[i]);
    for (int fd = 3; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf("inherited descriptor\t%d\n", fd);
    return 0;
}
