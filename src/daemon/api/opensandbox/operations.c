/* The table of operations (see operations.h). A line here is all that a new operation needs. */
#include "daemon/api/opensandbox/operations.h"

#include "daemon/api/cove/images.h"
#include "daemon/api/cove/metrics.h"

/* A route's handler gets (request, match, xch); ours get one struct call. */
#define HANDLER(name)                                                                \
    static void at_##name(struct h1_req *r, const struct route_match *m, void *ud) { \
        name(&(struct call){.x = ud, .m = m});                                       \
    }
HANDLER(op_create)
HANDLER(op_list)
HANDLER(op_get)
HANDLER(op_delete)
HANDLER(op_patch_metadata)
HANDLER(op_pause)
HANDLER(op_resume)
HANDLER(op_renew)
HANDLER(op_endpoint)
HANDLER(op_proxy)
HANDLER(op_logs)
HANDLER(op_inspect)
HANDLER(op_events)
HANDLER(op_summary)
HANDLER(op_snapshot_create)
HANDLER(op_snapshot_list)
HANDLER(op_snapshot_get)
HANDLER(op_snapshot_delete)
HANDLER(op_pool_create)
HANDLER(op_pool_update)
HANDLER(op_pool_any)
HANDLER(op_template_create)
HANDLER(op_template_list)
HANDLER(op_template_any)
HANDLER(op_network_policy)
HANDLER(op_metrics_event)
HANDLER(op_health)
HANDLER(op_version)
HANDLER(op_capabilities)
HANDLER(op_openapi)
HANDLER(op_docs)
HANDLER(op_docs_redirect)

static void at_images_list(struct h1_req *r, const struct route_match *m, void *ud) {
    cove_images_list(ud);
}
static void at_images_import(struct h1_req *r, const struct route_match *m, void *ud) {
    cove_images_import(ud);
}
static void at_images_remove(struct h1_req *r, const struct route_match *m, void *ud) {
    cove_images_remove(ud, m->params[0]);
}
static void at_metrics(struct h1_req *r, const struct route_match *m, void *ud) {
    cove_metrics(ud);
}

#define PLAIN "text/plain; charset=utf-8"
#define HTML "text/html; charset=utf-8"
#define SANDBOX "/sandboxes/{id}"

/* clang-format off */
const struct operation operations[] = {
    {"POST", "/sandboxes", ON_BOTH, at_op_create, "createSandbox", "Sandboxes", "Create a sandbox and wait until it runs.", .body = &create_form, .status = 202, .answer = &created_answer},
    {"GET", "/sandboxes", ON_BOTH, at_op_list, "listSandboxes", "Sandboxes", "List sandboxes, newest first.", .params = list_params, .status = 200, .answer = &sandboxes_answer},
    {"GET", SANDBOX, ON_BOTH, at_op_get, "getSandbox", "Sandboxes", "One sandbox.", .status = 200, .answer = &sandbox_answer},
    {"DELETE", SANDBOX, ON_BOTH, at_op_delete, "deleteSandbox", "Sandboxes", "Remove a sandbox, whatever its state.", .status = 204},
    {"PATCH", SANDBOX "/metadata", ON_BOTH, at_op_patch_metadata, "patchSandboxMetadata", "Sandboxes", "Change metadata: a value sets, null removes.", .body = &metadata_form, .status = 200, .answer = &sandbox_answer},
    {"POST", SANDBOX "/pause", ON_BOTH, at_op_pause, "pauseSandbox", "Sandboxes", "Freeze all processes; memory is kept.", .status = 202},
    {"POST", SANDBOX "/resume", ON_BOTH, at_op_resume, "resumeSandbox", "Sandboxes", "Let a paused sandbox go on.", .status = 202},
    {"POST", SANDBOX "/renew-expiration", ON_BOTH, at_op_renew, "renewSandboxExpiration", "Sandboxes", "Set the time at which the sandbox ends.", .body = &renew_form, .status = 200, .answer = &renewed_answer},
    {"POST", SANDBOX "/snapshots", ON_BOTH, at_op_snapshot_create, "createSnapshot", "Snapshots", "Keep the root file system of a running sandbox.", .body = &snapshot_form, .status = 202, .answer = &snapshot_answer},
    {"GET", "/snapshots", ON_BOTH, at_op_snapshot_list, "listSnapshots", "Snapshots", "List snapshots, newest first.", .params = snapshot_params, .status = 200, .answer = &snapshots_answer},
    {"GET", "/snapshots/{id}", ON_BOTH, at_op_snapshot_get, "getSnapshot", "Snapshots", "One snapshot.", .status = 200, .answer = &snapshot_answer},
    {"DELETE", "/snapshots/{id}", ON_BOTH, at_op_snapshot_delete, "deleteSnapshot", "Snapshots", "Remove a snapshot that no sandbox stands on.", .status = 204},
    {"GET", SANDBOX "/endpoints/{port}", ON_BOTH, at_op_endpoint, "getSandboxEndpoint", "Sandboxes", "The address of a port, without a scheme, and headers to send there.", .params = endpoint_params, .status = 200, .answer = &endpoint_answer},
    {"GET", SANDBOX "/diagnostics/logs", ON_BOTH, at_op_logs, "getSandboxLogs", "Diagnostics", "What the entrypoint wrote; JSON with scope.", .params = logs_params, .status = 200, .answer = &diagnostics_answer, .type = PLAIN},
    {"GET", SANDBOX "/diagnostics/inspect", ON_BOTH, at_op_inspect, "inspectSandbox", "Diagnostics", "What the runtime knows, secrets masked.", .params = inspect_params, .status = 200, .type = PLAIN},
    {"GET", SANDBOX "/diagnostics/events", ON_BOTH, at_op_events, "getSandboxEvents", "Diagnostics", "What happened to it; JSON with scope.", .params = events_params, .status = 200, .answer = &diagnostics_answer, .type = PLAIN},
    {"GET", SANDBOX "/diagnostics/summary", ON_BOTH, at_op_summary, "getSandboxSummary", "Diagnostics", "Inspect, events and logs in one.", .params = summary_params, .status = 200, .type = PLAIN},
    {"POST", "/pools", ON_BOTH, at_op_pool_create, "createPool", "Pools", "Not by this runtime (501).", .body = &pool_create_form, .status = 201, .answer = &pool_answer},
    {"GET", "/pools", ON_BOTH, at_op_pool_any, "listPools", "Pools", "Not by this runtime (501).", .status = 200, .answer = &pools_answer},
    {"GET", "/pools/{name}", ON_BOTH, at_op_pool_any, "getPool", "Pools", "Not by this runtime (501).", .status = 200, .answer = &pool_answer},
    {"PUT", "/pools/{name}", ON_BOTH, at_op_pool_update, "updatePool", "Pools", "Not by this runtime (501).", .body = &pool_form, .status = 200, .answer = &pool_answer},
    {"DELETE", "/pools/{name}", ON_BOTH, at_op_pool_any, "deletePool", "Pools", "Not by this runtime (501).", .status = 204},
    {"*", SANDBOX "/proxy/{port}", ON_BOTH, at_op_proxy, "proxySandboxPort", "Proxy", "Passed on to a port of the sandbox, WebSockets too.", .status = 200, .is_open = true},
    {"*", SANDBOX "/proxy/{port}/{rest...}", ON_BOTH, at_op_proxy, "proxySandboxPath", "Proxy", "The same with a path.", .status = 200, .is_open = true},
    {"GET", SANDBOX "/networkpolicy", ON_BOTH, at_op_network_policy, "getNetworkPolicy", "Network policy", "Answered by the sandbox's guard.", .status = 200, .answer = &policy_answer},
    {"PUT", SANDBOX "/networkpolicy", ON_BOTH, at_op_network_policy, "replaceNetworkPolicy", "Network policy", "Replace the policy.", .body = &policy_put_form, .status = 200, .answer = &policy_answer},
    {"PATCH", SANDBOX "/networkpolicy", ON_BOTH, at_op_network_policy, "patchNetworkPolicy", "Network policy", "Add or replace rules.", .body = &policy_patch_form, .status = 200, .answer = &policy_answer},
    {"DELETE", SANDBOX "/networkpolicy", ON_BOTH, at_op_network_policy, "deleteNetworkPolicyRules", "Network policy", "Remove the rules of these targets.", .body = &policy_del_form, .status = 200, .answer = &policy_answer},
    {"POST", "/templates", ON_BOTH, at_op_template_create, "createTemplate", "Templates", "Not by this runtime (501).", .body = &template_form, .status = 201, .answer = &template_answer},
    {"GET", "/templates", ON_BOTH, at_op_template_list, "listTemplates", "Templates", "Not by this runtime (501).", .params = template_params, .status = 200, .answer = &templates_answer},
    {"GET", "/templates/{id}", ON_BOTH, at_op_template_any, "getTemplate", "Templates", "Not by this runtime (501).", .status = 200, .answer = &template_answer},
    {"DELETE", "/templates/{id}", ON_BOTH, at_op_template_any, "deleteTemplate", "Templates", "Not by this runtime (501).", .status = 204},

    {"GET", "/health", ON_BARE, at_op_health, "getHealth", "Server", "The server answers.", .status = 200, .answer = &health_answer, .is_open = true},
    {"GET", "/version", ON_BARE, at_op_version, "getVersion", "Server", "Release, and the one of OpenSandbox it is compatible with.", .status = 200, .answer = &version_answer, .is_open = true},
    {"GET", "/metrics", ON_BARE, at_metrics, "getMetrics", "Server", "Metrics in the Prometheus text format.", .status = 200, .type = "text/plain; version=0.0.4; charset=utf-8"},
    {"GET", "/openapi.json", ON_BARE, at_op_openapi, NULL, NULL, NULL, .status = 200, .is_open = true, .is_hidden = true},
    {"GET", "/docs", ON_BARE, at_op_docs, NULL, NULL, NULL, .status = 200, .type = HTML, .is_open = true, .is_hidden = true},
    {"GET", "/docs/oauth2-redirect", ON_BARE, at_op_docs_redirect, NULL, NULL, NULL, .status = 200, .type = HTML, .is_open = true, .is_hidden = true},
    {"GET", "/redoc", ON_BARE, at_op_docs, NULL, NULL, NULL, .status = 200, .type = HTML, .is_open = true, .is_hidden = true},

    {"POST", "/metrics/events", ON_V1, at_op_metrics_event, "recordMetricsEvent", "Server", "What SDKs tell after a create; nothing is kept.", .body = &metrics_form, .status = 204},
    {"GET", "/capabilities", ON_V1, at_op_capabilities, "getCapabilities", "Server", "What a create may ask for here.", .status = 200, .answer = &capabilities_answer},
    {"GET", "/images", ON_V1, at_images_list, "listImages", "Images", "Images of the native store.", .status = 200, .answer = &images_answer},
    {"POST", "/images", ON_V1, at_images_import, "importImage", "Images", "Import an archive into the native store.", .status = 201, .answer = &import_answer},
    {"DELETE", "/images/{name...}", ON_V1, at_images_remove, "removeImage", "Images", "Remove an image that no sandbox stands on.", .status = 204},
    {NULL},
};
/* clang-format on */

struct route *operations_routes(enum operation_place place) {
    size_t n = 0, at = 0;

    while (operations[n].method)
        n++;
    struct route *table = calloc(n + 1, sizeof *table);
    for (size_t i = 0; table && i < n; i++)
        if (operations[i].place == place)
            table[at++] =
                (struct route){operations[i].method, operations[i].path, operations[i].handler};
    return table;
}
