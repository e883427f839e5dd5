/*
 * The OpenSandbox lifecycle API: one handler per operation, named in the route tables of routes.c.
 * A handler translates between the wire and the sandbox service and never touches a driver.
 */
#pragma once

#include "daemon/api/exchange.h"

struct schema;

struct call { /* what a handler gets: valid during the call */
    struct xch *x;
    const struct route_match *m;
};

/* sandboxes.c: copies the sandbox id of the path to x->memo, for handlers that wait for a body (the
 * match does not outlive the call). false: answered. */
bool keep_id(struct call *c);

/* errors.c: the one table of codes */
void answer_fault(struct xch *x, enum fault f, const struct err *err);
#define CODE_NOT_FOUND "GENERAL::NOT_FOUND"
#define CODE_BAD_METHOD "GENERAL::METHOD_NOT_ALLOWED"
#define CODE_UNKNOWN "GENERAL::UNKNOWN_ERROR"
#define CODE_INVALID "SANDBOX::INVALID_PARAMETER"

/* render.c */
/* The Sandbox object as JSON text; cached in the sandbox. NULL on -ENOMEM. */
const char *render_sandbox(struct sandbox *sb, size_t *ret_len);
json_t *render_created(const struct sandbox *sb); /* CreateSandboxResponse */
const char *render_state(enum sandbox_state s);
unsigned parse_states(const char *name); /* bits of enum sandbox_state; 0 = no such state */
void render_time(json_t *o, const char *key, int64_t us);

/* request.c */
extern const struct schema policy_schema, policy_rule_schema;
/* str_is_dns_label() as clients know it: names of volumes, claims and pools */
#define DNS_LABEL_PATTERN "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
/* Body of a create (NUL-terminated) -> create_request. false: violations were added, or (none
 * were) err says what else was wrong. */
bool parse_create(const char *data, size_t len, struct create_request *ret, json_t *detail,
                  struct err *err);

/* filter.c */
/* "k=v&k2=v2", strict form encoding, last wins; NULL when malformed. */
json_t *parse_metadata_filter(const char *text);

/* handlers; each file has those of one subject */
void op_create(struct call *c);
void op_list(struct call *c);
void op_get(struct call *c);
void op_delete(struct call *c);
void op_patch_metadata(struct call *c);
void op_pause(struct call *c);
void op_resume(struct call *c);
void op_renew(struct call *c);
void op_endpoint(struct call *c);
void op_proxy(struct call *c);
void op_logs(struct call *c);
void op_inspect(struct call *c);
void op_events(struct call *c);
void op_summary(struct call *c);
void op_snapshot_create(struct call *c);
void op_snapshot_list(struct call *c);
void op_snapshot_get(struct call *c);
void op_snapshot_delete(struct call *c);
void op_pool_create(struct call *c);
void op_pool_update(struct call *c);
void op_pool_any(struct call *c);
void op_template_create(struct call *c);
void op_template_any(struct call *c);
void op_template_list(struct call *c);
void op_network_policy(struct call *c);
void op_metrics_event(struct call *c);
void op_health(struct call *c);
void op_version(struct call *c);
void op_capabilities(struct call *c);
void op_openapi(struct call *c);
void op_docs(struct call *c);
void op_docs_redirect(struct call *c);

/* proxy.c: passes the request on to a port of a sandbox */
struct relay {
    const char *id;
    int64_t port;
    const char *rest;            /* raw path to ask for; its '/' may be missing */
    const char *prefix;          /* of this server's path, put before a Location; NULL = leave it */
    const char *body;            /* read already; NULL = streamed */
    const struct h1_header *add; /* request headers that replace the client's */
    const char *const *drop_more; /* one more list of request headers to drop; may be NULL */
};
/* false: answered with the reason. Counts as access, unless the client says otherwise. */
bool relay_resolve(struct xch *x, const char *id, int64_t port, struct target *ret);
void relay_run(struct xch *x, const struct target *to, const struct relay *r);
/* errors.c */
void answer_not_found(struct xch *x, const char *id);
