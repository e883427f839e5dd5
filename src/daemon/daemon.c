/*
 * The daemon's life. Start: driver (its lock keeps a second daemon of the state directory out),
 * database, reconciliation, listeners, ready. End: no new connections, requests in flight get their
 * grace time, operations under way are finished, then everything is closed, upgraded connections
 * included; sandboxes live on, except those of a private daemon. Loop thread only.
 */
#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/path.h"
#include "daemon/api/api.h"
#include "daemon/drivers.h"
#include "daemon/sandbox/images.h"
#include "daemon/private.h"
#include "daemon/setup.h"
#include "daemon/store/snapdb.h"
#include "daemon/telemetry/otlp.h"
#include "net/h1_server.h"

struct daemon {
    struct config *c;
    const struct options *o;
    uv_loop_t loop;
    uv_signal_t term, intr, hup, usr1;
    uv_poll_t life;
    uv_timer_t
        end; /* fires at once: the last step must not run inside a callback of what it frees */
    bool has_life, is_ending, has_key;
    struct driver *driver;
    struct statedb *db;
    struct snapdb *snapshots; /* NULL: the driver makes none */
    struct service *service;
    struct images *images;
    struct api *api;
    struct h1_server *server;
    struct otlp *otlp; /* NULL = metrics are not exported */
    char *socket_path;
    int state_lock;
    size_t removals; /* of a private daemon's end */
    int result;
};

/* ---- the end ---- */

static void close_handle(uv_handle_t *h) {
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

/* Everything that keeps the loop alive goes; uv_run returns when it is gone. */
static void dispose(struct daemon *d) {
    if (d->server)
        h1_server_free(d->server);
    d->server = NULL;
    if (d->service)
        service_close(d->service); /* frees the driver too; the last answers still need the API */
    else if (d->driver)
        d->driver->ops->free(d->driver);
    d->service = NULL;
    d->driver = NULL;
    api_free(d->api);
    d->api = NULL;
    otlp_free(d->otlp);
    d->otlp = NULL;
    images_close(d->images);
    d->images = NULL;
    close_handle((uv_handle_t *)&d->term);
    close_handle((uv_handle_t *)&d->intr);
    close_handle((uv_handle_t *)&d->hup);
    close_handle((uv_handle_t *)&d->usr1);
    close_handle((uv_handle_t *)&d->end);
    if (d->has_life)
        close_handle((uv_handle_t *)&d->life);
}

static void on_end(uv_timer_t *t) {
    dispose(t->data);
}

static void end_soon(void *ud) {
    struct daemon *d = ud;
    uv_timer_start(&d->end, on_end, 0, 0);
}

static void on_removed(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    struct daemon *d = ud;

    if (f && f != FAULT_NOT_FOUND) {
        log_error("a sandbox of this private daemon stays behind", LOG_ERR(err));
        d->result = -EBUSY;
    }
    if (--d->removals == 0)
        service_when_idle(d->service, end_soon, d);
}

static void remove_all(void *ud) {
    struct daemon *d = ud;
    struct sandbox *page[64];
    struct sandbox_filter all = {0};
    struct strv ids = {0};
    size_t total = 1, n;

    for (size_t skip = 0; skip < total; skip += n) {
        n = service_list(d->service, &all, skip, ARRAY_SIZE(page), page, &total);
        for (size_t i = 0; i < n; i++)
            strv_add(&ids, page[i]->spec.id);
        if (n == 0)
            break;
    }
    d->removals = ids.n + 1;
    for (size_t i = 0; i < ids.n; i++)
        service_delete(d->service, ids.v[i], on_removed, d);
    strv_done(&ids);
    on_removed(FAULT_NONE, NULL, NULL, d);
}

static void on_drained(void *ud) {
    struct daemon *d = ud;

    if (d->o->is_private) /* what is being created now is to be removed as well */
        service_when_idle(d->service, remove_all, d);
    else
        end_soon(d);
}

static void begin_end(struct daemon *d, const char *why) {
    if (d->is_ending)
        return;
    d->is_ending = true;
    log_info("ending", LOG_STR("reason", why));
    notify_manager("STOPPING=1");
    service_refuse(d->service);
    h1_server_drain(d->server, d->o->is_private ? 0 : (unsigned)d->c->graceful_shutdown_s * 1000,
                    on_drained, d);
}

static void on_term(uv_signal_t *h, int signum) {
    begin_end(h->data, signum == SIGINT ? "SIGINT" : "SIGTERM");
}

static void on_life(uv_poll_t *h, int status, int events) {
    struct daemon *d = h->data;
    char drop[64];

    ssize_t n = read(d->o->life_fd, drop, sizeof drop);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    uv_poll_stop(h);
    begin_end(d, "its client has ended");
}

/* TCP only with a key, or when running without one was acknowledged. */
static bool wants_tcp(const struct daemon *d) {
    return !d->o->is_private && (config_has_key(d->c) || d->c->insecure_ok);
}

/* ---- reload ---- */

static void on_hup(uv_signal_t *h, int signum) {
    struct daemon *d = h->data;
    struct config fresh;
    struct err err = {0};
    enum log_level level;

    setup_reopen_logs();
    if (config_load(d->c->path ? d->c->path : d->o->config, &fresh, NULL, &err) < 0) {
        log_error("reload refused, the old settings stay", LOG_ERR(&err));
        return;
    }
    if (!d->o->log_level && config_log_level(&fresh, &level) == 0)
        log_setup(level, fresh.log_json, "coved");
    bool loses_key = d->has_key && !config_has_key(&fresh);
    if (loses_key)
        log_error("reload would take the last API key away, the keys stay: restart to run without");
    else if (api_set_keys(d->api, fresh.api_key, fresh.api_keys) < 0)
        log_error("no memory for the reloaded API keys");
    else
        d->has_key = config_has_key(&fresh);
    if (config_has_key(&fresh) && !wants_tcp(d) && !d->o->is_private)
        log_warn("there is an API key now: the TCP side opens at the next start");
    config_done(&fresh);
    if (!loses_key)
        log_info("settings reloaded");
}

static void on_usr1(uv_signal_t *h, int signum) {
    setup_reopen_logs();
}

/* ---- the start ---- */

static int watch_signals(struct daemon *d, struct err *err) {
    struct {
        uv_signal_t *h;
        int num;
        uv_signal_cb cb;
    } all[] = {{&d->term, SIGTERM, on_term},
               {&d->intr, SIGINT, on_term},
               {&d->hup, SIGHUP, on_hup},
               {&d->usr1, SIGUSR1, on_usr1}};

    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        int r = uv_signal_init(&d->loop, all[i].h);
        all[i].h->data = d;
        if (r == 0)
            r = uv_signal_start(all[i].h, all[i].cb, all[i].num);
        if (r < 0)
            return err_sys(err, r, "signal handlers");
    }
    return 0;
}

static int watch_life(struct daemon *d, struct err *err) {
    if (d->o->life_fd < 0)
        return 0;
    fd_set_nonblock(d->o->life_fd, true);
    fd_set_cloexec(d->o->life_fd, true);
    int r = uv_poll_init(&d->loop, &d->life, d->o->life_fd);
    if (r < 0)
        return err_sys(err, r,
                       "descriptor %d of --life-fd cannot be watched: it must be a pipe or socket",
                       d->o->life_fd);
    d->has_life = true;
    d->life.data = d;
    uv_poll_start(&d->life, UV_READABLE | UV_DISCONNECT, on_life);
    return 0;
}

/* The native driver has its own lock; containers of one state directory have one master too. */
static int lock_state(struct daemon *d, struct err *err) {
    d->state_lock = open(d->c->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->state_lock < 0)
        return err_sys(err, -errno, "directory %s", d->c->state_dir);
    if (flock(d->state_lock, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, -EBUSY,
                       "another daemon uses the state directory %s; a second one needs its own "
                       "server.state_dir and server.run_dir",
                       d->c->state_dir);
    return 0;
}

static int open_images(struct daemon *d, struct err *err) {
    _cleanup_free_ char *store =
        d->c->store_dir ? strdup(d->c->store_dir) : path_join(d->c->state_dir, "store");
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): _cleanup_ */
    int r = store ? images_open(store, d->c->state_dir, d->service, &d->images, err)
                  : err_set(err, -ENOMEM, "out of memory");
    if (r == 0 && !d->o->is_private)
        images_collect(d->images);
    return r;
}

static int open_snapshots(struct daemon *d, struct err *err) {
    if (str_ieq(d->c->store.type, "postgresql"))
        return snapdb_open_pg(
            &(struct snapdb_pg_opts){
                .dsn = d->c->store.pg_dsn,
                .min_pool = (unsigned)d->c->store.pg_min_pool,
                .max_pool = (unsigned)d->c->store.pg_max_pool,
                .connect_timeout_s = (unsigned)d->c->store.pg_connect_timeout_s,
                .pool_timeout_s = d->c->store.pg_pool_timeout_s,
            },
            &d->snapshots, err);
    return snapdb_open_file(d->c->store.path, &d->snapshots, err);
}

static int open_state(struct daemon *d, struct err *err) {
    _cleanup_free_ char *file = path_join(d->c->state_dir, "state.db");
    bool is_docker = config_is_docker(d->c);
    int r;

    if (!file)
        return err_set(err, -ENOMEM, "out of memory");
    if ((is_docker && (r = lock_state(d, err)) < 0) ||
        (r = driver_open(d->c, &d->driver, err)) < 0 || (r = statedb_open(file, &d->db, err)) < 0)
        return r;
    if (d->driver->rules.snapshots && (r = open_snapshots(d, err)) < 0)
        return r;
    struct service_opts so = {
        .loop = &d->loop,
        .driver = d->driver,
        .store = d->db,
        .snapshots = d->snapshots,
        .max_workers = (unsigned)d->c->workers,
        .max_timeout_s = d->c->max_sandbox_timeout_s,
        .allowed_host_paths = (const char *const *)d->c->allowed_host_paths.v,
        .oss_root = d->c->ossfs_mount_root,
        .no_access_token = !(is_docker ? d->c->docker.access_token : d->c->access_token),
        .default_net = str_ieq(d->c->default_network, "nat") ? NET_NAT : NET_NONE,
        .renew = {.enabled = d->c->renew.enabled,
                  .min_interval_s = (unsigned)d->c->renew.min_interval_s,
                  .redis_dsn = d->c->renew.redis_enabled ? d->c->renew.redis_dsn : NULL,
                  .redis_queue = d->c->renew.redis_queue,
                  .redis_readers = (unsigned)d->c->renew.redis_readers},
    };
    if ((r = service_open(&so, &d->service, err)) < 0)
        return r;
    return is_docker ? 0 : open_images(d, err); /* the engine has its own images */
}

static int listen_unix(struct daemon *d, struct err *err) {
    d->socket_path = d->o->socket        ? strdup(d->o->socket)
                     : d->c->socket_path ? strdup(d->c->socket_path)
                                         : path_join(d->c->run_dir, "api.sock");
    if (!d->socket_path)
        return err_set(err, -ENOMEM, "out of memory");
    mode_t mode = d->o->is_private ? 0600 : (mode_t)d->c->socket_mode;
    int r = h1_server_listen_unix(d->server, d->socket_path, mode, err);
    if (r < 0)
        return err_wrap(err, "server.socket");
    if (str_is_empty(d->c->socket_group))
        return r;
    struct group *g = getgrnam(d->c->socket_group);
    if (!g)
        return err_set(err, -EINVAL, "server.socket_group: there is no such group");
    return chown(d->socket_path, (uid_t)-1, g->gr_gid) < 0
               ? err_sys(err, -errno, "socket %s", d->socket_path)
               : 0;
}

static int open_server(struct daemon *d, struct err *err) {
    const struct config *c = d->c;
    int64_t most = c->limit_concurrency ? c->limit_concurrency : UINT32_MAX;
    struct h1_server_opts so = {
        .limits = {.idle_timeout_ms = (unsigned)c->keep_alive_s * 1000,
                   .max_connections = (unsigned)most},
        .on_request = api_on_request,
        .on_done = api_on_done,
    };
    struct api_opts ao = {
        .loop = &d->loop,
        .service = d->service,
        .images = d->images,
        .api_key = c->api_key,
        .api_keys = c->api_keys,
        .eip = c->eip,
        .proxy_address = c->proxy_address,
        .host = wants_tcp(d) ? c->host : "",
        .port = (uint16_t)c->port,
        .server_host = c->host,
        .host_ip = c->docker.host_ip,
        .max_body = (size_t)c->max_body_bytes,
        .max_upgrades = (size_t)c->limit_concurrency,
    };
    d->has_key = config_has_key(c);
    ao.metrics_public = c->metrics_public;
    ao.trusted_proxies = (const char *const *)c->trusted_proxies.v;
    int r = api_new(&ao, &d->api);
    if (r < 0)
        return err_sys(err, r, "API");
    so.ud = d->api;
    if ((r = h1_server_new(&d->loop, &so, &d->server)) < 0)
        return err_sys(err, r, "HTTP server");
    if ((r = listen_unix(d, err)) < 0)
        return r;
    if (!wants_tcp(d)) {
        if (!d->o->is_private)
            log_warn("no API key: the TCP side stays closed (set server.api_key, or "
                     "OPENSANDBOX_INSECURE_SERVER=YES)");
        return 0;
    }
    if (!config_has_key(c))
        log_warn("running WITHOUT an API key: everyone who reaches the TCP port may do everything");
    r = setup_listen_tcp(d->server, c, err);
    return r < 0 ? err_wrap(err, "server.host, server.port") : 0;
}

static void announce(struct daemon *d) {
    log_info("serving", LOG_STR("socket", d->socket_path),
             LOG_STR("tcp", wants_tcp(d) ? d->c->host : "off"), LOG_INT("port", d->c->port),
             LOG_STR("state", d->c->state_dir), LOG_STR("version", COVE_VERSION));
    notify_manager("READY=1");
    if (d->o->ready_fd >= 0) {
        _cleanup_free_ char *line = str_printf("unix:%s\n", d->socket_path);
        if (line)
            fd_write_full(d->o->ready_fd, line, strlen(line));
        fd_close(d->o->ready_fd);
    }
}

static int start_export(struct daemon *d, struct err *err) {
    const struct config *c = d->c;
    struct otlp_opts o = {.loop = &d->loop,
                          .endpoint = c->otel.endpoint,
                          .service_name = c->otel.service_name,
                          .interval_ms = (unsigned)c->otel.interval_ms};
    return otlp_new(&o, &d->otlp, err);
}

static int start(struct daemon *d, struct err *err) {
    int r;

    if ((r = watch_signals(d, err)) < 0 || (r = watch_life(d, err)) < 0)
        return r;
    if ((r = setup_directories(d->c, err)) < 0 || (r = open_state(d, err)) < 0 ||
        (r = open_server(d, err)) < 0)
        return r;
    if (d->c->otel.enabled && !d->o->is_private && (r = start_export(d, err)) < 0)
        return r;
    announce(d);
    return 0;
}

int daemon_run(struct config *c, const struct options *o, int start_lock, struct err *err) {
    struct daemon d = {.c = c, .o = o, .state_lock = -1};
    int r = uv_loop_init(&d.loop);

    if (r < 0) {
        fd_close(start_lock);
        return err_sys(err, r, "event loop");
    }
    uv_timer_init(&d.loop, &d.end);
    d.end.data = &d;
    setup_limits();
    r = start(&d, err);
    fd_close(start_lock);
    if (r < 0)
        dispose(&d);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&d.loop) < 0)
        log_debug("event loop still busy at the end");
    statedb_close(d.db);
    snapdb_close(d.snapshots);
    if (d.socket_path && r == 0)
        unlink(d.socket_path);
    free(d.socket_path);
    fd_close(d.state_lock);
    if (r == 0 && d.result < 0)
        r = err_set(err, d.result, "not everything could be removed");
    return r;
}
