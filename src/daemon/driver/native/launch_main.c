/*
 * cove-launch: forks the children that build one sandbox each (native-runtime.md 3.1). Started by
 * the driver with a SOCK_SEQPACKET socket as descriptor 3; protocol in launch_proto.h. It exists
 * because forking from a large threaded daemon is slow and unsafe, and mount namespaces need a
 * single thread.
 *
 * Owns: a private mount namespace in which /sys/fs/cgroup is a cgroup2 file system (the runtime
 * then meets the same host everywhere), a sealed memory copy of the runtime, and its children. It
 * is the subreaper of the sandboxes it started, so it reaps them. No request waits for another:
 * each is a child in the table, and the loop sleeps in epoll_wait until one ends, a deadline passes
 * or a message comes. When the driver goes away it ends; sandboxes live on.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/path.h"
#include "base/str.h"
#include "base/crash.h"
#include "daemon/driver/native/fdmsg.h"
#include "daemon/driver/native/launch_child.h"

#define CGROUP2_MAGIC 0x63677270
#define FD_FLOOR 100 /* our own descriptors live above the ones that children rearrange */

/* A forked child that has not been answered for, or one that is parked. */
struct job {
    struct list node;
    pid_t pid;
    int reply;  /* answer channel; -1 while parked */
    int text;   /* memory file: what the runtime and the agent write to standard error */
    int parked; /* our end of the socket on which a parked child waits; -1 */
    int64_t parked_id, deadline_ms, started_us;
    int agent_pidfd; /* seen to have ended before its runtime was */
    struct launch_report *report;
    char *pid_file;
};

struct launcher {
    pid_t self;
    int control, signals, epoll, runtime;
    const char *runtime_path;
    dev_t runtime_dev; /* what the sealed copy was made of */
    ino_t runtime_ino;
    struct timespec runtime_mtime;
    struct list jobs;
    int64_t next_parked;
};

static int raise_fd(int fd) {
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_FLOOR);
    fd_close(fd);
    return high;
}

/* A copy of the runtime in sealed memory: it neither copies itself again at each start, nor can a
 * sandbox overwrite the file through /proc/self/exe. Made anew when the file changes. */
static int refresh_runtime(struct launcher *l) {
    _cleanup_close_ int src = open(l->runtime_path, O_RDONLY | O_CLOEXEC), mem = -1;
    struct stat st;

    if (src < 0 || fstat(src, &st) < 0)
        return -errno;
    if (l->runtime >= 0 && st.st_dev == l->runtime_dev && st.st_ino == l->runtime_ino &&
        st.st_mtim.tv_sec == l->runtime_mtime.tv_sec &&
        st.st_mtim.tv_nsec == l->runtime_mtime.tv_nsec)
        return 0;
    mem = raise_fd(memfd_create("cove-runtime", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (mem < 0)
        return -errno;
    for (off_t off = 0; off < st.st_size;)
        if (sendfile(mem, src, &off, (size_t)(st.st_size - off)) <= 0)
            return errno ? -errno : -EIO;
    if (fchmod(mem, 0755) < 0 ||
        fcntl(mem, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return -errno;
    fd_close(l->runtime);
    l->runtime = TAKE_FD(mem);
    l->runtime_dev = st.st_dev;
    l->runtime_ino = st.st_ino;
    l->runtime_mtime = st.st_mtim;
    return 0;
}

/* Standard error of runtime and agent: fixed in size, so nobody fills the memory with it. */
static int text_file(void) {
    int fd = memfd_create("cove-text", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, LAUNCH_TEXT_MAX) < 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
        fd = fd_close(fd);
    return fd;
}

static void job_free(struct job *j) {
    list_remove(&j->node);
    fd_close(j->reply);
    fd_close(j->text);
    fd_close(j->parked);
    fd_close(j->agent_pidfd);
    if (j->report)
        munmap(j->report, sizeof *j->report);
    free(j->pid_file);
    free(j);
}

static void answer(int sock, json_t *msg, const int *fds, size_t n_fds) {
    _cleanup_json_ json_t *m = msg;
    _cleanup_buf_ struct buf b = BUF_INIT(LAUNCH_MSG_MAX);

    if (m && buf_json(&b, m) == 0)
        (void)fdmsg_send(sock, b.data, b.len, fds, n_fds); /* the asker may be gone */
}

static void answer_error(int sock, const char *step, int code, const char *text) {
    answer(sock, json_pack("{s:s, s:i, s:s}", "step", step, "errno", -code, "text", text), NULL, 0);
}

static void text_read(int fd, char *ret, size_t size) {
    ssize_t n = fd < 0 ? 0 : pread(fd, ret, size - 1, 0);
    ret[n > 0 ? n : 0] = 0;
    n = (ssize_t)strlen(ret);
    while (n > 0 && (ret[n - 1] == '\n' || ret[n - 1] == ' '))
        ret[--n] = 0;
    for (char *p = ret; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            *p = ' '; /* keeps the answer valid UTF-8 whatever a runtime prints */
}

static struct job *job_new(int reply) {
    struct job *j = calloc(1, sizeof *j);

    if (!j)
        return NULL;
    list_init(&j->node);
    j->reply = reply;
    j->text = j->parked = j->agent_pidfd = -1;
    j->started_us = clock_mono_us();
    j->text = raise_fd(text_file());
    j->report =
        mmap(NULL, sizeof *j->report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j->report == MAP_FAILED || j->text < 0) {
        if (j->report == MAP_FAILED)
            j->report = NULL;
        j->reply = -1; /* stays the caller's */
        job_free(j);
        return NULL;
    }
    return j;
}

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* In the child: nothing of the parent's other requests may stay open here, their answer channels
 * above all. */
static void close_others(const struct launch_request *q, const int *own, size_t n_own) {
    int keep[LAUNCH_FDS_MAX + 4];
    unsigned from = 3;
    size_t n = 0;

    for (size_t i = 0; i < q->n_fds; i++)
        keep[n++] = q->fds[i];
    for (size_t i = 0; i < n_own; i++)
        keep[n++] = own[i];
    qsort(keep, n, sizeof *keep, by_number);
    for (size_t i = 0; i < n; i++) {
        unsigned fd = (unsigned)keep[i];
        if (fd > from)
            syscall(SYS_close_range, from, fd - 1, 0u);
        from = fd + 1;
    }
    syscall(SYS_close_range, from, ~0u, 0u);
}

/* Born in its cgroup where the kernel can: that never waits for a grace period. */
static pid_t fork_into(int box, bool *ret_born_in_box) {
    struct clone_args a = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)(unsigned)box};

    *ret_born_in_box = false;
    if (box >= 0) {
        long pid = syscall(SYS_clone3, &a, sizeof a);
        if (pid >= 0) {
            *ret_born_in_box = true;
            return (pid_t)pid;
        }
    }
    return fork();
}

static _noreturn_ void child_main(struct launcher *l, struct job *j, struct launch_request *q,
                                  int park_sock, bool born_in_box) {
    int own[] = {l->runtime, j->text, park_sock};

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* cleared when the runtime forks: sandboxes outlive us */
    if (getppid() != l->self)
        _exit(1);
    close_others(q, own, park_sock < 0 ? 2 : 3);
    if (!launch_child_enter(q, born_in_box, j->report))
        _exit(1);
    if (park_sock >= 0) {
        struct launch_request more;
        int reply;
        if (launch_request_recv(park_sock, &more, &reply) <= 0)
            _exit(0); /* dropped, or the launcher is gone */
        fd_close(reply);
        launch_child_run(&more, l->runtime, j->text, j->report);
    } else
        launch_child_run(q, l->runtime, j->text, j->report);
    _exit(1);
}

static void job_expect(struct job *j, const json_t *request) {
    const char *dir = json_str(request, "dir");
    int64_t timeout = json_int(request, "timeout_ms", LAUNCH_TIMEOUT_MS);

    j->deadline_ms = clock_mono_ms() + MAX(timeout, 1);
    j->pid_file = str_printf("%s/pid", dir ? dir : "");
}

/* Forks for a request. Takes q and the answer channel. */
static void start_job(struct launcher *l, struct launch_request *q, int reply, bool park) {
    int sv[2] = {-1, -1}, r = refresh_runtime(l);
    struct job *j = r < 0 ? NULL : job_new(reply);
    bool born;

    if (!j) {
        answer_error(reply, r < 0 ? "reading the runtime" : "preparing", r < 0 ? r : -ENOMEM,
                     l->runtime_path);
        fd_close(reply);
        launch_request_done(q);
        return;
    }
    if (park && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        goto fail;
    j->pid = fork_into(launch_request_fd(q, "box"), &born);
    if (j->pid == 0)
        child_main(l, j, q, sv[1], born);
    if (j->pid < 0)
        goto fail;
    crash_point("launch-forked");
    fd_close(sv[1]);
    list_append(&l->jobs, &j->node);
    if (park) {
        j->parked = raise_fd(sv[0]);
        j->parked_id = ++l->next_parked;
        answer(reply, json_pack("{s:I}", "parked", (json_int_t)j->parked_id), NULL, 0);
        fd_close(reply);
        j->reply = -1;
    } else
        job_expect(j, q->json);
    launch_request_done(q);
    return;
fail:
    answer_error(reply, "fork", -errno, "");
    fd_close(sv[0]);
    fd_close(sv[1]);
    job_free(j);
    launch_request_done(q);
}

static struct job *find_parked(struct launcher *l, int64_t id) {
    list_foreach (it, &l->jobs) {
        struct job *j = list_entry(it, struct job, node);
        if (j->parked >= 0 && j->parked_id == id)
            return j;
    }
    return NULL;
}

/* Hands the plan to a parked child. */
static void resume_job(struct launcher *l, struct launch_request *q, int reply) {
    struct job *j = find_parked(l, json_int(q->json, "parked", 0));
    _cleanup_buf_ struct buf b = BUF_INIT(LAUNCH_MSG_MAX);
    int fds[LAUNCH_FDS_MAX + 1], r = -ESRCH;

    if (j) {
        fds[0] = j->text; /* takes the place of the answer channel */
        memcpy(fds + 1, q->fds, q->n_fds * sizeof *fds);
        r = buf_json(&b, q->json);
        if (r == 0)
            r = fdmsg_send(j->parked, b.data, b.len, fds, q->n_fds + 1);
    }
    if (r < 0) {
        answer_error(reply, "waking a parked child", -ESRCH, strerror(-r));
        fd_close(reply);
    } else {
        j->reply = reply;
        j->parked = fd_close(j->parked);
        j->started_us = clock_mono_us();
        job_expect(j, q->json);
    }
    launch_request_done(q);
}

/* False: the driver is gone. */
static bool on_control(struct launcher *l) {
    struct launch_request q;
    int reply = -1, r = launch_request_recv(l->control, &q, &reply);

    if (r == 0)
        return false;
    if (r < 0)
        return true; /* a message that was not for us to read: its answer channel has been closed */
    reply = raise_fd(reply);
    const char *op = json_str(q.json, "op");
    if (str_eq(op, "launch") && json_int(q.json, "parked", 0))
        resume_job(l, &q, reply);
    else if (str_eq(op, "launch") || str_eq(op, "park"))
        start_job(l, &q, reply, str_eq(op, "park"));
    else {
        struct job *j = str_eq(op, "drop") ? find_parked(l, json_int(q.json, "parked", 0)) : NULL;
        if (j)
            j->parked = fd_close(j->parked); /* it sees end-of-file and ends */
        fd_close(reply);
        launch_request_done(&q);
    }
    return true;
}

static pid_t read_pid_file(const char *path) {
    _cleanup_free_ char *text = NULL;
    uint64_t pid;

    if (!path || path_read_file_at(AT_FDCWD, path, 32, &text, NULL) < 0 ||
        str_to_u64(text, &pid) < 0)
        return 0;
    return pid > 0 && pid < INT32_MAX ? (pid_t)pid : 0;
}

static void job_ended(struct job *j, int status) {
    pid_t agent = read_pid_file(j->pid_file);
    char text[4096];

    if (j->reply < 0) { /* parked and dropped, or killed while parked */
        job_free(j);
        return;
    }
    text_read(j->text, text, sizeof text);
    if (j->report->err.code)
        answer_error(j->reply, j->report->step, j->report->err.code, j->report->err.msg);
    else if (WIFSIGNALED(status))
        answer_error(j->reply, "running the runtime", -ECANCELED,
                     clock_mono_ms() >= j->deadline_ms ? "it exceeded the time limit"
                                                       : "it was killed");
    else if (WEXITSTATUS(status) != 0 || agent == 0)
        answer_error(j->reply, "running the runtime", -EIO,
                     text[0] ? text : "it failed without a message");
    else {
        int fds[] = {j->agent_pidfd, j->text};
        if (fds[0] < 0)
            fds[0] = j->agent_pidfd = (int)syscall(SYS_pidfd_open, agent, 0);
        if (fds[0] < 0)
            answer_error(j->reply, "finding the agent", -errno, text);
        else
            answer(j->reply,
                   json_pack("{s:i, s:I, s:I, s:I}", "pid", (int)agent, "enter_us",
                             (json_int_t)j->report->enter_us, "mount_us",
                             (json_int_t)j->report->mount_us, "run_us",
                             (json_int_t)(clock_mono_us() - j->started_us)),
                   fds, 2);
    }
    job_free(j);
}

/* A sandbox's agent that ends before its runtime has: its pidfd must be taken before it is reaped.
 */
static void note_early_agent(struct launcher *l, pid_t pid) {
    list_foreach (it, &l->jobs) {
        struct job *j = list_entry(it, struct job, node);
        if (j->reply >= 0 && j->agent_pidfd < 0 && read_pid_file(j->pid_file) == pid)
            j->agent_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    }
}

static void on_children(struct launcher *l) {
    struct signalfd_siginfo drop;
    siginfo_t si;

    while (read(l->signals, &drop, sizeof drop) > 0)
        ;
    for (;;) {
        struct job *found = NULL;
        int status = 0;

        si.si_pid = 0;
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
            return;
        list_foreach (it, &l->jobs)
            if (list_entry(it, struct job, node)->pid == si.si_pid)
                found = list_entry(it, struct job, node);
        if (!found)
            note_early_agent(l, si.si_pid);
        waitpid(si.si_pid, &status, 0);
        if (found)
            job_ended(found, status);
    }
}

/* Kills what is over its time; milliseconds until the next deadline, -1 for none. */
static int enforce_deadlines(struct launcher *l) {
    int64_t now = clock_mono_ms(), next = -1;

    list_foreach (it, &l->jobs) {
        struct job *j = list_entry(it, struct job, node);
        if (j->reply < 0)
            continue;
        if (now >= j->deadline_ms)
            kill(j->pid,
                 SIGKILL); /* the driver kills the cgroup, and with it what the runtime forked */
        else if (next < 0 || j->deadline_ms - now < next)
            next = j->deadline_ms - now;
    }
    return (int)next;
}

static int bind_cgroup2(const char *from) {
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC),
        r = 0;

    if (fd < 0)
        return -errno;
    if (syscall(SYS_move_mount, fd, "", AT_FDCWD, "/sys/fs/cgroup", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        r = -errno;
    fd_close(fd);
    return r;
}

/* A cgroup2 file system at /sys/fs/cgroup, for our namespace alone. An existing mount is bound
 * rather than mounted again: a new mount would change the options (nsdelegate …) of the one
 * hierarchy for the whole host. */
static int private_mounts(const char *cgroup2_path) {
    struct statfs sf;

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    if (statfs("/sys/fs/cgroup", &sf) < 0)
        return -errno;
    if ((unsigned long)sf.f_type == CGROUP2_MAGIC)
        return 0;
    if (*cgroup2_path)
        return bind_cgroup2(cgroup2_path);
    return mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0
               ? -errno
               : 0;
}

static int add_poll(int epoll, int fd) {
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

static int setup(struct launcher *l, const char *cgroup2_path) {
    sigset_t chld;
    int r;

    list_init(&l->jobs);
    l->runtime = -1;
    l->self = getpid();
    l->next_parked = clock_mono_us(); /* numbers of an earlier cove-launch must not match */
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    signal(SIGINT, SIG_IGN); /* a terminal's Ctrl-C is for the daemon, whose end is ours */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return -errno;
    l->control = fcntl(LAUNCH_SOCKET_FD, F_DUPFD_CLOEXEC, FD_FLOOR);
    if (l->control < 0)
        return -errno;
    close(LAUNCH_SOCKET_FD);
    l->signals = raise_fd(signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK));
    l->epoll = raise_fd(epoll_create1(EPOLL_CLOEXEC));
    if (l->signals < 0 || l->epoll < 0)
        return -errno;
    r = add_poll(l->epoll, l->control);
    if (r == 0)
        r = add_poll(l->epoll, l->signals);
    if (r == 0)
        r = private_mounts(cgroup2_path);
    return r < 0 ? r : refresh_runtime(l);
}

int main(int argc, char **argv) {
    struct launcher l = {0};
    struct epoll_event ev[4];
    bool running = true;
    int r;

    if (argc != 3) {
        fputs("cove-launch is started by coved; arguments: RUNTIME CGROUP2-MOUNT\n", stderr);
        return 2;
    }
    l.runtime_path = argv[1];
    r = setup(&l, argv[2]);
    if (r < 0) {
        fprintf(stderr, "cove-launch: set-up failed: %s\n", strerror(-r));
        return 1;
    }
    while (running) {
        int n = epoll_wait(l.epoll, ev, ARRAY_SIZE(ev), enforce_deadlines(&l));
        for (int i = 0; i < n; i++) {
            if (ev[i].data.fd == l.signals)
                on_children(&l);
            else if (ev[i].events & EPOLLHUP)
                running =
                    false; /* what a dead driver still asked for must not be started any more */
            else
                running = on_control(&l);
        }
    }
    return 0;
}
