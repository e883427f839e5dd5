/*
 * Metadata patch (RFC 7396 on a flat map): null removes, a value replaces. Applied to the map as it
 * is when the patch has its turn, so concurrent patches do not lose each other. Loop thread, but
 * for run().
 */
#include <errno.h>

#include "daemon/sandbox/check.h"
#include "daemon/sandbox/internal.h"
#include "daemon/telemetry/telemetry.h"

struct patch_op {
    struct op op;
    json_t *patch, *result;
    char *text;
};

static bool refuse(struct op *o, enum fault f) {
    o->fault = f;
    return false;
}

static bool start(struct op *o) {
    struct patch_op *p = container_of(o, struct patch_op, op);
    const char *key;
    json_t *v;

    if (o->sb->gone) {
        err_set(&o->err, -ENOENT, "Sandbox %s not found.", o->sb->spec.id);
        return refuse(o, FAULT_NOT_FOUND);
    }
    o->fault = check_metadata_patch(p->patch, &o->err);
    if (o->fault)
        return false;
    p->result = json_copy(o->sb->metadata);
    json_object_foreach(p->patch, key, v) {
        if (json_is_null(v))
            json_object_del(p->result, key);
        else if (json_object_set(p->result, key, v) < 0)
            return refuse(o, FAULT_QUERY);
    }
    if (json_object_size(p->result) > CHECK_MAX_MAP) {
        err_set(&o->err, -E2BIG, "metadata may hold at most %d entries.", CHECK_MAX_MAP);
        return refuse(o, FAULT_INVALID);
    }
    p->text = p->result ? json_dumps(p->result, JSON_COMPACT) : NULL;
    if (!p->text) {
        err_set(&o->err, -ENOMEM, "out of memory");
        return refuse(o, FAULT_QUERY);
    }
    return json_object_size(p->patch) > 0; /* an empty patch changes nothing and is a success */
}

static void run(struct op *o) {
    struct patch_op *p = container_of(o, struct patch_op, op);
    int r = statedb_set_metadata(o->svc->o.store, o->sb->spec.id, p->text, &o->err);
    o->fault = r == -ENOENT ? FAULT_NOT_FOUND : r < 0 ? FAULT_QUERY : FAULT_NONE;
}

static void end(struct op *o) {
    struct patch_op *p = container_of(o, struct patch_op, op);

    if (o->fault == FAULT_NONE) {
        json_decref(o->sb->metadata);
        o->sb->metadata = TAKE_PTR(p->result);
        sandbox_touch(o->sb);
    }
    telemetry_op(TELEMETRY_PATCH, o->fault == FAULT_NONE);
    o->cb(o->fault, &o->err, o->fault ? NULL : o->sb, o->ud);
    json_decref(p->patch);
    json_decref(p->result);
    free(p->text);
}

void service_patch_metadata(struct service *s, const char *id, const json_t *patch, op_cb cb,
                            void *ud) {
    struct patch_op *p = op_new(s, id, sizeof *p, cb, ud);
    if (!p)
        return;
    p->patch = json_incref((json_t *)patch);
    p->op.start = start;
    p->op.run = run;
    p->op.end = end;
    p->op.light = true;
    op_enqueue(&p->op);
}
