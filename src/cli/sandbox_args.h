/* The options that describe a new sandbox: what `run` and `create` share. */
#pragma once

#include "cli/cli.h"
#include "cli/option_values.h"

struct sandbox_args {
    struct cove_sandbox_options o; /* points into what follows and into the arguments */
    struct strv env;
    struct mount_arg *mounts;
    struct cove_mount *cove_mounts;
};
/* with_env: --env belongs to the sandbox (create), not to one command (run). */
int sandbox_args_parse(const struct args *a, bool local_paths, bool with_env,
                       struct sandbox_args *ret, struct err *err);
/* Fits the options to what the daemon's driver does: its default where nothing was asked for, an
 * error for what it would refuse or leave out. One request. */
int sandbox_args_fit(const struct args *a, struct cove_client *c, struct sandbox_args *s,
                     struct cove_error *err);
void sandbox_args_done(struct sandbox_args *s);
