/*
 * What a launcher child does (see launch_child.h). It is single-threaded, owns the request it was
 * forked with, and every mount it makes ends with its namespace. Errors go into the shared report:
 * the name of the step and the reason, which the parent sends to the driver.
 *
 * Order matters: whatever uses numbered descriptors happens before 3, 4, ... are overwritten.
 */
#include "daemon/driver/native/launch_child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "base/crash.h"
#include "daemon/driver/native/fdmsg.h"
#include "daemon/driver/native/launch_mount.h"

#define FD_HIGH 200 /* descriptors we still need live above this while 3, 4, ... are filled */

static int userns = -1; /* of this child: layers and binds are mapped by it */

void launch_request_done(struct launch_request *q) {
    json_decref(q->json);
    q->json = NULL;
    while (q->n_fds)
        fd_close(q->fds[--q->n_fds]);
}

int launch_request_recv(int sock, struct launch_request *ret, int *ret_reply) {
    _cleanup_free_ char *text = malloc(LAUNCH_MSG_MAX);
    struct launch_request q = {.n_fds = LAUNCH_FDS_MAX};
    ssize_t n;

    if (!text)
        return -ENOMEM;
    n = fdmsg_recv(sock, text, LAUNCH_MSG_MAX, q.fds, &q.n_fds);
    if (n <= 0)
        return (int)n;
    q.json = json_parse(text, (size_t)n, NULL);
    if (!q.json || q.n_fds == 0) {
        launch_request_done(&q);
        return -EBADMSG;
    }
    *ret_reply = q.fds[0];
    q.n_fds--;
    memmove(q.fds, q.fds + 1, q.n_fds * sizeof *q.fds);
    *ret = q;
    return 1;
}

static const char *role_of(const struct launch_request *q, size_t i) {
    const char *s = json_string_value(json_array_get(json_object_get(q->json, "roles"), i));
    return s ? s : "";
}

int launch_request_fd(const struct launch_request *q, const char *role) {
    for (size_t i = 0; i < q->n_fds; i++)
        if (str_eq(role_of(q, i), role))
            return q->fds[i];
    return -1;
}

static bool failed(struct launch_report *report, const char *step, int code) {
    str_copy(report->step, sizeof report->step, step);
    if (report->err.code == 0)
        err_sys(&report->err, code, "%s", step);
    return false;
}

bool launch_child_enter(const struct launch_request *q, bool born_in_box,
                        struct launch_report *report) {
    unsigned base = (unsigned)json_int(q->json, "userns", 0);
    int64_t t0 = clock_mono_us();
    int box = launch_request_fd(q, "box"), r;

    for (size_t i = 0; i < q->n_fds; i++)
        if (str_eq(role_of(q, i), "enter") && write(q->fds[i], "0", 1) < 0)
            return failed(report, "entering a cgroup", -errno);
    if (box >= 0 && !born_in_box) {
        r = path_write_value_at(box, "cgroup.procs", "0");
        if (r < 0)
            return failed(report, "entering the cgroup", r);
    }
    crash_point("launch-child-entered");
    if (unshare(CLONE_NEWNS) < 0)
        return failed(report, "unshare(CLONE_NEWNS)", -errno);
    if (base) {
        userns = mount_userns(base);
        if (userns < 0)
            return failed(report, "user namespace", userns);
    }
    report->enter_us = clock_mono_us() - t0;
    return true;
}

/* A NULL-terminated vector of borrowed strings; NULL on -ENOMEM or a wrong shape. */
static const char **strings(const json_t *array, size_t *ret_n) {
    size_t n = json_array_size(array);
    const char **v = calloc(n + 1, sizeof *v);

    for (size_t i = 0; v && i < n; i++) {
        v[i] = json_string_value(json_array_get(array, i));
        if (!v[i]) {
            free(v);
            return NULL;
        }
    }
    *ret_n = n;
    return v;
}

static bool do_overlays(const struct launch_request *q, struct launch_report *report) {
    json_t *o;
    size_t i;

    json_array_foreach(json_object_get(q->json, "overlays"), i, o) {
        struct overlay_spec spec = {.rootfs = json_str(q->json, "rootfs"),
                                    .at = json_str(o, "at"),
                                    .dir = json_str(o, "dir"),
                                    .userns_fd = userns};
        char step[128];

        spec.lowers = strings(json_object_get(o, "lowers"), &spec.n_lowers);
        spec.plain = strings(json_object_get(o, "plain"), &spec.n_plain);
        if (!spec.rootfs || !spec.at || !spec.dir || !spec.lowers || !spec.plain)
            return failed(report, "reading the plan", -EBADMSG);
        snprintf(step, sizeof step, "overlay of %s", spec.at);
        int r = mount_overlay(&spec, &report->err);
        free((void *)spec.lowers);
        free((void *)spec.plain);
        if (r < 0)
            return failed(report, step, r);
    }
    return true;
}

static bool do_binds(const struct launch_request *q, struct launch_report *report) {
    json_t *binds = json_object_get(q->json, "binds");
    size_t next = 0;

    for (size_t i = 0; i < q->n_fds; i++) {
        if (!str_eq(role_of(q, i), "bind"))
            continue;
        json_t *b = json_array_get(binds, next++);
        const char *target = json_str(b, "target"), *what = json_str(b, "what");
        char step[128];
        if (!target || target[0] != '/')
            return failed(report, "reading the plan", -EBADMSG);
        int r = mount_bind(q->fds[i], json_str(q->json, "rootfs"), target,
                           json_bool(b, "read_only", false),
                           json_bool(b, "idmap", true) ? userns : -1, &report->err);
        if (r < 0) {
            snprintf(step, sizeof step, "mount of %s", target);
            err_wrap(&report->err, "mounting %s at %s", what ? what : "a volume", target);
            return failed(report, step, r);
        }
    }
    return true;
}

/* A link in an image may lead a volume over the agent: what runs as the agent must be ours. */
static bool check_binds(const struct launch_request *q, struct launch_report *report) {
    json_t *binds = json_object_get(q->json, "binds");
    size_t next = 0;

    for (size_t i = 0; i < q->n_fds; i++) {
        if (!str_eq(role_of(q, i), "bind"))
            continue;
        json_t *b = json_array_get(binds, next++);
        if (!json_bool(b, "stays", false))
            continue;
        int r = mount_is_at(q->fds[i], json_str(q->json, "rootfs"), json_str(b, "target"),
                            &report->err);
        if (r < 0)
            return failed(report, "mount of volumes", r);
    }
    return true;
}

static bool do_mounts(const struct launch_request *q, struct launch_report *report) {
    unsigned base = (unsigned)json_int(q->json, "userns", 0);
    int netns = launch_request_fd(q, "netns"), r;

    if (!json_str(q->json, "rootfs"))
        return failed(report, "reading the plan", -EBADMSG);
    if (base) {
        r = mount_become_owner(base);
        if (r < 0)
            return failed(report, "taking the sandbox's file owner", r);
    }
    if (!do_overlays(q, report))
        return false;
    crash_point("launch-child-overlay");
    if (netns >= 0 && setns(netns, CLONE_NEWNET) < 0)
        return failed(report, "entering the network namespace", -errno);
    /* Left to the runtime, a user namespace that does not own the network namespace would get a
     * recursive bind of the host's /sys. */
    r = mount_sysfs(json_str(q->json, "rootfs"), &report->err);
    if (r < 0)
        return failed(report, "sysfs", r);
    return do_binds(q, report) && check_binds(q, report);
}

/* Puts the "keep" descriptors at 3, 4, ... and marks everything above them close-on-exec. */
static int arrange_fds(const struct launch_request *q, int *runtime_fd, int *text_fd) {
    int keep[LAUNCH_FDS_MAX], n = 0, null;

    for (size_t i = 0; i < q->n_fds; i++)
        if (str_eq(role_of(q, i), "keep")) {
            keep[n] = fcntl(q->fds[i], F_DUPFD_CLOEXEC, FD_HIGH);
            if (keep[n++] < 0)
                return -errno;
        }
    *runtime_fd = fcntl(*runtime_fd, F_DUPFD_CLOEXEC, FD_HIGH);
    *text_fd = fcntl(*text_fd, F_DUPFD_CLOEXEC, FD_HIGH);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (*runtime_fd < 0 || *text_fd < 0 || null < 0)
        return -errno;
    if (dup2(null, 0) < 0 || dup2(*text_fd, 1) < 0 || dup2(*text_fd, 2) < 0)
        return -errno;
    for (int i = 0; i < n; i++)
        if (dup2(keep[i], 3 + i) < 0)
            return -errno;
    if (syscall(SYS_close_range, 3u + (unsigned)n, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        return -errno;
    return 0;
}

void launch_child_run(const struct launch_request *q, int runtime_fd, int text_fd,
                      struct launch_report *report) {
    static char *const envp[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    int64_t t0 = clock_mono_us();
    const char *dir = json_str(q->json, "dir");
    const char **argv;
    sigset_t none;
    size_t n;
    int r;

    argv = strings(json_object_get(q->json, "argv"), &n);
    if (!argv || n == 0 || !dir) {
        failed(report, "reading the plan", -EBADMSG);
        return;
    }
    if (!do_mounts(q, report))
        return;
    report->mount_us = clock_mono_us() - t0;
    if (chdir(dir) < 0) {
        failed(report, "entering the sandbox's directory", -errno);
        return;
    }
    /* the runtime makes its own files as root again */
    setfsuid(0);
    setfsgid(0);
    r = arrange_fds(q, &runtime_fd, &text_fd);
    if (r < 0) {
        failed(report, "arranging descriptors", r);
        return;
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    crash_point("launch-child-exec");
    fexecve(runtime_fd, (char *const *)argv, envp);
    failed(report, "starting the runtime", -errno);
}
