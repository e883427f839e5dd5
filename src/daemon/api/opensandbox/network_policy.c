/*
 * The network policy of a sandbox (lifecycle.md 7.9): after the checks here the request goes to the
 * policy API of its guard as it is, with the guard's token put in, so that the caller needs the API
 * key alone. Loop thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"

#define GUARD_HEADER "OPENSANDBOX-EGRESS-AUTH"

/* The bodies of PUT, PATCH and DELETE, each as the member "body" of an object. */
const struct schema policy_put_schema = {
    .fields = (const struct field[]){
        {.name = "body", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &policy_schema},
        {0},
    }};
const struct schema policy_patch_schema = {
    .fields = (const struct field[]){
        {.name = "body", .type = F_LIST, .flags = FIELD_REQUIRED, .sub = &policy_rule_schema},
        {0},
    }};
const struct schema policy_delete_schema = {
    .fields = (const struct field[]){
        {.name = "body", .type = F_STRING_LIST, .flags = FIELD_REQUIRED},
        {0},
    }};

/* body NULL: none (GET). */
static void pass_on(struct xch *x, const char *id, const char *body) {
    static const char *const drop[] = {"opensandbox-egress-auth", "x-execd-access-token", NULL};
    struct err err = {0};
    struct target to;

    if (str_starts(id, "fsb-")) {
        xch_error(x, 404, CODE_UNKNOWN, "Fsb sandbox not found.");
        return;
    }
    if (!service_get(x->api->o.service, id)) {
        answer_not_found(x, id);
        return;
    }
    const char *token = service_guard_token(x->api->o.service, id);
    if (!token) {
        err_set(&err, -ENOTSUP,
                "Sandbox %.100s has no network policy: it was created without networkPolicy.", id);
        answer_fault(x, FAULT_NO_GUARD, &err);
        return;
    }
    if (!relay_resolve(x, id, GUARD_PORT, &to))
        return;
    const struct h1_header add[] = {{GUARD_HEADER, token}, {NULL, NULL}};
    relay_run(x, &to,
              &(struct relay){.id = id,
                              .port = GUARD_PORT,
                              .rest = "/policy",
                              .body = body,
                              .add = add,
                              .drop_more = drop});
}

bool policy_body_is_valid(const char *method, const char *data, size_t len, json_t *detail) {
    const struct schema *s = str_eq(method, "PUT")     ? &policy_put_schema
                             : str_eq(method, "PATCH") ? &policy_patch_schema
                                                       : &policy_delete_schema;
    json_t *in = schema_parse_body(data, len, detail);
    _cleanup_json_ json_t *loc = json_array();
    _cleanup_json_ json_t *wrapped = in ? json_pack("{s:o}", "body", in) : NULL;
    _cleanup_json_ json_t *out = in ? schema_check(s, wrapped, loc, detail) : NULL;

    return json_array_size(detail) == 0;
}

static void on_body(struct xch *x, const char *data, size_t len) {
    json_t *detail = json_array();

    if (!policy_body_is_valid(h1_req_method(x->req), data, len, detail)) {
        xch_violations(x, detail);
        return;
    }
    json_decref(detail);
    _cleanup_free_ char *id = TAKE_PTR(x->id); /* the relay has another use for it */
    pass_on(x, id, data);
}

void op_network_policy(struct call *c) {
    if (str_eq(h1_req_method(c->x->req), "GET"))
        pass_on(c->x, c->m->params[0], NULL);
    else if (keep_id(c))
        xch_collect(c->x, on_body);
}
