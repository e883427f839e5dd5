/*
 * Walk over /proc (see killtree.h). Parents are stopped before their children are looked at: a
 * stopped parent neither forks nor reaps, so the set only grows until it is complete and no number
 * in it can be given to another process.
 */
#include "execd/killtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/str.h"

#define MAX_TREE 4096
#define MAX_ROUNDS 16

struct tree {
    pid_t pids[MAX_TREE];
    size_t n;
};

static bool has(const struct tree *t, pid_t pid) {
    for (size_t i = 0; i < t->n; i++)
        if (t->pids[i] == pid)
            return true;
    return false;
}

/* Parent of a process, from the text after the last ')' of its stat line; -1 when it is gone. */
static pid_t parent_of(int proc, const char *pid) {
    char path[64], text[512], *p;
    ssize_t n;
    int fd, ppid;

    snprintf(path, sizeof path, "%.20s/stat", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, text, sizeof text - 1);
    fd_close(fd);
    if (n <= 0)
        return -1;
    text[n] = 0;
    p = strrchr(text, ')');
    return p && sscanf(p + 1, " %*c %d", &ppid) == 1 ? ppid : -1;
}

/* Adds and stops children of the set; the number of new ones. */
static size_t grow(struct tree *t) {
    DIR *d = opendir("/proc");
    size_t before = t->n;
    struct dirent *e;
    uint64_t pid;

    if (!d)
        return 0;
    while ((e = readdir(d)) && t->n < MAX_TREE) {
        if (str_to_u64(e->d_name, &pid) < 0 || has(t, (pid_t)pid) ||
            !has(t, parent_of(dirfd(d), e->d_name)))
            continue;
        kill((pid_t)pid, SIGSTOP);
        t->pids[t->n++] = (pid_t)pid;
    }
    closedir(d);
    return t->n - before;
}

void killtree(pid_t leader) {
    struct tree *t = calloc(1, sizeof *t);

    kill(-leader, SIGSTOP);
    kill(leader, SIGSTOP);
    if (t) {
        t->pids[t->n++] = leader;
        for (int i = 0; i < MAX_ROUNDS && grow(t) > 0; i++)
            ;
        for (size_t i = t->n; i > 0; i--)
            kill(t->pids[i - 1], SIGKILL);
    }
    kill(-leader, SIGKILL);
    kill(leader, SIGKILL);
    free(t);
}
