/*
 * A daemon for this process alone. It holds the read end of a pipe whose only write end is ours:
 * however we end, it sees the end of the pipe, removes its sandboxes and everything else it made,
 * and exits.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/path.h"
#include "base/spawn.h"
#include "client/internal.h"

#define READY_TIMEOUT_MS 30000
#define STOP_TIMEOUT_MS 30000
#define LOG_TAIL 4096

struct cove_private_daemon {
    pid_t pid;
    int pidfd, life_fd;
    char *address;
};

const char *cove_private_daemon_address(const struct cove_private_daemon *d) {
    return d->address;
}

/* "DIR/coved" when it lies beside this program, else "coved" for a search in PATH. malloc'd. */
static char *find_program(void) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        if (slash) {
            *slash = '\0';
            char *path = path_join(self, "coved");
            if (path && access(path, X_OK) == 0)
                return path;
            free(path);
        }
    }
    return strdup("coved");
}

/* The daemon's last words, one line, for the error text. */
static void log_tail(int fd, char *ret, size_t size) {
    char tail[LOG_TAIL];
    off_t end = lseek(fd, 0, SEEK_END);
    ssize_t n =
        end > 0 ? pread(fd, tail, sizeof(tail) - 1, MAX(end - (off_t)sizeof(tail) + 1, 0)) : 0;
    tail[MAX(n, 0)] = '\0';
    while (n > 0 && tail[n - 1] == '\n')
        tail[--n] = '\0';
    const char *line = strrchr(tail, '\n');
    str_copy(ret, size, line ? line + 1 : tail);
}

/* Reads the one line that the daemon writes when it serves. */
static int read_ready(int fd, int pidfd, char *line, size_t size) {
    size_t len = 0;
    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
        int r = poll(p, 2, READY_TIMEOUT_MS);
        if (r < 0 && errno == EINTR)
            return -EINTR;
        if (r <= 0)
            return r == 0 ? -ETIMEDOUT : -errno;
        ssize_t n = p[0].revents ? read(fd, line + len, size - 1 - len) : 0;
        if (n <= 0)
            return -ECHILD; /* it ended, or closed the pipe without a word */
        len += (size_t)n;
        line[len] = '\0';
        char *nl = strchr(line, '\n');
        if (nl) {
            *nl = '\0';
            return 0;
        }
        if (len == size - 1)
            return -EMSGSIZE;
    }
}

struct pipes {
    int life[2], ready[2], log;
};

static void pipes_done(struct pipes *p) {
    fd_close(p->life[0]);
    fd_close(p->life[1]);
    fd_close(p->ready[0]);
    fd_close(p->ready[1]);
    fd_close(p->log);
}

static int pipes_make(struct pipes *p) {
    *p = (struct pipes){{-1, -1}, {-1, -1}, -1};
    if (pipe2(p->life, O_CLOEXEC) < 0 || pipe2(p->ready, O_CLOEXEC) < 0)
        return -errno;
    p->log = memfd_create("coved-log", MFD_CLOEXEC);
    return p->log < 0 ? -errno : 0;
}

static int start_fail(struct cove_error *err, int code, const char *program, int log) {
    char words[512];
    log_tail(log, words, sizeof(words));
    if (code == -EINTR)
        return cerr_set(err, code, "interrupted");
    if (code == -ETIMEDOUT)
        return cerr_set(err, code, "the private daemon was not ready after %d s: %s",
                        READY_TIMEOUT_MS / 1000, words);
    return cerr_set(err, -ECHILD, "the private daemon (%s) did not start: %s", program,
                    words[0] ? words : "it said nothing");
}

int cove_private_daemon_start(const char *program, struct cove_private_daemon **ret,
                              struct cove_error *err) {
    _cleanup_free_ char *found = program ? strdup(program) : find_program();
    struct cove_private_daemon *d = calloc(1, sizeof(*d));
    _cleanup_(pipes_done) struct pipes p;
    int r = pipes_make(&p);
    if (!found || !d || r < 0) {
        free(d);
        return r < 0 ? cerr_sys(err, r, "cannot start a private daemon") : cerr_oom(err);
    }
    const char *const argv[] = {found, "--private", "--life-fd", "3", "--ready-fd", "4", NULL};
    const int keep[] = {p.life[0], p.ready[1]};
    struct spawn_opts o = SPAWN_OPTS_INIT;
    o.argv = argv;
    o.stderr_fd = p.log;
    o.keep_fds = keep;
    o.n_keep = ARRAY_SIZE(keep);
    o.new_session = true; /* Ctrl-C is ours to handle: it still has sandboxes to remove */
    d->pidfd = -1;
    struct err e = {0};
    r = spawn_start(&o, &d->pid, &d->pidfd, &e);
    if (r < 0) {
        free(d);
        return cerr_set(err, r, "cannot start a private daemon: %s", err_text(&e));
    }
    d->life_fd = TAKE_FD(p.life[1]);
    p.ready[1] = fd_close(p.ready[1]);
    char line[512] = "";
    r = read_ready(p.ready[0], d->pidfd, line, sizeof(line));
    if (r == 0 && !(d->address = strdup(line)))
        r = -ENOMEM;
    if (r < 0) {
        cove_private_daemon_stop(d);
        return start_fail(err, r, found, p.log);
    }
    *ret = d;
    return 0;
}

struct cove_private_daemon *cove_private_daemon_stop(struct cove_private_daemon *d) {
    if (!d)
        return NULL;
    fd_close(d->life_fd);
    struct pollfd p = {.fd = d->pidfd, .events = POLLIN};
    int r;
    do
        r = poll(&p, 1, STOP_TIMEOUT_MS);
    while (r < 0 && errno == EINTR);
    if (r == 0) /* its sandboxes are then found and removed by the next daemon */
        kill(d->pid, SIGKILL);
    waitpid(d->pid, NULL, 0);
    fd_close(d->pidfd);
    free(d->address);
    free(d);
    return NULL;
}
