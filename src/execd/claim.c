/*
 * POST /claim: binds a native sandbox's agent to its sandbox, once. Brings the lowest layer of
 * variables, perhaps a new token ("": none, absent: the old one stays), perhaps the entrypoint. The
 * answer is the driver's proof of life.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "execd/agent.h"
#include "execd/body.h"
#include "execd/errors.h"
#include "execd/handlers.h"
#include "execd/init.h"

struct claim {
    struct h1_req *req; /* NULL: the driver went away */
    bool answered;      /* on_close frees; before, on_entry does */
};

static void answer(struct h1_req *r, pid_t pid) {
    json_t *j = json_pack("{s:i}", "pid", (int)pid);
    reply_json(r, 200, j);
}

static void on_entry(pid_t pid, const struct err *error, void *ud) {
    struct claim *c = ud;

    if (!c->req) {
        free(c);
        return;
    }
    c->answered = true;
    if (error)
        reply_error(c->req, 500, ERR_RUNTIME, "%s", err_text(error));
    else
        answer(c->req, pid);
}

static void on_claim_closed(struct h1_req *r, bool completed, void *ud) {
    struct claim *c = ud;

    c->req = NULL;
    if (c->answered)
        free(c);
}

struct claim_spec {
    struct strv env, argv;
    const char *sandbox_id, *cwd, *token;
};

static int parse(const json_t *j, struct claim_spec *s, struct err *err) {
    int r = body_str(j, "sandbox_id", &s->sandbox_id, err);

    if (r == 0)
        r = body_str(j, "cwd", &s->cwd, err);
    if (r == 0)
        r = body_str(j, "access_token", &s->token, err);
    if (r == 0)
        r = body_strv(j, "entrypoint", &s->argv, err);
    if (r == 0)
        r = body_env(j, "env", &s->env, err);
    if (r == 0 && s->argv.n > 0 && !*s->argv.v[0])
        r = err_set(err, -EINVAL, "entrypoint must begin with the name of a program");
    return r;
}

/* The working directory of the entrypoint is the default one of every command too. */
static int bind_cwd(struct agent *a, const char *cwd, struct err *err) {
    _cleanup_(launch_done) struct launch l = {0};
    int r = launch_prepare(a, cwd, NULL, -1, -1, &l, err);

    if (r < 0)
        return r;
    if (chdir(l.cwd) < 0) /* commands without a cwd of their own inherit it */
        return err_sys(err, -errno, "cwd %s", cwd);
    free(a->cwd);
    a->cwd = TAKE_PTR(l.cwd);
    return 0;
}

/* SDKs set variables for later commands by appending to the file that EXECD_ENVS names. Its folder
 * is part of every native root; the file begins with the first variable. */
static int bind_envs_file(struct agent *a) {
    if (env_get(&a->env.claim, "EXECD_ENVS") || env_get(&a->env.daemon, "EXECD_ENVS"))
        return 0;
    return env_set(&a->env.claim, "EXECD_ENVS", ENVFILE_DEFAULT);
}

static int bind_agent(struct agent *a, struct claim_spec *s, struct err *err) {
    char *token = s->token && *s->token ? strdup(s->token) : NULL;

    if (s->token && *s->token && !token)
        return err_set(err, -ENOMEM, "out of memory");
    if (s->token) { /* "" takes the token away */
        if (a->token)
            explicit_bzero(a->token, strlen(a->token));
        free(a->token);
        a->token = token;
    }
    a->env.claim = s->env;
    s->env = (struct strv){0};
    if (s->sandbox_id && env_set(&a->env.claim, "OPENSANDBOX_ID", s->sandbox_id) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    if (bind_envs_file(a) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    a->claimed = true;
    return str_is_empty(s->cwd) ? 0 : bind_cwd(a, s->cwd, err);
}

static void start_entrypoint(struct agent *a, struct h1_req *r, const struct claim_spec *s) {
    static const struct h1_req_ops ops = {.on_close = on_claim_closed};
    _cleanup_(launch_done) struct launch l = {0};
    struct claim *c = calloc(1, sizeof *c);
    struct err err = {0};
    int e = c ? 0 : err_set(&err, -ENOMEM, "out of memory");

    if (e == 0)
        e = launch_prepare(a, NULL, NULL, -1, -1, &l, &err);
    if (e == 0) {
        strv_done(&l.env);
        e = env_build_entrypoint(&a->env, &l.env);
    }
    if (e == 0)
        e = launch_argv(&l, &s->argv, &err);
    if (e == 0) {
        c->req = r;
        h1_req_set_ops(r, &ops, c);
        e = entrypoint_start(a, &l, ENTRY_LOG, on_entry, c, &err);
    }
    if (e < 0) {
        if (c && c->req)
            c->answered = true; /* no on_entry will come */
        else
            free(c);
        reply_error(r, 500, ERR_RUNTIME, "%s", err_text(&err));
    }
}

static void on_claim_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    struct agent *a = ud;
    struct claim_spec s = {0};
    _cleanup_json_ json_t *j = NULL;
    struct err err = {0};
    int e = body_parse(data, len, false, &j, &err);

    if (e == 0)
        e = parse(j, &s, &err);
    if (e == 0 && a->claimed)
        reply_error(r, 409, ERR_INITIALIZED, "the sandbox has been claimed before");
    else if (e == 0 && (e = bind_agent(a, &s, &err)) == 0 && s.argv.n > 0)
        start_entrypoint(a, r, &s);
    else if (e == 0)
        answer(r, 0);
    else
        reply_error(r, e == -EINVAL ? 400 : 500, e == -EINVAL ? ERR_BODY : ERR_RUNTIME, "%s",
                    err_text(&err));
    strv_done(&s.env);
    strv_done(&s.argv);
}

HANDLER(handle_claim) {
    struct agent *a = ud;

    if (!a->native)
        reply_error(r, 404, "NOT_FOUND", "there is no POST /claim outside native sandboxes");
    else
        h1_req_collect(r, MAX_JSON_BODY, on_claim_body, a);
}
