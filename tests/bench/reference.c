/*
 * reference: what `make bench` divides by, measured in the same run and with the same care. Prints
 * one JSON line.
 *
 *   reference spawn N -- CMD...          posix_spawn + wait of CMD
 *   reference crun N BUNDLE              `crun run` of BUNDLE to its end, in a private mount
 * namespace where crun sees one cgroup layout it accepts (v2 as it is; v1 hierarchies without the
 *                                        unified mount on hybrid hosts)
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/str.h"

extern char **environ;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static _noreturn_ void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Covers /sys/fs/cgroup with the v1 hierarchies alone. */
static void hide_unified(void) {
    static const char *const names[] = {"memory",  "pids",    "cpu",   "cpuacct", "cpuset",
                                        "devices", "freezer", "blkio", "systemd"};
    int fd[ARRAY_SIZE(names)];
    char path[100];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s", names[i]);
        fd[i] = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    }
    if (mount("cgroup", "/sys/fs/cgroup", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755") <
        0)
        fail("tmpfs on /sys/fs/cgroup");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (fd[i] < 0)
            continue;
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s", names[i]);
        if (mkdir(path, 0755) < 0 ||
            syscall(SYS_move_mount, fd[i], "", AT_FDCWD, path, 4 /* F_EMPTY_PATH */) < 0)
            fail(path);
    }
}

static void private_mounts(void) {
    struct statfs sf;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        fail("private mount namespace");
    if (statfs("/sys/fs/cgroup", &sf) == 0 && sf.f_type == 0x01021994)
        hide_unified();
}

static void spawn_wait(char *const *argv) {
    posix_spawn_file_actions_t fa;
    pid_t pid;
    int st;

    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
    int r = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    if (r) {
        fprintf(stderr, "reference: %s: %s\n", argv[0], strerror(r));
        exit(1);
    }
    waitpid(pid, &st, 0);
    if (st != 0) {
        fprintf(stderr, "reference: %s ended with status %x\n", argv[0], (unsigned)st);
        exit(1);
    }
}

int main(int argc, char **argv) {
    uint64_t n;
    char id[64];

    if (argc < 4 || str_to_u64(argv[2], &n) < 0 || n < 1 || n > 100000)
        return 2;
    bool crun = str_eq(argv[1], "crun");
    double *v = calloc(n, sizeof *v);
    if (!v)
        return 1;
    if (crun)
        private_mounts();
    for (uint64_t i = 0; i < n; i++) {
        snprintf(id, sizeof id, "cove-bench-%d-%llu", (int)getpid(), (unsigned long long)i);
        char *run[] = {"crun", "run", "--bundle", argv[3], id, NULL};
        int64_t t = clock_mono_us();
        spawn_wait(crun ? run : argv + 4);
        v[i] = (double)(clock_mono_us() - t);
    }
    qsort(v, n, sizeof *v, by_value);
    printf("{\"n\":%llu,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f}\n", (unsigned long long)n, v[n / 2],
           v[n * 9 / 10], v[n * 99 / 100]);
    free(v);
    return 0;
}
