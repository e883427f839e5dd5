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

#define RENEW_EXTEND "access.renew.extend.seconds"
#define ISOLATION "bootstrap.execd.isolation"
#define MAX_TIMEOUT_S (250000000000LL) /* the last representable year */

const char *provider_title(const struct driver_rules *r) {
    return str_eq(r->provider, "docker") ? "Docker" : r->provider;
}

static enum fault invalid(struct err *err, const char *text) {
    err_set(err, -EINVAL, "%s", text);
    return FAULT_INVALID;
}

enum fault create_no_memory(struct err *err) {
    err_set(err, -ENOMEM, "out of memory");
    return FAULT_CREATE;
}

static enum fault check_bytes(const struct create_request *rq, struct err *err) {
    size_t entrypoint = 0, extensions = 0;
    const char *key;
    json_t *v;

    for (size_t i = 0; i < rq->entrypoint.n; i++)
        entrypoint += strlen(rq->entrypoint.v[i]);
    json_object_foreach(rq->extensions, key, v) {
        extensions += strlen(key) + json_string_length(v);
    }
    if (entrypoint > CHECK_MAX_ENTRYPOINT_BYTES)
        err_set(err, -E2BIG, "entrypoint may have at most %zu bytes.", CHECK_MAX_ENTRYPOINT_BYTES);
    else if (extensions > CHECK_MAX_EXTENSIONS_BYTES)
        err_set(err, -E2BIG, "extensions may have at most %zu bytes.", CHECK_MAX_EXTENSIONS_BYTES);
    else
        return FAULT_NONE;
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
    return check_bytes(rq, err);
}

static enum fault check_renew_extension(const struct create_request *rq, struct sandbox_spec *spec,
                                        struct err *err) {
    const json_t *v = json_object_get(rq->extensions, RENEW_EXTEND);
    uint64_t n;

    if (!v)
        return FAULT_NONE;
    if (parse_count(json_string_value(v), &n) < 0 || n < 300 || n > 86400)
        return invalid(err, "extensions." RENEW_EXTEND " must be an integer from 300 to 86400.");
    spec->renew_extend = str_printf("%llu", (unsigned long long)n);
    return spec->renew_extend ? FAULT_NONE : create_no_memory(err);
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

static enum fault check_platform(const struct driver_rules *rules, struct create_request *rq,
                                 struct sandbox_spec *spec, struct err *err) {
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
    if ((strcmp(rq->os, "linux") != 0 && !rules->windows) ||
        (strcmp(rq->arch, host_arch()) != 0 && !rules->any_arch)) {
        err_set(err, -EINVAL, "Platform %.20s/%.20s cannot run here: this host runs linux/%s.",
                rq->os, rq->arch, host_arch());
        return FAULT_INVALID;
    }
    spec->os = strdup(rq->os);
    spec->arch = strdup(rq->arch);
    return spec->os && spec->arch ? FAULT_NONE : create_no_memory(err);
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

static enum fault not_here(const struct driver_rules *rules, const char *what, struct err *err) {
    err_set(err, -EINVAL, "%s is not supported by the %s provider.", what, provider_title(rules));
    return FAULT_INVALID;
}

static enum fault take_network(const struct driver_rules *rules, const char *value,
                               struct sandbox_spec *spec, struct err *err) {
    if (!rules->net_choice)
        return not_here(rules, "extensions.cove.network", err);
    if (strcmp(value, "none") != 0 && strcmp(value, "nat") != 0)
        return invalid(err, "extensions.cove.network must be 'none' or 'nat'.");
    spec->net = strcmp(value, "nat") == 0 ? NET_NAT : NET_NONE;
    return FAULT_NONE;
}

static enum fault take_cwd(const struct driver_rules *rules, const char *value,
                           struct sandbox_spec *spec, struct err *err) {
    if (!rules->cwd_choice)
        return not_here(rules, "extensions.cove.cwd", err);
    if (value[0] != '/')
        return invalid(err, "extensions.cove.cwd must be an absolute path.");
    if (!spec->cwd && !(spec->cwd = strdup(value)))
        return create_no_memory(err);
    return FAULT_NONE;
}

/* Ours are refused when they are not known; all others are the client's own. */
static enum fault check_extension(const struct driver_rules *rules, const char *key,
                                  const char *value, struct sandbox_spec *spec, struct err *err) {
    if (strcmp(key, ISOLATION) == 0 && strcmp(value, "enable") == 0) {
        if (!rules->isolation)
            return invalid(err, "extensions." ISOLATION " is not offered by this server.");
        spec->isolation = true;
        return FAULT_NONE;
    }
    if (!str_starts(key, "cove."))
        return FAULT_NONE;
    if (strcmp(key, "cove.network") == 0)
        return take_network(rules, value, spec, err);
    if (strcmp(key, "cove.cwd") == 0)
        return take_cwd(rules, value, spec, err);
    if (strcmp(key, "cove.entrypoint") == 0 && strcmp(value, "none") == 0)
        return rules->no_entrypoint ? FAULT_NONE
                                    : not_here(rules, "extensions.cove.entrypoint", err);
    err_set(err, -EINVAL, "Unknown extension '%.60s' or value.", key);
    return FAULT_INVALID;
}

static enum fault check_extensions(const struct driver_rules *rules,
                                   const struct create_request *rq, struct sandbox_spec *spec,
                                   struct err *err) {
    enum fault f = FAULT_NONE;
    const char *key;
    json_t *v;

    json_object_foreach(rq->extensions, key, v) {
        if ((f = check_extension(rules, key, json_string_value(v), spec, err)))
            break;
    }
    if (f == FAULT_NONE && rq->registry_user && !rules->image_auth)
        return not_here(rules, "image.auth", err);
    return f;
}

static enum fault check_policy(const struct service_opts *o, const struct create_request *rq,
                               struct sandbox_spec *spec, struct err *err) {
    struct driver *d = o->driver;

    if (!rq->policy)
        return FAULT_NONE;
    if (!d->ops || !d->ops->check_policy)
        return not_here(&d->rules, "networkPolicy", err);
    spec->policy = json_incref(rq->policy);
    spec->credential_proxy = rq->credential_proxy;
    int r = d->ops->check_policy(d, spec, err);
    return r < 0 ? FAULT_INVALID : FAULT_NONE;
}

/* One word with a blank in it is a command line; everything else is taken as it is. */
static enum fault take_entrypoint(const struct create_request *rq, struct sandbox_spec *spec,
                                  struct err *err) {
    int r;

    bool is_line = rq->entrypoint.n == 1 && strchr(rq->entrypoint.v[0], ' ');

    if (is_line && !str_eq(spec->os, "windows")) {
        r = shell_split(rq->entrypoint.v[0], &spec->entrypoint);
        if (r == -EINVAL || (r == 0 && spec->entrypoint.n == 0)) {
            err_set(err, -EINVAL, "Entrypoint cannot be split into words: %.80s",
                    rq->entrypoint.v[0]);
            return FAULT_ENTRYPOINT;
        }
    } else {
        r = strv_copy(&spec->entrypoint, (const char *const *)rq->entrypoint.v);
    }
    if (r < 0)
        return create_no_memory(err);
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

enum fault check_source(const struct service_opts *o, const struct create_request *rq,
                        struct sandbox_spec *spec, struct err *err) {
    enum fault f;

    if ((f = check_sizes(rq, err)) || (f = check_renew_extension(rq, spec, err)))
        return f;
    if (rq->has_template) {
        err_set(err, -EOPNOTSUPP, "Template management requires the kubernetes runtime.");
        return FAULT_TEMPLATE;
    }
    if (rq->snapshot_id && !o->driver->rules.snapshots) {
        err_set(err, -EOPNOTSUPP, "Snapshots are not supported by this runtime.");
        return FAULT_SNAPSHOT;
    }
    return FAULT_NONE;
}

/* What is not done here at all; each has its own code. */
static enum fault check_modes(const struct driver_rules *rules, const struct create_request *rq,
                              struct err *err) {
    if (rq->has_lifecycle) {
        err_set(err, -EINVAL, "lifecycle hooks are not supported by the %s provider.",
                provider_title(rules));
        return FAULT_INVALID;
    }
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

static enum fault check_resources(const struct driver_rules *rules, const struct create_request *rq,
                                  struct sandbox_spec *spec, struct err *err) {
    spec->limits = json_incref(rq->limits);
    return str_eq(spec->os, "windows") ? check_windows_limits(rq->limits, err)
                                       : check_limits(rules, rq->limits, spec, err);
}

enum fault check_create(const struct service_opts *o, struct create_request *rq,
                        struct sandbox_spec *spec, struct err *err) {
    const struct driver_rules *rules = &o->driver->rules;
    enum fault f;

    spec->net = o->default_net;

    if ((f = check_modes(rules, rq, err)) || (f = check_metadata(rq->metadata, err)) ||
        (f = check_platform(rules, rq, spec, err)) || (f = check_timeout(o, rq, err)))
        return f;
    if (rq->secure_access) {
        err_set(err, -EINVAL, "secureAccess is not supported when runtime.type='%s'.",
                rules->provider);
        return FAULT_INVALID;
    }
    if ((f = check_policy(o, rq, spec, err)) || (f = check_resources(rules, rq, spec, err)) ||
        (f = check_extensions(rules, rq, spec, err)) || (f = take_entrypoint(rq, spec, err)))
        return f;
    spec->image = TAKE_PTR(rq->image);
    spec->registry_user = TAKE_PTR(rq->registry_user);
    spec->registry_password = TAKE_PTR(rq->registry_password);
    return FAULT_NONE;
}
