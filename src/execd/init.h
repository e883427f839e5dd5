/*
 * The supervisor: the entrypoint, the signals the agent gets, the end of the agent. Works the same
 * as PID 1 and as an ordinary process; a plain start is the case without an entrypoint.
 */
#pragma once

#include "execd/agent.h"
#include "execd/launch.h"

enum entry_stdio {
    ENTRY_INHERIT,    /* the agent's own descriptors */
    ENTRY_NULL_STDIN, /* the same, with /dev/null as stdin */
    ENTRY_LOG,        /* both outputs into the log descriptor */
};

/* Signals the process table has to report; ended by 0. */
const int *init_signals(void);
void init_on_signal(int sig, void *agent);

/* cb: once, error NULL = it runs with this pid. When it ends the agent ends, with its status. */
typedef void (*entry_cb)(pid_t pid, const struct err *error, void *ud);
int entrypoint_start(struct agent *a, const struct launch *l, enum entry_stdio stdio, entry_cb cb,
                     void *ud, struct err *err);
void entrypoint_free(struct agent *a);

/* Ends the loop; main returns this status (a->exit_status). */
void agent_exit(struct agent *a, int status);
