/*
 * Creation, the loop's half: the rules that need no waiting, identity and times, then the worker's
 * half (create_make.c), then into the table and the answer. A client that has gone away changes
 * nothing: the sandbox is finished and its expiry owns it. Loop thread only.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "daemon/sandbox/check.h"
#include "daemon/sandbox/create_priv.h"
#include "daemon/sandbox/snapshots.h"
#include "daemon/telemetry/telemetry.h"

#define ECHO_PREFIX "opensandbox.extensions."

static void free_secret(char *s) {
    if (s)
        explicit_bzero(s, strlen(s));
    free(s);
}

void create_request_done(struct create_request *rq) {
    free(rq->image);
    free(rq->snapshot_id);
    free(rq->registry_user);
    free_secret(rq->registry_password);
    json_decref(rq->policy);
    free(rq->os);
    free(rq->arch);
    strv_done(&rq->entrypoint);
    strv_done(&rq->env);
    json_decref(rq->metadata);
    json_decref(rq->extensions);
    json_decref(rq->limits);
    for (size_t i = 0; i < rq->n_volumes; i++) {
        struct volume_request *v = &rq->volumes[i];
        free(v->name);
        free(v->mount_path);
        free(v->sub_path);
        free(v->host_path);
        free(v->claim);
        free(v->oss.bucket);
        free(v->oss.endpoint);
        free(v->oss.version);
        free_secret(v->oss.key_id);
        free_secret(v->oss.key_secret);
        strv_done(&v->oss.options);
    }
    free(rq->volumes);
    memset(rq, 0, sizeof *rq);
}

/* Only the create itself needs them. */
static void forget_credentials(struct sandbox_spec *spec) {
    free(TAKE_PTR(spec->registry_user));
    free_secret(TAKE_PTR(spec->registry_password));
}

/* Refusals are no creates: nothing was begun. */
static void count(const struct create_op *c) {
    if (!c->sb->spec.id[0])
        return;
    telemetry_create(c->fault == FAULT_NONE, clock_mono_us() - c->begun_us);
    for (size_t i = 0; c->fault == FAULT_NONE && i < c->steps.n; i++)
        telemetry_create_step(c->steps.t[i].name, c->steps.t[i].us);
}

static void answer(struct create_op *c) {
    struct service *s = c->svc;

    forget_credentials(&c->sb->spec);
    if (c->sb->spec.id[0])
        map_remove(s->creating, c->sb->spec.id);
    if (c->fault == FAULT_NONE && table_add(s, c->sb) < 0) {
        err_set(&c->err, -ENOMEM,
                "out of memory"); /* acknowledged to nobody; the next start adopts it */
        c->fault = FAULT_CREATE;
    }
    count(c);
    if (c->fault) {
        if (c->sb->spec.id[0]) /* a refusal is the client's affair */
            log_warn("create failed", LOG_STR("sandbox", c->sb->spec.id), LOG_ERR(&c->err));
        c->cb(c->fault, &c->err, NULL, NULL, c->ud);
        sandbox_free(c->sb);
    } else {
        c->sb->started_us = c->info.started_us ? c->info.started_us : c->sb->created_us;
        c->sb->fire_us = c->sb->expires_us;
        expiry_schedule(s, c->sb);
        log_info("sandbox created", LOG_STR("sandbox", c->sb->spec.id),
                 LOG_STR("image", c->sb->spec.image));
        if (c->has_last)
            sandbox_changed(s, c->sb, &c->last);
        c->cb(FAULT_NONE, &c->err, c->sb, &c->steps, c->ud);
    }
    create_request_done(&c->rq);
    free(c);
    service_ended_one(s);
}

static void run(struct job *j) {
    create_make(container_of(j, struct create_op, job));
}

static void done(struct job *j) {
    answer(container_of(j, struct create_op, job));
}

bool create_note_change(struct service *s, const struct instance_info *info) {
    struct create_op *c = map_get(s->creating, info->id);
    if (!c)
        return false;
    c->last = *info;
    c->has_last = true;
    return true;
}

/* Only extensions with the public prefix are kept and shown. */
static json_t *echoed(const json_t *extensions) {
    json_t *o = NULL, *v;
    const char *key;

    json_object_foreach((json_t *)extensions, key, v) {
        if (!str_starts(key, ECHO_PREFIX))
            continue;
        if (!o && !(o = json_object()))
            return NULL;
        json_object_set(o, key, v);
    }
    return o;
}

static int set_access_token(struct sandbox_spec *spec) {
    char token[33];

    id_hex32(token);
    spec->access_token = strdup(token);
    explicit_bzero(token, sizeof token);
    return spec->access_token ? 0 : -ENOMEM;
}

static int fill(struct service *s, struct sandbox *sb, const struct create_request *rq) {
    struct sandbox_spec *spec = &sb->spec;
    char id[37];

    id_uuid(id);
    str_copy(spec->id, sizeof spec->id, id);
    if (!s->o.no_access_token && set_access_token(spec) < 0)
        return -ENOMEM;
    sb->metadata = rq->metadata ? json_incref(rq->metadata) : json_object();
    sb->extensions = echoed(rq->extensions);
    spec->labels = rq->metadata ? json_deep_copy(rq->metadata) : NULL;
    spec->extensions = sb->extensions ? json_deep_copy(sb->extensions) : NULL;
    if (rq->os && !(sb->platform = json_pack("{s:s,s:s}", "os", rq->os, "arch", rq->arch)))
        return -ENOMEM;
    sb->created_us = sb->changed_us = service_now(s);
    sb->expires_us = rq->timeout_s ? sb->created_us + rq->timeout_s * 1000000 : 0;
    spec->expires_us = sb->expires_us;
    return sb->metadata ? 0 : -ENOMEM;
}

/* A snapshot stands for its image, and brings an entrypoint when the request has none. */
static enum fault take_snapshot(struct create_request *rq, struct sandbox_spec *spec,
                                struct err *err) {
    static const char *const waiting[] = {"tail", "-f", "/dev/null", NULL};

    spec->snapshot_id = TAKE_PTR(rq->snapshot_id);
    if (rq->entrypoint.n == 0 && !rq->no_entrypoint && strv_copy(&rq->entrypoint, waiting) < 0)
        return create_no_memory(err);
    return FAULT_NONE;
}

/* Everything else that can be decided on the loop; then the worker has its turn. */
static enum fault prepare(struct create_op *c) {
    struct service *s = c->svc;
    struct sandbox_spec *spec = &c->sb->spec;
    enum fault f = c->rq.snapshot_id ? take_snapshot(&c->rq, spec, &c->err) : FAULT_NONE;

    if (f || (f = check_create(&s->o, &c->rq, spec, &c->err)))
        return f;
    if (fill(s, c->sb, &c->rq) < 0 || map_set(s->creating, spec->id, c, NULL) < 0) {
        err_set(&c->err, -ENOMEM, "out of memory");
        return FAULT_CREATE;
    }
    return FAULT_NONE;
}

static void go_on(struct create_op *c) {
    c->fault = prepare(c);
    if (c->fault) {
        answer(c);
        return;
    }
    c->job.run = run;
    c->job.done = done;
    work_submit(c->svc->pool, &c->job);
}

static void resolve_run(struct job *j) {
    struct create_op *c = container_of(j, struct create_op, job);
    c->fault = snapshots_resolve(c->svc, c->rq.snapshot_id, &c->rq.image, &c->err);
}

static void resolve_done(struct job *j) {
    struct create_op *c = container_of(j, struct create_op, job);
    if (c->fault)
        answer(c);
    else
        go_on(c);
}

static struct create_op *new_create(struct service *s, create_cb cb, void *ud) {
    struct create_op *c = calloc(1, sizeof *c);

    if (!c || !(c->sb = calloc(1, sizeof *c->sb))) {
        free(c);
        return NULL;
    }
    list_init(&c->sb->ops);
    list_init(&c->sb->by_age);
    c->begun_us = clock_mono_us();
    c->svc = s;
    c->cb = cb;
    c->ud = ud;
    return c;
}

void service_create(struct service *s, struct create_request *rq, create_cb cb, void *ud) {
    struct create_op *c = new_create(s, cb, ud);

    if (!c) {
        struct err err = {0};
        err_set(&err, -ENOMEM, "out of memory");
        create_request_done(rq);
        cb(FAULT_CREATE, &err, NULL, NULL, ud);
        return;
    }
    c->rq = *rq;
    memset(rq, 0, sizeof *rq);
    s->n_pending++;
    if (s->refusing) {
        err_set(&c->err, -ESHUTDOWN, "the daemon is shutting down");
        c->fault = FAULT_STOPPING;
    } else {
        c->fault = check_source(&s->o, &c->rq, &c->sb->spec, &c->err);
    }
    if (c->fault) {
        answer(c);
    } else if (c->rq.snapshot_id) {
        c->job.run = resolve_run;
        c->job.done = resolve_done;
        work_submit(s->pool, &c->job);
    } else {
        go_on(c);
    }
}
