/*
 * A file request that is answered once, after blocking work on a worker: the frame shared by all
 * such handlers. The worker owns the struct until it is done.
 */
#pragma once

#include "base/json.h"
#include "execd/agent.h"
#include "execd/work.h"
#include "net/url.h"

struct filejob {
    struct agent *agent;
    struct h1_req *req; /* NULL: the client is gone */
    struct work work;
    bool busy;
    int (*run)(struct filejob *j); /* worker: 0 or negative errno with err set */

    struct query query;
    json_t *body;    /* NULL without one */
    struct strv env; /* for path expansion */
    json_t *result;  /* set by run: the answer; NULL = an empty 200 */
    int status;      /* set by run with a failure: 400 ...; 0 = 404 for -ENOENT, else 500 */
    const char *code;
    struct err err;
};

/* Runs without a body. */
void filejob_query(struct agent *a, struct h1_req *r, int (*run)(struct filejob *j));
/* Collects a JSON body first. */
void filejob_body(struct agent *a, struct h1_req *r, int (*run)(struct filejob *j));

/* For use in run: a failure that is the request's fault. Returns -EINVAL. */
int filejob_bad(struct filejob *j, const char *code, const char *fmt, ...) _printf_(3, 4);
/* Expanded path of a request; cleaned. */
int filejob_path(struct filejob *j, const char *text, char **ret);
