/*
 * The network policy of a sandbox (lifecycle.md 7.9): after the checks here the request goes to the
 * policy API of its guard as it is, with the guard's token put in, so that the caller needs the API
 * key alone. Loop thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api/opensandbox/bodies.h"

#define GUARD_HEADER "OPENSANDBOX-EGRESS-AUTH"

/* The bodies of PUT, PATCH and DELETE, each as the member "body" of an object. */
static const struct schema put_schema = {
    .fields = (const struct field[]){
        {.name = "body", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &policy_schema},
        {0},
    }};
static const struct schema patch_schema = {
    .fields = (const struct field[]){
        {.name = "body", .type = F_LIST, .flags = FIELD_REQUIRED, .sub = &policy_rule_schema},
        {0},
    }};
static const struct schema delete_schema = {
    .fields = (const struct field[]){
        {.name = "body", .type = F_STRING_LIST, .flags = FIELD_REQUIRED},
        {0},
    }};

const struct body_form policy_put_form = {"NetworkPolicyReplacement", &put_schema,
                                          .is_value = true},
                       policy_patch_form = {"NetworkPolicyRules", &patch_schema, .is_value = true},
                       policy_del_form = {"NetworkPolicyTargets", &delete_schema, .is_value = true};

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
    _cleanup_free_ char *token = service_guard_token(x->api->o.service, id);
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

static void on_body(struct xch *x, const char *data, size_t len) {
    const char *method = h1_req_method(x->req);
    const struct body_form *f = str_eq(method, "PUT")     ? &policy_put_form
                                : str_eq(method, "PATCH") ? &policy_patch_form
                                                          : &policy_del_form;
    json_t *in = take_body(x, f, data, len);

    if (!in)
        return;
    json_decref(in);
    _cleanup_free_ char *id = TAKE_PTR(x->memo); /* the relay has another use for it */
    pass_on(x, id, data);
}

void op_network_policy(struct call *c) {
    if (str_eq(h1_req_method(c->x->req), "GET"))
        pass_on(c->x, c->m->params[0], NULL);
    else if (keep_id(c))
        xch_collect(c->x, on_body);
}
