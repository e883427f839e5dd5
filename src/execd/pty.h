/*
 * Terminal sessions (execd.md 4): a program on a pseudo terminal, or on three pipes, whose output
 * is kept in a ring and shown to at most one attached WebSocket. This file has the session and its
 * process; pty_ws.c has the socket; pty_api.c the HTTP routes.
 */
#pragma once

#include "base/list.h"
#include "execd/agent.h"
#include "execd/ring.h"

struct feeder;
struct pump;
struct pty_client; /* the attached socket, pty_ws.c */

struct pty_spec {
    char *cwd, *command; /* command: text for the shell; NULL and no argv: an interactive shell */
    struct strv argv, env;
    int64_t uid, gid; /* -1 = not given */
    int64_t cols, rows;
};
void pty_spec_done(struct pty_spec *s);
int pty_spec_parse(const char *data, size_t len, struct pty_spec *ret, struct err *err);

struct pty {
    char id[37];
    struct agent *agent;
    struct pty_spec spec;
    struct ring ring;
    bool terminal;           /* mode of the present or last process */
    struct process *process; /* NULL: none runs */
    int master;              /* terminal mode, for ioctls; owned by `out` */
    struct pump *out, *err;  /* err: pipe mode only */
    struct feeder *in;
    bool out_ended, err_ended, ended;
    bool has_run; /* a process has been started before; ended: it is over and reported */
    bool paused;
    int wstatus;
    struct pty_client *client; /* NULL: detached */
};

int ptys_new(struct agent *a, struct ptys **ret);
void ptys_free(struct ptys *ps);
/* Takes the spec. */
struct pty *pty_new(struct ptys *ps, struct pty_spec *spec);
struct pty *ptys_find(struct ptys *ps, const char *id);
/* Kills the process, closes the socket, forgets the session. */
void pty_delete(struct pty *p);

/* Starts the program; 0 or an error that the client is told. Later failures come through
 * pty_client_failed. */
int pty_start(struct pty *p, bool terminal, struct err *err);
/* An argv session runs once; shells are started again by the next attachment. */
bool pty_may_start(const struct pty *p);
ssize_t pty_input(struct pty *p, const char *data, size_t len); /* queued bytes or -errno */
void pty_end_input(struct pty *p);
void pty_signal(struct pty *p, int sig);
void pty_resize(struct pty *p, int cols, int rows);
/* Back-pressure of the attached client. */
void pty_pause(struct pty *p, bool pause);

/* ---- told to the client (pty_ws.c); all of them are fine with a detached session ---- */
void pty_client_output(struct pty *p, bool is_err, const char *data, size_t len);
void pty_client_exit(struct pty *p);
void pty_client_failed(struct pty *p, const struct err *err);
void pty_client_input_ready(struct pty *p);
void pty_client_input_failed(struct pty *p, int error);
void pty_client_gone(struct pty *p); /* the session is being deleted */
