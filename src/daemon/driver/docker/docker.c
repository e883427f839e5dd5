/*
 * The Docker driver as a whole: owned copies of its configuration, connection and checks at the
 * start, the table of operations, the end. What the operations do lies beside (docker_priv.h says
 * where).
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

#ifdef COVE_CRASH_POINTS
const char *const docker_crash_points[] = {
    "create-image",     "create-agent",       "create-ports",    "create-guard",
    "create-container", "create-entered",     "create-injected", "create-started",
    "create-inspected", "create-ready",       "agent-helper",    "guard-volume",
    "guard-created",    "guard-started",      "remove-killed",   "remove-container",
    "remove-guard",     "pause-sandbox",      "pause-guard",     "resume-guard",
    "snapshot-commit",  "snapshot-committed", "recover-one",     NULL};
#else
const char *const docker_crash_points[] = {NULL};
#endif

/* FNV-1a of the state directory's real path. */
static void name_instance(const char *state_dir, char ret[17]) {
    char real[PATH_MAX];
    const char *path = realpath(state_dir, real) ? real : state_dir;
    uint64_t h = 14695981039346656037u;

    for (const char *p = path; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    snprintf(ret, 17, "%016llx", (unsigned long long)h);
}

/* ---- configuration ---- */

/* A copy that lives as long as the driver. NULL stays NULL; *bad on -ENOMEM. */
static const char *keep(struct docker *k, const char *text, int *bad) {
    if (!text)
        return NULL;
    if (strv_add(&k->copies, text) < 0) {
        *bad = 1;
        return NULL;
    }
    return k->copies.v[k->copies.n - 1];
}

static const char *const *keep_list(struct strv *to, const char *const *from, int *bad) {
    static const char *const none[] = {NULL};

    if (!from)
        return NULL;
    if (strv_copy(to, from) < 0)
        *bad = 1;
    return to->v ? (const char *const *)to->v : none;
}

static int copy_config(struct docker *k, const struct docker_config *from, struct err *err) {
    struct docker_config *c = &k->config;
    const char **texts[] = {&c->state_dir,           &c->libexec_dir,      &c->engine_host,
                            &c->execd_image,         &c->network_mode,     &c->host_ip,
                            &c->server_host,         &c->apparmor_profile, &c->seccomp_profile,
                            &c->publish_host,        &c->runtime,          &c->egress_image,
                            &c->egress_mode,         &c->otlp_endpoint,    &c->upstream_proxy,
                            &c->upstream_proxy_auth, &c->upstream_ca_path, &c->legacy_metadata_dir};
    int bad = 0;

    *c = *from;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        *texts[i] = keep(k, *texts[i], &bad);
    c->drop_capabilities = keep_list(&k->drop, from->drop_capabilities, &bad);
    c->sandbox_binds = keep_list(&k->binds, from->sandbox_binds, &bad);
    k->sandbox_env = from->sandbox_env ? json_deep_copy(from->sandbox_env) : NULL;
    c->sandbox_env = k->sandbox_env;
    c->network_mode = c->network_mode ?: "bridge";
    c->egress_mode = c->egress_mode ?: "dns";
    if (from->sandbox_env && !k->sandbox_env)
        bad = 1;
    k->proxy_host = strdup(docker_pick_proxy_host(c, docker_in_container()));
    return bad || !k->proxy_host ? err_set(err, -ENOMEM, "out of memory") : 0;
}

/* ---- start ---- */

static int connect_engine(struct docker *k, struct err *err) {
    const struct engine_opts o = {.host = k->config.engine_host,
                                  .tls_verify = -1,
                                  .timeout_ms = k->config.api_timeout_s * 1000};
    struct err cause = {0};
    char version[16];
    int r = engine_new(&o, &k->engine, err);

    if (r < 0)
        return err_wrap(err, "docker engine"), r;
    r = engine_ping(k->engine, version, &cause);
    if (r < 0)
        return err_set(err, r == -ENOMEM ? r : -EHOSTUNREACH,
                       "Docker engine at %s: %s (does it run, and may this user talk to it? "
                       "DOCKER_HOST names another one)",
                       engine_host(k->engine), err_text(&cause));
    log_info("docker engine", LOG_STR("host", engine_host(k->engine)), LOG_STR("api", version));
    return 0;
}

/* The configured runtime must be one of the engine's. Pure. */
int docker_check_runtime(const json_t *info, const char *runtime, struct err *err) {
    _cleanup_buf_ struct buf names = BUF_INIT(800);
    json_t *runtimes = json_object_get(info, "Runtimes"), *value;
    const char *name;

    if (!runtime || json_object_get(runtimes, runtime))
        return 0;
    json_object_foreach(runtimes, name, value) {
        (void)value;
        (void)buf_printf(&names, "%s%s", names.len ? ", " : "", name);
    }
    return err_set(err, -EINVAL,
                   "secure_runtime: the Docker engine has no runtime '%s'; available: %s", runtime,
                   names.len ? names.data : "none");
}

static int check_engine(struct docker *k, struct err *err) {
    _cleanup_json_ json_t *info = NULL;

    if (str_is_empty(k->config.runtime))
        return 0;
    int r = engine_info(k->engine, &info, err);
    return r < 0 ? r : docker_check_runtime(info, k->config.runtime, err);
}

/* What an operator may not have meant: the default is an opensandbox-server's. */
static void warn_of_risks(const struct docker_config *c) {
    bool is_host = str_eq(c->network_mode, "host");

    if (is_host)
        log_warn("docker.network_mode is host: sandboxes, and whoever reaches the proxy (which "
                 "needs no key), get to every port of this machine's loopback");
    if (!c->access_token_checked &&
        (is_host || !(str_eq(c->network_mode, "none") || str_eq(c->publish_host, "127.0.0.1"))))
        log_warn("docker.access_token is off: whoever reaches the port of a sandbox's agent "
                 "commands it",
                 LOG_STR("publish_host", is_host ? "0.0.0.0" : c->publish_host ?: "0.0.0.0"));
}

static int set_up(struct docker *k, const struct docker_config *c, struct err *err) {
    int r = copy_config(k, c, err);

    if (r < 0)
        return r;
    name_instance(k->config.state_dir, k->instance);
    k->boxes = map_new();
    k->interned = map_new();
    if (!k->boxes || !k->interned)
        return err_set(err, -ENOMEM, "out of memory");
    if ((r = connect_engine(k, err)) < 0 || (r = check_engine(k, err)) < 0)
        return r;
    if (ports_new(k, &k->ports) < 0 || pulls_new(k, &k->pulls) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    warn_of_risks(&k->config);
    r = docker_agent_new(k, &k->agent, err);
    return r < 0 ? r : docker_watch_new(k, &k->watch, err);
}

static void docker_free(struct driver *d) {
    struct docker *k = docker_of(d);
    size_t at = 0;
    void *value;

    k->watch = docker_watch_free(k->watch);
    k->agent = docker_agent_free(k->agent);
    k->pulls = pulls_free(k->pulls);
    k->ports = ports_free(k->ports);
    if (k->engine)
        k->engine = engine_free(k->engine);
    while (k->boxes && map_next(k->boxes, &at, NULL, &value))
        docker_box_free(value);
    k->boxes = map_free(k->boxes);
    at = 0;
    while (k->interned && map_next(k->interned, &at, NULL, &value))
        free(value);
    k->interned = map_free(k->interned);
    strv_done(&k->copies);
    strv_done(&k->drop);
    strv_done(&k->binds);
    strv_done(&k->former);
    json_decref(k->sandbox_env);
    free(k->proxy_host);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

const struct driver_ops docker_ops = {
    .name = "docker",
    .check_policy = guard_check_policy,
    .check_network = docker_check_network,
    .ensure_image = docker_ensure_image,
    .check_late = docker_check_late,
    .create = docker_create,
    .remove = docker_remove,
    .pause = docker_pause,
    .resume = docker_resume,
    .inspect = docker_inspect,
    .list = docker_list,
    .note_expiry = docker_note_expiry,
    .address = docker_address,
    .published = docker_published,
    .guard_token = docker_guard_token,
    .logs = docker_logs,
    .describe = docker_describe,
    .capabilities = docker_capabilities,
    .volume_open = docker_volume_open,
    .volume_remove = docker_volume_remove,
    .snapshot_create = docker_snapshot_create,
    .snapshot_exists = docker_snapshot_exists,
    .snapshot_remove = docker_snapshot_remove,
    .recover = docker_recover,
    .found = docker_found_each,
    .stop = docker_stop,
    .free = docker_free,
};

int docker_driver_new(const struct docker_config *c, struct driver **ret, struct err *err) {
    struct docker *k = calloc(1, sizeof *k);

    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&k->lock, NULL);
    k->driver.ops = &docker_ops;
    k->driver.rules = (struct driver_rules){.provider = "docker",
                                            .named_volumes = true,
                                            .oss_volumes = true,
                                            .gpu = true,
                                            .windows = true,
                                            .any_arch = true,
                                            .snapshots = true,
                                            .image_auth = true,
                                            .isolation = c->allow_isolation,
                                            .cwd_choice = true,
                                            .no_entrypoint = true,
                                            .ignores_limits = true};
    int r = set_up(k, c, err);
    if (r < 0) {
        docker_free(&k->driver);
        return r;
    }
    *ret = &k->driver;
    return 0;
}
