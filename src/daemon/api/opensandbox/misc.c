/* Health, version, capabilities, SDK events, and what this runtime does not offer (after its
 * checks). Loop thread. */
#include <errno.h>
#include <string.h>

#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"
#include "daemon/telemetry/telemetry.h"

#define COMPATIBLE_WITH "1.1.1"

void op_health(struct call *c) {
    static const char text[] = "{\"status\":\"healthy\"}";
    xch_json_text(c->x, 200, text, sizeof text - 1);
}

void op_version(struct call *c) {
    static const char text[] =
        "{\"version\":\"" COVE_VERSION "\",\"compat\":\"" COMPATIBLE_WITH "\"}";
    xch_json_text(c->x, 200, text, sizeof text - 1);
}

void op_capabilities(struct call *c) {
    struct service *s = c->x->api->o.service;
    json_t *caps = service_capabilities(s);
    xch_json(c->x, 200,
             json_pack("{s:s,s:s,s:o}", "driver", service_driver_name(s), "version", COVE_VERSION,
                       "capabilities", caps ? caps : json_object()));
}

/* ---- SDK events: cheap on purpose, they double the requests of a create burst ---- */

static const char *const event_types[] = {"sandbox.create", NULL};
static const struct schema metrics_event = {
    .fields = (const struct field[]){
        {.name = "eventType",
         .snake = "event_type",
         .type = F_STRING,
         .flags = FIELD_REQUIRED,
         .choices = event_types},
        {.name = "sandboxId", .snake = "sandbox_id", .type = F_STRING},
        {.name = "image", .type = F_STRING},
        {.name = "createDurationMs",
         .snake = "create_duration_ms",
         .type = F_INT,
         .flags = FIELD_REQUIRED | FIELD_MIN},
        {.name = "success", .type = F_BOOL, .flags = FIELD_REQUIRED},
        {0},
    }};

/* Checks the body; NULL: it was answered. */
static json_t *check_body(struct xch *x, const struct schema *s, const char *data, size_t len) {
    json_t *detail = json_array();
    json_t *in = schema_check_body(s, data, len, detail);

    if (in)
        json_decref(detail);
    else
        xch_violations(x, detail);
    return in;
}

static bool is_valid(struct xch *x, const struct schema *s, const char *data, size_t len) {
    json_t *in = check_body(x, s, data, len);
    json_decref(in);
    return in != NULL;
}

static void metrics_body(struct xch *x, const char *data, size_t len) {
    _cleanup_json_ json_t *in = check_body(x, &metrics_event, data, len);

    if (!in)
        return;
    telemetry_sdk_create(h1_req_header(x->req, "User-Agent"), json_bool(in, "success", false),
                         json_int(in, "createDurationMs", 0));
    xch_empty(x, 204);
}

void op_metrics_event(struct call *c) {
    xch_collect(c->x, metrics_body);
}

/* ---- pools ---- */

static const struct schema capacity = {.fields = (const struct field[]){
                                           {.name = "bufferMax",
                                            .snake = "buffer_max",
                                            .type = F_INT,
                                            .flags = FIELD_REQUIRED | FIELD_MIN},
                                           {.name = "bufferMin",
                                            .snake = "buffer_min",
                                            .type = F_INT,
                                            .flags = FIELD_REQUIRED | FIELD_MIN},
                                           {.name = "poolMax",
                                            .snake = "pool_max",
                                            .type = F_INT,
                                            .flags = FIELD_REQUIRED | FIELD_MIN},
                                           {.name = "poolMin",
                                            .snake = "pool_min",
                                            .type = F_INT,
                                            .flags = FIELD_REQUIRED | FIELD_MIN},
                                           {0},
                                       }};
static const struct schema pool_create = {
    .fields = (const struct field[]){
        {.name = "name",
         .type = F_STRING,
         .flags = FIELD_REQUIRED | FIELD_MIN | FIELD_MAX,
         .min = 1,
         .max = 253},
        {.name = "template", .type = F_OBJECT, .flags = FIELD_REQUIRED},
        {.name = "capacitySpec",
         .snake = "capacity_spec",
         .type = F_OBJECT,
         .flags = FIELD_REQUIRED,
         .sub = &capacity},
        {0},
    }};
static const struct schema pool_update = {.fields = (const struct field[]){
                                              {.name = "capacitySpec",
                                               .snake = "capacity_spec",
                                               .type = F_OBJECT,
                                               .flags = FIELD_REQUIRED,
                                               .sub = &capacity},
                                              {0},
                                          }};

static void no_pools(struct xch *x) {
    xch_error(x, 501, "KUBERNETES::POOL_NOT_SUPPORTED",
              "Pool management requires the kubernetes runtime.");
}

static void pool_create_body(struct xch *x, const char *data, size_t len) {
    if (is_valid(x, &pool_create, data, len))
        no_pools(x);
}

static void pool_update_body(struct xch *x, const char *data, size_t len) {
    if (is_valid(x, &pool_update, data, len))
        no_pools(x);
}

void op_pool_create(struct call *c) {
    xch_collect(c->x, pool_create_body);
}

void op_pool_update(struct call *c) {
    xch_collect(c->x, pool_update_body);
}

void op_pool_any(struct call *c) {
    no_pools(c->x);
}

/* ---- templates ---- */

static const char *const formats[] = {"native", "overlaybd", NULL};
static const struct schema readiness = {
    .fields = (const struct field[]){
        {.name = "probe", .type = F_OBJECT},
        {.name = "warmupSeconds", .snake = "warmup_seconds", .type = F_INT, .flags = FIELD_MIN},
        {0},
    }};
static const struct schema template_create = {
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "image", .type = F_STRING, .flags = FIELD_REQUIRED | FIELD_MIN, .min = 1},
        {.name = "publish", .type = F_STRING, .flags = FIELD_REQUIRED | FIELD_MIN, .min = 1},
        {.name = "resourceLimits", .snake = "resource_limits", .type = F_STRING_MAP},
        {.name = "entrypoint", .type = F_STRING_LIST, .flags = FIELD_MIN, .min = 1},
        {.name = "env", .type = F_STRING_MAP},
        {.name = "metadata", .type = F_STRING_MAP},
        {.name = "readiness", .type = F_OBJECT, .sub = &readiness},
        {.name = "format", .type = F_STRING, .choices = formats},
        {0},
    }};

static void no_templates(struct xch *x) {
    xch_error(x, 501, "FSB::API_NOT_SUPPORTED",
              "Template management requires the kubernetes runtime.");
}

static void template_body(struct xch *x, const char *data, size_t len) {
    if (is_valid(x, &template_create, data, len))
        no_templates(x);
}

void op_template_create(struct call *c) {
    xch_collect(c->x, template_body);
}

/* Bounds of page and pageSize come before the refusal. */
static bool paging_is_valid(struct xch *x) {
    struct query raw = {0};
    const char *text = h1_req_query(x->req);
    json_t *detail = json_array();

    query_parse(text, text ? strlen(text) : 0, &raw);
    param_int("query", "page", query_get(&raw, "page"), 1, 1, INT32_MAX, detail);
    param_int("query", "pageSize", query_get(&raw, "pageSize"), 20, 1, 200, detail);
    query_done(&raw);
    if (json_array_size(detail) > 0) {
        xch_violations(x, detail);
        return false;
    }
    json_decref(detail);
    return true;
}

void op_template_any(struct call *c) {
    if (paging_is_valid(c->x))
        no_templates(c->x);
}
