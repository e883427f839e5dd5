/* Expansion of $NAME, ${NAME} and a leading ~ in paths and values (execd.md 2.6, 5.1). */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * Replaces $NAME and ${NAME} from env; a '$' that starts no name stays. An unknown name is empty,
 * or -ENOENT with its name in err when `strict`. At most 1 MiB (-ENOBUFS). Caller frees *ret.
 */
int expand_vars(const char *s, const struct strv *env, bool strict, char **ret, struct err *err);
/* expand_vars strictly, then "~" and "~/..." from HOME, else from the account of the current uid,
 * else "/". */
int expand_path(const char *s, const struct strv *env, char **ret, struct err *err);
/*
 * A path of a file request: taken literally when it exists so or names an unknown variable, else
 * expanded; then made absolute against the working directory. `clean`: lexically cleaned as well.
 */
int expand_file_path(const char *s, const struct strv *env, bool clean, char **ret,
                     struct err *err);
