/* Drivers by name (see drivers.h). */
#include "daemon/drivers.h"

#include <errno.h>

#include "daemon/driver/docker/docker.h"
#include "daemon/driver/native/native.h"
#include "daemon/probe_docker.h"
#include "daemon/telemetry/telemetry.h"
#include "docker/engine.h"

static int native_settings(const struct config *c, struct native_config *n, struct err *err) {
    native_config_init(n);
    n->state_dir = c->state_dir;
    n->store_dir = c->store_dir;
    n->run_dir = c->run_dir;
    n->lease_dir = c->lease_dir;
    n->libexec_dir = c->libexec_dir;
    n->runtime = c->oci_runtime;
    n->subnet = c->subnet;
    n->dns = c->dns.n ? (const char *const *)c->dns.v : NULL;
    n->userns = c->userns;
    n->uid_base = (uint32_t)c->uid_base;
    n->uid_count = (uint32_t)c->uid_count;
    n->default_pids = (uint64_t)c->default_pids;
    n->netns_pool = (unsigned)c->netns_pool;
    n->parked_pool = (unsigned)c->parked_pool;
    n->warm_image = c->warm_image;
    n->warm_pool = (unsigned)c->warm_pool;
    n->start_timeout_ms = (unsigned)c->start_timeout_ms;
    return security_profile_parse(c->profile, &n->profile, err);
}

/* The peer takes these words in any case; names of networks have one. */
static const char *network_mode(const char *mode) {
    static const char *const words[] = {"host", "bridge", "none"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (str_ieq(mode, words[i]))
            return words[i];
    return mode;
}

static const char *const *list_or_null(const struct strv *v) {
    return v->n ? (const char *const *)v->v : NULL;
}

static void docker_settings(const struct config *c, struct docker_config *d) {
    static const char *const none[] = {NULL};
    *d = (struct docker_config){
        .state_dir = c->state_dir,
        .libexec_dir = c->libexec_dir,
        .api_timeout_s = (unsigned)c->docker.api_timeout_s,
        .execd_image = c->execd_image,
        .run_as_init = c->execd_run_as_init,
        .access_token_checked = c->docker.access_token,
        .network_mode = network_mode(c->docker.network_mode),
        .host_ip = c->docker.host_ip,
        .server_host = c->host,
        .drop_capabilities =
            c->docker.drop_capabilities.n ? list_or_null(&c->docker.drop_capabilities) : none,
        .apparmor_profile = c->docker.apparmor_profile,
        .seccomp_profile = c->docker.seccomp_profile,
        .no_new_privileges = c->docker.no_new_privileges,
        .pids_limit = c->docker.pids_limit,
        .port_min = (unsigned)c->docker.port_min,
        .port_max = (unsigned)c->docker.port_max,
        .publish_host = c->docker.publish_host,
        .sandbox_env = c->docker.sandbox_env,
        .sandbox_binds = list_or_null(&c->docker.sandbox_binds),
        .resolve_internal = c->proxy_resolve_internal,
        .allow_isolation = c->docker.allow_isolation,
        .runtime = config_secure_runtime(c),
        .is_gvisor = str_ieq(c->secure.type, "gvisor"),
        .egress_image = c->egress.image,
        .egress_mode = c->egress.mode,
        .otlp_endpoint = c->egress.otlp_endpoint,
        .disable_ipv6 = c->egress.disable_ipv6,
        .readiness_timeout_s = c->egress.readiness_timeout_s,
        .upstream_proxy = c->egress.proxy_url,
        .upstream_proxy_auth = c->egress.proxy_authorization,
        .upstream_ca_path = c->egress.proxy_ca_path,
        .legacy_metadata_dir =
            str_is_empty(c->docker.legacy_metadata_dir) ? NULL : c->docker.legacy_metadata_dir,
    };
}

/* driver/docker is built into the daemon: else the type is refused. */
static int docker_open(const struct config *c, struct driver **ret, struct err *err) {
    struct docker_config d;

    docker_settings(c, &d);
#ifdef HAVE_DOCKER_DRIVER
    engine_on_call = telemetry_engine_call;
    return docker_driver_new(&d, ret, err);
#else
    return err_set(err, -EOPNOTSUPP, "runtime.type: this build has no docker driver");
#endif
}

int driver_open(const struct config *c, struct driver **ret, struct err *err) {
    struct native_config n;

    if (config_is_docker(c))
        return docker_open(c, ret, err);
    int r = native_settings(c, &n, err);
    return r < 0 ? r : native_driver_new(&n, NULL, ret, err);
}

#ifdef HAVE_DOCKER_DRIVER
static json_t *probe_engine(const struct config *c) {
    struct docker_config d;
    docker_settings(c, &d);
    return docker_probe(&d);
}
#endif

json_t *driver_probe(const struct config *c) {
#ifdef HAVE_DOCKER_DRIVER
    if (config_is_docker(c))
        return probe_engine(c);
#endif
    struct native_probe p[NATIVE_PROBES_MAX];
    struct native_config n;
    struct err err = {0};
    json_t *list = json_array();

    if (native_settings(c, &n, &err) < 0)
        native_config_init(&n);
    size_t count = native_probe(&n, p);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s,s:b,s:b,s:s,s:s,s:s}", "name", p[i].name, "ok",
                                              p[i].ok, "required", p[i].required, "detail",
                                              p[i].detail, "why", p[i].why, "fix", p[i].fix));
    return list;
}

const char *const *driver_crash_points(void) {
#ifdef HAVE_DOCKER_DRIVER
    static const char *all[200];
    const char *const *const lists[] = {native_crash_points, docker_crash_points};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        for (const char *const *p = lists[i]; *p && n + 1 < ARRAY_SIZE(all); p++)
            all[n++] = *p;
    return all;
#else
    return native_crash_points;
#endif
}
