/*
 * What requests bring along, as tables: forms of bodies and parameters of queries. The handlers
 * check with them, and the OpenAPI document is made of them.
 */
#pragma once

#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"

struct body_form {
    const char *name; /* in the document */
    const struct schema *schema;
    bool is_value; /* the body itself is the member "body" of the schema: a list, a map */
    bool is_optional;
};

/* Checked content (is_value: in the member "body"); new reference. NULL: violations were added to
 * detail, or (detail is empty) err says which limit was exceeded. data is NUL-terminated. */
json_t *body_read(const struct body_form *f, const char *data, size_t len, json_t *detail,
                  struct err *err);
/* The same for an exchange; NULL: answered. */
json_t *take_body(struct xch *x, const struct body_form *f, const char *data, size_t len);
/* Answers 422 or 400; takes the reference of detail. */
void refuse_body(struct xch *x, json_t *detail, const struct err *err);

struct param {            /* of a query */
    const char *name;     /* NULL ends a table */
    enum field_type type; /* F_STRING, F_INT, F_BOOL */
    int64_t dflt, min, max;
    bool is_repeated; /* F_STRING: a list, perhaps empty */
    bool is_optional; /* F_INT, F_BOOL: has no default */
    const char *help;
};
json_t *query_read(const struct param *params, const char *text, json_t *detail);
/* Values by name, defaults put in; new reference. NULL: answered. */
json_t *take_query(struct xch *x, const struct param *params);

extern const struct body_form create_form, renew_form, metadata_form, policy_put_form,
    policy_patch_form, policy_del_form, pool_create_form, pool_form, template_form, metrics_form,
    snapshot_form;
extern const struct body_form *const bodies_all[]; /* NULL-terminated */

extern const struct param list_params[], endpoint_params[], logs_params[], inspect_params[],
    events_params[], summary_params[], template_params[], snapshot_params[];
