/*
 * Bodies of a create: schema, rules, translation and checks. Besides memory: a body is either
 * refused with at least one violation, or gives a request that the service's checks can be run on;
 * a violation list can always be put into words.
 */
#include <string.h>

#include "base/log.h"
#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"
#include "daemon/sandbox/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)            \
    do {                      \
        if (!(cond))          \
            __builtin_trap(); \
    } while (0)

static int take_policy(struct driver *d, const struct sandbox_spec *spec, struct err *err) {
    return 0;
}

/* Everything is honoured, so that every part of the request is read. */
static const struct driver_ops ops = {.check_policy = take_policy};
static struct driver driver = {
    .ops = &ops,
    .rules = {.provider = "docker",
              .named_volumes = true,
              .oss_volumes = true,
              .gpu = true,
              .windows = true,
              .any_arch = true,
              .snapshots = true,
              .image_auth = true,
              .isolation = true,
              .disk_limit = true,
              .net_choice = true,
              .cwd_choice = true,
              .no_entrypoint = true},
};

static enum fault check_all(const struct service_opts *o, struct create_request *rq,
                            struct sandbox_spec *spec, struct err *err) {
    enum fault f = check_source(o, rq, spec, err);

    if (f == FAULT_NONE && rq->snapshot_id) { /* as the service does it after the look-up */
        rq->image = strdup("snapshot");
        spec->snapshot_id = TAKE_PTR(rq->snapshot_id);
    }
    if (f || (f = check_create(o, rq, spec, err)) || (f = check_env(rq, spec, err)))
        return f;
    return check_volumes(o, rq, err);
}

static void check(struct create_request *rq) {
    static const char *const allowed[] = {"/data", NULL};
    struct service_opts o = {
        .driver = &driver, .allowed_host_paths = allowed, .max_timeout_s = 86400};
    struct sandbox_spec spec = {0};
    struct err err = {0};

    str_copy(spec.id, sizeof spec.id, "fuzz");
    enum fault f = check_all(&o, rq, &spec, &err);
    MUST((f == FAULT_NONE) == (err.code == 0));
    if (f == FAULT_NONE) {
        struct sandbox_spec again = {0};
        _cleanup_json_ json_t *j = sandbox_spec_to_json(&spec);
        MUST(j && sandbox_spec_from_json(j, &again, &err) == 0);
        sandbox_spec_done(&again);
    }
    sandbox_spec_done(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct create_request rq = {0};
    json_t *detail = json_array();

    log_setup(LOG_ERROR, false, "fuzz");
    if (parse_create((const char *)data, size, &rq, detail)) {
        MUST(json_array_size(detail) == 0);
        check(&rq);
        create_request_done(&rq);
    } else {
        MUST(json_array_size(detail) > 0);
        _cleanup_free_ char *line = violations_line(detail);
        MUST(line);
    }
    json_decref(detail);
    _cleanup_free_ char *text = str_ndup((const char *)data, size);
    json_decref(parse_metadata_filter(text));
    return 0;
}
