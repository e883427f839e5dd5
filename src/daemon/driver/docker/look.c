/*
 * What the engine can tell about a sandbox, for logs and diagnostics, and what this driver can do.
 * Values are the engine's own: the dialect masks secrets. Nothing here changes anything.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <string.h>

#define LOG_READ_MAX ((size_t)2 << 20) /* a client is shown less; many may ask at once */
#define HEALTH_LOGS_MAX 100

int docker_logs(struct driver *d, const char *id, unsigned tail, bool timestamps, int64_t since_us,
                char **ret, struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *inspect = NULL;
    int r = docker_lookup(k, id, &inspect, err);

    if (r < 0)
        return r;
    if (tail == 0) {
        *ret = strdup("");
        return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
    }
    return engine_container_logs(k->engine, json_str(inspect, "Id"), tail, timestamps, since_us,
                                 LOG_READ_MAX, ret, err);
}

static void copy_member(json_t *to, const char *name, const json_t *from, const char *key) {
    json_t *value = json_object_get(from, key);
    if (value && !json_is_null(value))
        json_object_set(to, name, value);
}

static void copy_positive(json_t *to, const char *name, const json_t *from, const char *key) {
    if (json_int(from, key, 0) > 0)
        copy_member(to, name, from, key);
}

static json_t *describe_networks(const json_t *settings) {
    json_t *out = json_object(), *entry;
    const char *name;

    json_object_foreach(json_object_get(settings, "Networks"), name, entry) {
        json_object_set_new(out, name, json_string(json_str(entry, "IPAddress") ?: ""));
    }
    return out;
}

/* "44772/tcp": "ip:port" of the first binding, or null */
static json_t *describe_ports(const json_t *settings) {
    json_t *out = json_object(), *bindings;
    const char *key;

    json_object_foreach(json_object_get(settings, "Ports"), key, bindings) {
        const json_t *first = json_array_get(bindings, 0);
        const char *port = json_str(first, "HostPort");
        json_object_set_new(out, key,
                            port ? json_sprintf("%s:%s", json_str(first, "HostIp") ?: "", port)
                                 : json_null());
    }
    return out;
}

static json_t *describe_health(const json_t *health) {
    json_t *log = json_array(), *entry;
    size_t i;

    json_array_foreach(json_object_get(health, "Log"), i, entry) {
        if (i < HEALTH_LOGS_MAX)
            json_array_append_new(log, json_string(json_str(entry, "Output") ?: ""));
    }
    return json_pack("{s:s, s:o}", "status", json_str(health, "Status") ?: "", "log", log);
}

/* Inspect answer -> the members of docker.h. Pure. */
json_t *docker_describe_inspect(const json_t *j) {
    const json_t *state = json_object_get(j, "State"), *config = json_object_get(j, "Config"),
                 *host = json_object_get(j, "HostConfig"),
                 *settings = json_object_get(j, "NetworkSettings"),
                 *health = json_object_get(state, "Health");
    const char *name = json_str(j, "Name"), *error = json_str(state, "Error");
    json_t *out = json_object();

    copy_member(out, "containerId", j, "Id");
    if (name)
        json_object_set_new(out, "name", json_string(*name == '/' ? name + 1 : name));
    copy_member(out, "image", config, "Image");
    copy_member(out, "status", state, "Status");
    if (!str_is_empty(error))
        json_object_set_new(out, "error", json_string(error));
    copy_member(out, "running", state, "Running");
    copy_member(out, "paused", state, "Paused");
    copy_member(out, "oomKilled", state, "OOMKilled");
    copy_member(out, "exitCode", state, "ExitCode");
    copy_member(out, "createdAt", j, "Created");
    copy_member(out, "startedAt", state, "StartedAt");
    copy_member(out, "finishedAt", state, "FinishedAt");
    copy_positive(out, "nanoCpus", host, "NanoCpus");
    copy_positive(out, "memoryBytes", host, "Memory");
    copy_positive(out, "pidsLimit", host, "PidsLimit");
    json_object_set_new(out, "networks", describe_networks(settings));
    json_object_set_new(out, "ports", describe_ports(settings));
    copy_member(out, "labels", config, "Labels");
    copy_member(out, "env", config, "Env");
    if (json_is_object(health))
        json_object_set_new(out, "health", describe_health(health));
    return out;
}

int docker_describe(struct driver *d, const char *id, json_t **ret, struct err *err) {
    _cleanup_json_ json_t *inspect = NULL;
    int r = docker_lookup(docker_of(d), id, &inspect, err);

    if (r < 0)
        return r;
    *ret = docker_describe_inspect(inspect);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

json_t *docker_capabilities(struct driver *d) {
    const struct docker_config *c = &docker_of(d)->config;
    bool policies = str_eq(c->network_mode, "bridge") || str_eq(c->network_mode, "none") ||
                    str_starts(c->network_mode, "container:");

    policies = policies && !str_is_empty(c->egress_image) && !c->is_gvisor;
    return json_pack(
        "{s:s, s:[s], s:[s,s,s], s:[s], s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:s}",
        "driver", "docker", "net", c->network_mode, "limits", "cpu", "memory", "gpu", "ignored",
        "disk", "pause", true, "mounts", true, "named_volumes", true, "oss_volumes", true,
        "snapshot", true, "pull", true, "network_policy", policies, "credential_proxy",
        policies && str_eq(c->egress_mode, "dns+nft"), "isolation", c->allow_isolation, "runtime",
        c->runtime ?: "default");
}
