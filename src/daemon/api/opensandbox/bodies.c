/*
 * Bodies of requests: read against their form, with the limits that hold for every body. Forms are
 * tables; each handler file has those of its operations, and bodies_all lists them. Loop thread.
 */
#include "daemon/api/opensandbox/bodies.h"

#include <string.h>

const struct body_form *const bodies_all[] = {
    &create_form,       &renew_form,      &metadata_form,    &policy_put_form,
    &policy_patch_form, &policy_del_form, &pool_create_form, &pool_form,
    &template_form,     &metrics_form,    &snapshot_form,    NULL,
};

static json_t *check(const struct body_form *f, json_t *in, json_t *detail) {
    if (!f->is_value) {
        _cleanup_json_ json_t *loc = json_pack("[s]", "body");
        return schema_check(f->schema, in, loc, detail);
    }
    _cleanup_json_ json_t *loc = json_array();
    _cleanup_json_ json_t *wrapped = json_pack("{s:O}", "body", in);
    return schema_check(f->schema, wrapped, loc, detail);
}

json_t *body_read(const struct body_form *f, const char *data, size_t len, json_t *detail,
                  struct err *err) {
    size_t blank = strspn(data, " \t\r\n");
    bool is_absent = f->is_optional && (blank == len || strcmp(data + blank, "null") == 0);
    _cleanup_json_ json_t *in = is_absent ? json_object() : schema_parse_body(data, len, detail);
    json_t *out = in ? check(f, in, detail) : NULL;

    if (json_array_size(detail) > 0 || (out && schema_limits(in, err) < 0)) {
        json_decref(out);
        return NULL;
    }
    return out;
}

json_t *take_body(struct xch *x, const struct body_form *f, const char *data, size_t len) {
    struct err err = {0};
    json_t *detail = json_array();
    json_t *out = body_read(f, data, len, detail, &err);

    if (out)
        json_decref(detail);
    else
        refuse_body(x, detail, &err);
    return out;
}

void refuse_body(struct xch *x, json_t *detail, const struct err *err) {
    if (json_array_size(detail) > 0) {
        xch_violations(x, detail);
        return;
    }
    json_decref(detail);
    xch_error(x, 400, CODE_INVALID, "%s", err_text(err));
}

/* ---- queries ---- */

static json_t *take_one(const struct param *p, const char *text, json_t *detail) {
    if (p->type == F_INT)
        return json_integer(param_int("query", p->name, text, p->dflt, p->min, p->max, detail));
    if (p->type == F_BOOL)
        return json_boolean(param_bool("query", p->name, text, p->dflt, detail));
    return text ? json_string(text) : NULL; /* NULL too when it is not UTF-8 */
}

static json_t *take_all(const struct param *p, const struct query *q) {
    json_t *list = json_array();

    for (size_t i = 0; i < q->keys.n; i++)
        if (strcmp(q->keys.v[i], p->name) == 0)
            json_array_append_new(list, json_string(q->values.v[i]));
    return list;
}

json_t *query_read(const struct param *params, const char *text, json_t *detail) {
    struct query q = {0};
    json_t *out = json_object();

    query_parse(text, text ? strlen(text) : 0, &q);
    for (const struct param *p = params; p->name; p++) {
        const char *value = query_get(&q, p->name);
        json_t *v = p->is_repeated                                      ? take_all(p, &q)
                    : value || (p->type != F_STRING && !p->is_optional) ? take_one(p, value, detail)
                                                                        : NULL;
        if (v)
            json_object_set_new(out, p->name, v);
    }
    query_done(&q);
    return out;
}

json_t *take_query(struct xch *x, const struct param *params) {
    json_t *detail = json_array();
    json_t *out = query_read(params, h1_req_query(x->req), detail);

    if (json_array_size(detail) > 0) {
        json_decref(out);
        xch_violations(x, detail);
        return NULL;
    }
    json_decref(detail);
    return out;
}
