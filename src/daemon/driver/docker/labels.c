/*
 * Labels of a sandbox's container (lifecycle.md 4.5): made here for a create, read here when a
 * container is found that no row knows. Pure.
 *
 * Users' entries come first and system labels after them, so that none of ours can be overridden.
 * An empty reserved label counts as absent: that is how labels of an image are blanked.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define RESERVED_PREFIX "opensandbox.io/"
#define EXTENSION_PREFIX "opensandbox.extensions."

static bool is_own(const char *key) {
    return str_eq(key, LABEL_INSTANCE) || str_eq(key, LABEL_CREATED_FOR) ||
           str_eq(key, LABEL_HELPER) || str_eq(key, LABEL_METADATA);
}

static bool is_reserved(const char *key) {
    return str_starts(key, RESERVED_PREFIX);
}

static int set(json_t *labels, const char *key, const char *value) {
    return json_object_set_new(labels, key, json_string(value));
}

static int set_port(json_t *labels, const char *key, uint16_t port) {
    return port ? json_object_set_new(labels, key, json_sprintf("%u", port)) : 0;
}

/* Compact JSON list as one label. */
static int set_list(json_t *labels, const char *key, const struct strv *list, const char *last) {
    _cleanup_json_ json_t *a = json_array();
    int bad = 0;

    for (size_t i = 0; i < list->n; i++)
        bad |= json_array_append_new(a, json_string(list->v[i]));
    if (last)
        bad |= json_array_append_new(a, json_string(last));
    _cleanup_free_ char *text = bad ? NULL : json_dumps(a, JSON_COMPACT);
    return text ? set(labels, key, text) : -1;
}

/* ISO 8601 with an offset in digits, as the field writes it. */
static int set_expiry(json_t *labels, int64_t expires_us) {
    char text[RFC3339_SIZE + 8];

    if (!expires_us)
        return set(labels, LABEL_MANUAL_CLEANUP, "true");
    rfc3339_format(expires_us, text);
    size_t n = strlen(text);
    snprintf(text + n - 1, sizeof text - n + 1, "+00:00"); /* in place of the Z */
    return set(labels, LABEL_EXPIRES_AT, text);
}

static int set_metadata(json_t *labels, const json_t *metadata) {
    _cleanup_json_ json_t *keys = json_array();
    const char *key;
    json_t *v;
    int bad = 0;

    json_object_foreach((json_t *)metadata, key, v) {
        if (is_own(key)) /* would mark a sandbox as something else; the row keeps it */
            continue;
        bad |= json_object_set(labels, key, v);
        bad |= json_array_append_new(keys, json_string(key));
    }
    _cleanup_free_ char *text = bad ? NULL : json_dumps(keys, JSON_COMPACT);
    return text ? set(labels, LABEL_METADATA, text) : -1;
}

static int set_extensions(json_t *labels, const json_t *extensions) {
    const char *key;
    json_t *v;
    int bad = 0;

    json_object_foreach((json_t *)extensions, key, v) {
        if (!str_starts(key, EXTENSION_PREFIX))
            continue;
        _cleanup_free_ char *name =
            str_printf(LABEL_EXTENSION_PREFIX "%s", key + strlen(EXTENSION_PREFIX));
        bad |= name ? json_object_set(labels, name, v) : -1;
    }
    return bad;
}

json_t *docker_labels(const struct docker *k, const struct sandbox_spec *s,
                      const struct label_extras *x) {
    _cleanup_json_ json_t *o = json_object();
    char volume[128];
    int bad = set_metadata(o, s->labels) | set_extensions(o, s->extensions);

    bad |= set(o, LABEL_ID, s->id) | set(o, LABEL_INSTANCE, k->instance);
    bad |= set_expiry(o, s->expires_us);
    if (s->os)
        bad |= set(o, LABEL_OS, s->os);
    if (s->arch)
        bad |= set(o, LABEL_ARCH, s->arch);
    if (s->snapshot_id)
        bad |= set(o, LABEL_SNAPSHOT_ID, s->snapshot_id);
    if (s->renew_extend)
        bad |= set(o, LABEL_RENEW_EXTEND, s->renew_extend);
    snprintf(volume, sizeof volume, RUNTIME_VOLUME_FORMAT, s->id);
    if (s->own_volumes.n || x->has_runtime_volume)
        bad |=
            set_list(o, LABEL_MANAGED_BY, &s->own_volumes, x->has_runtime_volume ? volume : NULL);
    if (s->oss_mounts.n)
        bad |= set_list(o, LABEL_OSS_MOUNTS, &s->oss_mounts, NULL);
    bad |=
        set_port(o, LABEL_AGENT_PORT, x->agent_port) | set_port(o, LABEL_HTTP_PORT, x->http_port);
    if (x->guard_token)
        bad |= set(o, LABEL_GUARD_TOKEN, x->guard_token);
    return bad ? NULL : TAKE_PTR(o);
}

int docker_labels_shadow(json_t *labels, const json_t *image_labels) {
    const char *key;
    json_t *v;
    int bad = 0;

    json_object_foreach((json_t *)image_labels, key,
                        v) if (is_reserved(key) && !json_object_get(labels, key)) bad |=
        set(labels, key, "");
    return bad ? -ENOMEM : 0;
}

bool docker_labels_hold(const json_t *labels, const json_t *real) {
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)real, key, v) {
        const char *value = json_string_value(v);
        if (is_reserved(key) && !str_is_empty(value) && !str_eq(value, json_str(labels, key)))
            return false;
    }
    return true;
}

/* ---- reading ---- */

/* The metadata: what our own record of its keys names; without one (another server's container)
 * every label that is not reserved. */
static json_t *read_metadata(const json_t *labels) {
    const char *record = json_str(labels, LABEL_METADATA), *key;
    _cleanup_json_ json_t *keys = record ? json_parse(record, strlen(record), NULL) : NULL;
    json_t *o = json_object(), *v;
    size_t i;

    if (json_is_array(keys)) {
        json_array_foreach(keys, i, v) {
            const char *name = json_string_value(v);
            const char *value = name && !is_reserved(name) ? json_str(labels, name) : NULL;
            if (value)
                json_object_set_new(o, name, json_string(value));
        }
        return o;
    }
    json_object_foreach((json_t *)labels, key, v) {
        if (!is_reserved(key) && json_is_string(v))
            json_object_set(o, key, v);
    }
    return o;
}

static json_t *read_extensions(const json_t *labels) {
    json_t *o = NULL, *v;
    const char *key;

    json_object_foreach((json_t *)labels, key, v) {
        if (!str_starts(key, LABEL_EXTENSION_PREFIX) || str_is_empty(json_string_value(v)))
            continue;
        _cleanup_free_ char *name =
            str_printf(EXTENSION_PREFIX "%s", key + strlen(LABEL_EXTENSION_PREFIX));
        if (!o)
            o = json_object();
        if (name)
            json_object_set(o, name, v);
    }
    return o;
}

static char *read_text(const json_t *inspect, const char *key) {
    const char *text = docker_label(inspect, key);
    return text ? strdup(text) : NULL;
}

static int copy_strings(const json_t *a, struct strv *ret) {
    json_t *v;
    size_t i;
    int r = 0;

    json_array_foreach(a, i, v) {
        if (r == 0 && json_is_string(v))
            r = strv_add(ret, json_string_value(v));
    }
    return r;
}

static int read_list(const json_t *inspect, const char *key, struct strv *ret) {
    const char *text = docker_label(inspect, key);
    _cleanup_json_ json_t *a = text ? json_parse(text, strlen(text), NULL) : NULL;
    return copy_strings(a, ret);
}

static void read_limits(const json_t *host, struct sandbox_spec *s) {
    s->memory_bytes = (uint64_t)MAX(json_int(host, "Memory", 0), 0);
    s->cpu_nanos = (uint64_t)MAX(json_int(host, "NanoCpus", 0), 0);
    s->cpu_millis = s->cpu_nanos / 1000000;
    s->pids = (uint64_t)MAX(json_int(host, "PidsLimit", 0), 0);
    const json_t *gpu = json_array_get(json_object_get(host, "DeviceRequests"), 0);
    s->gpus = json_int(gpu, "Count", 0);
}

/* Secrets and what we add ourselves leave the environment again. */
static int read_env(const json_t *config, struct sandbox_spec *s) {
    int r = copy_strings(json_object_get(config, "Env"), &s->env);
    const char *token = env_get(&s->env, "EXECD_ACCESS_TOKEN");

    if (r == 0 && !str_is_empty(token) && !(s->access_token = strdup(token)))
        r = -ENOMEM;
    env_unset(&s->env, "EXECD_ACCESS_TOKEN");
    env_unset(&s->env, "EXECD_INIT");
    return r;
}

static int read_spec(const json_t *inspect, struct sandbox_spec *s) {
    const json_t *config = json_object_get(inspect, "Config");
    const char *image = json_str(config, "Image");
    int r;

    str_copy(s->id, sizeof s->id, docker_label(inspect, LABEL_ID));
    s->image = strdup(image ? image : "");
    r = s->image ? copy_strings(json_object_get(config, "Cmd"), &s->entrypoint) : -ENOMEM;
    if (r == 0)
        r = read_env(config, s);
    read_limits(json_object_get(inspect, "HostConfig"), s);
    s->os = read_text(inspect, LABEL_OS);
    s->arch = read_text(inspect, LABEL_ARCH);
    s->snapshot_id = read_text(inspect, LABEL_SNAPSHOT_ID);
    s->renew_extend = read_text(inspect, LABEL_RENEW_EXTEND);
    s->extensions = read_extensions(json_object_get(config, "Labels"));
    if (docker_label(inspect, LABEL_GUARD_TOKEN)) /* what it says is the guard's to know */
        s->policy = json_object();
    if (r == 0)
        r = read_list(inspect, LABEL_MANAGED_BY, &s->own_volumes);
    return r == 0 ? read_list(inspect, LABEL_OSS_MOUNTS, &s->oss_mounts) : r;
}

/* It becomes part of names in the engine, of paths and of addresses. */
static bool is_usable_id(const char *id) {
    size_t n = strlen(id);
    return n <= SANDBOX_ID_MAX && *id != '.' && *id != '-' &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

int docker_found(const struct docker *k, const json_t *inspect, struct found_sandbox *ret,
                 struct err *err) {
    struct found_sandbox f = {0};
    const char *id = docker_label(inspect, LABEL_ID), *created = json_str(inspect, "Created"),
               *expires = docker_label(inspect, LABEL_EXPIRES_AT);
    const json_t *labels = json_object_get(json_object_get(inspect, "Config"), "Labels");

    if (!id || !is_usable_id(id))
        return err_set(err, -EINVAL, "a container without a usable label " LABEL_ID);
    if (!docker_is_mine(k, labels))
        return err_set(err, -ENOENT, "container of another daemon");
    int r = read_spec(inspect, &f.spec);
    f.metadata = read_metadata(labels);
    if (f.spec.os && f.spec.arch)
        f.platform = json_pack("{s:s,s:s}", "os", f.spec.os, "arch", f.spec.arch);
    /* engines say year 1 for "no time" */
    if (!created || rfc3339_parse(created, &f.created_us) < 0 || f.created_us <= 0)
        f.created_us = clock_wall_us();
    /* a label that cannot be read is no reason to end it (lifecycle.md 11, row 26) */
    if (expires && rfc3339_parse(expires, &f.expires_us) < 0)
        f.expires_us = 0;
    f.spec.expires_us = f.expires_us;
    if (r < 0 || !f.metadata) {
        found_sandbox_done(&f);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret = f;
    return 0;
}
