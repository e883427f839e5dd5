/*
 * Waiting for a group (see groupwait.h). Owns one pidfd and poll handle per member. A member found
 * is pinned by its pidfd and looked at again, so a number that was given to another process in
 * between is dropped, never signalled.
 */
#include "execd/groupwait.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/macros.h"
#include "base/str.h"
#include "execd/timer.h"

#define MAX_MEMBERS 1024

struct member {
    uv_poll_t poll;
    struct groupwait *wait;
    int pidfd;
};

struct groupwait {
    struct member *members[MAX_MEMBERS];
    size_t n;
    struct timer *timer;
    void (*done)(void *ud);
    void *ud;
};

/* Group of a living process; -1 when it is gone or a zombie. */
static pid_t group_of(int proc, const char *pid) {
    char path[64], text[512], state, *p;
    int fd, ppid, group;

    snprintf(path, sizeof path, "%.20s/stat", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    fd_close(fd);
    if (n <= 0)
        return -1;
    text[n] = 0;
    p = strrchr(text, ')');
    if (!p || sscanf(p + 1, " %c %d %d", &state, &ppid, &group) != 3 || state == 'Z' ||
        state == 'X')
        return -1;
    return group;
}

static void on_member_closed(uv_handle_t *h) {
    struct member *m = container_of((uv_poll_t *)h, struct member, poll);
    fd_close(m->pidfd);
    free(m);
}

static void member_free(struct member *m) {
    uv_close((uv_handle_t *)&m->poll, on_member_closed);
}

void groupwait_free(struct groupwait *g) {
    if (!g)
        return;
    for (size_t i = 0; i < g->n; i++)
        member_free(g->members[i]);
    timer_free(g->timer);
    free(g);
}

static void on_member_ended(uv_poll_t *h, int status, int events) {
    struct member *m = container_of(h, struct member, poll);
    struct groupwait *g = m->wait;

    for (size_t i = 0; i < g->n; i++)
        if (g->members[i] == m) {
            g->members[i] = g->members[--g->n];
            break;
        }
    member_free(m);
    if (g->n == 0)
        g->done(g->ud);
}

static void on_grace_over(void *ud) {
    struct groupwait *g = ud;
    for (size_t i = 0; i < g->n; i++)
        syscall(SYS_pidfd_send_signal, g->members[i]->pidfd, SIGKILL, NULL, 0);
}

static void add_member(struct groupwait *g, uv_loop_t *loop, int proc, const char *name, pid_t pid,
                       pid_t group) {
    struct member *m;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0)
        return;
    m = group_of(proc, name) == group ? calloc(1, sizeof *m) : NULL;
    if (!m || uv_poll_init(loop, &m->poll, fd) < 0) {
        free(m);
        fd_close(fd);
        return;
    }
    m->wait = g;
    m->pidfd = fd;
    uv_poll_start(&m->poll, UV_READABLE, on_member_ended);
    g->members[g->n++] = m;
}

struct groupwait *groupwait_new(uv_loop_t *loop, pid_t group, unsigned grace_ms,
                                void (*done)(void *ud), void *ud) {
    struct groupwait *g = calloc(1, sizeof *g);
    DIR *d = opendir("/proc");
    struct dirent *e;
    uint64_t pid;

    while (g && d && g->n < MAX_MEMBERS && (e = readdir(d)))
        if (str_to_u64(e->d_name, &pid) == 0 && group_of(dirfd(d), e->d_name) == group)
            add_member(g, loop, dirfd(d), e->d_name, (pid_t)pid, group);
    if (d)
        closedir(d);
    if (!g || g->n == 0) {
        free(g);
        return NULL;
    }
    g->done = done;
    g->ud = ud;
    g->timer = timer_new(loop, on_grace_over, g);
    timer_start(g->timer, grace_ms, 0);
    return g;
}
