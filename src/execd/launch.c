/* Preparation of starts (see launch.h). Owns nothing beyond its struct; the caller frees it after
 * the start. */
#include "execd/launch.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "execd/expand.h"
#include "execd/lookup.h"

void launch_done(struct launch *l) {
    strv_done(&l->argv);
    strv_done(&l->env);
    free(l->exe);
    free(l->cwd);
    identity_done(&l->identity);
    *l = (struct launch){0};
}

static int resolve_cwd(const struct agent *a, const char *cwd, struct launch *l, struct err *err) {
    _cleanup_free_ char *expanded = NULL;
    struct stat st;
    int r;

    if (str_is_empty(cwd)) {
        l->inherits_cwd = true; /* its user need not be able to enter it by name */
        l->cwd = strdup(a->cwd);
        return l->cwd ? 0 : err_set(err, -ENOMEM, "out of memory");
    }
    r = expand_path(cwd, &l->env, &expanded, err);
    if (r < 0) {
        err_wrap(err, "cwd");
        return r == -ENOMEM ? r : -EINVAL;
    }
    l->cwd = path_join(a->cwd, expanded);
    if (!l->cwd)
        return err_set(err, -ENOMEM, "out of memory");
    if (stat(l->cwd, &st) < 0) {
        err_sys(err, -errno, "cwd %s", cwd);
        return -EINVAL;
    }
    if (!S_ISDIR(st.st_mode))
        return err_set(err, -EINVAL, "cwd %s is not a directory", cwd);
    return 0;
}

int launch_prepare(const struct agent *a, const char *cwd, const struct strv *extra, int64_t uid,
                   int64_t gid, struct launch *ret, struct err *err) {
    struct launch l = {0};
    int r = env_build(&a->env, extra, &l.env);

    if (r < 0)
        err_sys(err, r, "environment");
    if (r == 0)
        r = resolve_cwd(a, cwd, &l, err);
    if (r == 0 && (r = env_set(&l.env, "PWD", l.cwd)) < 0)
        err_sys(err, r, "environment");
    if (r == 0 && (r = identity_resolve(uid, gid, &l.identity)) < 0)
        err_sys(err, r, "identity");
    if (r < 0)
        launch_done(&l);
    else
        *ret = l;
    return r;
}

int launch_argv(struct launch *l, const struct strv *argv, struct err *err) {
    int r = lookup_program(argv->v[0], l->cwd, &l->env, &l->exe, err);

    if (r == 0 && (r = strv_copy(&l->argv, (const char *const *)argv->v)) < 0)
        err_sys(err, r, "argv");
    return r;
}

int launch_shell(struct launch *l, const char *text, struct err *err) {
    int r = lookup_shell(&l->env, &l->exe, err);

    if (r < 0)
        return r;
    r = strv_add(&l->argv, path_base(l->exe));
    if (r == 0)
        r = strv_add(&l->argv, "-c");
    if (r == 0)
        r = strv_add(&l->argv, text);
    return r < 0 ? err_sys(err, r, "argv") : 0;
}

void launch_apply(const struct launch *l, struct process_opts *o) {
    o->exe = l->exe;
    o->argv = (const char *const *)l->argv.v;
    o->envp = (const char *const *)l->env.v;
    o->cwd = l->inherits_cwd ? NULL : l->cwd;
    identity_apply(&l->identity, o);
}
