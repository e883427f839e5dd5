/*
 * The table of children, their start and their reaping (see process.h). Owns the signal descriptor,
 * each child's report pipe and cgroup. Invariants: SIGCHLD is blocked in every thread; a child in
 * the table is a running process or an unreaped zombie, so signalling its number is always safe.
 */
#include "execd/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/path.h"
#include "execd/cgroup.h"
#include "execd/child.h"
#include "execd/killtree.h"

#define BUCKETS 64

struct processes {
    uv_loop_t *loop;
    struct cgroups *cgroups; /* NULL outside native sandboxes */
    bool confine, clone3_fails;
    int sig_fd, null_fd;
    uv_poll_t *sig_poll; /* freed by its close callback */
    void (*on_signal)(int sig, void *ud);
    void *ud;
    size_t n;
    struct list buckets[BUCKETS];
};

struct process {
    struct processes *table;
    struct list node;
    pid_t pid;
    int report_fd;
    uv_poll_t *report_poll; /* only when somebody wants to know about exec */
    struct cgroup *cgroup;
    struct process_ops ops;
    void *ud;
    /* what the text of a failed start needs */
    char *exe, *cwd;
    uid_t uid;
    gid_t gid;
};

static void on_poll_closed(uv_handle_t *h) {
    free(h);
}

static uv_poll_t *poll_new(uv_loop_t *loop, int fd, void *data, uv_poll_cb cb) {
    uv_poll_t *p = calloc(1, sizeof *p);

    if (!p || uv_poll_init(loop, p, fd) < 0) {
        free(p);
        return NULL;
    }
    p->data = data;
    uv_poll_start(p, UV_READABLE, cb);
    return p;
}

static void poll_free(uv_poll_t **p) {
    if (*p)
        uv_close((uv_handle_t *)*p, on_poll_closed);
    *p = NULL;
}

static void process_free(struct process *p) {
    list_remove(&p->node);
    p->table->n--;
    poll_free(&p->report_poll);
    fd_close(p->report_fd);
    if (p->cgroup)
        cgroup_release(p->cgroup);
    free(p->exe);
    free(p->cwd);
    free(p);
}

static struct process *find(struct processes *ps, pid_t pid) {
    list_foreach (it, &ps->buckets[(size_t)pid % BUCKETS]) {
        struct process *p = list_entry(it, struct process, node);
        if (p->pid == pid)
            return p;
    }
    return NULL;
}

/* The report of a child that failed before or in exec: 1 with *ret_err set; 0 = it was executed;
 * -EAGAIN = not yet known. */
static int read_report(struct process *p, struct err *ret_err) {
    struct process_opts o = {.exe = p->exe, .cwd = p->cwd, .uid = p->uid, .gid = p->gid};
    struct child_report rep;
    ssize_t n = p->report_fd >= 0 ? read(p->report_fd, &rep, sizeof rep) : 0;

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : 0;
    if (n != (ssize_t)sizeof rep)
        return 0;
    child_report_text(&rep, &o, ret_err);
    return 1;
}

static void on_report(uv_poll_t *h, int status, int events) {
    struct process *p = h->data;
    struct child_report rep;
    ssize_t n = recv(p->report_fd, &rep, sizeof rep, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    poll_free(&p->report_poll);
    if (n == 0 && p->ops.on_exec)
        p->ops.on_exec(p, p->ud); /* else on_exit will come with the report */
}

static void leader_ended(struct process *p) {
    struct err err = {0};
    int wstatus = 0;

    int failed = read_report(p, &err);
    siginfo_t si = {0};
    waitid(P_PID, (id_t)p->pid, &si, WEXITED | WNOHANG | WNOWAIT);
    wstatus = si.si_code == CLD_EXITED
                  ? (si.si_status & 0xff) << 8
                  : (si.si_status & 0x7f) | (si.si_code == CLD_DUMPED ? 0x80 : 0);
    if (failed <= 0 && p->report_poll && p->ops.on_exec) {
        poll_free(&p->report_poll);
        p->ops.on_exec(p, p->ud);
    }
    if (p->ops.on_exit)
        p->ops.on_exit(p, wstatus, failed > 0 ? &err : NULL, p->ud);
    waitpid(p->pid, NULL, 0); /* a zombie already: does not block */
    process_free(p);
}

static void reap(struct processes *ps) {
    for (;;) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
            return;
        struct process *p = find(ps, si.si_pid);
        if (p)
            leader_ended(p);
        else
            waitpid(si.si_pid, NULL, WNOHANG);
    }
}

static void on_signal_fd(uv_poll_t *h, int status, int events) {
    struct processes *ps = h->data;
    struct signalfd_siginfo si[16];
    bool children = false;
    ssize_t n;

    while ((n = read(ps->sig_fd, si, sizeof si)) > 0)
        for (size_t i = 0; i < (size_t)n / sizeof *si; i++) {
            if (si[i].ssi_signo == SIGCHLD)
                children = true;
            else if (ps->on_signal)
                ps->on_signal((int)si[i].ssi_signo, ps->ud);
        }
    if (children)
        reap(ps);
}

/* Reading from it must give an end at once, even where there is no /dev. */
static int open_null(void) {
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC), p[2];

    if (fd >= 0)
        return fd;
    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    fd_close(p[1]);
    return p[0];
}

int processes_new(const struct processes_opts *o, struct processes **ret, struct err *err) {
    struct processes *ps = calloc(1, sizeof *ps);
    sigset_t mask;
    int r = 0;

    if (!ps) {
        fd_close(o->cgroup_fd);
        return err_set(err, -ENOMEM, "out of memory");
    }
    ps->loop = o->loop;
    ps->confine = o->confine;
    ps->on_signal = o->on_signal;
    ps->ud = o->ud;
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&ps->buckets[i]);
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    for (const int *s = o->signals; s && *s; s++)
        sigaddset(&mask, *s);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    ps->null_fd = open_null();
    ps->sig_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (ps->null_fd < 0 || ps->sig_fd < 0)
        r = err_sys(err, -errno, "cannot watch children");
    if (r == 0 && !(ps->sig_poll = poll_new(ps->loop, ps->sig_fd, ps, on_signal_fd)))
        r = err_set(err, -ENOMEM, "cannot watch children");
    if (o->cgroup_fd >= 0) {
        if (r < 0)
            fd_close(o->cgroup_fd);
        else
            r = cgroups_new(ps->loop, o->cgroup_fd, &ps->cgroups, err);
    }
    if (r < 0) {
        processes_free(ps);
        return r;
    }
    *ret = ps;
    return 0;
}

void processes_free(struct processes *ps) {
    if (!ps)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        list_foreach_safe (it, &ps->buckets[i]) {
            struct process *p = list_entry(it, struct process, node);
            process_kill_tree(p);
            waitpid(p->pid, NULL, 0);
            process_free(p);
        }
    poll_free(&ps->sig_poll);
    fd_close(ps->sig_fd);
    fd_close(ps->null_fd);
    cgroups_free(ps->cgroups);
    free(ps);
}

size_t processes_count(const struct processes *ps) {
    return ps->n;
}

int processes_null_fd(const struct processes *ps) {
    return ps->null_fd;
}

void processes_signal_all(struct processes *ps, int sig) {
    for (size_t i = 0; i < BUCKETS; i++)
        list_foreach (it, &ps->buckets[i])
            process_signal(list_entry(it, struct process, node), sig);
}

/* fork, straight into the cgroup where the kernel lets us. *ret_move: the child has to move itself.
 */
static pid_t spawn(struct processes *ps, struct cgroup *cg, bool *ret_move) {
    *ret_move = false;
    if (cg && !ps->clone3_fails) {
        struct clone_args a = {
            .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup_fd(cg)};
        long pid = syscall(SYS_clone3, &a, sizeof a);
        if (pid >= 0 || errno == EAGAIN || errno == ENOMEM)
            return (pid_t)pid;
        ps->clone3_fails = true;
    }
    *ret_move = cg != NULL;
    return _Fork();
}

static int fork_child(struct process *p, const struct process_opts *o, int report_fd,
                      struct err *err) {
    struct child_setup setup = {
        .o = o, .report_fd = report_fd, .cgroup_procs_fd = -1, .confine = p->table->confine};
    sigset_t all, old;
    bool move;

    /* No handler of ours may run in the child before it has reset them. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    pid_t pid = spawn(p->table, p->cgroup, &move);
    if (pid == 0) {
        if (move)
            setup.cgroup_procs_fd =
                openat(cgroup_fd(p->cgroup), "cgroup.procs", O_WRONLY | O_CLOEXEC);
        child_run(&setup);
    }
    int e = errno;
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (pid < 0)
        return err_sys(err, -e, "cannot start a process");
    p->pid = pid;
    return 0;
}

int process_start(struct processes *ps, const struct process_opts *o, const struct process_ops *ops,
                  void *ud, struct process **ret, struct err *err) {
    struct process *p = calloc(1, sizeof *p);
    int pair[2] = {-1, -1}, r;

    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    *p = (struct process){
        .table = ps, .report_fd = -1, .ops = *ops, .ud = ud, .uid = o->uid, .gid = o->gid};
    list_init(&p->node);
    ps->n++;
    p->exe = strdup(o->exe);
    p->cwd = o->cwd ? strdup(o->cwd) : NULL;
    r = p->exe && (p->cwd || !o->cwd) ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (r == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        r = err_sys(err, -errno, "cannot start a process");
    if (r == 0 && ps->cgroups)
        r = cgroup_make(ps->cgroups, &p->cgroup, err);
    if (r == 0)
        r = fork_child(p, o, pair[1], err);
    fd_close(pair[1]);
    p->report_fd = pair[0];
    if (r == 0) {
        fd_set_nonblock(p->report_fd, true);
        list_append(&ps->buckets[(size_t)p->pid % BUCKETS], &p->node);
        if (ops->on_exec)
            p->report_poll = poll_new(ps->loop, p->report_fd, p, on_report);
        *ret = p;
    } else {
        process_free(p);
    }
    return r;
}

pid_t process_pid(const struct process *p) {
    return p->pid;
}

int process_signal(struct process *p, int sig) {
    if (kill(-p->pid, sig) == 0 || (errno == ESRCH && kill(p->pid, sig) == 0))
        return 0; /* the group does not exist before the child made it */
    return -errno;
}

void process_kill_tree(struct process *p) {
    if (p->cgroup && cgroup_kill(p->cgroup) == 0)
        return;
    killtree(p->pid);
}

void process_forget(struct process *p) {
    p->ops = (struct process_ops){0};
}
