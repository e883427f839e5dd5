/*
 * Sessions and their processes (see pty.h). Owns the table, the rings, the terminals. Invariants:
 * every byte the leader wrote is in the ring, and sent, before its exit is reported; a process
 * never waits for an absent client; reading stops only while an attached client is slow (its
 * keep-alive bounds that).
 */
#include "execd/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

#include "base/id.h"
#include "base/map.h"
#include "base/path.h"
#include "execd/feeder.h"
#include "execd/launch.h"
#include "execd/lookup.h"
#include "execd/pump.h"

#define MAX_SESSIONS 4096

struct ptys {
    struct agent *agent;
    struct map *by_id;
};

int ptys_new(struct agent *a, struct ptys **ret) {
    struct ptys *ps = calloc(1, sizeof *ps);

    if (!ps || !(ps->by_id = map_new())) {
        free(ps);
        return -ENOMEM;
    }
    ps->agent = a;
    *ret = ps;
    return 0;
}

void ptys_free(struct ptys *ps) {
    const char *key;
    void *value;

    if (!ps)
        return;
    for (size_t i = 0; map_next(ps->by_id, &i, &key, &value);)
        pty_delete(value);
    map_free(ps->by_id);
    free(ps);
}

struct pty *pty_new(struct ptys *ps, struct pty_spec *spec) {
    struct pty *p = map_size(ps->by_id) < MAX_SESSIONS ? calloc(1, sizeof *p) : NULL;

    if (!p)
        return NULL;
    id_uuid(p->id);
    if (map_set(ps->by_id, p->id, p, NULL) < 0) {
        free(p);
        return NULL;
    }
    p->agent = ps->agent;
    p->master = -1;
    p->spec = *spec;
    *spec = (struct pty_spec){0};
    return p;
}

struct pty *ptys_find(struct ptys *ps, const char *id) {
    return map_get(ps->by_id, id);
}

/* Lets go of everything of the process. Survivors of pipe mode keep being drained; a terminal is
 * hung up. */
static void release_io(struct pty *p) {
    feeder_free(TAKE_PTR(p->in));
    if (p->terminal)
        pump_free(TAKE_PTR(p->out));
    else
        pump_discard(TAKE_PTR(p->out));
    pump_discard(TAKE_PTR(p->err));
    p->master = -1;
}

void pty_delete(struct pty *p) {
    map_remove(p->agent->ptys->by_id, p->id);
    if (p->process) {
        process_kill_tree(p->process);
        process_forget(p->process);
    }
    pty_client_gone(p);
    release_io(p);
    ring_done(&p->ring);
    pty_spec_done(&p->spec);
    free(p);
}

/* ---- output and end ---- */

static void report_end(struct pty *p) {
    if (p->ended)
        return;
    p->ended = true;
    release_io(p);
    pty_client_exit(p);
}

static void on_data(struct pump *pump, const char *data, size_t len, void *ud) {
    struct pty *p = ud;

    ring_append(&p->ring, data, len);
    pty_client_output(p, pump == p->err, data, len);
}

static void on_pump_end(struct pump *pump, void *ud) {
    struct pty *p = ud;

    if (pump == p->out)
        p->out_ended = true;
    else
        p->err_ended = true;
    if (!p->process && p->out_ended && p->err_ended)
        report_end(p);
}

static void on_exit_cb(struct process *proc, int wstatus, const struct err *start, void *ud) {
    struct pty *p = ud;

    p->process = NULL;
    p->wstatus = wstatus;
    if (start) {
        p->ended = true;
        p->wstatus = 127 << 8;
        release_io(p);
        pty_client_failed(p, start);
    } else if (p->out_ended && p->err_ended) {
        report_end(p);
    } else {
        pump_finish(p->out);
        if (p->err)
            pump_finish(p->err);
    }
}

/* ---- input ---- */

static void on_feeder_drain(struct feeder *f, void *ud) {
    pty_client_input_ready(ud);
}

static void on_feeder_error(struct feeder *f, int error, void *ud) {
    pty_client_input_failed(ud, error);
}

ssize_t pty_input(struct pty *p, const char *data, size_t len) {
    return p->in ? feeder_write(p->in, data, len) : -EPIPE;
}

void pty_end_input(struct pty *p) {
    struct termios t;
    char eof = 4;

    if (!p->in)
        return;
    if (!p->terminal) {
        feeder_end(p->in);
        return;
    }
    if (tcgetattr(p->master, &t) == 0 && t.c_cc[VEOF])
        eof = (char)t.c_cc[VEOF];
    feeder_write(p->in, &eof, 1);
}

void pty_signal(struct pty *p, int sig) {
    pid_t group = 0;

    if (!p->process)
        return;
    /* The job in the foreground, not the shell that waits for it. */
    if (p->terminal && ioctl(p->master, TIOCGPGRP, &group) == 0 && group > 1 &&
        kill(-group, sig) == 0)
        return;
    process_signal(p->process, sig);
}

void pty_resize(struct pty *p, int cols, int rows) {
    struct winsize ws = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};

    p->spec.cols = cols;
    p->spec.rows = rows;
    if (p->master >= 0)
        ioctl(p->master, TIOCSWINSZ, &ws);
}

void pty_pause(struct pty *p, bool pause) {
    struct pump *pumps[2] = {p->out, p->err};

    p->paused = pause;
    for (int i = 0; i < 2; i++) {
        if (pumps[i] && pause)
            pump_pause(pumps[i]);
        else if (pumps[i] &&
                 (i == 0 ||
                  p->err == pumps[i])) /* the first may have ended the session's process */
            pump_resume(pumps[i]);
    }
}

/* ---- start ---- */

struct stdio {
    int in, out, err;              /* ends for the child */
    int to_in, from_out, from_err; /* ours */
};

static void stdio_close(struct stdio *s) {
    int *fds[] = {&s->in, &s->out, &s->err, &s->to_in, &s->from_out, &s->from_err};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        *fds[i] = fd_close(*fds[i]);
}

static int open_slave(int master) {
    int zero = 0, fd, number;
    char path[32];

    if (ioctl(master, TIOCSPTLCK, &zero) < 0)
        return -errno;
    fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (ioctl(master, TIOCGPTN, &number) < 0)
        return -errno;
    snprintf(path, sizeof path, "/dev/pts/%d", number);
    fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int open_terminal(struct pty *p, const struct identity *id, struct stdio *s,
                         struct err *err) {
    struct winsize ws = {.ws_col = (unsigned short)p->spec.cols,
                         .ws_row = (unsigned short)p->spec.rows};
    int slave;

    s->from_out = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (s->from_out < 0)
        return err_sys(err, -errno, "no terminal can be made: /dev/ptmx");
    slave = open_slave(s->from_out);
    if (slave < 0)
        return err_sys(err, slave, "no terminal can be made");
    s->in = slave;
    ioctl(s->from_out, TIOCSWINSZ, &ws);
    if (id->set) {
        (void)!fchown(slave, id->uid, id->gid);
        (void)!fchmod(slave, 0620);
    }
    s->to_in = fcntl(s->from_out, F_DUPFD_CLOEXEC, 3);
    return s->to_in < 0 ? err_sys(err, -errno, "no terminal can be made") : 0;
}

static int open_pipes(const struct identity *id, struct stdio *s, struct err *err) {
    int p[3][2];

    for (int i = 0; i < 3; i++) {
        if (pipe2(p[i], O_CLOEXEC) < 0)
            return err_sys(err, -errno, "pipe");
        int *child = i == 0   ? &s->in
                     : i == 1 ? &s->out
                              : &s->err,
            *ours = i == 0   ? &s->to_in
                    : i == 1 ? &s->from_out
                             : &s->from_err;
        *child = p[i][i != 0];
        *ours = p[i][i == 0];
        if (id->set)
            (void)!fchown(*child, id->uid, id->gid);
    }
    return 0;
}

static int watch_io(struct pty *p, struct stdio *s, struct err *err) {
    static const struct pump_ops ops = {.on_data = on_data, .on_end = on_pump_end};
    static const struct feeder_ops in_ops = {.on_drain = on_feeder_drain,
                                             .on_error = on_feeder_error};
    int r;

    p->out_ended = p->err_ended = p->paused = false;
    p->master = p->terminal ? s->from_out : -1;
    r = pump_new(p->agent->loop, TAKE_FD(s->from_out), &ops, p, &p->out);
    if (r == 0 && !p->terminal)
        r = pump_new(p->agent->loop, TAKE_FD(s->from_err), &ops, p, &p->err);
    else
        p->err_ended = true;
    if (r == 0)
        r = feeder_new(p->agent->loop, TAKE_FD(s->to_in), &in_ops, p, &p->in);
    return r < 0 ? err_sys(err, r, "cannot watch the session") : 0;
}

/* Interactive shells do without start-up files, so that every image gives the same. */
static int shell_words(struct pty *p, struct launch *l, struct err *err) {
    int r = lookup_shell(&l->env, &l->exe, err);

    if (r < 0)
        return r;
    const char *base = path_base(l->exe);
    r = strv_add(&l->argv, base);
    if (r == 0 && strcmp(base, "bash") == 0)
        r = strv_add(&l->argv, "--norc");
    if (r == 0 && strcmp(base, "bash") == 0)
        r = strv_add(&l->argv, "--noprofile");
    if (r == 0 && p->spec.command)
        r = strv_add(&l->argv, "-c");
    if (r == 0 && p->spec.command)
        r = strv_add(&l->argv, p->spec.command);
    return r < 0 ? err_sys(err, r, "argv") : 0;
}

static int prepare(struct pty *p, struct launch *l, struct err *err) {
    int r = launch_prepare(p->agent, p->spec.cwd, &p->spec.env, p->spec.uid, p->spec.gid, l, err);

    if (r == 0)
        r = p->spec.argv.n > 0 ? launch_argv(l, &p->spec.argv, err) : shell_words(p, l, err);
    if (r == 0 && p->terminal && !env_get(&l->env, "TERM") &&
        env_set(&l->env, "TERM", "xterm-256color") < 0)
        r = err_set(err, -ENOMEM, "out of memory");
    return r;
}

int pty_start(struct pty *p, bool terminal, struct err *err) {
    static const struct process_ops ops = {.on_exit = on_exit_cb};
    _cleanup_(launch_done) struct launch l = {0};
    struct stdio s = {-1, -1, -1, -1, -1, -1};
    struct process_opts o = {.mode = terminal ? PROCESS_TTY : PROCESS_GROUP};
    int r;

    p->terminal = terminal;
    r = prepare(p, &l, err);
    if (r == 0)
        r = terminal ? open_terminal(p, &l.identity, &s, err) : open_pipes(&l.identity, &s, err);
    if (r == 0)
        r = watch_io(p, &s, err);
    if (r == 0) {
        launch_apply(&l, &o);
        o.stdin_fd = s.in;
        o.stdout_fd = terminal ? s.in : s.out;
        o.stderr_fd = terminal ? s.in : s.err;
        r = process_start(p->agent->processes, &o, &ops, p, &p->process, err);
    }
    stdio_close(&s);
    if (r < 0) {
        release_io(p);
        return r;
    }
    p->has_run = true;
    p->ended = false;
    return 0;
}

bool pty_may_start(const struct pty *p) {
    return !p->process && (!p->has_run || (p->ended && p->spec.argv.n == 0));
}
