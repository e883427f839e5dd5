/*
 * Making a sandbox (lifecycle.md 4, steps 19 to 27): ports or guard, container, agent, start. What
 * a step makes is noted in struct making, and one function, undo(), takes it back after a failure.
 * After kill -9 recover() finds the same things by their labels and names.
 *
 * Errors of our own checks and DRIVER_* codes pass through; what the engine refuses becomes -EIO
 * with the engine's words in it. The port reservations end with the create, whatever its outcome:
 * from the start on the engine holds the ports itself.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"

#define ATTEMPTS 3 /* with fresh ports */
#define PORTS_MAX 8

struct making {
    struct docker *k;
    const struct sandbox_spec *spec;
    json_t *image;     /* inspect answer */
    char platform[64]; /* of the image, normalised */
    struct agent_way way;
    int agent_result;
    struct err agent_err; /* it cannot be had: told when the container is there, as others do */
    struct port_binding ports[PORTS_MAX];
    size_t n_ports; /* reserved */
    struct guard guard;
    bool has_guard;
    json_t *labels;
    char *container; /* engine id */
    struct instance_info info;
    struct step_times times;
    int64_t lap_us;
};

static void note(struct making *m, const char *name) {
    int64_t now = clock_mono_us();

    if (m->times.n < ARRAY_SIZE(m->times.t))
        m->times.t[m->times.n++] = (struct step_time){name, now - m->lap_us};
    m->lap_us = now;
}

static bool is_driver_code(int r) {
    return r <= DRIVER_VOLUME_INSPECT && r >= DRIVER_IMAGE_PULL;
}

/* The engine's refusal is a fault, not an answer about the request: a 404 of its own must not look
 * like an unknown sandbox, nor a 400 like a bad field. */
static int engine_failed(struct err *err, const char *what) {
    err_wrap(err, "%s", what);
    err->code = -EIO;
    return -EIO;
}

/* ---- checks ---- */

static bool is_user_network(const char *mode) {
    return !str_eq(mode, "host") && !str_eq(mode, "bridge") && !str_eq(mode, "none") &&
           !str_starts(mode, "container:");
}

int docker_check_network(struct driver *d, struct err *err) {
    struct docker *k = docker_of(d);
    const char *mode = k->config.network_mode;
    _cleanup_json_ json_t *network = NULL;
    struct err own = {0};

    if (!err)
        err = &own;
    if (str_is_empty(mode) || !is_user_network(mode))
        return 0;
    int r = engine_network_inspect(k->engine, mode, &network, err);
    if (r == -ENOENT)
        return err_set(err, -EINVAL,
                       "Docker network '%s' does not exist. Create it first: docker network create "
                       "%s",
                       mode, mode);
    return r < 0 ? engine_failed(err, "looking up the configured network") : 0;
}

/* A bind is told to the engine as text with colons. */
static int check_mounts(const struct sandbox_spec *s, struct err *err) {
    for (size_t i = 0; i < s->n_mounts; i++) {
        const struct mount_spec *m = &s->mounts[i];
        const char *source = m->volume ? m->volume : m->source;
        if (strchr(m->target, ':') || (source && strchr(source, ':')))
            return err_set(err, -EINVAL,
                           "volumes: a path with ':' cannot be mounted by the Docker engine (%s)",
                           m->target);
    }
    return 0;
}

int docker_check_late(struct driver *d, const struct sandbox_spec *spec, struct err *err) {
    struct docker *k = docker_of(d);
    int r = guard_check_switches(k, spec, err);

    if (r == 0)
        r = windows_check_devices(spec, err);
    if (r == 0 && is_windows(spec) && str_is_empty(k->config.execd_image))
        return err_set(err, -EINVAL,
                       "platform.os 'windows' needs runtime.execd_image to be configured: it has "
                       "the agent for Windows.");
    return r < 0 ? r : check_mounts(spec, err);
}

/* ---- image ---- */

static int step_image(struct making *m, struct err *err) {
    int r = engine_image_inspect(m->k->engine, m->spec->image, &m->image, err);

    if (r < 0) {
        err_wrap(err, "image %s", m->spec->image);
        err->code = DRIVER_IMAGE_PULL;
        return DRIVER_IMAGE_PULL;
    }
    platform_of_image(m->image, m->platform, sizeof m->platform);
    return 0;
}

static int step_agent(struct making *m, struct err *err) {
    (void)err;
    if (!is_windows(m->spec))
        m->agent_result = agent_way(m->k, m->spec->image, m->platform, &m->way, &m->agent_err);
    return 0;
}

/* ---- ports and guard ---- */

/* Are ports published at all? */
static bool publishes(const struct making *m) {
    const char *mode = m->k->config.network_mode;

    return m->spec->policy || str_is_empty(mode) ||
           !(str_eq(mode, "host") || str_eq(mode, "none") || str_starts(mode, "container:"));
}

static int step_ports(struct making *m, struct err *err) {
    const char *keys[PORTS_MAX] = {"44772", "8080"};
    size_t n = 2;

    m->n_ports = 0;
    if (!publishes(m))
        return 0;
    if (m->spec->policy)
        keys[n++] = "18080";
    if (is_windows(m->spec)) {
        keys[n++] = "3389/tcp";
        keys[n++] = "3389/udp";
        keys[n++] = "8006/tcp";
    }
    int r = ports_reserve(m->k->ports, keys, m->ports, n, err);
    if (r < 0) { /* this daemon is not full, the range is */
        err->code = -EIO;
        return -EIO;
    }
    m->n_ports = n;
    return 0;
}

static void release_ports(struct making *m) {
    ports_release(m->k->ports, m->ports, m->n_ports);
    m->n_ports = 0;
}

static uint16_t host_port(const struct making *m, const char *key) {
    for (size_t i = 0; i < m->n_ports; i++)
        if (str_eq(m->ports[i].key, key))
            return m->ports[i].host_port;
    return 0;
}

/* The guard undoes itself when it fails. */
static int step_guard(struct making *m, struct err *err) {
    int r = 0;

    guard_make_token(m->guard.token);
    for (unsigned i = 1; i <= ATTEMPTS; i++) {
        r = step_ports(m, err);
        if (r < 0)
            return r;
        r = guard_start(m->k, m->spec, m->ports, m->n_ports, &m->guard, err);
        m->has_guard = r == 0;
        if (r == 0 || !ports_is_conflict(err->msg))
            break;
        log_warn("a host port was taken meanwhile", LOG_STR("sandbox", m->spec->id), LOG_ERR(err));
        release_ports(m);
    }
    if (r < 0 && !is_driver_code(r))
        err->code = r = -EIO;
    return r;
}

/* ---- container ---- */

static int make_labels(struct making *m, struct err *err) {
    const json_t *config = json_object_get(m->image, "Config");
    const struct label_extras x = {.agent_port = host_port(m, "44772"),
                                   .http_port = host_port(m, "8080"),
                                   .guard_token = m->has_guard ? m->guard.token : NULL,
                                   .has_runtime_volume = m->has_guard};

    json_decref(m->labels);
    m->labels = docker_labels(m->k, m->spec, &x);
    if (!m->labels || docker_labels_shadow(m->labels, json_object_get(config, "Labels")) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    return 0;
}

static int step_container(struct making *m, struct err *err) {
    const struct sandbox_spec *s = m->spec;
    const struct container_extras x = {.guard_container = m->has_guard ? m->guard.container : NULL,
                                       .ports = m->ports,
                                       .n_ports = m->n_ports,
                                       .has_runtime_volume = m->has_guard,
                                       .agent_binds = m->way.binds};
    char platform[64] = "", name[SANDBOX_ID_MAX + 16];
    int r = make_labels(m, err);

    if (r < 0)
        return r;
    _cleanup_json_ json_t *body = docker_container_body(m->k, s, m->labels, &x);
    if (!body)
        return err_set(err, -EINVAL, "environment, entrypoint or a label is not valid UTF-8");
    snprintf(name, sizeof name, SANDBOX_NAME_FORMAT, s->id);
    if (!is_windows(s))
        platform_normalise(s->os, s->arch, platform, sizeof platform);
    r = engine_container_create(m->k->engine, name, *platform ? platform : NULL, body,
                                &m->container, err);
    if (r == -EOPNOTSUPP && *platform)
        return err_set(err, -EINVAL,
                       "The engine is too old for platform-aware container create; leave out the "
                       "platform or use a newer engine.");
    return r < 0 ? engine_failed(err, "creating the container") : 0;
}

/* Enters the box before the start, so that no event of it is missed. */
static int step_enter(struct making *m, struct err *err) {
    const char *mode = m->k->config.network_mode;
    _cleanup_json_ json_t *inspect =
        json_pack("{s:s, s:{s:O}, s:{s:s}, s:{s:s}}", "Id", m->container, "Config", "Labels",
                  m->labels, "State", "Status", "created", "HostConfig", "NetworkMode",
                  m->has_guard || !mode ? "bridge" : mode);

    return inspect ? docker_index_update(m->k, inspect, NULL, err)
                   : err_set(err, -ENOMEM, "out of memory");
}

static int step_inject(struct making *m, struct err *err) {
    if (is_windows(m->spec))
        return agent_inject_windows(m->k, m->container, err);
    if (m->agent_result < 0) {
        *err = m->agent_err;
        return m->agent_result;
    }
    return agent_inject(m->k, m->container, m->platform, &m->way, err);
}

static int step_start(struct making *m, struct err *err) {
    int r = engine_container_start(m->k->engine, m->container, err);
    return r < 0 ? engine_failed(err, "starting the container") : 0;
}

struct step {
    const char *name, *crash;
    int (*run)(struct making *m, struct err *err);
};

static int run_steps(struct making *m, const struct step *steps, size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++) {
        int r = steps[i].run(m, err);
        note(m, steps[i].name);
        crash_point(steps[i].crash);
        if (r < 0)
            return r;
    }
    return 0;
}

static void remove_container(struct making *m) {
    struct err err = {0};

    if (!m->container)
        return;
    docker_index_drop(m->k, m->spec->id); /* what follows is no news */
    int r = engine_container_remove(m->k->engine, m->container, true, &err);
    if (r < 0 && r != -ENOENT)
        log_error("a container could not be removed after a failed create",
                  LOG_STR("sandbox", m->spec->id), LOG_STR("container", m->container),
                  LOG_ERR(&err));
    free(TAKE_PTR(m->container));
}

/* May this failure end differently at once? The guard's ports are bound already. */
static bool may_retry(struct making *m, const struct err *err) {
    return agent_way_failed(m->k, &m->way, err->msg) ||
           (!m->has_guard && m->n_ports && ports_is_conflict(err->msg));
}

static int make_container(struct making *m, struct err *err) {
    static const struct step steps[] = {{"container", "create-container", step_container},
                                        {"enter", "create-entered", step_enter},
                                        {"inject", "create-injected", step_inject},
                                        {"start", "create-started", step_start}};
    int r = 0;

    for (unsigned i = 1; i <= ATTEMPTS; i++) {
        if (!m->has_guard) {
            release_ports(m);
            r = step_ports(m, err);
            note(m, "ports");
            crash_point("create-ports");
        }
        if (r == 0)
            r = run_steps(m, steps, ARRAY_SIZE(steps), err);
        if (r == 0 || !may_retry(m, err) || i == ATTEMPTS)
            return r;
        log_warn("a container did not start, trying again", LOG_STR("sandbox", m->spec->id),
                 LOG_ERR(err));
        remove_container(m);
        r = 0;
    }
    return r;
}

/* ---- afterwards ---- */

static int step_inspect(struct making *m, struct err *err) {
    _cleanup_json_ json_t *inspect = NULL;
    int r = engine_container_inspect(m->k->engine, m->container, &inspect, err);

    if (r < 0)
        return engine_failed(err, "looking at the container");
    if (!docker_labels_hold(m->labels,
                            json_object_get(json_object_get(inspect, "Config"), "Labels")))
        return err_set(err, -EIO, "image %s was replaced while the sandbox was made",
                       m->spec->image);
    return docker_index_update(m->k, inspect, &m->info, err);
}

static int step_ready(struct making *m, struct err *err) {
    (void)err;
    agent_wait(m->k, m->spec, m->container);
    return 0;
}

static void undo(struct making *m) {
    bool was_made = m->container;

    remove_container(m);
    if (m->has_guard)
        guard_remove(m->k, m->spec->id);
    if (was_made && is_windows(m->spec)) /* the engine made it with the container */
        windows_remove_volume(m->k, m->spec->id);
}

/* An end that nobody else has reported: the index knew it from us before the event came. */
static void finish(struct making *m, struct instance_info *ret) {
    struct docker *k = m->k;

    pthread_mutex_lock(&k->lock);
    const struct box *b = docker_find(k, m->spec->id);
    if (b)
        m->info = b->info;
    pthread_mutex_unlock(&k->lock);
    if ((m->info.state == INST_EXITED || m->info.state == INST_GONE) && k->driver.events.on_change)
        k->driver.events.on_change(&m->info, k->driver.events.ud);
    *ret = m->info;
}

static int make(struct making *m, struct err *err) {
    static const struct step first[] = {{"image", "create-image", step_image},
                                        {"agent", "create-agent", step_agent}};
    static const struct step guard[] = {{"guard", "create-guard", step_guard}};
    static const struct step last[] = {{"inspect", "create-inspected", step_inspect},
                                       {"ready", "create-ready", step_ready}};
    int r = check_mounts(m->spec, err);

    if (r == 0)
        r = run_steps(m, first, ARRAY_SIZE(first), err);
    if (r == 0 && m->spec->policy)
        r = run_steps(m, guard, ARRAY_SIZE(guard), err);
    if (r == 0)
        r = make_container(m, err);
    return r < 0 ? r : run_steps(m, last, ARRAY_SIZE(last), err);
}

int docker_create(struct driver *d, const struct sandbox_spec *spec, struct instance_info *ret,
                  struct step_times *ret_steps, struct err *err) {
    struct making m = {.k = docker_of(d), .spec = spec, .lap_us = clock_mono_us()};
    struct err own = {0};
    int r;

    if (!err)
        err = &own;
    r = make(&m, err);
    if (r < 0)
        undo(&m);
    else
        finish(&m, ret);
    release_ports(&m);
    agent_way_done(m.k, &m.way);
    if (r == 0 && ret_steps)
        *ret_steps = m.times;
    json_decref(m.image);
    json_decref(m.labels);
    free(m.container);
    explicit_bzero(&m.guard, sizeof m.guard);
    return r;
}
