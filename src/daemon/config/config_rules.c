/*
 * The rules between keys, and those of texts that the table cannot express. Every message names the
 * place and what was expected, none holds a value. Pure; called once per reading.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/cidr.h"
#include "daemon/config/config_priv.h"

#define KEY_LENGTH_GOOD 16
#define PORT_SPAN_MIN 100

static bool has(const struct reading *r, const char *key) {
    return config_line(r, key) > 0;
}

/* ---- [runtime], and what belongs to another one ---- */

static int check_runtime(const struct reading *r) {
    static const char *const kubernetes_only[] = {"kubernetes", "agent_sandbox"};
    const char *type = r->c->runtime_type;

    if (str_ieq(type, "kubernetes"))
        return config_complain(r, "runtime.type",
                               "\"native\" or \"docker\"; this version has no kubernetes driver");
    if (has(r, "tenants"))
        return config_complain(r, "tenants",
                               "no such section: multi-tenancy belongs to the kubernetes runtime");
    for (size_t i = 0; config_is_docker(r->c) && i < ARRAY_SIZE(kubernetes_only); i++)
        if (has(r, kubernetes_only[i]))
            return config_complain(r, kubernetes_only[i],
                                   "no such section when runtime.type is \"docker\"");
    return 0;
}

static int check_ingress(const struct reading *r) {
    if (str_ieq(r->c->ingress_mode, "gateway"))
        return config_complain(r, "ingress.mode",
                               "\"direct\": a gateway belongs to the kubernetes runtime");
    if (has(r, "ingress.gateway"))
        return config_complain(r, "ingress.gateway",
                               "no such section when ingress.mode is \"direct\"");
    if (has(r, "ingress.secure_access"))
        return config_complain(r, "ingress.secure_access",
                               "no such section when ingress.mode is \"direct\"");
    return 0;
}

/* Files of other servers always say which; one that lost its [runtime] must not go unnoticed. */
static int check_other_runtime(const struct reading *r) {
    static const char *const sections[] = {"docker", "egress"};
    const struct config *c = r->c;

    for (size_t i = 0; !config_is_docker(c) && i < ARRAY_SIZE(sections); i++)
        if (has(r, sections[i]) &&
            config_warn(r, sections[i],
                        "has no use with runtime.type \"native\": for a Docker Engine write "
                        "type = \"docker\" in [runtime]") < 0)
            return r->err->code;
    return 0;
}

static int check_secure_runtime(const struct reading *r) {
    const struct config *c = r->c;
    bool has_name = !config_is_blank(c->secure.docker_runtime),
         has_class = !config_is_blank(c->secure.k8s_class);

    if (config_is_blank(c->secure.type)) {
        if (has_name)
            return config_complain(r, "secure_runtime.docker_runtime",
                                   "to be unset when secure_runtime.type is empty");
        if (has_class)
            return config_complain(r, "secure_runtime.k8s_runtime_class",
                                   "to be unset when secure_runtime.type is empty");
        return 0;
    }
    if (!config_is_docker(c))
        return config_complain(r, "secure_runtime.type",
                               "empty: native sandboxes have no such runtime");
    if (str_ieq(c->secure.type, "firecracker"))
        return config_complain(
            r, "secure_runtime.type",
            "\"gvisor\" or \"kata\": firecracker belongs to the kubernetes runtime");
    if (str_ieq(c->secure.type, "gvisor") && c->egress.image &&
        config_warn(
            r, "egress.image",
            "has no use beside secure_runtime.type \"gvisor\": network policies are refused") < 0)
        return r->err->code;
    if (!has_name && !has_class)
        return config_complain(r, "secure_runtime.type",
                               "secure_runtime.docker_runtime or k8s_runtime_class beside it");
    return 0;
}

/* ---- [server] ---- */

static int check_key(const struct reading *r, const char *where, const char *key) {
    for (const char *p = key; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return config_complain(r, where, "a key without control characters");
    if (strlen(key) < KEY_LENGTH_GOOD)
        return config_warn(r, where, "is short: a key of at least 16 random characters is advised");
    return 0;
}

static bool is_key_name(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= 64 && !s[n];
}

/* Is the key of `name` that of another entry too? */
static bool is_twice(const struct config *c, const char *name, const char *key) {
    const char *other;
    json_t *v;

    if (!config_is_blank(c->api_key) && str_eq_const_time(c->api_key, key))
        return true;
    json_object_foreach(c->api_keys, other, v) {
        if (strcmp(other, name) != 0 && str_eq_const_time(json_string_value(v), key))
            return true;
    }
    return false;
}

static int check_keys(const struct reading *r) {
    const struct config *c = r->c;
    const char *name;
    json_t *v;
    int e = 0;

    if (!config_is_blank(c->api_key) && (e = check_key(r, "server.api_key", c->api_key)) < 0)
        return e;
    json_object_foreach(c->api_keys, name, v) {
        char where[160];
        str_copy(where, sizeof where, "server.api_keys.");
        str_copy(where + strlen(where), sizeof where - strlen(where), name);
        if (!is_key_name(name))
            return config_complain(r, "server.api_keys",
                                   "names of 1 to 64 letters, digits, '.', '_' or '-'");
        if (strcmp(name, CONFIG_DEFAULT_KEY) == 0)
            return config_complain(r, where, "another name: this one stands for server.api_key");
        if (config_is_blank(json_string_value(v)))
            return config_complain(r, where, "a text that is not blank");
        if (is_twice(c, name, json_string_value(v)))
            return config_complain(r, where, "a key that no other entry has");
        if ((e = check_key(r, where, json_string_value(v))) < 0)
            return e;
    }
    return 0;
}

static int check_trusted(const struct reading *r) {
    for (size_t i = 0; i < r->c->trusted_proxies.n; i++)
        if (!cidr_is_valid(r->c->trusted_proxies.v[i]))
            return config_complain(r, "server.trusted_proxies", "addresses or networks in digits");
    return 0;
}

/* ---- [docker] ---- */

static int check_docker(const struct reading *r) {
    const struct config *c = r->c;
    struct in_addr addr;
    const char *name;
    json_t *v;

    if (c->docker.port_min >= c->docker.port_max)
        return config_complain(r, "docker.port_range_max", "more than docker.port_range_min");
    if (c->docker.port_max - c->docker.port_min < PORT_SPAN_MIN)
        return config_complain(r, "docker.port_range_max",
                               "at least 100 more than docker.port_range_min");
    if (inet_pton(AF_INET, c->docker.publish_host, &addr) != 1)
        return config_complain(r, "docker.publish_host", "an IPv4 address in digits");
    for (size_t i = 0; i < c->docker.drop_capabilities.n; i++)
        if (config_is_blank(c->docker.drop_capabilities.v[i]))
            return config_complain(r, "docker.drop_capabilities", "names that are not blank");
    for (size_t i = 0; i < c->docker.sandbox_binds.n; i++)
        if (!strchr(c->docker.sandbox_binds.v[i], ':'))
            return config_complain(r, "docker.sandbox_binds",
                                   "entries of the form SOURCE:TARGET[:MODE]");
    json_object_foreach(c->docker.sandbox_env, name, v) {
        if (!*name || strchr(name, '='))
            return config_complain(r, "docker.sandbox_env",
                                   "names that are not empty, without '='");
    }
    return 0;
}

/* ---- [egress] ---- */

/* http:// or https://, a host; *ret_rest: what follows host and port */
static bool is_web_address(const char *s, const char **ret_rest) {
    const char *host = str_starts(s, "http://") ? s + 7 : str_starts(s, "https://") ? s + 8 : NULL;
    size_t n = host ? strcspn(host, "/?#") : 0;

    if (!host || n == 0 || n > 300)
        return false;
    _cleanup_free_ char *authority = str_ndup(host, n);
    char *colon = authority ? strrchr(authority, ':') : NULL;
    uint64_t port = 1;
    if (!authority)
        return false;
    if (authority[0] == '[') { /* IPv6 */
        char *end = strchr(authority, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
        colon = end[1] ? end + 1 : NULL;
    }
    if (colon && (str_to_u64(colon + 1, &port) < 0 || port < 1 || port > 65535))
        return false;
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7f)
            return false;
    *ret_rest = host + n;
    return colon != authority;
}

static int check_upstream_proxy(const struct reading *r) {
    struct config *c = r->c;
    const char *rest, *ca = c->egress.proxy_ca_path, *auth = c->egress.proxy_authorization;

    if (!has(r, "egress.upstream_proxy"))
        return 0;
    if (config_is_blank(c->egress.proxy_url))
        return config_complain(r, "egress.upstream_proxy", "a url in it");
    char *url = c->egress.proxy_url; /* trimmed in place */
    size_t lead = strspn(url, " \t\r\n"), n = strlen(url);
    while (n > lead && strchr(" \t\r\n", url[n - 1]))
        n--;
    memmove(url, url + lead, n - lead);
    url[n - lead] = '\0';
    if (!is_web_address(url, &rest) || (*rest && strcmp(rest, "/") != 0) || strchr(url, '@'))
        return config_complain(r, "egress.upstream_proxy.url",
                               "http:// or https://, a host, perhaps a port, and nothing else");
    if (!str_ieq(c->egress.mode, "dns+nft"))
        return config_complain(r, "egress.upstream_proxy", "egress.mode \"dns+nft\" beside it");
    if (auth && strpbrk(auth, "\r\n"))
        return config_complain(r, "egress.upstream_proxy.authorization", "one line");
    if (has(r, "egress.upstream_proxy.ca_secret_name"))
        return config_complain(r, "egress.upstream_proxy.ca_secret_name",
                               "to be unset: it belongs to the kubernetes runtime");
    if (!config_is_blank(ca) && (ca[0] != '/' || strchr(ca, ':')))
        return config_complain(r, "egress.upstream_proxy.ca_cert_path",
                               "an absolute path without ':'");
    return 0;
}

static int check_egress(const struct reading *r) {
    const struct config *c = r->c;
    const char *rest;

    if (!config_is_blank(c->egress.otlp_endpoint) &&
        !is_web_address(c->egress.otlp_endpoint, &rest))
        return config_complain(r, "egress.otlp_endpoint", "http:// or https:// and a host");
    return check_upstream_proxy(r);
}

/* ---- the rest ---- */

static int check_store(const struct reading *r) {
    if (!str_ieq(r->c->store.type, "postgresql"))
        return 0;
    if (config_is_blank(r->c->store.pg_dsn))
        return config_complain(r, "store.postgresql.dsn",
                               "to be set when store.type is \"postgresql\"");
    if (r->c->store.pg_min_pool > r->c->store.pg_max_pool)
        return config_complain(r, "store.postgresql.min_pool_size",
                               "not more than store.postgresql.max_pool_size");
    return 0;
}

static int check_renewal(const struct reading *r) {
    if (r->c->renew.redis_enabled && config_is_blank(r->c->renew.redis_dsn))
        return config_complain(r, "renew_intent.redis.dsn",
                               "to be set when renew_intent.redis.enabled is true");
    return 0;
}

static int check_export(const struct reading *r) {
    const char *rest, *e = r->c->otel.endpoint;
    if (!r->c->otel.enabled || config_is_blank(e))
        return 0;
    if (!is_web_address(e, &rest) || !str_starts(e, "http://"))
        return config_complain(r, "otel.endpoint",
                               "http:// and a host; put a local collector before one with TLS");
    return 0;
}

static int check_log(const struct reading *r) {
    enum log_level level;
    return config_log_level(r->c, &level) < 0
               ? config_complain(r, "log.level", "error, warning, info or debug")
               : 0;
}

int config_check_rules(const struct reading *r) {
    static int (*const rules[])(const struct reading *) = {
        check_log,     check_runtime, check_other_runtime, check_ingress, check_secure_runtime,
        check_keys,    check_trusted, check_docker,        check_egress,  check_store,
        check_renewal, check_export,
    };

    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        int e = rules[i](r);
        if (e < 0)
            return e;
    }
    return 0;
}
