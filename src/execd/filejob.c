/* Frame of file requests (see filejob.h). Freed when both the worker and the exchange are done. */
#include "execd/filejob.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "execd/body.h"
#include "execd/errors.h"
#include "execd/expand.h"

static void job_free(struct filejob *j) {
    query_done(&j->query);
    json_decref(j->body);
    json_decref(j->result);
    strv_done(&j->env);
    free(j);
}

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct filejob *j = ud;

    j->req = NULL;
    if (!j->busy)
        job_free(j);
}

static void run_job(void *ud) {
    struct filejob *j = ud;
    int r = j->run(j);

    if (r < 0 && j->err.code == 0)
        err_sys(&j->err, r, "request");
}

static void on_done(void *ud) {
    struct filejob *j = ud;

    j->busy = false;
    if (!j->req)
        job_free(j);
    else if (j->err.code && j->status)
        reply_error(j->req, j->status, j->code, "%s", err_text(&j->err));
    else if (j->err.code)
        reply_errno(j->req, j->err.code, &j->err);
    else if (j->result)
        reply_json(j->req, 200, TAKE_PTR(j->result));
    else
        reply_empty(j->req);
}

static struct filejob *job_new(struct agent *a, struct h1_req *r, int (*run)(struct filejob *j)) {
    static const struct h1_req_ops ops = {.on_close = on_close};
    struct filejob *j = calloc(1, sizeof *j);
    const char *raw = h1_req_query(r);

    if (!j)
        return NULL;
    j->agent = a;
    j->req = r;
    j->run = run;
    if (env_build(&a->env, NULL, &j->env) < 0 ||
        query_parse(raw, raw ? strlen(raw) : 0, &j->query) < 0) {
        job_free(j);
        return NULL;
    }
    h1_req_set_ops(r, &ops, j);
    return j;
}

static void start(struct filejob *j) {
    j->busy = work_start(j->agent->loop, &j->work, run_job, on_done, j) == 0;
    if (!j->busy)
        reply_error(j->req, 500, ERR_RUNTIME, "no worker for the request");
}

void filejob_query(struct agent *a, struct h1_req *r, int (*run)(struct filejob *j)) {
    struct filejob *j = job_new(a, r, run);

    if (j)
        start(j);
    else
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
}

static void on_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    struct filejob *j = ud;
    struct err err = {0};

    j->body = len ? json_parse_first(data, len, &err) : NULL;
    if (!j->body)
        reply_error(r, 400, ERR_BODY, "%s", len ? err_text(&err) : "the request has no body");
    else
        start(j);
}

void filejob_body(struct agent *a, struct h1_req *r, int (*run)(struct filejob *j)) {
    struct filejob *j = job_new(a, r, run);

    if (j)
        h1_req_collect(r, MAX_JSON_BODY, on_body, j);
    else
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
}

int filejob_bad(struct filejob *j, const char *code, const char *fmt, ...) {
    char msg[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    j->status = 400;
    j->code = code;
    return err_set(&j->err, -EINVAL, "%s", msg);
}

int filejob_path(struct filejob *j, const char *text, char **ret) {
    return expand_file_path(text, &j->env, true, ret, &j->err);
}
