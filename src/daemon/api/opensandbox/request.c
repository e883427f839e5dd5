/*
 * The body of a create: its schema as tables, the rules across fields in their order, and the
 * translation into the service's request. Pure functions.
 */
#include <ctype.h>
#include <string.h>

#include "daemon/api/opensandbox/bodies.h"

#define SIZE_PATTERN "^\\d+(\\.\\d+)?(Ki|Mi|Gi|Ti|Pi|Ei)?$"

static bool is_rooted(const char *s) {
    return s[0] == '/';
}

static bool is_host_path(const char *s) {
    return s[0] == '/' ||
           (isalpha((unsigned char)s[0]) && s[1] == ':' && (s[2] == '\\' || s[2] == '/'));
}

static bool is_size(const char *s) {
    static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    size_t n = strspn(s, "0123456789");

    if (n == 0)
        return false;
    s += n;
    if (*s == '.') {
        n = strspn(s + 1, "0123456789");
        if (n == 0)
            return false;
        s += 1 + n;
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++)
        if (strcmp(s, units[i]) == 0)
            return true;
    return false;
}

static const char *const oss_versions[] = {"1.0", "2.0", NULL};

static const struct schema image_auth = {
    .name = "ImageAuth",
    .fields = (const struct field[]){
        {.name = "username", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "password", .type = F_STRING, .flags = FIELD_REQUIRED},
        {0},
    }};
static const struct schema image = {.name = "ImageSpec",
                                    .fields = (const struct field[]){
                                        {.name = "uri", .type = F_STRING, .flags = FIELD_REQUIRED},
                                        {.name = "auth", .type = F_OBJECT, .sub = &image_auth},
                                        {0},
                                    }};
static const struct schema platform = {
    .name = "PlatformSpec",
    .fields = (const struct field[]){
        {.name = "os", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "arch", .type = F_STRING, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct schema policy_rule_schema = {
    .name = "NetworkRule",
    .fields = (const struct field[]){
        {.name = "action", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "target", .type = F_STRING, .flags = FIELD_REQUIRED | FIELD_MIN, .min = 1},
        {0},
    }};
const struct schema policy_schema = {
    .name = "NetworkPolicy",
    .fields = (const struct field[]){
        {.name = "defaultAction", .snake = "default_action", .type = F_STRING},
        {.name = "egress", .type = F_LIST, .sub = &policy_rule_schema},
        {0},
    }};
static const struct schema credential_proxy = {.name = "CredentialProxy",
                                               .fields = (const struct field[]){
                                                   {.name = "enabled", .type = F_BOOL},
                                                   {0},
                                               }};
static const struct schema host_volume = {.name = "HostVolume",
                                          .fields = (const struct field[]){
                                              {.name = "path",
                                               .type = F_STRING,
                                               .flags = FIELD_REQUIRED,
                                               .matches = is_host_path,
                                               .pattern = "^(/|[A-Za-z]:[\\\\/])"},
                                              {0},
                                          }};
static const struct schema named_volume = {
    .name = "PvcVolume",
    .fields = (const struct field[]){
        {.name = "claimName",
         .snake = "claim_name",
         .type = F_STRING,
         .flags = FIELD_REQUIRED | FIELD_MAX,
         .max = 253,
         .matches = str_is_dns_label,
         .pattern = DNS_LABEL_PATTERN},
        {.name = "createIfNotExists", .snake = "create_if_not_exists", .type = F_BOOL},
        {.name = "deleteOnSandboxTermination",
         .snake = "delete_on_sandbox_termination",
         .type = F_BOOL},
        {.name = "storageClass", .snake = "storage_class", .type = F_STRING},
        {.name = "storage", .type = F_STRING, .matches = is_size, .pattern = SIZE_PATTERN},
        {.name = "accessModes", .snake = "access_modes", .type = F_STRING_LIST},
        {0},
    }};
static const struct schema oss_volume = {
    .name = "OssfsVolume",
    .fields = (const struct field[]){
        {.name = "bucket",
         .type = F_STRING,
         .flags = FIELD_REQUIRED | FIELD_MIN | FIELD_MAX,
         .min = 3,
         .max = 63},
        {.name = "endpoint", .type = F_STRING, .flags = FIELD_REQUIRED | FIELD_MIN, .min = 1},
        {.name = "version", .type = F_STRING, .choices = oss_versions},
        {.name = "options", .type = F_STRING_LIST},
        {.name = "accessKeyId",
         .snake = "access_key_id",
         .type = F_STRING,
         .flags = FIELD_REQUIRED | FIELD_MIN,
         .min = 1},
        {.name = "accessKeySecret",
         .snake = "access_key_secret",
         .type = F_STRING,
         .flags = FIELD_REQUIRED | FIELD_MIN,
         .min = 1},
        {0},
    }};
static const struct schema volume = {.name = "Volume",
                                     .fields = (const struct field[]){
                                         {.name = "name",
                                          .type = F_STRING,
                                          .flags = FIELD_REQUIRED | FIELD_MAX,
                                          .max = 63,
                                          .matches = str_is_dns_label,
                                          .pattern = DNS_LABEL_PATTERN},
                                         {.name = "host", .type = F_OBJECT, .sub = &host_volume},
                                         {.name = "pvc", .type = F_OBJECT, .sub = &named_volume},
                                         {.name = "ossfs", .type = F_OBJECT, .sub = &oss_volume},
                                         {.name = "mountPath",
                                          .snake = "mount_path",
                                          .type = F_STRING,
                                          .flags = FIELD_REQUIRED,
                                          .matches = is_rooted,
                                          .pattern = "^/.*"},
                                         {.name = "readOnly", .snake = "read_only", .type = F_BOOL},
                                         {.name = "subPath", .snake = "sub_path", .type = F_STRING},
                                         {0},
                                     }};
static const struct schema hook = {
    .name = "LifecycleHook",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "command", .type = F_STRING_LIST, .flags = FIELD_REQUIRED | FIELD_MIN, .min = 1},
        {.name = "timeoutSeconds",
         .snake = "timeout_seconds",
         .type = F_INT,
         .flags = FIELD_MIN | FIELD_MAX,
         .min = 1,
         .max = 10800},
        {0},
    }};
static const struct schema periodic = {
    .name = "LifecyclePeriodic",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "name", .type = F_STRING, .flags = FIELD_REQUIRED},
        {.name = "schedule", .type = F_STRING, .flags = FIELD_REQUIRED | FIELD_MIN, .min = 1},
        {.name = "command", .type = F_STRING_LIST, .flags = FIELD_REQUIRED | FIELD_MIN, .min = 1},
        {.name = "timeoutSeconds",
         .snake = "timeout_seconds",
         .type = F_INT,
         .flags = FIELD_MIN | FIELD_MAX,
         .min = 1,
         .max = 300},
        {0},
    }};
static const struct schema lifecycle = {
    .name = "Lifecycle",
    .is_closed = true,
    .fields = (const struct field[]){
        {.name = "preStart", .snake = "pre_start", .type = F_OBJECT, .sub = &hook},
        {.name = "periodic", .type = F_LIST, .sub = &periodic},
        {0},
    }};
static const struct schema create_schema = {
    .fields = (const struct field[]){
        {.name = "image", .type = F_OBJECT, .sub = &image},
        {.name = "snapshotId", .snake = "snapshot_id", .type = F_STRING},
        {.name = "templateId",
         .snake = "template_id",
         .type = F_STRING,
         .flags = FIELD_MIN,
         .min = 1},
        {.name = "platform", .type = F_OBJECT, .sub = &platform},
        {.name = "timeout", .type = F_INT, .flags = FIELD_MIN, .min = 60},
        {.name = "resourceLimits", .snake = "resource_limits", .type = F_STRING_MAP},
        {.name = "resourceRequests", .snake = "resource_requests", .type = F_STRING_MAP},
        {.name = "env", .type = F_NULLABLE_MAP},
        {.name = "metadata", .type = F_STRING_MAP},
        {.name = "entrypoint", .type = F_STRING_LIST, .flags = FIELD_MIN, .min = 1},
        {.name = "networkPolicy",
         .snake = "network_policy",
         .type = F_OBJECT,
         .sub = &policy_schema},
        {.name = "credentialProxy",
         .snake = "credential_proxy",
         .type = F_OBJECT,
         .sub = &credential_proxy},
        {.name = "secureAccess", .snake = "secure_access", .type = F_BOOL},
        {.name = "volumes", .type = F_LIST, .sub = &volume},
        {.name = "extensions", .type = F_STRING_MAP},
        {.name = "lifecycle", .type = F_OBJECT, .sub = &lifecycle},
        {0},
    }};

const struct body_form create_form = {"CreateSandboxRequest", &create_schema};

static bool is_blank(const char *s) {
    return !s || !s[strspn(s, " \t\r\n")];
}

/* Everything that a template brings itself. Sorted: the answer lists offenders in this order. */
static bool template_conflicts(const json_t *in, json_t *detail) {
    static const char *const members[] = {"credentialProxy", "entrypoint",       "env",
                                          "image",           "lifecycle",        "platform",
                                          "resourceLimits",  "resourceRequests", "secureAccess",
                                          "snapshotId",      "volumes"};
    _cleanup_buf_ struct buf b = BUF_INIT(1024);

    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        bool there = json_object_get(in, members[i]) != NULL;
        if (strcmp(members[i], "snapshotId") == 0)
            there = !is_blank(json_str(in, members[i]));
        if (strcmp(members[i], "secureAccess") == 0)
            there = json_bool(in, members[i], false);
        if (there)
            buf_printf(&b, "%s%s", b.len ? ", " : "", members[i]);
    }
    if (b.len) {
        _cleanup_free_ char *text = str_printf("templateId cannot be combined with: %s", b.data);
        violation_rule(detail, in, text);
    } else if (!json_object_get(in, "timeout")) {
        violation_rule(detail, in, "timeout is required with templateId.");
    }
    return json_array_size(detail) > 0;
}

static bool is_same_trimmed(const char *a, const char *b) {
    static const char blanks[] = " \t\r\n";
    size_t n, m;

    a += strspn(a, blanks);
    b += strspn(b, blanks);
    for (n = strlen(a); n && strchr(blanks, a[n - 1]);)
        n--;
    for (m = strlen(b); m && strchr(blanks, b[m - 1]);)
        m--;
    return n == m && memcmp(a, b, n) == 0;
}

static bool is_blank_command(const json_t *hook_object) {
    const json_t *command = json_object_get(hook_object, "command");
    return is_blank(json_string_value(json_array_get(command, 0)));
}

static void check_lifecycle(const json_t *l, json_t *detail) {
    const json_t *list = json_object_get(l, "periodic"), *p, *pre = json_object_get(l, "preStart");
    size_t i, k;

    if (pre && is_blank_command(pre))
        violation_rule_at(detail, json_pack("[s,s,s]", "body", "lifecycle", "preStart"), pre,
                          "command[0] must not be blank.");
    json_array_foreach(list, i, p) {
        bool is_blank_word = is_blank(json_str(p, "name")) || is_blank(json_str(p, "schedule"));
        if (is_blank_word || is_blank_command(p))
            violation_rule_at(detail,
                              json_pack("[s,s,s,i]", "body", "lifecycle", "periodic", (int)i), p,
                              is_blank_word ? "name and schedule must not be blank."
                                            : "command[0] must not be blank.");
        for (k = 0; k < i; k++)
            if (is_same_trimmed(json_str(json_array_get(list, k), "name"), json_str(p, "name"))) {
                violation_rule_at(detail, json_pack("[s,s]", "body", "lifecycle"), l,
                                  "names of periodic hooks must be unique.");
                return;
            }
    }
}

/* Rules inside of parts: they come before those across the whole body. */
static void check_parts(const json_t *in, json_t *detail) {
    const json_t *v, *lifecycle_object = json_object_get(in, "lifecycle");
    size_t i;

    json_array_foreach(json_object_get(in, "volumes"), i, v) {
        int n = (json_object_get(v, "host") != NULL) + (json_object_get(v, "pvc") != NULL) +
                (json_object_get(v, "ossfs") != NULL);
        if (n != 1)
            violation_rule_at(detail, json_pack("[s,s,i]", "body", "volumes", (int)i), v,
                              n ? "exactly one of host, pvc and ossfs must be given, not several."
                                : "exactly one of host, pvc and ossfs must be given.");
    }
    if (lifecycle_object)
        check_lifecycle(lifecycle_object, detail);
}

/* The first rule that is broken, or NULL; *ret_template: template mode, nothing else is looked at.
 */
static const char *first_broken_rule(const json_t *in, bool *ret_template, json_t *detail) {
    const json_t *ext = json_object_get(in, "extensions"), *l = json_object_get(in, "lifecycle");
    bool has_snapshot = !is_blank(json_str(in, "snapshotId"));
    bool has_image = !is_blank(json_str(json_object_get(in, "image"), "uri"));
    bool proxied = json_bool(json_object_get(in, "credentialProxy"), "enabled", false);

    if (json_object_get(json_object_get(in, "env"), "OPENSANDBOX_LIFECYCLE"))
        return "env key OPENSANDBOX_LIFECYCLE is reserved.";
    *ret_template = !is_blank(json_str(in, "templateId"));
    if (*ret_template) {
        template_conflicts(in, detail);
        return NULL;
    }
    if (!is_blank(json_str(ext, "poolRef"))) {
        if (l)
            return "lifecycle cannot be used together with poolRef.";
        return has_snapshot ? "snapshotId cannot be used together with poolRef." : NULL;
    }
    if (proxied && !json_object_get(in, "networkPolicy"))
        return "credentialProxy.enabled requires networkPolicy.";
    if (has_image == has_snapshot)
        return "Exactly one of image or snapshotId must be provided.";
    bool none = str_eq(json_str(ext, "cove.entrypoint"), "none");
    if (has_image && !none && json_array_size(json_object_get(in, "entrypoint")) == 0)
        return "entrypoint is required when image is provided.";
    if (!json_object_get(in, "resourceLimits"))
        return "resourceLimits is required.";
    return NULL;
}

/* Copies a text member that may be absent. */
static int take_text(const json_t *o, const char *key, char **ret) {
    const char *s = json_str(o, key);
    *ret = s ? strdup(s) : NULL;
    return s && !*ret ? -1 : 0;
}

static int take_named(const json_t *v, struct volume_request *to) {
    to->create_if_missing = json_bool(v, "createIfNotExists", true);
    to->delete_on_termination = json_bool(v, "deleteOnSandboxTermination", false);
    return take_text(v, "claimName", &to->claim);
}

static int take_oss(const json_t *v, struct oss_request *to) {
    const json_t *o;
    size_t i;

    json_array_foreach(json_object_get(v, "options"), i, o) {
        if (strv_add(&to->options, json_string_value(o)) < 0)
            return -1;
    }
    if (take_text(v, "version", &to->version) < 0)
        return -1;
    if (!to->version && !(to->version = strdup("2.0")))
        return -1;
    return take_text(v, "bucket", &to->bucket) | take_text(v, "endpoint", &to->endpoint) |
           take_text(v, "accessKeyId", &to->key_id) |
           take_text(v, "accessKeySecret", &to->key_secret);
}

static int take_volume(const json_t *v, struct volume_request *to) {
    const json_t *host = json_object_get(v, "host"), *pvc = json_object_get(v, "pvc");
    const json_t *oss = json_object_get(v, "ossfs");

    to->n_backends = (host != NULL) + (pvc != NULL) + (oss != NULL);
    to->kind = host ? VOLUME_HOST : pvc ? VOLUME_NAMED : VOLUME_OSS;
    to->read_only = json_bool(v, "readOnly", false);
    to->host_path = strdup(host ? json_str(host, "path") : "");
    if (!to->host_path || take_text(v, "name", &to->name) < 0 ||
        take_text(v, "mountPath", &to->mount_path) < 0 ||
        take_text(v, "subPath", &to->sub_path) < 0)
        return -1;
    if (pvc && take_named(pvc, to) < 0)
        return -1;
    return oss ? take_oss(oss, &to->oss) : 0;
}

static int take_volumes(const json_t *list, struct create_request *rq) {
    const json_t *v;
    size_t i;

    if (json_array_size(list) == 0)
        return 0;
    rq->volumes = calloc(json_array_size(list), sizeof *rq->volumes);
    if (!rq->volumes)
        return -1;
    json_array_foreach(list, i, v) {
        if (take_volume(v, &rq->volumes[rq->n_volumes++]) < 0)
            return -1;
    }
    return 0;
}

static int take_lists(const json_t *in, struct create_request *rq) {
    const json_t *env = json_object_get(in, "env"), *words = json_object_get(in, "entrypoint");
    const char *key;
    json_t *v;
    size_t i;

    json_array_foreach(words, i, v) {
        if (strv_add(&rq->entrypoint, json_string_value(v)) < 0)
            return -1;
    }
    json_object_foreach((json_t *)env, key, v) {
        if (json_is_string(v) && strv_addf(&rq->env, "%s=%s", key, json_string_value(v)) < 0)
            return -1;
    }
    return 0;
}

static int take_source(const json_t *in, struct create_request *rq) {
    const json_t *from = json_object_get(in, "image"), *auth = json_object_get(from, "auth");
    const char *uri = json_str(from, "uri"), *snapshot = json_str(in, "snapshotId");

    if (!is_blank(uri) && !(rq->image = strdup(uri)))
        return -1;
    if (!is_blank(snapshot) && !(rq->snapshot_id = strdup(snapshot)))
        return -1;
    return take_text(auth, "username", &rq->registry_user) |
           take_text(auth, "password", &rq->registry_password);
}

static int take_policy(const json_t *in, struct create_request *rq) {
    rq->policy = json_incref(json_object_get(in, "networkPolicy"));
    rq->credential_proxy = json_bool(json_object_get(in, "credentialProxy"), "enabled", false);
    if (rq->policy && !json_object_get(rq->policy, "egress"))
        return json_object_set_new(rq->policy, "egress", json_array());
    return 0;
}

static int translate(const json_t *in, struct create_request *rq) {
    const json_t *os = json_object_get(in, "platform");

    rq->timeout_s = json_int(in, "timeout", 0);
    rq->metadata = json_incref(json_object_get(in, "metadata"));
    rq->extensions = json_incref(json_object_get(in, "extensions"));
    rq->limits = json_incref(json_object_get(in, "resourceLimits"));
    rq->no_entrypoint = str_eq(json_str(rq->extensions, "cove.entrypoint"), "none");
    rq->has_template = !is_blank(json_str(in, "templateId"));
    rq->has_lifecycle = json_object_get(in, "lifecycle") != NULL;
    rq->secure_access = json_bool(in, "secureAccess", false);
    if (take_source(in, rq) < 0 || take_policy(in, rq) < 0)
        return -1;
    if (os &&
        (!(rq->os = strdup(json_str(os, "os"))) || !(rq->arch = strdup(json_str(os, "arch")))))
        return -1;
    return take_lists(in, rq) < 0 ? -1 : take_volumes(json_object_get(in, "volumes"), rq);
}

bool parse_create(const char *data, size_t len, struct create_request *ret, json_t *detail,
                  struct err *err) {
    struct create_request rq = {0};
    bool is_template = false;

    _cleanup_json_ json_t *in = body_read(&create_form, data, len, detail, err);
    if (!in)
        return false;
    check_parts(in, detail);
    if (json_array_size(detail) > 0)
        return false;
    const char *problem = first_broken_rule(in, &is_template, detail);
    if (problem)
        violation_rule(detail, in, problem);
    if (json_array_size(detail) > 0)
        return false;
    if (translate(in, &rq) < 0) {
        create_request_done(&rq);
        err_set(err, -ENOMEM, "out of memory");
        return false;
    }
    *ret = rq;
    return true;
}
