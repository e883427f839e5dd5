/*
 * Commands (execd.md 2): the table of running and finished ones, their start, end, timeouts and
 * interrupts. What happens with the output is the business of a sink: command_stream.c sends it to
 * the client that waits, a background command keeps it in its log.
 */
#pragma once

#include "base/list.h"
#include "execd/agent.h"
#include "execd/launch.h"
#include "execd/spool.h"

struct groupwait;
struct pump;
struct timer;
struct stream; /* command_stream.h */

struct command_spec {
    char *command;    /* shell text, or */
    struct strv argv; /* the words, when not empty */
    char *cwd;
    struct strv envs;
    int64_t timeout_ms; /* 0 = none */
    int64_t uid, gid;   /* -1 = not given */
    bool background;
};
void command_spec_done(struct command_spec *s);
/* From a body; -EINVAL with a text for the 400. */
int command_spec_parse(const char *data, size_t len, struct command_spec *ret, struct err *err);

struct command {
    char id[33];
    struct agent *agent;
    struct list node; /* in start order */
    char *content;    /* as submitted; argv as JSON */
    bool background, running, timed_out, interrupted, kill_sent;
    int exit_code; /* when finished */
    char *error;   /* when finished and not 0, else NULL */
    int64_t started_us, finished_us, timeout_ms;
    struct process *process; /* while running */
    struct timer *timer;     /* timeout, then the escalation of an interrupt */
    struct groupwait *rest;  /* of an interrupted group, after the leader's end */
    struct list waiters;     /* interrupt requests */
    /* background */
    struct spool log;
    struct pump *log_pump;
    /* who is told about the end and about exec; NULL when nobody */
    struct stream *stream;
};

int commands_new(struct agent *a, struct commands **ret);
void commands_free(struct commands *cs);
struct command *commands_find(struct commands *cs, const char *id);
/* SIGTERM or SIGKILL to the groups of running foreground commands. */
void commands_signal_foreground(struct commands *cs, int sig);

/*
 * Starts one. out/err: write ends for the process (borrowed). A program that cannot be found or
 * executed is not an error here: the command is then in the table as failed and the stream is told.
 * -EINVAL = bad request.
 */
int command_start(struct agent *a, const struct command_spec *spec, struct stream *stream,
                  struct command **ret, struct err *err);

/* ---- interrupts ---- */
struct command_waiter {
    struct list node;
    void (*cb)(struct command_waiter *w, bool gone); /* once; the node is unlinked before */
};
/* SIGTERM, SIGKILL to the tree after 3 s; w is called when it has ended. */
void command_interrupt(struct command *c, struct command_waiter *w);
