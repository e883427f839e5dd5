/*
 * Set-up of a new child (see child.h). Invariant: nothing here allocates, locks or uses stdio. Ids
 * are set by raw system calls, since the C library's versions try to reach threads that exist only
 * in the parent.
 */
#include "execd/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/spawn.h"
#include "execd/seccomp.h"

#define CLOSE_RANGE_CLOEXEC_FLAG 4

static int place_fds(const struct process_opts *o) {
    int src[3] = {o->stdin_fd, o->stdout_fd, o->stderr_fd};

    for (int i = 0; i < 3; i++)
        if (src[i] < 3 && src[i] != i && (src[i] = fcntl(src[i], F_DUPFD_CLOEXEC, 3)) < 0)
            return -errno;
    for (int i = 0; i < 3; i++)
        if ((src[i] == i ? fcntl(i, F_SETFD, 0) : dup2(src[i], i)) < 0)
            return -errno;
    syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC_FLAG);
    return 0;
}

static int enter_session(enum process_mode mode) {
    if (mode == PROCESS_GROUP)
        return setpgid(0, 0) < 0 ? -errno : 0;
    if (setsid() < 0)
        return -errno;
    if (mode == PROCESS_TTY && ioctl(0, TIOCSCTTY, 0) < 0)
        return -errno;
    return 0;
}

static int switch_ids(const struct process_opts *o) {
    if (syscall(SYS_setgroups, o->n_groups, o->groups) < 0 ||
        syscall(SYS_setresgid, o->gid, o->gid, o->gid) < 0 ||
        syscall(SYS_setresuid, o->uid, o->uid, o->uid) < 0)
        return -errno;
    return 0;
}

/* A process started for a client goes first when memory runs out, not the agent. */
static void be_first_to_go(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)!write(fd, "500", 3);
    close(fd);
}

static int prepare(const struct child_setup *s, enum child_stage *ret_stage) {
    const struct process_opts *o = s->o;
    int r;

    *ret_stage = CHILD_CGROUP;
    if (s->cgroup_procs_fd >= 0 && write(s->cgroup_procs_fd, "0", 1) < 0)
        return -errno;
    *ret_stage = CHILD_FDS;
    r = place_fds(o);
    if (r < 0)
        return r;
    *ret_stage = CHILD_SESSION;
    r = enter_session(o->mode);
    if (r < 0)
        return r;
    be_first_to_go();
    *ret_stage = CHILD_IDS;
    if (o->set_ids && (r = switch_ids(o)) < 0)
        return r;
    *ret_stage = CHILD_CWD;
    if (o->cwd && chdir(o->cwd) < 0)
        return -errno;
    *ret_stage = CHILD_FILTER;
    return s->confine ? seccomp_confine() : 0;
}

void child_run(const struct child_setup *s) {
    enum child_stage stage = CHILD_FDS;
    int r, report;

    spawn_reset_signals();
    report = s->report_fd < 3 ? fcntl(s->report_fd, F_DUPFD_CLOEXEC, 3) : s->report_fd;
    r = report < 0 ? -errno : prepare(s, &stage);
    if (r == 0) {
        stage = CHILD_EXEC;
        execve(s->o->exe, (char *const *)s->o->argv, (char *const *)s->o->envp);
        r = -errno;
    }
    struct child_report rep = {stage, r};
    (void)!write(report, &rep, sizeof rep);
    _exit(127);
}

int child_report_text(const struct child_report *r, const struct process_opts *o, struct err *err) {
    switch (r->stage) {
    case CHILD_IDS:
        if (r->error == -EPERM)
            return err_set(
                err, r->error,
                "cannot switch to uid %u, gid %u: the agent lacks CAP_SETUID or CAP_SETGID", o->uid,
                o->gid);
        return err_sys(err, r->error, "cannot switch to uid %u, gid %u", o->uid, o->gid);
    case CHILD_CWD:
        return err_sys(err, r->error, "cannot change to directory %s", o->cwd ? o->cwd : "?");
    case CHILD_EXEC:
        return err_sys(err, r->error, "cannot execute %s", o->exe);
    case CHILD_CGROUP:
        return err_sys(err, r->error, "cannot enter the command's cgroup");
    case CHILD_SESSION:
        return err_sys(err, r->error, "cannot make a process group or session");
    case CHILD_FILTER:
        return err_sys(err, r->error, "cannot install the system call filter");
    default:
        return err_sys(err, r->error, "cannot set up descriptors");
    }
}
