/*
 * The request's environment, split into what the workload and what the guard gets. Pure; any
 * thread; only the service calls this.
 */
#include "daemon/sandbox/check.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

#define EGRESS_PREFIX "OPENSANDBOX_EGRESS_"
#define INTERCEPT EGRESS_PREFIX "MITMPROXY_TRANSPARENT"

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

/*
 * One variable of the guard: never for the workload, except the switch for interception, which both
 * must know. There is no guard without a policy: then they end here, the switch too (the launcher
 * would wait for a certificate that nobody makes).
 */
static int take_egress(const char *entry, struct sandbox_spec *spec) {
    if (!spec->policy) {
        log_warn("egress variable without a network policy, ignored");
        return 0;
    }
    int r = strv_add(&spec->guard_env, entry);
    return r == 0 && str_starts(entry, INTERCEPT "=") ? strv_add(&spec->env, entry) : r;
}

enum fault check_env(const struct create_request *rq, struct sandbox_spec *spec, struct err *err) {
    int r = 0;

    for (size_t i = 0; i < rq->env.n && r == 0; i++) {
        const char *entry = rq->env.v[i], *eq = strchr(entry, '=');
        size_t name_len = eq ? (size_t)(eq - entry) : 0;

        if (name_len == 0) {
            err_set(err, -EINVAL, "env has a variable without a name.");
            return FAULT_INVALID;
        }
        if (!str_starts(entry, EGRESS_PREFIX)) {
            r = strv_add(&spec->env, entry);
            continue;
        }
        enum fault f = check_egress_name(entry, name_len, err);
        if (f)
            return f;
        r = take_egress(entry, spec);
    }
    if (r == 0 && spec->credential_proxy)
        r = env_set(&spec->env, INTERCEPT, "true");
    if (r == 0)
        r = strv_addf(&spec->env, "OPENSANDBOX_ID=%s", spec->id);
    return r < 0 ? create_no_memory(err) : FAULT_NONE;
}
