/*
 * The one table of operations: the routes and the OpenAPI document are both made of it, so that
 * neither can drift from the other.
 */
#pragma once

#include "daemon/api/opensandbox/bodies.h"

enum operation_place { ON_BOTH, ON_BARE, ON_V1 }; /* bare and under /v1, or one of them */

struct operation {
    const char *method, *path; /* as in struct route */
    enum operation_place place;
    void (*handler)(struct h1_req *r, const struct route_match *m, void *ud);
    const char *id, *tag, *summary;
    const struct body_form *body; /* NULL = none */
    const struct param *params;   /* NULL = none */
    int status;                   /* of a success */
    const struct schema *answer;  /* its JSON body; NULL = none */
    const char *type;             /* content type of a body that is no JSON; NULL = none */
    bool is_open;                 /* needs no key */
    bool is_hidden;               /* not in the document */
};
extern const struct operation operations[]; /* ended by method NULL */

/* The routes of one place, for router_new; malloc'd. NULL on -ENOMEM. */
struct route *operations_routes(enum operation_place place);

/* answers.c */
extern const struct schema created_answer, sandbox_answer, sandboxes_answer, renewed_answer,
    snapshot_answer, snapshots_answer, endpoint_answer, diagnostics_answer, pool_answer,
    pools_answer, policy_answer, template_answer, templates_answer, health_answer, version_answer,
    capabilities_answer, images_answer, import_answer, error_answer, violations_answer;
