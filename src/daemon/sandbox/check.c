/*
 * The order and the words of refusals (see check.h). Everything here is decided from the request
 * and the configuration alone, so that a refused create has touched nothing. Only the service calls
 * this.
 */
#include "daemon/sandbox/check.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/log.h"

#define RESERVED_PREFIX "opensandbox.io/"
#define EGRESS_PREFIX "OPENSANDBOX_EGRESS_"
#define MAX_TIMEOUT_S (250000000000LL) /* the last representable year */

/* ---- metadata labels ---- */

static bool is_label_text(const char *s, size_t len) {
    if (len == 0 || len > 63 || !isalnum((unsigned char)s[0]) ||
        !isalnum((unsigned char)s[len - 1]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
            return false;
    return true;
}

static bool is_dns_subdomain(const char *s, size_t len) {
    bool at_start = true;

    if (len == 0 || len > 253)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool alnum = islower((unsigned char)s[i]) || isdigit((unsigned char)s[i]);
        bool at_end = i + 1 == len || s[i + 1] == '.';
        if (s[i] == '.' ? at_start : !alnum && (s[i] != '-' || at_start || at_end))
            return false;
        at_start = s[i] == '.';
    }
    return !at_start;
}

static bool is_label_key(const char *key) {
    const char *slash = strchr(key, '/');
    if (slash && !is_dns_subdomain(key, (size_t)(slash - key)))
        return false;
    const char *name = slash ? slash + 1 : key;
    return is_label_text(name, strlen(name));
}

static enum fault check_label(const char *key, const char *value, struct err *err) {
    if (!is_label_key(key)) {
        err_set(err, -EINVAL,
                "Metadata key '%.80s' is invalid: an optional DNS prefix and '/', then at most 63 "
                "letters, digits, "
                "'-', '_' or '.', beginning and ending with a letter or digit.",
                key);
        return FAULT_LABEL;
    }
    if (*value && !is_label_text(value, strlen(value))) {
        err_set(err, -EINVAL,
                "Metadata value of '%.80s' is invalid: empty, or at most 63 letters, digits, '-', "
                "'_' or '.', "
                "beginning and ending with a letter or digit.",
                key);
        return FAULT_LABEL;
    }
    return FAULT_NONE;
}

enum fault check_metadata(const json_t *metadata, struct err *err) {
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)metadata, key, v) {
        if (str_starts(key, RESERVED_PREFIX)) {
            err_set(err, -EINVAL,
                    "Metadata key '%.80s' uses the reserved prefix '" RESERVED_PREFIX "'.", key);
            return FAULT_LABEL;
        }
        enum fault f = check_label(key, json_string_value(v), err);
        if (f)
            return f;
    }
    return FAULT_NONE;
}

enum fault check_metadata_patch(const json_t *patch, struct err *err) {
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)patch, key, v) {
        if (str_starts(key, RESERVED_PREFIX)) {
            err_set(err, -EINVAL,
                    "Metadata key '%.80s' uses the reserved prefix '" RESERVED_PREFIX "'.", key);
            return FAULT_LABEL_RESERVED;
        }
    }
    json_object_foreach((json_t *)patch, key, v) {
        enum fault f = json_is_null(v) ? FAULT_NONE : check_label(key, json_string_value(v), err);
        if (f)
            return f;
    }
    return FAULT_NONE;
}

/* ---- parts of a create ---- */

static enum fault invalid(struct err *err, const char *text) {
    err_set(err, -EINVAL, "%s", text);
    return FAULT_INVALID;
}

static enum fault check_sizes(const struct create_request *rq, struct err *err) {
    const struct {
        const char *name;
        size_t n, max;
    } counts[] = {
        {"env", rq->env.n, CHECK_MAX_MAP},
        {"metadata", json_object_size(rq->metadata), CHECK_MAX_MAP},
        {"extensions", json_object_size(rq->extensions), CHECK_MAX_MAP},
        {"resourceLimits", json_object_size(rq->limits), CHECK_MAX_MAP},
        {"volumes", rq->n_volumes, CHECK_MAX_VOLUMES},
        {"entrypoint", rq->entrypoint.n, CHECK_MAX_ENTRYPOINT},
    };
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        if (counts[i].n > counts[i].max) {
            err_set(err, -E2BIG, "%s may have at most %zu entries.", counts[i].name, counts[i].max);
            return FAULT_INVALID;
        }
    }
    return FAULT_NONE;
}

static enum fault check_renew_extension(const struct create_request *rq, struct err *err) {
    const json_t *v = json_object_get(rq->extensions, "access.renew.extend.seconds");
    uint64_t n;

    if (!v)
        return FAULT_NONE;
    if (parse_count(json_string_value(v), &n) < 0 || n < 300 || n > 86400)
        return invalid(
            err, "extensions.access.renew.extend.seconds must be an integer from 300 to 86400.");
    return FAULT_NONE;
}

static void trim_lower(char *s) {
    size_t skip = strspn(s, " \t\r\n"), len = strlen(s + skip);
    while (len && strchr(" \t\r\n", s[skip + len - 1]))
        len--;
    memmove(s, s + skip, len);
    s[len] = '\0';
    for (; *s; s++)
        *s = (char)tolower((unsigned char)*s);
}

static const char *host_arch(void) {
    static struct utsname u;
    if (uname(&u) == 0 && strcmp(u.machine, "x86_64") == 0)
        return "amd64";
    return strcmp(u.machine, "aarch64") == 0 ? "arm64" : u.machine;
}

static enum fault check_platform(struct create_request *rq, struct err *err) {
    if (!rq->os)
        return FAULT_NONE;
    trim_lower(rq->os);
    trim_lower(rq->arch);
    if (strcmp(rq->os, "linux") != 0 && strcmp(rq->os, "windows") != 0) {
        err_set(err, -EINVAL, "Unsupported platform.os '%.40s': expected linux or windows.",
                rq->os);
        return FAULT_INVALID;
    }
    if (strcmp(rq->arch, "amd64") != 0 && strcmp(rq->arch, "arm64") != 0) {
        err_set(err, -EINVAL, "Unsupported platform.arch '%.40s': expected amd64 or arm64.",
                rq->arch);
        return FAULT_INVALID;
    }
    if (strcmp(rq->os, "linux") != 0 || strcmp(rq->arch, host_arch()) != 0) {
        err_set(err, -EINVAL, "Platform %.20s/%.20s cannot run here: this host runs linux/%s.",
                rq->os, rq->arch, host_arch());
        return FAULT_INVALID;
    }
    return FAULT_NONE;
}

static enum fault check_timeout(const struct service_opts *o, const struct create_request *rq,
                                struct err *err) {
    if (rq->timeout_s > MAX_TIMEOUT_S)
        return invalid(err, "Sandbox timeout is too large to be represented as a date.");
    if (o->max_timeout_s && rq->timeout_s > o->max_timeout_s) {
        err_set(err, -EINVAL, "Sandbox timeout %llds exceeds the configured maximum of %llds.",
                (long long)rq->timeout_s, (long long)o->max_timeout_s);
        return FAULT_INVALID;
    }
    return FAULT_NONE;
}

static enum fault bad_limit(struct err *err, const char *key, const char *value, const char *rule) {
    err_set(err, -EINVAL, "Invalid resourceLimits.%s: '%.80s'; must resolve to a positive %s.", key,
            value, rule);
    return FAULT_INVALID;
}

static enum fault check_limits(const struct create_request *rq, struct sandbox_spec *spec,
                               struct err *err) {
    const struct {
        const char *key;
        int (*parse)(const char *, uint64_t *);
        uint64_t *to;
    } limits[] = {
        {"memory", parse_memory, &spec->memory_bytes},
        {"cpu", parse_cpu, &spec->cpu_millis},
        {"pids", parse_count, &spec->pids},
        {"disk", parse_memory, &spec->disk_bytes},
        {"ephemeral-storage", parse_memory, &spec->disk_bytes},
    };
    const char *gpu = json_str(rq->limits, "gpu"), *key;
    int64_t n;
    json_t *v;

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        const char *value = json_str(rq->limits, limits[i].key);
        if (value && limits[i].parse(value, limits[i].to) < 0)
            return bad_limit(err, limits[i].key, value, "resource limit");
    }
    if (gpu && parse_gpu(gpu, &n) < 0)
        return bad_limit(err, "gpu", gpu, "device count or 'all'");
    if (gpu)
        return invalid(err, "resourceLimits.gpu is not supported by this runtime.");
    json_object_foreach(rq->limits, key, v) {
        bool known = false;
        for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
            known |= strcmp(key, limits[i].key) == 0;
        if (!known)
            log_warn("resource limit is not one this runtime knows, ignored", LOG_STR("key", key));
    }
    return FAULT_NONE;
}

static enum fault check_extensions(const struct create_request *rq, struct sandbox_spec *spec,
                                   struct err *err) {
    const char *key;
    json_t *v;

    json_object_foreach(rq->extensions, key, v) {
        const char *value = json_string_value(v);
        if (strcmp(key, "bootstrap.execd.isolation") == 0 && strcmp(value, "enable") == 0)
            return invalid(err,
                           "extensions.bootstrap.execd.isolation is not offered by this server.");
        if (!str_starts(key, "cove."))
            continue;
        if (strcmp(key, "cove.network") == 0 && (!strcmp(value, "none") || !strcmp(value, "nat"))) {
            spec->net = strcmp(value, "nat") == 0 ? NET_NAT : NET_NONE;
        } else if (strcmp(key, "cove.network") == 0) {
            return invalid(err, "extensions.cove.network must be 'none' or 'nat'.");
        } else if (strcmp(key, "cove.cwd") == 0) {
            if (value[0] != '/')
                return invalid(err, "extensions.cove.cwd must be an absolute path.");
            if (!spec->cwd && !(spec->cwd = strdup(value)))
                return FAULT_CREATE;
        } else if (strcmp(key, "cove.entrypoint") != 0 || strcmp(value, "none") != 0) {
            err_set(err, -EINVAL, "Unknown extension '%.60s' or value.", key);
            return FAULT_INVALID;
        }
    }
    return FAULT_NONE;
}

static const char *const egress_names[] = {
    "LOG_LEVEL",
    "DNS_UPSTREAM_TIMEOUT",
    "MITMPROXY_SSL_INSECURE",
    "MITMPROXY_TRANSPARENT",
    "MITMPROXY_EXTRA_PORTS",
    "DENY_WEBHOOK",
    "METRICS_EXTRA_ATTRS",
    "CREDENTIAL_VAULT_REQUIRE_TLS",
    "CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH",
    "CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS",
    "POLICY_FILE",
};

static enum fault check_egress_name(const char *entry, size_t name_len, struct err *err) {
    size_t skip = strlen(EGRESS_PREFIX);
    struct buf names = BUF_INIT(2048);

    for (size_t i = 0; i < ARRAY_SIZE(egress_names); i++)
        if (strlen(egress_names[i]) == name_len - skip &&
            !strncmp(entry + skip, egress_names[i], name_len - skip))
            return FAULT_NONE;
    for (size_t i = 0; i < ARRAY_SIZE(egress_names); i++)
        buf_printf(&names, "%s" EGRESS_PREFIX "%s", i ? ", " : "", egress_names[i]);
    err_set(err, -EINVAL, "Unsupported egress variable '%.*s' in env. Permitted: %s.",
            (int)MIN(name_len, 80u), entry, names.data ? names.data : "");
    buf_done(&names);
    return FAULT_INVALID;
}

/* Variables of the egress guard never reach the workload; there is no guard without a policy, so
 * they end here. */
static enum fault check_env(const struct create_request *rq, struct sandbox_spec *spec,
                            struct err *err) {
    for (size_t i = 0; i < rq->env.n; i++) {
        const char *entry = rq->env.v[i], *eq = strchr(entry, '=');
        size_t name_len = eq ? (size_t)(eq - entry) : 0;

        if (name_len == 0)
            return invalid(err, "env has a variable without a name.");
        if (str_starts(entry, EGRESS_PREFIX)) {
            enum fault f = check_egress_name(entry, name_len, err);
            if (f)
                return f;
            log_warn("egress variable without a network policy, ignored");
            continue;
        }
        if (strv_add(&spec->env, entry) < 0)
            return FAULT_CREATE;
    }
    return FAULT_NONE;
}

/* One word with a blank in it is a command line; everything else is taken as it is. */
static enum fault take_entrypoint(const struct create_request *rq, struct sandbox_spec *spec,
                                  struct err *err) {
    int r;

    if (rq->entrypoint.n == 1 && strchr(rq->entrypoint.v[0], ' ')) {
        r = shell_split(rq->entrypoint.v[0], &spec->entrypoint);
        if (r == -EINVAL || (r == 0 && spec->entrypoint.n == 0)) {
            err_set(err, -EINVAL, "Entrypoint cannot be split into words: %.80s",
                    rq->entrypoint.v[0]);
            return FAULT_ENTRYPOINT;
        }
    } else {
        r = strv_copy(&spec->entrypoint, (const char *const *)rq->entrypoint.v);
    }
    if (r < 0) {
        err_set(err, r, "out of memory");
        return FAULT_CREATE;
    }
    if (spec->entrypoint.n > 0 && !spec->entrypoint.v[0][0]) {
        err_set(err, -EINVAL, "Entrypoint has an empty command.");
        return FAULT_ENTRYPOINT;
    }
    return FAULT_NONE;
}

static bool has_text(const json_t *map, const char *key) {
    const char *s = json_str(map, key);
    return s && s[strspn(s, " \t\r\n")];
}

/* What this version does not do at all; each has its own code. */
static enum fault check_modes(const struct create_request *rq, struct err *err) {
    if (rq->has_template) {
        err_set(err, -EOPNOTSUPP, "Template management requires the kubernetes runtime.");
        return FAULT_TEMPLATE;
    }
    if (rq->snapshot_id) {
        err_set(err, -EOPNOTSUPP, "Snapshots are not supported by this runtime.");
        return FAULT_SNAPSHOT;
    }
    if (rq->has_lifecycle)
        return invalid(err, "lifecycle hooks are not supported by the native provider.");
    if (has_text(rq->extensions, "poolRef")) {
        err_set(err, -EINVAL, "extensions.poolRef is not supported by this runtime.");
        return FAULT_POOL_REF;
    }
    if (rq->entrypoint.n == 0 && !rq->no_entrypoint) {
        err_set(err, -EINVAL, "Entrypoint must contain at least one command.");
        return FAULT_ENTRYPOINT;
    }
    return FAULT_NONE;
}

enum fault check_create(const struct service_opts *o, struct create_request *rq,
                        struct sandbox_spec *spec, struct err *err) {
    enum fault f;

    spec->net = o->default_net;

    if ((f = check_sizes(rq, err)) || (f = check_renew_extension(rq, err)) ||
        (f = check_modes(rq, err)) || (f = check_metadata(rq->metadata, err)) ||
        (f = check_platform(rq, err)) || (f = check_timeout(o, rq, err)))
        return f;
    if (rq->secure_access)
        return invalid(err, "secureAccess is not supported when runtime.type='native'.");
    if (rq->policy)
        return invalid(err, "networkPolicy is not supported by the native provider yet.");
    if ((f = check_limits(rq, spec, err)) || (f = check_extensions(rq, spec, err)) ||
        (f = check_env(rq, spec, err)) || (f = take_entrypoint(rq, spec, err)) ||
        (f = check_volumes(o, rq, err)))
        return f;
    spec->image = TAKE_PTR(rq->image);
    return FAULT_NONE;
}
