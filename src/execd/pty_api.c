/* HTTP routes of terminal sessions (execd.md 4.1). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "execd/body.h"
#include "execd/errors.h"
#include "execd/expand.h"
#include "execd/handlers.h"
#include "execd/pty_ws.h"
#include "net/url.h"

/* cwd is expanded and made now; a start later finds it there. */
static int make_cwd(const struct agent *a, struct pty_spec *spec, struct err *err) {
    _cleanup_strv_ struct strv env = {0};
    _cleanup_free_ char *expanded = NULL, *abs = NULL;
    int r;

    if (!spec->cwd)
        return 0;
    r = env_build(&a->env, &spec->env, &env);
    if (r < 0)
        return err_sys(err, r, "environment");
    r = expand_path(spec->cwd, &env, &expanded, err);
    if (r < 0)
        return err_wrap(err, "cwd");
    abs = path_join(a->cwd, expanded);
    r = abs ? path_mkdirs_at(AT_FDCWD, abs, 0777) : -ENOMEM;
    if (r < 0)
        return err_sys(err, r, "cwd %s", spec->cwd);
    free(spec->cwd);
    spec->cwd = TAKE_PTR(abs);
    return 0;
}

static void on_create_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    _cleanup_(pty_spec_done) struct pty_spec spec = {0};
    struct agent *a = ud;
    struct err err = {0};
    int e = pty_spec_parse(data, len, &spec, &err);

    if (e < 0) {
        reply_error(r, e == -EINVAL ? 400 : 500, e == -EINVAL ? ERR_BODY : ERR_RUNTIME, "%s",
                    err_text(&err));
        return;
    }
    e = make_cwd(a, &spec, &err);
    if (e < 0) {
        reply_error(r, 500, ERR_RUNTIME, "%s", err_text(&err));
        return;
    }
    struct pty *p = pty_new(a->ptys, &spec);
    if (!p)
        reply_error(r, 500, ERR_RUNTIME, "there are too many terminal sessions");
    else
        reply_json(r, 201, json_pack("{s:s}", "session_id", p->id));
}

HANDLER(handle_pty_create) {
    h1_req_collect(r, MAX_JSON_BODY, on_create_body, ud);
}

static struct pty *find(struct agent *a, struct h1_req *r, const char *id) {
    struct pty *p = ptys_find(a->ptys, id);

    if (!p)
        reply_error(r, 404, ERR_CONTEXT, "no terminal session has the id %s", id);
    return p;
}

HANDLER(handle_pty_status) {
    struct pty *p = find(ud, r, m->params[0]);

    if (p)
        reply_json(r, 200,
                   json_pack("{s:s, s:b, s:I}", "session_id", p->id, "running", p->process != NULL,
                             "output_offset", (json_int_t)p->ring.end));
}

HANDLER(handle_pty_delete) {
    struct pty *p = find(ud, r, m->params[0]);

    if (!p)
        return;
    pty_delete(p);
    reply_empty(r);
}

HANDLER(handle_pty_ws) {
    struct pty *p = find(ud, r, m->params[0]);
    const char *raw = h1_req_query(r), *since;
    struct attach_opts o = {0};
    struct query q;

    if (!p)
        return;
    if (query_parse(raw, raw ? strlen(raw) : 0, &q) < 0) {
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
        return;
    }
    since = query_get(&q, "since");
    if (!since || str_to_u64(since, &o.since) < 0)
        o.since = 0;
    o.pipe_mode = str_eq(query_get(&q, "pty"), "0");
    o.takeover = str_eq(query_get(&q, "takeover"), "1");
    query_done(&q);
    pty_attach(p, r, &o);
}
