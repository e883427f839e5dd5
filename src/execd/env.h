/*
 * The variables of commands (execd.md 2.6, execd-next.md 2.4). Layers, later wins: the agent's own
 * environment, what the claim brought, the file named by EXECD_ENVS (read again for every start),
 * the request. The agent's secrets and its own configuration never get further than here.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct env {
    struct strv daemon;     /* own environment without COVE_* and without the hidden names */
    struct strv entrypoint; /* the same, but with the names that image entrypoints read */
    struct strv claim;      /* empty before a claim */
};

/* From a NULL-terminated environ. */
int env_init(struct env *e, char **environ_in);
void env_done(struct env *e);

/* Layers up to the file; `extra` (K=V vector or NULL) on top. Problems of the file are logged. */
int env_build(const struct env *e, const struct strv *extra, struct strv *ret);
int env_build_entrypoint(const struct env *e, struct strv *ret);

/*
 * Applies the text of an EXECD_ENVS file to `out`; values refer to variables of `base`. Returns the
 * number of entries skipped as malformed, or -ENOMEM.
 */
int envfile_apply(const char *text, size_t len, const struct strv *base, struct strv *out);

/* Where EXECD_ENVS points unless somebody says otherwise. */
#define ENVFILE_DEFAULT "/opt/opensandbox/.env"
/* Makes the file and its directories where they are missing, so that commands can append to it; a
 * failure (a root that cannot be written) is logged and leaves it missing, which means empty. */
void envfile_touch(const char *path);

/* Kept from user processes even when the file sets it. */
bool env_is_hidden(const char *name);
