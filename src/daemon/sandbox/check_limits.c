/*
 * resourceLimits: what each key must look like and what becomes of it, by the driver's rules. A
 * Windows guest has least amounts instead and gets its resources through its environment, so
 * nothing is limited from outside. Pure functions, any thread; only the service calls them.
 */
#include "daemon/sandbox/check.h"

#include <errno.h>
#include <string.h>

#define WINDOWS_CPU_NANOS 2000000000ull
#define WINDOWS_MEMORY 4000000000ull
#define WINDOWS_DISK 64000000000ull

static enum fault bad_limit(struct err *err, const char *key, const char *value, const char *rule) {
    err_set(err, -EINVAL, "Invalid resourceLimits.%s: '%.80s'; must resolve to a positive %s.", key,
            value, rule);
    return FAULT_INVALID;
}

static enum fault unsupported(const struct driver_rules *rules, struct err *err, const char *key) {
    err_set(err, -EINVAL, "resourceLimits.%.60s is not supported by the %s provider.", key,
            provider_title(rules));
    return FAULT_INVALID;
}

static enum fault check_amount(const json_t *limits, const char *key,
                               int (*parse)(const char *, uint64_t *), uint64_t *ret,
                               struct err *err) {
    const char *value = json_str(limits, key);

    if (value && parse(value, ret) < 0)
        return bad_limit(err, key, value, "resource limit");
    return FAULT_NONE;
}

static enum fault too_small(struct err *err, const char *key, const char *least) {
    err_set(err, -EINVAL, "The windows profile needs resourceLimits.%s >= %s.", key, least);
    return FAULT_INVALID;
}

enum fault check_windows_limits(const json_t *limits, struct err *err) {
    static const char *const disks[] = {"disk", "storage", "ephemeral-storage"};
    uint64_t n = WINDOWS_CPU_NANOS;
    enum fault f;

    if ((f = check_amount(limits, "cpu", parse_cpu, &n, err)))
        return f;
    if (n < WINDOWS_CPU_NANOS)
        return too_small(err, "cpu", "2");
    n = WINDOWS_MEMORY;
    if ((f = check_amount(limits, "memory", parse_memory, &n, err)))
        return f;
    if (n < WINDOWS_MEMORY)
        return too_small(err, "memory", "4G");
    for (size_t i = 0; i < ARRAY_SIZE(disks); i++) {
        n = WINDOWS_DISK;
        if ((f = check_amount(limits, disks[i], parse_memory, &n, err)))
            return f;
        if (n < WINDOWS_DISK)
            return too_small(err, disks[i], "64G");
    }
    return FAULT_NONE;
}

static enum fault check_gpu(const struct driver_rules *rules, const json_t *limits,
                            struct sandbox_spec *spec, struct err *err) {
    const char *gpu = json_str(limits, "gpu");

    if (gpu && parse_gpu(gpu, &spec->gpus) < 0)
        return bad_limit(err, "gpu", gpu, "device count or 'all'");
    return gpu && !rules->gpu ? unsupported(rules, err, "gpu") : FAULT_NONE;
}

/* Beyond memory, cpu and gpu, for drivers that refuse what they do not do. */
static enum fault check_others(const struct driver_rules *rules, const json_t *limits,
                               struct sandbox_spec *spec, struct err *err) {
    static const char *const known[] = {"memory", "cpu",  "gpu",
                                        "pids",   "disk", "ephemeral-storage"};
    const char *key;
    enum fault f;
    json_t *v;

    if ((f = check_amount(limits, "pids", parse_count, &spec->pids, err)) ||
        (f = check_amount(limits, "disk", parse_memory, &spec->disk_bytes, err)) ||
        (f = check_amount(limits, "ephemeral-storage", parse_memory, &spec->disk_bytes, err)))
        return f;
    if (spec->disk_bytes && !rules->disk_limit)
        return unsupported(rules, err, json_str(limits, "disk") ? "disk" : "ephemeral-storage");
    json_object_foreach((json_t *)limits, key, v) {
        bool is_known = false;
        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
            is_known |= strcmp(key, known[i]) == 0;
        if (!is_known)
            return unsupported(rules, err, key);
    }
    return FAULT_NONE;
}

enum fault check_limits(const struct driver_rules *rules, const json_t *limits,
                        struct sandbox_spec *spec, struct err *err) {
    enum fault f;

    if ((f = check_amount(limits, "memory", parse_memory, &spec->memory_bytes, err)) ||
        (f = check_amount(limits, "cpu", parse_cpu, &spec->cpu_nanos, err)) ||
        (f = check_gpu(rules, limits, spec, err)))
        return f;
    if (spec->cpu_nanos)
        spec->cpu_millis = MAX(spec->cpu_nanos / 1000000, 1u);
    return rules->ignores_limits ? FAULT_NONE : check_others(rules, limits, spec, err);
}
