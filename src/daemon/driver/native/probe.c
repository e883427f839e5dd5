/*
 * What this host offers (native-runtime.md 2): every feature is tried, none is derived from a
 * version. A table of probes; what could disturb the process (mounts, namespaces, cgroups) is tried
 * in a child, under a time limit, and everything made is removed again. Needs neither driver nor
 * daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/path.h"
#include "base/spawn.h"
#include "daemon/driver/native/cgroups.h"
#include "daemon/driver/native/launch_mount.h"
#include "daemon/driver/native/native.h"
#include "daemon/driver/native/netns.h"
#include "daemon/driver/native/nl.h"

#define TRY_TIMEOUT_MS 10000

struct probing {
    const struct native_config *config;
    struct cgroups *cgroups; /* NULL when the probe of cgroups failed */
    char scratch[256];
};

/* Runs fn in a child; 0 or its error, with the text in err. */
static int try_in_child(int (*fn)(const struct probing *p, struct err *err),
                        const struct probing *p, struct err *err) {
    _cleanup_close_ int out = -1, in = -1;
    struct err got = {0};
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, -errno, "pipe");
    out = fds[0];
    in = fds[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, -errno, "fork");
    if (pid == 0) {
        got.code = fn(p, &got);
        (void)fd_write_full(in, &got, sizeof got);
        _exit(0);
    }
    in = fd_close(in);
    struct pollfd wait = {.fd = out, .events = POLLIN};
    bool answered = poll(&wait, 1, TRY_TIMEOUT_MS) > 0 &&
                    fd_read_full(out, &got, sizeof got) == (int)sizeof got;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (!answered)
        return err_set(err, -EIO, "no answer");
    return got.code < 0 ? err_set(err, got.code, "%s", err_text(&got)) : 0;
}

/* ---- what is tried. 0 and a detail, or an error; both as the message of err ---- */

static int probe_root(struct probing *p, struct err *err) {
    if (geteuid() != 0)
        return err_set(err, -EPERM, "running as user %u", (unsigned)geteuid());
    err_set(err, 0, "root");
    return 0;
}

static int probe_cgroups(struct probing *p, struct err *err) {
    char name[9], rnd[33];

    id_hex32(rnd);
    snprintf(name, sizeof name, "p%.7s", rnd);
    int r = cgroups_open(name, &p->cgroups, err);
    if (r == 0)
        err_set(err, 0, "%s", cgroups_layout(p->cgroups));
    return r;
}

static int probe_limits(struct probing *p, struct err *err) {
    static const struct {
        enum cgroup_controller which;
        const char *name;
    } wanted[] = {{CG_MEMORY, "memory"}, {CG_CPU, "cpu"}, {CG_PIDS, "pids"}};
    _cleanup_buf_ struct buf missing = BUF_INIT(256);

    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (!p->cgroups || !cgroups_has(p->cgroups, wanted[i].which))
            buf_printf(&missing, " %s", wanted[i].name);
    if (missing.len)
        return err_set(err, -ENOENT, "no controller for:%s", missing.data);
    err_set(err, 0, "memory, cpu, pids");
    return 0;
}

static pid_t clone_into(int box) {
    struct clone_args a = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)(unsigned)box};
    pid_t pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);
    if (pid == 0)
        for (;;)
            pause();
    return pid < 0 ? -errno : pid;
}

static int probe_cgroup_kill(struct probing *p, struct err *err) {
    const struct cgroup_limits none = {0};
    struct cgroup_entry entry;
    int r = p->cgroups ? cgroups_make(p->cgroups, "probe", &none, 0, err)
                       : err_set(err, -ENOENT, "no cgroups");

    if (r < 0)
        return r;
    r = cgroups_entry(p->cgroups, "probe", &entry, err);
    if (r == 0) {
        pid_t pid = clone_into(entry.box);
        cgroup_entry_done(&entry);
        r = pid < 0 ? err_sys(err, (int)pid, "starting a process in a cgroup") : 0;
        if (r == 0 && cgroups_kill(p->cgroups, "probe", 2000) < 0)
            r = err_set(err, -EIO, "its processes were not killed");
        if (pid > 0) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
    }
    (void)cgroups_remove(p->cgroups, "probe");
    if (r == 0)
        err_set(err, 0, "processes are born in and killed by cgroup");
    return r;
}

static int probe_openat2(struct probing *p, struct err *err) {
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int fd = path_open_in_root(root, "proc", O_PATH, 0);

    if (fd < 0)
        return err_sys(err, fd, "openat2");
    err_set(err, 0, "openat2 works");
    return 0;
}

/* A directory beside the sandboxes' future ones: file systems differ in what they can. */
static int scratch_dir(const struct native_config *c, char ret[256]) {
    const char *at = c->state_dir && access(c->state_dir, W_OK) == 0 ? c->state_dir : "/var/lib";

    snprintf(ret, 256, "%.200s/.cove-probe-XXXXXX", at);
    return mkdtemp(ret) ? 0 : -errno;
}

static int mount_scratch(const char *dir, unsigned base, struct err *err) {
    _cleanup_free_ char *lower = path_join(dir, "lower"), *upper = path_join(dir, "upper"),
                        *work = path_join(dir, "work"), *at = path_join(dir, "at"),
                        *file = path_join(dir, "at/file");
    const char *const lowers[] = {lower};
    struct overlay_spec o = {
        .rootfs = at, .at = "/", .lowers = lowers, .n_lowers = 1, .dir = dir, .userns_fd = -1};
    struct stat st;
    int r;

    if (!lower || !upper || !work || !at || !file)
        return err_set(err, -ENOMEM, "out of memory");
    if (mkdir(lower, 0755) < 0 || mkdir(upper, 0755) < 0 || mkdir(work, 0755) < 0 ||
        mkdir(at, 0755) < 0)
        return err_sys(err, -errno, "%s", dir);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, -errno, "private mount namespace");
    if (base) {
        o.userns_fd = mount_userns(base);
        r = o.userns_fd < 0 ? o.userns_fd : mount_become_owner(base);
        if (r < 0)
            return err_sys(err, r, "user namespace");
    }
    r = mount_overlay(&o, err);
    if (r < 0)
        return r;
    _cleanup_close_ int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, -errno, "writing to the overlay");
    if (fstat(fd, &st) < 0 || st.st_uid != base)
        return err_set(err, -EINVAL, "ids are not shifted");
    return 0;
}

/* In a child, whose mounts end with it; the directory is removed afterwards. */
static int try_overlay(struct probing *p, int (*fn)(const struct probing *p, struct err *err),
                       struct err *err) {
    int r = scratch_dir(p->config, p->scratch);

    if (r < 0)
        return err_sys(err, r, "%s", p->scratch);
    r = try_in_child(fn, p, err);
    (void)path_remove_tree_at(AT_FDCWD, p->scratch);
    return r;
}

static int plain_overlay(const struct probing *p, struct err *err) {
    return mount_scratch(p->scratch, 0, err);
}

static int mapped_overlay(const struct probing *p, struct err *err) {
    return mount_scratch(p->scratch, p->config->uid_base ? p->config->uid_base : 1000000000, err);
}

static int probe_overlay(struct probing *p, struct err *err) {
    int r = try_overlay(p, plain_overlay, err);
    if (r == 0)
        err_set(err, 0, "overlay file systems mount and can be written");
    return r;
}

static int probe_userns(struct probing *p, struct err *err) {
    int r = try_overlay(p, mapped_overlay, err);
    if (r == 0)
        err_set(err, 0, "id-mapped layers work");
    return r;
}

static int probe_runtime(struct probing *p, struct err *err) {
    const char *name = p->config->runtime ? p->config->runtime : "crun";
    _cleanup_free_ char *program = native_find_runtime(name);
    const char *const argv[] = {program, "--version", NULL};
    struct spawn_result res = {0};

    if (!program)
        return err_set(err, -ENOENT, "%s is not installed", name);
    int r = spawn_run(argv, NULL, 4096, TRY_TIMEOUT_MS, &res, err);

    if (r == 0 && res.status != 0)
        r = err_set(err, -EIO, "%s --version fails", argv[0]);
    else if (r == 0) {
        res.out[strcspn(res.out, "\n")] = 0;
        err_set(err, 0, "%s", res.out);
    }
    spawn_result_done(&res);
    return r;
}

static int probe_seccomp(struct probing *p, struct err *err) {
    if (access(SECCOMP_SOURCE, R_OK) < 0)
        return err_sys(err, -errno, "%s", SECCOMP_SOURCE);
    err_set(err, 0, "%s", SECCOMP_SOURCE);
    return 0;
}

static int probe_netns(struct probing *p, struct err *err) {
    _cleanup_close_ int fd = netns_make();
    if (fd < 0)
        return err_sys(err, fd, "making one");
    err_set(err, 0, "can be made");
    return 0;
}

static int veth_pair(void *arg) {
    _cleanup_close_ int nl = nl_open();
    return nl < 0 ? nl : nl_veth_add(nl, "cvprobe", "eth0", *(int *)arg);
}

static int masquerade(void *arg) {
    static const char *const argv[] = {"nft", "-f", "-", NULL};
    struct spawn_result res = {0};
    struct err *err = arg;
    int r = spawn_run(
        argv,
        "table inet probe {\n chain post {\n  type nat hook postrouting priority 100;\n"
        "  oifname \"x\" masquerade\n }\n chain f {\n  type filter hook forward priority 0;\n"
        "  ct state established accept\n }\n}\n",
        4096, TRY_TIMEOUT_MS, &res, err);

    if (r == 0 && res.status != 0)
        r = err_set(err, -EOPNOTSUPP, "nft: %.150s", res.errs);
    spawn_result_done(&res);
    return r;
}

static int probe_outbound(struct probing *p, struct err *err) {
    _cleanup_close_ int hub = netns_make(), inside = netns_make();
    int r;

    if (hub < 0 || inside < 0)
        return err_set(err, -EPERM, "no network namespaces");
    r = netns_run(hub, veth_pair, &inside);
    if (r < 0)
        return err_sys(err, r, "veth");
    r = netns_run(hub, masquerade, err);
    if (r == 0)
        err_set(err, 0, "veth and nftables masquerading work");
    return r;
}

static int probe_files(struct probing *p, struct err *err) {
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return err_sys(err, -errno, "getrlimit");
    if (l.rlim_max < 4096)
        return err_set(err, -EMFILE, "at most %llu open files", (unsigned long long)l.rlim_max);
    err_set(err, 0, "%llu open files, about %llu sandboxes", (unsigned long long)l.rlim_max,
            (unsigned long long)l.rlim_max / 4);
    return 0;
}

static const struct {
    const char *name;
    bool required;
    int (*run)(struct probing *p, struct err *err);
    const char *why, *fix;
} probes[] = {
    {"root", true, probe_root, "mounts, namespaces and cgroups of sandboxes are made by root",
     "run it as root (sudo)"},
    {"cgroups", true, probe_cgroups, "no sandbox could be limited, paused or killed as a whole",
     "mount cgroup2, or run the container that holds this with its cgroups writable"},
    {"limits", false, probe_limits, "sandboxes with such a limit are refused",
     "boot with systemd.unified_cgroup_hierarchy=1, or enable the controllers in the parent "
     "cgroup"},
    {"cgroup-kill", false, probe_cgroup_kill, "killing a sandbox takes longer (kernel before 5.14)",
     "use Linux 5.14 or newer"},
    {"openat2", true, probe_openat2, "images could not be unpacked safely",
     "use Linux 5.6 or newer"},
    {"overlay", true, probe_overlay, "root file systems are overlays",
     "modprobe overlay; keep the state directory on ext4, xfs or btrfs"},
    {"userns", false, probe_userns,
     "image \"host\" is refused, and sandbox root would be the host's root id",
     "sysctl user.max_user_namespaces=65536; Linux 5.19 or newer; state directory on ext4, xfs or "
     "btrfs"},
    {"runtime", true, probe_runtime, "it starts the sandboxes", "apt-get install crun"},
    {"seccomp", true, probe_seccomp, "the system call filter is compiled from it",
     "apt-get install golang-github-containers-common"},
    {"netns", true, probe_netns, "every sandbox has a network namespace",
     "sysctl user.max_net_namespaces=65536"},
    {"outbound", false, probe_outbound, "sandboxes with network \"nat\" are refused",
     "apt-get install nftables; modprobe veth nf_nat nft_masq"},
    {"open-files", false, probe_files, "fewer sandboxes at once",
     "LimitNOFILE=1048576 in the service's unit"},
};

size_t native_probe(const struct native_config *config,
                    struct native_probe ret[NATIVE_PROBES_MAX]) {
    struct probing p = {.config = config};
    bool root = geteuid() == 0;
    size_t n = 0;

    for (; n < ARRAY_SIZE(probes); n++) {
        struct native_probe *o = &ret[n];
        struct err err = {0};
        int r = root || n == 0 ? probes[n].run(&p, &err)
                               : err_set(&err, -EPERM, "not tried: needs root");

        *o = (struct native_probe){.ok = r == 0, .required = probes[n].required};
        str_copy(o->name, sizeof o->name, probes[n].name);
        str_copy(o->detail, sizeof o->detail, err.msg);
        str_copy(o->why, sizeof o->why, probes[n].why);
        str_copy(o->fix, sizeof o->fix, probes[n].fix);
    }
    cgroups_free(p.cgroups);
    return n;
}
