/*
 * Child processes (see spawn.h). fork + exec with an error pipe; everything the child does between
 * the two is async-signal-safe, so a threaded daemon may call it.
 */
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/path.h"

extern char **environ;

void spawn_reset_signals(void) {
    /* straight to the kernel: libc hides the two signals that its threads use, and those are
     * inherited too */
    static const unsigned long
        dfl[4]; /* handler, flags, restorer, mask: all zero whatever the order */
    static const uint64_t none;

    for (int s = 1; s <= 64; s++)
        syscall(SYS_rt_sigaction, s, dfl, NULL, sizeof none);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
}

/* Puts fds[i] at position i. First all are moved out of the way, so no assignment overwrites a
 * later source. */
static int place_fds(int *fds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 64);
        if (fds[i] < 0)
            return -errno;
    }
    for (size_t i = 0; i < n; i++)
        if (dup2(fds[i], (int)i) < 0)
            return -errno;
    return 0;
}

#define MAX_KEEP 16

static _noreturn_ void child_exec(const struct spawn_opts *o, const char *exe, int err_fd) {
    int fds[3 + MAX_KEEP], null, r = 0, report;

    spawn_reset_signals();
    if (o->new_session)
        setsid();
    report = fcntl(err_fd, F_DUPFD_CLOEXEC, 100);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || report < 0)
        goto fail;
    fds[0] = o->stdin_fd >= 0 ? o->stdin_fd : null;
    fds[1] = o->stdout_fd >= 0 ? o->stdout_fd : null;
    fds[2] = o->stderr_fd >= 0 ? o->stderr_fd : null;
    for (size_t i = 0; i < o->n_keep; i++)
        fds[3 + i] = o->keep_fds[i];
    r = place_fds(fds, 3 + o->n_keep);
    if (r < 0)
        goto fail;
    syscall(SYS_close_range, 3 + (unsigned)o->n_keep, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
    if (o->cwd && chdir(o->cwd) < 0)
        goto fail;
    execve(exe, (char *const *)o->argv, o->envp ? (char *const *)o->envp : environ);
fail:
    r = r < 0 ? r : -errno;
    (void)!write(report, &r, sizeof r);
    _exit(127);
}

static int find_in_path(const char *name, char **ret) {
    const char *path = getenv("PATH");
    int r = -ENOENT;

    if (strchr(name, '/')) {
        *ret = strdup(name);
        return *ret ? 0 : -ENOMEM;
    }
    if (!path)
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    while (*path) {
        const char *e = strchrnul(path, ':');
        char *p = str_printf("%.*s/%s", (int)(e - path), path, name);
        if (!p)
            return -ENOMEM;
        if (access(p, X_OK) == 0) {
            *ret = p;
            return 0;
        }
        if (errno == EACCES)
            r = -EACCES;
        free(p);
        path = *e ? e + 1 : e;
    }
    return r;
}

int spawn_start(const struct spawn_opts *o, pid_t *ret_pid, int *ret_pidfd, struct err *err) {
    _cleanup_free_ char *exe = NULL;
    int p[2], r, child_err = 0;
    pid_t pid;

    if (o->n_keep > MAX_KEEP)
        return err_set(err, -EINVAL, "more than %d descriptors for one child", MAX_KEEP);
    r = find_in_path(o->argv[0], &exe);
    if (r < 0)
        return err_sys(err, r, "%s", o->argv[0]);
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, -errno, "pipe");
    pid = fork();
    if (pid == 0)
        child_exec(o, exe, p[1]);
    close(p[1]);
    if (pid < 0) {
        r = -errno;
        close(p[0]);
        return err_sys(err, r, "fork");
    }
    r = fd_read_full(p[0], &child_err, sizeof child_err);
    close(p[0]);
    if (r == (int)sizeof child_err) {
        waitpid(pid, NULL, 0);
        return err_sys(err, child_err, "%s", exe);
    }
    *ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (*ret_pidfd < 0) {
        r = -errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return err_sys(err, r, "pidfd_open");
    }
    *ret_pid = pid;
    return 0;
}

struct collect {
    int fd;
    struct buf buf;
    bool keep_tail; /* else the head is kept */
};

static void collect_read(struct collect *c) {
    char chunk[16384];
    ssize_t n = read(c->fd, chunk, sizeof chunk);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        c->fd = fd_close(c->fd);
        return;
    }
    if (c->keep_tail) {
        if (c->buf.len + (size_t)n > c->buf.max)
            buf_consume(&c->buf, MIN(c->buf.len, c->buf.len + (size_t)n - c->buf.max));
        size_t skip = (size_t)n > c->buf.max ? (size_t)n - c->buf.max : 0;
        buf_append(&c->buf, chunk + skip, (size_t)n - skip);
    } else {
        size_t room = c->buf.max - c->buf.len;
        buf_append(&c->buf, chunk, MIN((size_t)n, room));
    }
}

static void feed_input(int *fd, const char **input) {
    size_t left = *input ? strlen(*input) : 0;
    ssize_t n = left ? write(*fd, *input, left) : 0;

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0)
        *input += n;
    if (n < 0 || left == 0 || !**input)
        *fd = fd_close(*fd);
}

/* Polls until the child ended and both outputs are at their end (or the child ended and nothing is
 * readable). */
static int run_loop(int pidfd, int *in_fd, const char *input, struct collect c[2], int timeout_ms) {
    int64_t deadline = clock_mono_ms() + timeout_ms;
    bool ended = false;

    while (!ended || c[0].fd >= 0 || c[1].fd >= 0) {
        struct pollfd p[4] = {{ended ? -1 : pidfd, POLLIN, 0},
                              {c[0].fd, POLLIN, 0},
                              {c[1].fd, POLLIN, 0},
                              {*in_fd, POLLOUT, 0}};
        int wait = -1;
        if (ended)
            wait = 0;
        else if (timeout_ms > 0)
            wait = (int)MAX(deadline - clock_mono_ms(), (int64_t)0);
        int n = poll(p, 4, wait);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return ended ? 0 : -ETIMEDOUT;
        if (p[1].revents)
            collect_read(&c[0]);
        if (p[2].revents)
            collect_read(&c[1]);
        if (p[3].revents)
            feed_input(in_fd, &input);
        if (p[0].revents)
            ended = true;
    }
    return 0;
}

int spawn_run(const char *const *argv, const char *input, size_t max_out, int timeout_ms,
              struct spawn_result *ret, struct err *err) {
    struct spawn_opts o = SPAWN_OPTS_INIT;
    struct collect c[2] = {{-1, BUF_INIT(max_out ? max_out : 1), false},
                           {-1, BUF_INIT(4096), true}};
    int out[2] = {-1, -1}, errp[2] = {-1, -1}, in[2] = {-1, -1}, pidfd = -1, st = 0, r;
    pid_t pid = -1;

    *ret = (struct spawn_result){0};
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(errp, O_CLOEXEC) < 0 ||
        (input && pipe2(in, O_CLOEXEC) < 0)) {
        r = err_sys(err, -errno, "pipe");
        goto out;
    }
    o.argv = argv;
    o.stdin_fd = in[0];
    o.stdout_fd = out[1];
    o.stderr_fd = errp[1];
    r = spawn_start(&o, &pid, &pidfd, err);
    in[0] = fd_close(in[0]);
    out[1] = fd_close(out[1]);
    errp[1] = fd_close(errp[1]);
    if (r < 0)
        goto out;
    if (in[1] >= 0)
        fd_set_nonblock(in[1], true);
    c[0].fd = TAKE_FD(out[0]);
    c[1].fd = TAKE_FD(errp[0]);
    r = run_loop(pidfd, &in[1], input, c, timeout_ms);
    if (r < 0)
        kill(pid, SIGKILL);
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    if (r == -ETIMEDOUT)
        err_set(err, r, "%s did not end within %d ms", argv[0], timeout_ms);
    else if (r < 0)
        err_sys(err, r, "%s", argv[0]);
    if (r < 0)
        goto out;
    ret->status = WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
    ret->out = buf_take(&c[0].buf, &ret->out_len);
    ret->errs = buf_take(&c[1].buf, NULL);
    if (!ret->out || !ret->errs) {
        spawn_result_done(ret);
        r = err_set(err, -ENOMEM, "out of memory");
    }
out:
    for (int i = 0; i < 2; i++) {
        fd_close(in[i]);
        fd_close(out[i]);
        fd_close(errp[i]);
        fd_close(c[i].fd);
        buf_done(&c[i].buf);
    }
    fd_close(pidfd);
    return r;
}

void spawn_result_done(struct spawn_result *r) {
    free(r->out);
    free(r->errs);
    *r = (struct spawn_result){0};
}
