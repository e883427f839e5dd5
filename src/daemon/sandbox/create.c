/*
 * Creation: check (loop), then on a worker resolve volumes, look at the image, intent into the
 * database, driver, result into the database; then into the table. Whatever fails undoes what came
 * before it; a killed daemon finds the intent at its next start and removes what there is. Loop
 * thread, but for run().
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/id.h"
#include "base/log.h"
#include "daemon/sandbox/check.h"
#include "daemon/sandbox/internal.h"

#define ECHO_PREFIX "opensandbox.extensions."

struct create_op {
    struct job job;
    struct service *svc;
    struct create_request rq;
    struct sandbox *sb;
    struct step_times steps;
    struct instance_info info, exited; /* exited: came while the create was still under way */
    bool has_exited;
    enum fault fault;
    struct err err;
    create_cb cb;
    void *ud;
};

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

static void add_step(struct step_times *t, const char *name, int64_t since_us) {
    if (t->n < ARRAY_SIZE(t->t))
        t->t[t->n++] = (struct step_time){name, clock_mono_us() - since_us};
}

/* ---- on the worker ---- */

static int insert_intent(struct create_op *c) {
    _cleanup_free_ char *record = record_to_text(c->sb);
    _cleanup_free_ char *metadata = json_dumps(c->sb->metadata, JSON_COMPACT);
    struct statedb_row row = {
        .state = ROW_CREATING,
        .record = record,
        .metadata = metadata,
        .created_us = c->sb->created_us,
        .expires_us = c->sb->expires_us,
    };

    if (!record || !metadata)
        return err_set(&c->err, -ENOMEM, "out of memory");
    str_copy(row.id, sizeof row.id, c->sb->spec.id);
    return statedb_insert(c->svc->o.store, &row, &c->err);
}

static enum fault make(struct create_op *c) {
    struct driver *d = c->svc->o.driver;
    struct statedb *st = c->svc->o.store;
    const char *id = c->sb->spec.id;
    int64_t t0 = clock_mono_us();
    struct err ignored = {0};
    int r;

    if (insert_intent(c) < 0)
        return FAULT_CREATE;
    crash_point("service-create-intent");
    add_step(&c->steps, "intent", t0);
    t0 = clock_mono_us();
    struct step_times inner = {0};
    r = d->ops->create(d, &c->sb->spec, &c->info, &inner, &c->err);
    if (r < 0) {
        statedb_delete(st, id, &ignored);
        return r == -ENOENT ? FAULT_IMAGE : fault_of(r, FAULT_CREATE);
    }
    crash_point("service-create-made");
    add_step(&c->steps, "driver", t0);
    for (size_t i = 0; i < inner.n && c->steps.n < ARRAY_SIZE(c->steps.t) - 1; i++)
        c->steps.t[c->steps.n++] = inner.t[i];
    t0 = clock_mono_us();
    r = statedb_set_state(st, id, ROW_ACTIVE, &c->err);
    if (r < 0) { /* cannot be promised: undo */
        d->ops->remove(d, id, &ignored);
        statedb_delete(st, id, &ignored);
        return FAULT_CREATE;
    }
    crash_point("service-create-committed");
    add_step(&c->steps, "result", t0);
    return FAULT_NONE;
}

static void run(struct job *j) {
    struct create_op *c = container_of(j, struct create_op, job);
    struct driver *d = c->svc->o.driver;

    int r = d->ops->ensure_image(d, &c->sb->spec, &c->err);
    if (r < 0) {
        c->fault = fault_of(r, FAULT_IMAGE);
        return;
    }
    c->fault = volumes_resolve(&c->svc->o, &c->rq, &c->sb->spec, &c->err);
    if (c->fault == FAULT_NONE)
        c->fault = make(c);
}

/* ---- on the loop ---- */

static void answer(struct create_op *c) {
    struct service *s = c->svc;

    map_remove(s->creating, c->sb->spec.id);
    if (c->fault == FAULT_NONE && table_add(s, c->sb) < 0) {
        err_set(&c->err, -ENOMEM,
                "out of memory"); /* acknowledged to nobody; the next start adopts it */
        c->fault = FAULT_CREATE;
    }
    if (c->fault) {
        log_warn("create failed", LOG_STR("sandbox", c->sb->spec.id), LOG_ERR(&c->err));
        c->cb(c->fault, &c->err, NULL, NULL, c->ud);
        sandbox_free(c->sb);
    } else {
        c->sb->started_us = c->info.started_us ? c->info.started_us : c->sb->created_us;
        if (c->has_exited)
            sandbox_apply_exit(c->sb, &c->exited, service_now(s));
        c->sb->fire_us = c->sb->expires_us;
        expiry_schedule(s, c->sb);
        log_info("sandbox created", LOG_STR("sandbox", c->sb->spec.id),
                 LOG_STR("image", c->sb->spec.image));
        c->cb(FAULT_NONE, &c->err, c->sb, &c->steps, c->ud);
    }
    create_request_done(&c->rq);
    free(c);
    service_ended_one(s);
}

static void done(struct job *j) {
    answer(container_of(j, struct create_op, job));
}

bool create_note_exit(struct service *s, const struct instance_info *info) {
    struct create_op *c = map_get(s->creating, info->id);
    if (!c)
        return false;
    c->exited = *info;
    c->has_exited = true;
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

static int fill(struct service *s, struct sandbox *sb, const struct create_request *rq) {
    char id[37], token[33];

    id_uuid(id);
    str_copy(sb->spec.id, sizeof sb->spec.id, id);
    if (!s->o.no_access_token) {
        id_hex32(token);
        sb->spec.access_token = strdup(token);
        explicit_bzero(token, sizeof token);
        if (!sb->spec.access_token)
            return -ENOMEM;
    }
    int r = strv_addf(&sb->spec.env, "OPENSANDBOX_ID=%s", id);
    if (r < 0)
        return r;
    sb->metadata = rq->metadata ? json_incref(rq->metadata) : json_object();
    sb->extensions = echoed(rq->extensions);
    if (rq->os && !(sb->platform = json_pack("{s:s,s:s}", "os", rq->os, "arch", rq->arch)))
        return -ENOMEM;
    sb->created_us = sb->changed_us = service_now(s);
    sb->expires_us = rq->timeout_s ? sb->created_us + rq->timeout_s * 1000000 : 0;
    return sb->metadata ? 0 : -ENOMEM;
}

static enum fault prepare(struct service *s, struct create_request *rq, struct sandbox *sb,
                          struct err *err) {
    list_init(&sb->ops);
    list_init(&sb->by_age);
    if (s->refusing) {
        err_set(err, -ESHUTDOWN, "the daemon is shutting down");
        return FAULT_STOPPING;
    }
    enum fault f = check_create(&s->o, rq, &sb->spec, err);
    if (f)
        return f;
    if (fill(s, sb, rq) < 0) {
        err_set(err, -ENOMEM, "out of memory");
        return FAULT_CREATE;
    }
    return FAULT_NONE;
}

void service_create(struct service *s, struct create_request *rq, create_cb cb, void *ud) {
    struct err err = {0};
    struct sandbox *sb = calloc(1, sizeof *sb);
    struct create_op *c = calloc(1, sizeof *c);
    enum fault f = sb && c ? prepare(s, rq, sb, &err) : FAULT_CREATE;

    if (f == FAULT_NONE && map_set(s->creating, sb->spec.id, c, NULL) < 0)
        f = FAULT_CREATE;
    if (f) {
        if (!err.code)
            err_set(&err, -ENOMEM, "out of memory");
        sandbox_free(sb);
        free(c);
        create_request_done(rq);
        cb(f, &err, NULL, NULL, ud);
        return;
    }
    *c = (struct create_op){.svc = s, .sb = sb, .rq = *rq, .cb = cb, .ud = ud};
    memset(rq, 0, sizeof *rq);
    c->job.run = run;
    c->job.done = done;
    s->n_pending++;
    work_submit(s->pool, &c->job);
}
