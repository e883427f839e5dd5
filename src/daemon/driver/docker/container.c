/*
 * What a sandbox's container is made of: environment and body of the create request (lifecycle.md
 * 4.4, 4.5, 4.9). Pure, but for the file of a seccomp profile. A member that has no value is left
 * out: privileges, user and restart policy are never set, the working directory by an extension
 * alone.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/path.h"

#define MITM "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"
#define PROFILE_MAX ((size_t)1 << 20)

/* ---- environment ---- */

static bool is_truthy(const char *value) {
    static const char *const yes[] = {"1", "true", "yes", "y", "on"};
    char word[8];

    if (!value)
        return false;
    value += strspn(value, " \t\r\n");
    size_t n = strcspn(value, " \t\r\n");
    if (n >= sizeof word || value[n + strspn(value + n, " \t\r\n")])
        return false;
    memcpy(word, value, n);
    word[n] = 0;
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        if (str_ieq(word, yes[i]))
            return true;
    return false;
}

/* Does somebody make the certificate that the launcher would wait for? */
static bool intercepts(const struct sandbox_spec *s) {
    return s->policy && (s->credential_proxy || is_truthy(env_get(&s->guard_env, MITM)) ||
                         is_truthy(env_get(&s->env, MITM)));
}

/* The operator's variables first; a request's value takes the place of one of the same name. */
static int add_request(const struct sandbox_spec *s, struct strv *env) {
    _cleanup_free_ char *own_id = str_printf("OPENSANDBOX_ID=%s", s->id);
    size_t n = s->env.n;
    int r = own_id ? 0 : -ENOMEM;

    if (r == 0 && n && str_eq(s->env.v[n - 1], own_id)) /* the service's own: comes last again */
        n--;
    for (size_t i = 0; i < n && r == 0; i++) {
        const char *entry = s->env.v[i], *eq = strchr(entry, '=');
        _cleanup_free_ char *key = eq ? str_ndup(entry, (size_t)(eq - entry)) : NULL;
        if (!key)
            r = eq ? -ENOMEM : strv_add(env, entry);
        else if (!str_eq(key, MITM))
            r = env_get(env, key) ? env_set(env, key, eq + 1) : strv_add(env, entry);
    }
    return r;
}

int docker_environment(const struct docker *k, const struct sandbox_spec *s, struct strv *ret) {
    struct strv env = {0};
    const char *key;
    json_t *v;
    int r = 0;

    json_object_foreach((json_t *)k->config.sandbox_env, key, v) {
        if (r == 0 && json_is_string(v))
            r = strv_addf(&env, "%s=%s", key, json_string_value(v));
    }
    if (r == 0)
        r = add_request(s, &env);
    if (r == 0 && is_windows(s))
        r = windows_environment(s, &env);
    if (r == 0 && intercepts(s))
        r = env_set(&env, MITM, "true");
    if (r == 0 && k->config.run_as_init)
        r = strv_add(&env, "EXECD_INIT=1");
    if (r == 0 && !str_is_empty(s->access_token) && !env_get(&env, "EXECD_ACCESS_TOKEN"))
        r = strv_addf(&env, "EXECD_ACCESS_TOKEN=%s", s->access_token);
    if (r == 0)
        r = strv_addf(&env, "OPENSANDBOX_ID=%s", s->id);
    if (r < 0) {
        strv_done(&env);
        return r;
    }
    *ret = env;
    return 0;
}

/* ---- small parts of the body ---- */

/* Only where the operator allows it, whatever the request says. */
static bool is_isolating(const struct docker *k, const struct sandbox_spec *s) {
    return s->isolation && k->config.allow_isolation;
}

static int add_text(json_t *array, const char *text) {
    return json_array_append_new(array, json_string(text));
}

/* Sets a list, unless it is empty. */
static int set_if_any(json_t *o, const char *key, json_t *array) {
    if (json_array_size(array) == 0) {
        json_decref(array);
        return 0;
    }
    return json_object_set_new(o, key, array);
}

static json_t *strings(const struct strv *sv) {
    json_t *a = json_array();
    for (size_t i = 0; i < sv->n; i++)
        if (add_text(a, sv->v[i]) < 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

/* "44772" -> "44772/tcp", as the engine's API wants it. */
static void engine_port(const char *key, char ret[24]) {
    snprintf(ret, 24, "%s%s", key, strchr(key, '/') ? "" : "/tcp");
}

json_t *docker_port_bindings(const struct docker *k, const struct port_binding *b, size_t n) {
    const char *host = str_is_empty(k->config.publish_host) ? "0.0.0.0" : k->config.publish_host;
    _cleanup_json_ json_t *o = json_object();
    char key[24], port[8];

    for (size_t i = 0; i < n; i++) {
        engine_port(b[i].key, key);
        snprintf(port, sizeof port, "%u", b[i].host_port);
        if (json_object_set_new(o, key, json_pack("[{s:s,s:s}]", "HostIp", host, "HostPort", port)))
            return NULL;
    }
    return TAKE_PTR(o);
}

json_t *docker_exposed_ports(const struct port_binding *b, size_t n) {
    _cleanup_json_ json_t *o = json_object();
    char key[24];

    for (size_t i = 0; i < n; i++) {
        engine_port(b[i].key, key);
        if (json_object_set_new(o, key, json_object()))
            return NULL;
    }
    return TAKE_PTR(o);
}

/* The engine wants the profile itself where the configuration has the name of a file. */
static int add_seccomp(json_t *options, const char *profile) {
    _cleanup_free_ char *content = NULL;
    size_t len;

    if (profile[0] == '/' && path_read_file_at(AT_FDCWD, profile, PROFILE_MAX, &content, &len) == 0)
        profile = content;
    return json_array_append_new(options, json_sprintf("seccomp=%s", profile));
}

static int set_security(const struct docker *k, const struct sandbox_spec *s, json_t *host) {
    const char *apparmor = k->config.apparmor_profile, *seccomp = k->config.seccomp_profile;
    json_t *options = json_array();
    int bad = 0;

    if (is_isolating(k, s))
        apparmor = seccomp = "unconfined";
    if (k->config.no_new_privileges)
        bad |= add_text(options, "no-new-privileges=true");
    if (!str_is_empty(apparmor))
        bad |= json_array_append_new(options, json_sprintf("apparmor=%s", apparmor));
    if (!str_is_empty(seccomp))
        bad |= add_seccomp(options, seccomp);
    return bad | set_if_any(host, "SecurityOpt", options);
}

static bool is_windows_capability(const char *name) {
    return str_ieq(name, "NET_ADMIN") || str_ieq(name, "NET_RAW");
}

static int set_capabilities(const struct docker *k, const struct sandbox_spec *s, json_t *host) {
    const char *const *drop = k->config.drop_capabilities;
    json_t *dropped = json_array(), *added = json_array();
    bool has_net_admin = false;
    int bad = 0;

    for (size_t i = 0; drop && drop[i]; i++) {
        if (is_windows(s) && is_windows_capability(drop[i]))
            continue;
        has_net_admin |= str_ieq(drop[i], "NET_ADMIN");
        bad |= add_text(dropped, drop[i]);
    }
    if (s->policy && !is_windows(s) && !has_net_admin)
        bad |= add_text(dropped, "NET_ADMIN");
    if (is_isolating(k, s))
        bad |= add_text(added, "SYS_ADMIN");
    if (is_windows(s))
        bad |= add_text(added, "NET_ADMIN") | add_text(added, "NET_RAW");
    return bad | set_if_any(host, "CapDrop", dropped) | set_if_any(host, "CapAdd", added);
}

static int set_number(json_t *o, const char *key, int64_t n) {
    return n > 0 ? json_object_set_new(o, key, json_integer(n)) : 0;
}

static int set_limits(const struct docker *k, const struct sandbox_spec *s, json_t *host) {
    int64_t pids = s->pids ? (int64_t)MIN(s->pids, (uint64_t)INT64_MAX) : k->config.pids_limit;
    uint64_t nanos = s->cpu_nanos ? s->cpu_nanos : s->cpu_millis * 1000000;
    int bad = set_number(host, "PidsLimit", pids);

    if (is_windows(s)) /* they are the guest's, see windows.c */
        return bad;
    bad |= set_number(host, "Memory", (int64_t)MIN(s->memory_bytes, (uint64_t)INT64_MAX));
    bad |= set_number(host, "NanoCpus", (int64_t)MIN(nanos, (uint64_t)INT64_MAX));
    if (s->gpus)
        bad |= json_object_set_new(
            host, "DeviceRequests",
            json_pack("[{s:I,s:[[s]]}]", "Count", (json_int_t)s->gpus, "Capabilities", "gpu"));
    return bad;
}

/* ---- mounts ---- */

static bool mounts_runtime_dir(const struct sandbox_spec *s) {
    for (size_t i = 0; i < s->n_mounts; i++)
        if (str_eq(s->mounts[i].target, RUNTIME_DIR))
            return true;
    return false;
}

static int set_binds(const struct docker *k, const struct sandbox_spec *s,
                     const struct container_extras *x, json_t *host) {
    json_t *binds = json_array();
    int bad = 0;

    for (size_t i = 0; k->config.sandbox_binds && k->config.sandbox_binds[i]; i++)
        bad |= add_text(binds, k->config.sandbox_binds[i]);
    for (size_t i = 0; i < s->n_mounts; i++) {
        const struct mount_spec *m = &s->mounts[i];
        bad |=
            json_array_append_new(binds, json_sprintf("%s:%s:%s", m->volume ? m->volume : m->source,
                                                      m->target, m->read_only ? "ro" : "rw"));
    }
    if (x->has_runtime_volume && !mounts_runtime_dir(s))
        bad |= json_array_append_new(
            binds, json_sprintf(RUNTIME_VOLUME_FORMAT ":" RUNTIME_DIR ":rw", s->id));
    if (is_windows(s))
        bad |= json_array_append_new(binds, json_sprintf(OEM_VOLUME_FORMAT ":/oem:rw", s->id));
    return bad | set_if_any(host, "Binds", binds);
}

/* As mounts, not binds: the engine refuses a source that it does not see, and would make a
 * directory for the other. "src:dst:ro". */
static int set_agent_mounts(const struct container_extras *x, json_t *host) {
    json_t *mounts = json_array();
    int bad = 0;

    for (size_t i = 0; x->agent_binds && x->agent_binds[i]; i++) {
        const char *bind = x->agent_binds[i], *end = strrchr(bind, ':');
        const char *mid = end ? memrchr(bind, ':', (size_t)(end - bind)) : NULL;
        bad |= !mid || json_array_append_new(
                           mounts, json_pack("{s:s,s:s%,s:s%,s:b}", "Type", "bind", "Source", bind,
                                             (size_t)(mid - bind), "Target", mid + 1,
                                             (size_t)(end - mid - 1), "ReadOnly", 1));
    }
    return bad | set_if_any(host, "Mounts", mounts);
}

static int set_isolation(json_t *host) {
    int bad =
        json_object_set_new(host, "Tmpfs", json_pack("{s:s}", "/var/lib/execd/isolation", ""));

    bad |= json_object_set_new(host, "MaskedPaths", json_array());
    return bad | json_object_set_new(host, "ReadonlyPaths", json_array());
}

static int set_devices(json_t *host) {
    json_t *devices = json_array();
    int bad = 0;

    for (size_t i = 0; windows_devices[i]; i++)
        bad |= json_array_append_new(
            devices, json_pack("{s:s,s:s,s:s}", "PathOnHost", windows_devices[i], "PathInContainer",
                               windows_devices[i], "CgroupPermissions", "rwm"));
    return bad | set_if_any(host, "Devices", devices);
}

static json_t *host_config(const struct docker *k, const struct sandbox_spec *s,
                           const struct container_extras *x) {
    _cleanup_json_ json_t *host = json_object();
    const char *mode = k->config.network_mode ? k->config.network_mode : "bridge";
    json_t *net =
        x->guard_container ? json_sprintf("container:%s", x->guard_container) : json_string(mode);
    int bad = json_object_set_new(host, "NetworkMode", net);

    bad |= set_security(k, s, host) | set_capabilities(k, s, host) | set_limits(k, s, host);
    bad |= set_binds(k, s, x, host) | set_agent_mounts(x, host);
    if (!str_is_empty(k->config.runtime))
        bad |= json_object_set_new(host, "Runtime", json_string(k->config.runtime));
    if (is_isolating(k, s))
        bad |= set_isolation(host);
    if (is_windows(s))
        bad |= set_devices(host);
    if (x->n_ports && !x->guard_container)
        bad |= json_object_set_new(host, "PortBindings",
                                   docker_port_bindings(k, x->ports, x->n_ports));
    return bad ? NULL : TAKE_PTR(host);
}

/* A sandbox without a main process waits for its commands. */
static json_t *command(const struct sandbox_spec *s) {
    return s->entrypoint.n ? strings(&s->entrypoint)
                           : json_pack("[s,s,s]", "tail", "-f", "/dev/null");
}

json_t *docker_container_body(const struct docker *k, const struct sandbox_spec *s, json_t *labels,
                              const struct container_extras *x) {
    _cleanup_json_ json_t *o = json_object(), *host = host_config(k, s, x);
    _cleanup_strv_ struct strv env = {0};
    int bad = !host || docker_environment(k, s, &env) < 0;

    bad |= json_object_set_new(o, "Image", json_string(s->image));
    if (!is_windows(s)) /* a guest's image brings its own */
        bad |= json_object_set_new(o, "Entrypoint", json_pack("[s]", RUNTIME_DIR "/bootstrap.sh"));
    bad |= json_object_set_new(o, "Cmd", command(s));
    if (s->cwd)
        bad |= json_object_set_new(o, "WorkingDir", json_string(s->cwd));
    bad |= json_object_set_new(o, "Env", strings(&env));
    bad |= json_object_set(o, "Labels", labels);
    if (x->n_ports && !x->guard_container)
        bad |= json_object_set_new(o, "ExposedPorts", docker_exposed_ports(x->ports, x->n_ports));
    bad |= json_object_set(o, "HostConfig", host);
    for (size_t i = 0; i < env.n; i++)
        explicit_bzero(env.v[i], strlen(env.v[i]));
    return bad ? NULL : TAKE_PTR(o);
}
