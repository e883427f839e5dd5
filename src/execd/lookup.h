/* Finding the program of a command (execd.md 2.3, execd-next.md 1.2). */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * The file to execute for argv[0] = `name`: with a '/' it is taken relative to cwd (absolute), a
 * bare name is searched in the absolute entries of PATH in env. -ENOENT, -EACCES (found, but not
 * executable) or -ENOMEM with a text in err. Caller frees *ret.
 */
int lookup_program(const char *name, const char *cwd, const struct strv *env, char **ret,
                   struct err *err);
/* bash when it is on PATH in env, else sh, else -ENOENT. */
int lookup_shell(const struct strv *env, char **ret, struct err *err);
