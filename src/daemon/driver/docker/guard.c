/*
 * The egress sidecar of a sandbox with a network policy (lifecycle.md 4.8): a container of the
 * operator's image that owns the network namespace which the sandbox then joins, publishes its
 * ports, and enforces the policy there. What it must offer: GET /healthz on port 18080, any 2xx =
 * ready, started with the variables below (egress.md 2).
 *
 * The sidecar outlives neither its sandbox nor a failed create: whoever removes the sandbox calls
 * guard_remove, and a start-up removes the ones whose sandbox is gone.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/id.h"
#include "base/log.h"

#define START_FAILED "Egress sidecar container failed to start."
#define NO_CONTAINER_ID "Docker did not return an egress sidecar container ID."
#define MITM_VARIABLE "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"
#define INSECURE_VARIABLE "OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE"
#define EXTRA_CA "/etc/ssl/certs/opensandbox-upstream-extra-ca.pem"
#define STOP_GRACE_S 9
#define PROBE_TIMEOUT_MS 1000
#define PROBE_PAUSE_MAX_MS 200
#define DEFAULT_READY_S 30.0

/* Limits of the sidecar itself. A guard of names and addresses needs a few MiB; one that intercepts
 * TLS up to a hundred. */
#define GUARD_MEMORY ((json_int_t)256 << 20)
#define GUARD_MEMORY_INTERCEPTING ((json_int_t)512 << 20)
#define GUARD_PIDS 256

/* All a guard needs: rules and marks of packets (NET_ADMIN; iptables also NET_RAW), ports below
 * 1024, and the interceptor's own user: becoming it, giving it files, signalling it. */
static const char *const guard_capabilities[] = {"NET_ADMIN",    "NET_RAW", "NET_BIND_SERVICE",
                                                 "SETUID",       "SETGID",  "CHOWN",
                                                 "DAC_OVERRIDE", "FOWNER",  "KILL"};

/* ---- what is refused ---- */

static bool is_user_network(const char *mode) {
    return !str_eq(mode, "host") && !str_eq(mode, "bridge") && !str_eq(mode, "none") &&
           !str_starts(mode, "container:");
}

int guard_check_policy(struct driver *d, const struct sandbox_spec *spec, struct err *err) {
    const struct docker_config *c = &docker_of(d)->config;

    if (!spec->policy)
        return 0;
    if (str_eq(c->network_mode, "host"))
        return err_set(err, -EINVAL,
                       "networkPolicy is not supported when docker network_mode is 'host': the "
                       "sandbox has no network of its own.");
    if (is_user_network(c->network_mode))
        return err_set(err, -EINVAL,
                       "networkPolicy is not supported when docker network_mode is '%s': it needs "
                       "'bridge'.",
                       c->network_mode);
    if (str_is_empty(c->egress_image))
        return err_set(err, -EINVAL,
                       "networkPolicy is not supported: egress.image is not configured.");
    if (spec->credential_proxy && !str_eq(c->egress_mode, "dns+nft"))
        return err_set(err, -EINVAL,
                       "credentialProxy.enabled is not supported when egress.mode is '%s': it "
                       "needs 'dns+nft'.",
                       c->egress_mode);
    if (c->is_gvisor)
        return err_set(err, -EINVAL,
                       "networkPolicy is not supported with secure_runtime.type 'gvisor'.");
    if (spec->credential_proxy && !str_eq(json_str(spec->policy, "defaultAction"), "deny"))
        log_warn("credentialProxy beside a defaultAction that is not deny is deprecated",
                 LOG_STR("sandbox", spec->id));
    return 0;
}

static bool is_truthy(const char *value) {
    static const char *const words[] = {"1", "true", "yes", "y", "on"};
    size_t len;

    if (!value)
        return false;
    value += strspn(value, " \t\r\n");
    for (len = strlen(value); len && strchr(" \t\r\n", value[len - 1]); len--)
        ;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strlen(words[i]) == len && strncasecmp(words[i], value, len) == 0)
            return true;
    return false;
}

static bool intercepts(const struct sandbox_spec *spec) {
    return spec->credential_proxy || is_truthy(env_get(&spec->guard_env, MITM_VARIABLE));
}

int guard_check_switches(const struct docker *k, const struct sandbox_spec *spec, struct err *err) {
    const char *insecure = env_get(&spec->guard_env, INSECURE_VARIABLE);

    if (!spec->policy)
        return 0;
    if (spec->credential_proxy && !str_is_empty(insecure))
        return err_set(err, -EINVAL,
                       "env." INSECURE_VARIABLE " cannot be used together with credentialProxy.");
    if (str_is_empty(k->config.upstream_proxy))
        return 0;
    if (is_truthy(insecure))
        return err_set(err, -EINVAL,
                       "env." INSECURE_VARIABLE " cannot be used with egress.upstream_proxy.");
    if (!intercepts(spec))
        return err_set(err, -EINVAL,
                       "egress.upstream_proxy needs interception: set credentialProxy.enabled or "
                       "env." MITM_VARIABLE ".");
    return 0;
}

/* ---- what the sidecar is ---- */

/* 24 random bytes, URL-safe base64 without padding. */
void guard_make_token(char ret[40]) {
    unsigned char raw[24];

    random_bytes(raw, sizeof raw);
    char *text = base64_encode(raw, sizeof raw);
    str_copy(ret, 40, text ?: "");
    for (char *p = ret; *p; p++)
        *p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
    explicit_bzero(raw, sizeof raw);
}

static int add_var(json_t *env, const char *key, const char *value) {
    return str_is_empty(value) ? 0 : json_array_append_new(env, json_sprintf("%s=%s", key, value));
}

json_t *guard_environment(const struct docker *k, const struct sandbox_spec *spec,
                          const char *token) {
    const struct docker_config *c = &k->config;
    json_t *env = json_array();
    _cleanup_free_ char *rules = json_dumps(spec->policy, JSON_COMPACT | JSON_ENCODE_ANY);
    int bad = !rules;

    bad |= add_var(env, "OPENSANDBOX_EGRESS_RULES", rules);
    bad |= add_var(env, "OPENSANDBOX_EGRESS_MODE", c->egress_mode);
    bad |= add_var(env, "OPENSANDBOX_EGRESS_TOKEN", token);
    bad |= add_var(env, "OPENSANDBOX_EGRESS_SANDBOX_ID", spec->id);
    bad |= add_var(env, "OTEL_EXPORTER_OTLP_ENDPOINT", c->otlp_endpoint);
    bad |= add_var(env, "OPENSANDBOX_EGRESS_UPSTREAM_PROXY", c->upstream_proxy);
    if (!str_is_empty(c->upstream_proxy)) {
        bad |= add_var(env, "OPENSANDBOX_EGRESS_UPSTREAM_PROXY_AUTH", c->upstream_proxy_auth);
        if (!str_is_empty(c->upstream_ca_path))
            bad |= add_var(env, "OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_EXTRA_CA", EXTRA_CA);
    }
    if (spec->credential_proxy)
        bad |= add_var(env, MITM_VARIABLE, "true");
    for (size_t i = 0; i < spec->guard_env.n; i++) {
        const char *var = spec->guard_env.v[i];
        if (spec->credential_proxy && str_starts(var, MITM_VARIABLE "="))
            continue; /* ours stands already */
        bad |= json_array_append_new(env, json_string(var));
    }
    if (!bad)
        return env;
    json_decref(env);
    return NULL;
}

static json_t *guard_binds(const struct docker *k, const struct sandbox_spec *spec) {
    json_t *binds = json_array();

    json_array_append_new(binds,
                          json_sprintf(RUNTIME_VOLUME_FORMAT ":" RUNTIME_DIR ":rw", spec->id));
    if (!str_is_empty(k->config.upstream_proxy) && !str_is_empty(k->config.upstream_ca_path))
        json_array_append_new(binds,
                              json_sprintf("%s:" EXTRA_CA ":ro", k->config.upstream_ca_path));
    return binds;
}

static json_t *guard_host_config(const struct docker *k, const struct sandbox_spec *spec,
                                 const struct port_binding *ports, size_t n, bool with_sysctls) {
    json_t *add = json_array();

    for (size_t i = 0; i < ARRAY_SIZE(guard_capabilities); i++)
        json_array_append_new(add, json_string(guard_capabilities[i]));
    json_t *host = json_pack(
        "{s:s, s:o, s:[s], s:[s], s:o, s:o, s:I, s:i}", "NetworkMode", "bridge", "CapAdd", add,
        "CapDrop", "ALL", "SecurityOpt", "no-new-privileges=true", "PortBindings",
        docker_port_bindings(k, ports, n), "Binds", guard_binds(k, spec), "Memory",
        intercepts(spec) ? GUARD_MEMORY_INTERCEPTING : GUARD_MEMORY, "PidsLimit", GUARD_PIDS);
    if (host && with_sysctls)
        json_object_set_new(host, "Sysctls",
                            json_pack("{s:s, s:s, s:s}", "net.ipv6.conf.all.disable_ipv6", "1",
                                      "net.ipv6.conf.default.disable_ipv6", "1",
                                      "net.ipv6.conf.lo.disable_ipv6", "1"));
    return host;
}

/* Body of the create. labels: new reference, taken over. Pure. */
json_t *guard_body(const struct docker *k, const struct sandbox_spec *spec, const char *token,
                   json_t *labels, const struct port_binding *ports, size_t n, bool with_sysctls) {
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "Image", k->config.egress_image, "Env",
                     guard_environment(k, spec, token), "Labels", labels, "ExposedPorts",
                     docker_exposed_ports(ports, n), "HostConfig",
                     guard_host_config(k, spec, ports, n, with_sysctls));
}

/* Is this the engine's (or the runtime's) way of saying that the IPv6 knobs cannot be set? */
bool guard_is_sysctl_error(const char *text) {
    return text && strstr(text, "disable_ipv6") &&
           (strstr(text, "/proc/sys") || strstr(text, "sysctl"));
}

/* ---- start ---- */

/* The image's own labels must not pass for ours. */
static json_t *guard_labels(struct docker *k, const struct sandbox_spec *spec) {
    _cleanup_json_ json_t *image = NULL;
    json_t *labels =
        json_pack("{s:s, s:s}", LABEL_GUARD_FOR, spec->id, LABEL_INSTANCE, k->instance);

    if (labels && engine_image_inspect(k->engine, k->config.egress_image, &image, NULL) == 0)
        docker_labels_shadow(labels, json_object_get(json_object_get(image, "Config"), "Labels"));
    return labels;
}

static void remove_by_id(struct docker *k, const char *container) {
    struct err err = {0};
    int r = engine_container_remove(k->engine, container, true, &err);

    if (r < 0 && r != -ENOENT)
        log_warn("cannot remove an egress sidecar", LOG_STR("container", container), LOG_ERR(&err));
}

struct attempt {
    const struct sandbox_spec *spec;
    const struct port_binding *ports;
    size_t n_ports;
    bool with_sysctls;
};

/* Creates and starts; nothing is left behind on failure. *ret_knobs: it failed at the knobs. */
static int create_and_start(struct docker *k, const struct attempt *a, struct guard *g,
                            bool *ret_knobs, struct err *err) {
    char name[SANDBOX_ID_MAX + 32];
    _cleanup_free_ char *id = NULL;
    struct err cause = {0};
    json_t *labels = guard_labels(k, a->spec);
    _cleanup_json_ json_t *body =
        guard_body(k, a->spec, g->token, labels, a->ports, a->n_ports, a->with_sysctls);

    *ret_knobs = false;
    if (!body)
        return err_set(err, -ENOMEM, "out of memory");
    snprintf(name, sizeof name, GUARD_NAME_FORMAT, a->spec->id);
    int r = engine_container_create(k->engine, name, NULL, body, &id, &cause);
    if (r == -EBADMSG && strstr(cause.msg, "has no Id"))
        return err_set(err, -EIO, NO_CONTAINER_ID);
    if (r < 0) {
        *ret_knobs = guard_is_sysctl_error(cause.msg);
        return err_set(err, r, "Egress sidecar container could not be created: %s",
                       err_text(&cause));
    }
    crash_point("guard-created");
    str_copy(g->container, sizeof g->container, id);
    r = engine_container_start(k->engine, id, &cause);
    if (r == 0)
        return 0;
    *ret_knobs = guard_is_sysctl_error(cause.msg);
    log_warn("an egress sidecar did not start", LOG_STR("sandbox", a->spec->id), LOG_ERR(&cause));
    remove_by_id(k, id);
    /* a port that is taken is the caller's to try again */
    return ports_is_conflict(cause.msg) ? err_set(err, -EADDRINUSE, "%s", err_text(&cause))
                                        : err_set(err, -EIO, START_FAILED);
}

static uint16_t api_port(const struct port_binding *ports, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (str_eq(ports[i].key, "18080") || str_eq(ports[i].key, "18080/tcp"))
            return ports[i].host_port;
    return 0;
}

/* A sidecar that has ended will never answer. */
static int check_alive(struct docker *k, const char *container, struct err *err) {
    _cleanup_json_ json_t *j = NULL;
    struct instance_info now;
    struct err cause = {0};
    int r = engine_container_inspect(k->engine, container, &j, &cause);

    if (r == -ENOENT)
        return err_set(err, -EIO, START_FAILED);
    if (r < 0)
        return 0; /* the engine's trouble, not the guard's */
    docker_read_state(j, &now);
    if (now.state == INST_EXITED)
        return err_set(err, -EIO, "Egress sidecar ended with code %d before it was ready.",
                       now.exit_code);
    return 0;
}

static int wait_ready(struct docker *k, const struct guard *g, uint16_t port, struct err *err) {
    double limit_s =
        k->config.readiness_timeout_s > 0 ? k->config.readiness_timeout_s : DEFAULT_READY_S;
    int64_t deadline_ms = clock_mono_ms() + (int64_t)(limit_s * 1000), look_ms = 0;
    char header[80];
    int pause = 10, r = -EAGAIN;

    snprintf(header, sizeof header, "OPENSANDBOX-EGRESS-AUTH: %s", g->token);
    for (;;) {
        int64_t left = deadline_ms - clock_mono_ms();
        if (left <= 0)
            break;
        r = docker_probe_http(k->proxy_host, port, "/healthz", header,
                              (unsigned)MIN(left, PROBE_TIMEOUT_MS));
        if (r == 0)
            break;
        if (clock_mono_ms() >= look_ms) {
            int alive = check_alive(k, g->container, err);
            if (alive < 0)
                return alive;
            look_ms = clock_mono_ms() + 500;
        }
        /* there is no descriptor that tells of another machine's port: wait a little longer each
         * time */
        poll(NULL, 0, (int)MIN(pause, MAX(deadline_ms - clock_mono_ms(), 0)));
        pause = MIN(pause * 3 / 2, PROBE_PAUSE_MAX_MS);
    }
    return r == 0 ? 0
                  : err_set(err, -ETIMEDOUT,
                            "Egress sidecar was not ready within %g seconds: GET "
                            "http://%s:%u/healthz gave no success.",
                            limit_s, k->proxy_host, port);
}

static int make_volume(struct docker *k, const char *sandbox_id, struct err *err) {
    char name[SANDBOX_ID_MAX + 32];
    _cleanup_json_ json_t *labels =
        json_pack("{s:s, s:s, s:s}", LABEL_MANAGED_BY, "server", LABEL_CREATED_FOR, sandbox_id,
                  LABEL_INSTANCE, k->instance);

    snprintf(name, sizeof name, RUNTIME_VOLUME_FORMAT, sandbox_id);
    return labels ? engine_volume_create(k->engine, name, labels, NULL, err)
                  : err_set(err, -ENOMEM, "out of memory");
}

static void remove_volume(struct docker *k, const char *sandbox_id) {
    char name[SANDBOX_ID_MAX + 32];
    struct err err = {0};

    snprintf(name, sizeof name, RUNTIME_VOLUME_FORMAT, sandbox_id);
    if (docker_volume_remove(&k->driver, name, NULL, &err) < 0)
        log_warn("cannot remove a runtime volume", LOG_STR("volume", name), LOG_ERR(&err));
}

int guard_start(struct docker *k, const struct sandbox_spec *spec, const struct port_binding *ports,
                size_t n_ports, struct guard *g, struct err *err) {
    const struct image_wish wish = {.ref = k->config.egress_image};
    struct attempt a = {
        .spec = spec, .ports = ports, .n_ports = n_ports, .with_sysctls = k->config.disable_ipv6};
    uint16_t port = api_port(ports, n_ports);
    bool knobs = false;

    *g->container = 0;
    int r = make_volume(k, spec->id, err);
    if (r < 0)
        return r;
    crash_point("guard-volume");
    r = pulls_ensure(k, &wish, err);
    if (r == 0)
        r = create_and_start(k, &a, g, &knobs, err);
    if (r < 0 && knobs && a.with_sysctls) {
        log_warn("the engine cannot switch IPv6 off in the egress sidecar",
                 LOG_STR("sandbox", spec->id));
        a.with_sysctls = false;
        r = create_and_start(k, &a, g, &knobs, err);
    }
    crash_point("guard-started");
    if (r == 0 && port && (r = wait_ready(k, g, port, err)) < 0)
        remove_by_id(k, g->container);
    if (r < 0)
        remove_volume(k, spec->id);
    return r;
}

/* ---- afterwards ---- */

int guard_find(struct docker *k, const char *sandbox_id, json_t **ret, struct err *err) {
    _cleanup_json_ json_t *list = NULL, *mine = json_array(), *filters = NULL;
    json_t *c;
    size_t i;

    filters = json_pack("{s:[o]}", "label", json_sprintf("%s=%s", LABEL_GUARD_FOR, sandbox_id));
    int r = filters && mine ? engine_container_list(k->engine, true, filters, &list, err)
                            : err_set(err, -ENOMEM, "out of memory");
    if (r < 0)
        return r;
    json_array_foreach(list, i, c) {
        if (docker_is_mine(k, json_object_get(c, "Labels")) && json_str(c, "Id"))
            json_array_append(mine, c);
    }
    *ret = TAKE_PTR(mine);
    return 0;
}

void guard_remove(struct docker *k, const char *sandbox_id) {
    _cleanup_json_ json_t *list = NULL;
    struct err err = {0};
    json_t *c;
    size_t i;

    if (guard_find(k, sandbox_id, &list, &err) < 0)
        log_warn("cannot look for egress sidecars", LOG_STR("sandbox", sandbox_id), LOG_ERR(&err));
    json_array_foreach(list, i, c) {
        /* a frozen one could not react to the signal */
        if (str_eq(json_str(c, "State"), "running"))
            (void)engine_container_stop(k->engine, json_str(c, "Id"), STOP_GRACE_S, NULL);
        remove_by_id(k, json_str(c, "Id"));
    }
    remove_volume(k, sandbox_id);
}

/* Puts the ones back that this call changed, last first; failures are added to the message. */
static void undo_change(struct docker *k, json_t *guards, bool resume, struct err *err) {
    for (size_t i = json_array_size(guards); i-- > 0;) {
        json_t *c = json_array_get(guards, i);
        struct err undo = {0};
        if (!json_bool(c, "Changed", false))
            continue;
        if (engine_container_pause(k->engine, json_str(c, "Id"), resume, &undo) < 0)
            docker_add_undo_failure(err, "egress sidecar", &undo);
        json_object_set_new(c, "Changed", json_false());
    }
}

static int change_all(struct docker *k, json_t *guards, bool resume, struct err *err) {
    const char *from = resume ? "paused" : "running", *to = resume ? "running" : "paused";
    json_t *c;
    size_t i;
    int r = 0;

    json_array_foreach(guards, i, c) {
        const char *state = json_str(c, "State");
        if (str_eq(state, to))
            continue;
        if (!str_eq(state, from))
            r = err_set(err, -EIO, "The egress sidecar is %s, not %s.", state ?: "unknown", from);
        else
            r = engine_container_pause(k->engine, json_str(c, "Id"), resume, err);
        if (r < 0)
            break;
        json_object_set_new(c, "Changed", json_true());
    }
    if (r < 0)
        undo_change(k, guards, !resume, err);
    return r;
}

int guard_pause(struct docker *k, json_t *guards, struct err *err) {
    return change_all(k, guards, false, err);
}

int guard_resume(struct docker *k, json_t *guards, struct err *err) {
    return change_all(k, guards, true, err);
}

void guard_pause_again(struct docker *k, json_t *guards, struct err *err) {
    undo_change(k, guards, false, err);
}

void guard_collect_orphans(struct docker *k) {
    _cleanup_json_ json_t *list = NULL, *filters = json_pack("{s:[s]}", "label", LABEL_GUARD_FOR);
    struct err err = {0};
    json_t *c;
    size_t i;

    if (engine_container_list(k->engine, true, filters, &list, &err) < 0)
        log_warn("cannot look for orphaned egress sidecars", LOG_ERR(&err));
    json_array_foreach(list, i, c) {
        _cleanup_json_ json_t *sandbox = NULL;
        const json_t *labels = json_object_get(c, "Labels");
        const char *id = json_str(labels, LABEL_GUARD_FOR);
        if (str_is_empty(id) || strlen(id) > SANDBOX_ID_MAX || !docker_is_mine(k, labels))
            continue;
        int r = docker_lookup(k, id, &sandbox, &err);
        if (r == -ENOENT) {
            log_info("removing an egress sidecar without sandbox", LOG_STR("sandbox", id));
            guard_remove(k, id);
        } else if (r < 0) {
            log_warn("cannot tell whether an egress sidecar has a sandbox", LOG_STR("sandbox", id),
                     LOG_ERR(&err));
        }
    }
}
