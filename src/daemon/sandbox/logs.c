/* The entrypoint's output, for diagnostics. Loop thread, but for run(). */
#include <errno.h>

#include "daemon/sandbox/internal.h"

/* ---- what the runtime knows ---- */

struct describe_job {
    struct job job;
    struct service *svc;
    char id[SANDBOX_ID_MAX + 1];
    json_t *details;
    enum fault fault;
    struct err err;
    details_cb cb;
    void *ud;
};

static void describe_run(struct job *j) {
    struct describe_job *q = container_of(j, struct describe_job, job);
    struct driver *d = q->svc->o.driver;
    int r = d->ops->describe ? d->ops->describe(d, q->id, &q->details, &q->err) : 0;

    if (r == -ENOENT)
        err_set(&q->err, r, "Sandbox %s not found.", q->id);
    q->fault = r == -ENOENT ? FAULT_NOT_FOUND : r < 0 ? FAULT_QUERY : FAULT_NONE;
}

static void describe_done(struct job *j) {
    struct describe_job *q = container_of(j, struct describe_job, job);
    struct service *s = q->svc;

    q->cb(q->fault, &q->err, q->details, q->ud);
    json_decref(q->details);
    free(q);
    service_ended_one(s);
}

void service_describe(struct service *s, const char *id, details_cb cb, void *ud) {
    struct err err = {0};
    struct describe_job *q = map_has(s->table, id) ? calloc(1, sizeof *q) : NULL;

    if (!q) {
        bool known = map_has(s->table, id);
        if (known)
            err_set(&err, -ENOMEM, "out of memory");
        else
            err_set(&err, -ENOENT, "Sandbox %s not found.", id);
        cb(known ? FAULT_QUERY : FAULT_NOT_FOUND, &err, NULL, ud);
        return;
    }
    str_copy(q->id, sizeof q->id, id);
    q->svc = s;
    q->cb = cb;
    q->ud = ud;
    q->job.run = describe_run;
    q->job.done = describe_done;
    s->n_pending++;
    work_submit(s->pool, &q->job);
}

/* ---- logs ---- */

/* Not one of the sandbox's queued operations: it changes nothing and must not wait for a slow one.
 */
struct logs_job {
    struct job job;
    struct service *svc;
    char id[SANDBOX_ID_MAX + 1];
    unsigned tail;
    bool timestamps;
    int64_t since_us;
    char *text;
    enum fault fault;
    struct err err;
    text_cb cb;
    void *ud;
};

static void run(struct job *j) {
    struct logs_job *l = container_of(j, struct logs_job, job);
    struct driver *d = l->svc->o.driver;
    int r = d->ops->logs(d, l->id, l->tail, l->timestamps, l->since_us, &l->text, &l->err);

    if (r == -ENOENT)
        err_set(&l->err, r, "Sandbox %s not found.", l->id);
    l->fault = r == -ENOENT ? FAULT_NOT_FOUND : r < 0 ? FAULT_QUERY : FAULT_NONE;
}

static void done(struct job *j) {
    struct logs_job *l = container_of(j, struct logs_job, job);
    struct service *s = l->svc;
    l->cb(l->fault, &l->err, l->text ? l->text : "", l->ud);
    free(l->text);
    free(l);
    service_ended_one(s);
}

void service_logs(struct service *s, const char *id, const struct log_query *q, text_cb cb,
                  void *ud) {
    struct err err = {0};

    if (!map_has(s->table, id)) {
        err_set(&err, -ENOENT, "Sandbox %s not found.", id);
        cb(FAULT_NOT_FOUND, &err, NULL, ud);
        return;
    }
    struct logs_job *l = calloc(1, sizeof *l);
    if (!l) {
        err_set(&err, -ENOMEM, "out of memory");
        cb(FAULT_QUERY, &err, NULL, ud);
        return;
    }
    str_copy(l->id, sizeof l->id, id);
    l->svc = s;
    l->tail = q->tail;
    l->timestamps = q->timestamps;
    l->since_us = q->since_us;
    l->cb = cb;
    l->ud = ud;
    l->job.run = run;
    l->job.done = done;
    s->n_pending++;
    work_submit(s->pool, &l->job);
}
