/* Health, version, capabilities, SDK events, and what this runtime does not offer (after its
 * checks). Loop thread. */
#include <errno.h>
#include <string.h>

#include "daemon/api/opensandbox/bodies.h"
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

const struct body_form metrics_form = {"MetricsEvent", &metrics_event};

/* Checks the body; true: valid. */
static bool is_valid(struct xch *x, const struct body_form *f, const char *data, size_t len) {
    json_t *in = take_body(x, f, data, len);

    json_decref(in);
    return in != NULL;
}

static void metrics_body(struct xch *x, const char *data, size_t len) {
    _cleanup_json_ json_t *in = take_body(x, &metrics_form, data, len);

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

static const struct schema capacity = {.name = "CapacitySpec",
                                       .fields = (const struct field[]){
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
         .flags = FIELD_REQUIRED | FIELD_MAX,
         .max = 253,
         .matches = str_is_dns_label,
         .pattern = DNS_LABEL_PATTERN},
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

const struct body_form pool_create_form = {"CreatePoolRequest", &pool_create},
                       pool_form = {"UpdatePoolRequest", &pool_update};

static void no_pools(struct xch *x) {
    xch_error(x, 501, "KUBERNETES::POOL_NOT_SUPPORTED",
              "Pool management requires the kubernetes runtime.");
}

static void pool_create_body(struct xch *x, const char *data, size_t len) {
    if (is_valid(x, &pool_create_form, data, len))
        no_pools(x);
}

static void pool_update_body(struct xch *x, const char *data, size_t len) {
    if (is_valid(x, &pool_form, data, len))
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
    .name = "TemplateReadiness",
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

const struct body_form template_form = {"CreateFsbTemplateRequest", &template_create};

static void no_templates(struct xch *x) {
    xch_error(x, 501, "FSB::API_NOT_SUPPORTED",
              "Template management requires the kubernetes runtime.");
}

static void template_body(struct xch *x, const char *data, size_t len) {
    if (is_valid(x, &template_form, data, len))
        no_templates(x);
}

void op_template_create(struct call *c) {
    xch_collect(c->x, template_body);
}

const struct param template_params[] = {
    {.name = "page", .type = F_INT, .dflt = 1, .min = 1, .max = INT32_MAX},
    {.name = "pageSize", .type = F_INT, .dflt = 20, .min = 1, .max = 200},
    {.name = "metadata", .type = F_STRING, .help = "Pairs that must be equal, form-encoded."},
    {0},
};

void op_template_list(struct call *c) {
    json_t *in = take_query(c->x, template_params);

    if (in)
        no_templates(c->x);
    json_decref(in);
}

void op_template_any(struct call *c) {
    no_templates(c->x);
}
