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

static void check(struct create_request *rq) {
    static const char *const allowed[] = {"/data", NULL};
    struct service_opts o = {.allowed_host_paths = allowed, .max_timeout_s = 86400};
    struct sandbox_spec spec = {0};
    struct err err = {0};

    enum fault f = check_create(&o, rq, &spec, &err);
    MUST((f == FAULT_NONE) == (err.code == 0));
    if (f == FAULT_NONE) {
        struct sandbox_spec again = {0};
        str_copy(spec.id, sizeof spec.id, "fuzz");
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
