/* Running one command in a sandbox with our own standard streams: what `run` and `exec` share. */
#pragma once

#include "cli/cli.h"

struct stream_opts {
    const struct args *args; /* --json, --timeout, -i, -t, --env, --user are read from here */
    const char *const *argv; /* the command */
    const char *cwd;         /* NULL = the sandbox's */
    bool forward_signals;    /* exec: SIGINT goes to the command; run: it ends the wait */
    uint32_t renew_s;        /* keep the sandbox from expiring */
};
/* Checks -t, --timeout, --env and --user without doing anything; 0 or an exit status, with the
 * error printed. */
int stream_check(const struct args *a);
/*
 * Returns the exit status that cove should end with. Errors are printed. The command is dead when
 * this returns, unless the sandbox is about to be removed anyway (run).
 */
int stream_command(struct cove_client *c, const char *sandbox_id, const struct stream_opts *o);
