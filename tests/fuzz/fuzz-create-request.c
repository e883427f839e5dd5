/*
 * Bodies and queries of requests. The first byte picks what the rest is: '0' the body of a create
 * (schema, rules, translation and the service's checks), '1' a query and a metadata filter, '2' and
 * up the other forms. Besides memory: a body is either refused, with at least one violation or the
 * limit it exceeds, or gives content of its form that passes again as it is; a violation list can
 * always be put into words.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "daemon/api/opensandbox/bodies.h"
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

/* All that is decided without waiting, in the service's order. */
static enum fault check_all(const struct service_opts *o, struct create_request *rq,
                            struct sandbox_spec *spec, struct err *err) {
    enum fault f = check_source(o, rq, spec, err);

    if (f == FAULT_NONE && rq->snapshot_id) { /* as after the look-up */
        rq->image = strdup("snapshot");
        spec->snapshot_id = TAKE_PTR(rq->snapshot_id);
    }
    if (f || (f = check_create(o, rq, spec, err)) || (f = check_env(rq, spec, err)))
        return f;
    return check_volumes(o, rq, err);
}

static void check(struct create_request *rq) {
    static const char *const allowed[] = {"/data", NULL};
    static const struct driver_ops ops = {.name = "fuzz", .check_policy = take_policy};
    static struct driver d = {.ops = &ops,
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
                                        .no_entrypoint = true}};
    struct service_opts o = {.allowed_host_paths = allowed, .max_timeout_s = 86400, .driver = &d};
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

static void must_say_why(json_t *detail, const struct err *err) {
    if (json_array_size(detail) > 0) {
        _cleanup_free_ char *line = violations_line(detail);
        MUST(line);
    } else {
        MUST(err->code == -E2BIG && *err->msg);
    }
}

static void create(const char *text, size_t len) {
    struct create_request rq = {0};
    struct err err = {0};
    json_t *detail = json_array();

    if (parse_create(text, len, &rq, detail, &err)) {
        MUST(json_array_size(detail) == 0);
        check(&rq);
        create_request_done(&rq);
    } else {
        must_say_why(detail, &err);
    }
    json_decref(detail);
}

static void any_form(const struct body_form *f, const char *text, size_t len) {
    struct err err = {0};
    json_t *detail = json_array();
    _cleanup_json_ json_t *out = body_read(f, text, len, detail, &err);

    if (!out)
        must_say_why(detail, &err);
    else
        MUST(json_is_object(out) && json_array_size(detail) == 0);
    json_decref(detail);
}

static void query(const char *text) {
    static const struct param *const all[] = {list_params,     endpoint_params, logs_params,
                                              events_params,   summary_params,  template_params,
                                              snapshot_params, inspect_params};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        json_t *detail = json_array();
        _cleanup_json_ json_t *out = query_read(all[i], text, detail);
        MUST(out);
        if (json_array_size(detail) > 0)
            must_say_why(detail, NULL);
        json_decref(detail);
    }
    json_decref(parse_metadata_filter(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t n = 0;

    if (size == 0)
        return 0;
    log_setup(LOG_ERROR, false, "fuzz");
    while (bodies_all[n])
        n++;
    _cleanup_free_ char *text = str_ndup((const char *)data + 1, size - 1);
    size_t pick = (unsigned)(*data - '0') % (n + 2);
    if (pick == 0)
        create(text, size - 1);
    else if (pick == 1)
        query(text);
    else
        any_form(bodies_all[pick - 2], text, size - 1);
    return 0;
}
