/*
 * The index: our containers as last seen, so that lookups on the loop thread need no engine. Fed by
 * creates (docker_index_update) and by the engine's events (watch.c), emptied by removals.
 *
 * Invariants: everything in it is guarded by docker.lock, which is never held across an engine
 * call. A box has an address only while its container runs: the engine gives the address of an
 * ended one to the next. Strings that address() lends are interned, or live as long as their box.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

const char *docker_intern(struct docker *k, const char *text) {
    char *known = map_get(k->interned, text);

    if (known)
        return known;
    known = strdup(text);
    if (!known || map_set(k->interned, text, known, NULL) < 0) {
        free(known);
        return NULL;
    }
    return known;
}

struct box *docker_find(struct docker *k, const char *id) {
    return map_get(k->boxes, id);
}

static const json_t *labels_of(const json_t *inspect) {
    return json_object_get(json_object_get(inspect, "Config"), "Labels");
}

const char *docker_label(const json_t *inspect, const char *key) {
    const char *value = json_str(labels_of(inspect), key);
    return str_is_empty(value) ? NULL : value;
}

bool docker_is_mine(const struct docker *k, const json_t *labels) {
    const char *instance = json_str(labels, LABEL_INSTANCE);
    if (str_is_empty(instance) || str_eq(instance, k->instance))
        return true;
    for (size_t i = 0; i < k->former.n; i++)
        if (str_eq(instance, k->former.v[i]))
            return true;
    return false;
}

static int64_t read_time(const json_t *state, const char *key) {
    int64_t us;
    return rfc3339_parse(json_str(state, key), &us) == 0 && us > 0 ? us : 0;
}

void docker_read_state(const json_t *inspect, struct instance_info *ret) {
    const json_t *state = json_object_get(inspect, "State");
    const char *status = json_str(state, "Status");
    bool running = json_bool(state, "Running", false), paused = json_bool(state, "Paused", false);

    memset(ret, 0, sizeof *ret);
    str_copy(ret->id, sizeof ret->id, docker_label(inspect, LABEL_ID) ?: "");
    ret->started_us = read_time(state, "StartedAt");
    if (running && !paused) {
        ret->state = INST_RUNNING;
    } else if (paused) {
        ret->state = INST_PAUSED;
    } else if (json_bool(state, "Restarting", false)) {
        ret->state = INST_RUNNING;
    } else if (str_eq(status, "created") || str_eq(status, "starting")) {
        ret->state = INST_PENDING;
    } else if (str_eq(status, "exited") || str_eq(status, "dead")) {
        ret->state = INST_EXITED;
        ret->exit_code = (int)json_int(state, "ExitCode", 0);
        ret->oom_killed = json_bool(state, "OOMKilled", false);
        ret->finished_us = read_time(state, "FinishedAt");
    } else {
        ret->state = INST_UNKNOWN;
    }
}

static const char *non_empty(const char *text) {
    return str_is_empty(text) ? NULL : text;
}

/* The configured network's own entry, else the top-level address, else the first network that has
 * one (lifecycle.md 7.3). */
const char *docker_read_address(const char *network_mode, const json_t *inspect) {
    const json_t *settings = json_object_get(inspect, "NetworkSettings");
    json_t *networks = json_object_get(settings, "Networks"), *entry;
    const char *name, *address = NULL;

    if (network_mode)
        address = non_empty(json_str(json_object_get(networks, network_mode), "IPAddress"));
    if (!address)
        address = non_empty(json_str(settings, "IPAddress"));
    if (address)
        return address;
    json_object_foreach(networks, name, entry) {
        address = non_empty(json_str(entry, "IPAddress"));
        if (address)
            return address;
    }
    return NULL;
}

static uint16_t read_port(const json_t *inspect, const char *key) {
    const char *text = docker_label(inspect, key);
    uint64_t n;
    return text && str_to_u64(text, &n) == 0 && n <= UINT16_MAX ? (uint16_t)n : 0;
}

/* An answer from before an exit that has been seen: the same start, and still alive in it. */
static bool is_stale(const struct box *b, const struct instance_info *now) {
    return (b->info.state == INST_EXITED || b->info.state == INST_GONE) &&
           (now->state == INST_RUNNING || now->state == INST_PAUSED ||
            now->state == INST_PENDING) &&
           now->started_us <= b->info.started_us;
}

/* Under the lock. */
static int apply(struct docker *k, struct box *b, const json_t *inspect,
                 const struct instance_info *now) {
    const char *token = docker_label(inspect, LABEL_GUARD_TOKEN), *address = NULL;
    const json_t *host = json_object_get(inspect, "HostConfig");
    const char *container = json_str(inspect, "Id");

    if (!str_eq(b->container, container)) {
        char *copy = strdup(container ?: "");
        if (!copy)
            return -ENOMEM;
        free(b->container);
        b->container = copy;
    } else if (is_stale(b, now)) {
        return 0;
    }
    if (now->state == INST_RUNNING || now->state == INST_PAUSED) {
        address = docker_read_address(k->config.network_mode, inspect);
        if (address && !(address = docker_intern(k, address)))
            return -ENOMEM;
    }
    if (token && !b->guard_token && !(b->guard_token = strdup(token)))
        return -ENOMEM;
    b->has_guard = token != NULL;
    b->is_host_net = str_eq(json_str(host, "NetworkMode"), "host");
    b->agent_port = read_port(inspect, LABEL_AGENT_PORT);
    b->http_port = read_port(inspect, LABEL_HTTP_PORT);
    b->address = address;
    b->info = *now;
    return 0;
}

int docker_index_update(struct docker *k, const json_t *inspect, struct instance_info *ret_info,
                        struct err *err) {
    const char *id = docker_label(inspect, LABEL_ID);
    struct instance_info now;
    int r = 0;

    if (!id || strlen(id) > SANDBOX_ID_MAX)
        return err_set(err, -EINVAL, "a container without a usable label " LABEL_ID);
    docker_read_state(inspect, &now);
    pthread_mutex_lock(&k->lock);
    struct box *b = docker_find(k, id);
    bool is_new = !b;
    if (is_new) {
        b = calloc(1, sizeof *b);
        r = b ? 0 : -ENOMEM;
        if (b) {
            str_copy(b->id, sizeof b->id, id);
            b->info.state = INST_PENDING;
        }
    }
    if (r == 0)
        r = apply(k, b, inspect, &now);
    if (r == 0 && is_new)
        r = map_set(k->boxes, id, b, NULL);
    if (r == 0)
        now = b->info;
    if (r < 0 && is_new && b)
        docker_box_free(b);
    pthread_mutex_unlock(&k->lock);
    if (r < 0)
        return err_set(err, r, "out of memory");
    if (ret_info)
        *ret_info = now;
    return 0;
}

bool docker_index_refresh(struct docker *k, const json_t *inspect, enum instance_state *ret_old,
                          struct instance_info *ret_info) {
    const char *id = docker_label(inspect, LABEL_ID);
    struct instance_info now;
    bool done = false;

    docker_read_state(inspect, &now);
    pthread_mutex_lock(&k->lock);
    struct box *b = id ? docker_find(k, id) : NULL;
    if (b && str_eq(b->container, json_str(inspect, "Id"))) {
        *ret_old = b->info.state;
        done = apply(k, b, inspect, &now) == 0;
        *ret_info = b->info;
    }
    pthread_mutex_unlock(&k->lock);
    return done;
}

void docker_box_free(struct box *b) {
    free(b->container);
    if (b->guard_token)
        explicit_bzero(b->guard_token, strlen(b->guard_token));
    free(b->guard_token);
    free(b);
}

void docker_index_drop(struct docker *k, const char *id) {
    pthread_mutex_lock(&k->lock);
    struct box *b = map_remove(k->boxes, id);
    pthread_mutex_unlock(&k->lock);
    if (b)
        docker_box_free(b);
}

/* ---- finding a container in the engine ---- */

/* Is this answer the container of that sandbox, and ours? */
static bool is_box_of(const struct docker *k, const json_t *inspect, const char *id) {
    return str_eq(docker_label(inspect, LABEL_ID), id) && docker_is_mine(k, labels_of(inspect));
}

/* By a reference; -ENOENT also when it is another's. */
static int inspect_checked(struct docker *k, const char *ref, const char *id, json_t **ret,
                           struct err *err) {
    _cleanup_json_ json_t *j = NULL;
    int r = engine_container_inspect(k->engine, ref, &j, err);

    if (r < 0)
        return r;
    if (!is_box_of(k, j, id))
        return -ENOENT;
    *ret = TAKE_PTR(j);
    return 0;
}

static int lookup_by_label(struct docker *k, const char *id, json_t **ret, struct err *err) {
    _cleanup_json_ json_t *list = NULL, *filters = NULL;
    json_t *c;
    size_t i;

    filters = json_pack("{s:[o]}", "label", json_sprintf("%s=%s", LABEL_ID, id));
    int r = filters ? engine_container_list(k->engine, true, filters, &list, err)
                    : err_set(err, -ENOMEM, "out of memory");
    if (r < 0)
        return r;
    json_array_foreach(list, i, c) {
        const char *ref = json_str(c, "Id");
        r = ref ? inspect_checked(k, ref, id, ret, err) : -ENOENT;
        if (r != -ENOENT) /* one that vanished in between is none */
            return r;
    }
    return -ENOENT;
}

int docker_lookup(struct docker *k, const char *id, json_t **ret, struct err *err) {
    char name[SANDBOX_ID_MAX + 16], known[80] = "";
    int r = -ENOENT;

    pthread_mutex_lock(&k->lock);
    struct box *b = docker_find(k, id);
    if (b)
        str_copy(known, sizeof known, b->container);
    pthread_mutex_unlock(&k->lock);
    if (*known)
        r = inspect_checked(k, known, id, ret, err);
    if (r == -ENOENT) {
        snprintf(name, sizeof name, SANDBOX_NAME_FORMAT, id);
        r = inspect_checked(k, name, id, ret, err);
    }
    if (r == -ENOENT)
        r = lookup_by_label(k, id, ret, err);
    if (r == -ENOENT)
        return err_set(err, -ENOENT, "there is no sandbox %s", id);
    return r < 0 ? err_wrap(err, "looking up sandbox %s", id), r : 0;
}
