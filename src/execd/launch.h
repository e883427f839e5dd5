/*
 * From a request's members to a start: environment, working directory, identity, program. Shared by
 * commands, terminals and the entrypoint.
 */
#pragma once

#include "base/json.h"
#include "execd/agent.h"
#include "execd/identity.h"

struct launch {
    struct strv argv, env;
    char *exe, *cwd;
    bool inherits_cwd; /* cwd is the agent's own */
    struct identity identity;
};

void launch_done(struct launch *l);
/*
 * Merged environment (`extra` on top), the effective directory and the identity. -EINVAL with a
 * text when cwd does not resolve to a directory; other errors are failures of the agent.
 */
int launch_prepare(const struct agent *a, const char *cwd, const struct strv *extra, int64_t uid,
                   int64_t gid, struct launch *ret, struct err *err);
/* Program of an argv / of shell text. A failure is a start failure, not a bad request. */
int launch_argv(struct launch *l, const struct strv *argv, struct err *err);
int launch_shell(struct launch *l, const char *text, struct err *err);
/* Fills the options; they borrow from l. */
void launch_apply(const struct launch *l, struct process_opts *o);
