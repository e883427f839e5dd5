/*
 * What answers look like, as tables: for the OpenAPI document, and for the tests that hold real
 * answers against them (is_closed: no member that is not named here). No code answers by them.
 */
#include "daemon/api/opensandbox/operations.h"

static const struct schema status = {
    .name = "SandboxStatus",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "state", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "reason", .type = F_STRING},
        {.name = "message", .type = F_STRING},
        {.name = "lastTransitionAt", .type = F_TIME},
        {0},
    }};
static const struct schema image_ref = {
    .name = "ImageRef",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "uri", .type = F_STRING, .flags = FIELD_REQUIRED},
        {0},
    }};
static const struct schema platform = {
    .name = "Platform",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "os", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "arch", .type = F_STRING, .flags = FIELD_REQUIRED},
        {0},
    }};
static const struct schema pagination = {
    .name = "PaginationInfo",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "page", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "pageSize", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "totalItems", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "totalPages", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "hasNextPage", .type = F_BOOL, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema created_answer = {
    .name = "CreateSandboxResponse",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "id", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "status", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &status},
        {.name = "metadata", .type = F_STRING_MAP},
        {.name = "extensions", .type = F_STRING_MAP},
        {.name = "platform", .type = F_OBJECT, .sub = &platform},
        {.name = "expiresAt", .type = F_TIME},
        {.name = "createdAt", .type = F_TIME, .flags = FIELD_REQUIRED},
        {.name = "entrypoint", .type = F_STRING_LIST, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema sandbox_answer = {
    .name = "Sandbox",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "id", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "image", .type = F_OBJECT, .sub = &image_ref},
        {.name = "snapshotId", .type = F_STRING},
        {.name = "status", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &status},
        {.name = "metadata", .type = F_STRING_MAP},
        {.name = "extensions", .type = F_STRING_MAP},
        {.name = "platform", .type = F_OBJECT, .sub = &platform},
        {.name = "expiresAt", .type = F_TIME},
        {.name = "createdAt", .type = F_TIME, .flags = FIELD_REQUIRED},
        {.name = "entrypoint", .type = F_STRING_LIST, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema sandboxes_answer = {
    .name = "ListSandboxesResponse",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "items", .type = F_LIST, .flags = FIELD_REQUIRED, .sub = &sandbox_answer},
        {.name = "pagination", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &pagination},
        {0},
    }};
const struct schema renewed_answer = {
    .name = "RenewSandboxExpirationResponse",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "expiresAt", .type = F_TIME, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema snapshot_answer = {
    .name = "Snapshot",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "id", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "sandboxId", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "name", .type = F_STRING},
        {.name = "status", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &status},
        {.name = "createdAt", .type = F_TIME, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema snapshots_answer = {
    .name = "ListSnapshotsResponse",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "items", .type = F_LIST, .flags = FIELD_REQUIRED, .sub = &snapshot_answer},
        {.name = "pagination", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &pagination},
        {0},
    }};
const struct schema endpoint_answer = {
    .name = "Endpoint",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "endpoint", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "headers", .type = F_STRING_MAP},
        {0},
    }};
static const char *const kinds[] = {"logs", "events", NULL}, *const deliveries[] = {"inline", "url",
                                                                                    NULL};
const struct schema diagnostics_answer = {
    .name = "DiagnosticsContent",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "sandboxId", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "kind", .type = F_STRING, .flags = FIELD_REQUIRED, .choices = kinds},
        {.name = "scope", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "delivery", .type = F_STRING, .flags = FIELD_REQUIRED, .choices = deliveries},
        {.name = "contentType", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "truncated", .type = F_BOOL, .flags = FIELD_REQUIRED},
        {.name = "content", .type = F_STRING},
        {.name = "contentUrl", .type = F_STRING},
        {.name = "expiresAt", .type = F_TIME},
        {.name = "contentLength", .type = F_INT},
        {.name = "warnings", .type = F_STRING_LIST},
        {0},
    }};
static const struct schema capacity = {
    .name = "PoolCapacitySpec",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "bufferMax", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "bufferMin", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "poolMax", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "poolMin", .type = F_INT, .flags = FIELD_REQUIRED},
        {0},
    }};
static const struct schema pool_status = {.name = "PoolStatus",
                                          .is_closed = true,
                                          .fields = (const struct field[]){
                                              {.name = "total", .type = F_INT},
                                              {.name = "allocated", .type = F_INT},
                                              {.name = "available", .type = F_INT},
                                              {.name = "revision", .type = F_STRING},
                                              {0},
                                          }};
const struct schema pool_answer = {
    .name = "PoolResponse",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "name", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "capacitySpec", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &capacity},
        {.name = "status", .type = F_OBJECT, .sub = &pool_status},
        {.name = "createdAt", .type = F_TIME},
        {0},
    }};
const struct schema pools_answer = {
    .name = "ListPoolsResponse",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "items", .type = F_LIST, .flags = FIELD_REQUIRED, .sub = &pool_answer},
        {0},
    }};
const struct schema policy_answer = {
    .name = "PolicyStatus",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "status", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "mode", .type = F_STRING},
        {.name = "enforcementMode", .type = F_STRING},
        {.name = "reason", .type = F_STRING},
        {.name = "policy", .type = F_OBJECT, .sub = &policy_schema},
        {0},
    }};
static const char *const phases[] = {"Pending", "Building", "Succeeded", "Failed", NULL};
static const struct schema template_status = {
    .name = "FsbTemplateStatus",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "phase", .type = F_STRING, .flags = FIELD_REQUIRED, .choices = phases},
        {.name = "manifestRef", .type = F_STRING},
        {.name = "message", .type = F_STRING},
        {0},
    }};
const struct schema template_answer = {
    .name = "FsbTemplate",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "templateId", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "image", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "resourceLimits", .type = F_STRING_MAP},
        {.name = "entrypoint", .type = F_STRING_LIST},
        {.name = "env", .type = F_STRING_MAP},
        {.name = "metadata", .type = F_STRING_MAP},
        {.name = "readiness", .type = F_OBJECT},
        {.name = "publish", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "format", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "status", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &template_status},
        {.name = "createdAt", .type = F_TIME, .flags = FIELD_REQUIRED},
        {.name = "updatedAt", .type = F_TIME, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema templates_answer = {
    .name = "ListFsbTemplatesResponse",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "items", .type = F_LIST, .flags = FIELD_REQUIRED, .sub = &template_answer},
        {.name = "pagination", .type = F_OBJECT, .flags = FIELD_REQUIRED, .sub = &pagination},
        {0},
    }};
const struct schema health_answer = {
    .name = "Health",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "status", .type = F_STRING, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema version_answer = {
    .name = "Version",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "version", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "compat", .type = F_STRING, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema capabilities_answer = {
    .name = "Capabilities",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "driver", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "version", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "create", .type = F_STRING_MAP, .flags = FIELD_REQUIRED},
        {.name = "capabilities", .type = F_OBJECT, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema import_answer = {
    .name = "Image",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "reference", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "id", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "sizeBytes", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "layers", .type = F_INT, .flags = FIELD_REQUIRED},
        {.name = "os", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "arch", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "createdAt", .type = F_TIME},
        {.name = "importedAt", .type = F_TIME},
        {0},
    }};
const struct schema images_answer = {
    .name = "ListImagesResponse",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "items", .type = F_LIST, .flags = FIELD_REQUIRED, .sub = &import_answer},
        {0},
    }};
const struct schema error_answer = {
    .name = "Error",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "code", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "message", .type = F_STRING, .flags = FIELD_REQUIRED},
        {0},
    }};
static const struct schema violation = {
    .name = "Violation", /* and loc, input, ctx: of any shape */
    .fields = (const struct field[]){
        {.name = "type", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "msg", .type = F_STRING, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema violations_answer = {
    .name = "ValidationError",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "code", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "message", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "detail", .type = F_LIST, .flags = FIELD_REQUIRED, .sub = &violation},
        {0},
    }};
