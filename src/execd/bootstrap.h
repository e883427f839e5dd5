/* The container entrypoint (execd.md 8.2): surroundings, pre-script, and what the user command is.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * Step 1, before anything else exists: trust in a guard's certificate, the EXECD_ENVS file, then
 * the pre-script. With a pre-script this does not return when all goes well: a shell sources it and
 * executes us again. 0, or the status to end with when a signal asked for the end meanwhile.
 */
int bootstrap_prepare(int argc, char **argv);
/* Words of the user command from the container's arguments and BOOTSTRAP_CMD. -ENOENT: a shell is
 * needed and there is none. */
int bootstrap_command(char *const *args, const struct strv *env, struct strv *ret, struct err *err);
