/*
 * drv: a driver behind standard input and output, for the integration tests. Each line in is a JSON
 * command, each answer one JSON line. Commands with "seq" run on threads of their own and their
 * answers carry it; others run one after the other.
 *
 *   drv native STATE_DIR RUN_DIR [{"key": value} of the configuration]
 *   drv docker STATE_DIR [{"key": value} of the configuration]
 *
 *   {"op":"create","spec":{...}}   {"op":"remove|pause|resume|inspect","id":"x"}   {"op":"list"}
 *   {"op":"logs","id":"x","tail":10}   {"op":"recover","known":["x"]}   {"op":"capabilities"}
 *   {"op":"ensure_image","image":"host"}   {"op":"http","id":"x","port":44772,"request":"GET …"}
 *   {"op":"import","name":"local/x","path":"rootfs.tar"}   {"op":"quit"}   {"op":"rules"}
 *   {"op":"found"}   {"op":"describe|guard_token","id":"x"}   {"op":"note_expiry","id":"x","us":1}
 *   {"op":"address|published","id":"x","port":80}   {"op":"check","spec":{...}}
 *   {"op":"volume_open|volume_remove","name":"v","for":"x"}   {"op":"snapshot_create","id":"x",
 *   "snapshot":"s"}   {"op":"snapshot_exists|snapshot_remove","image":"i"}
 * Sandboxes live on when it ends. Exits of sandboxes come as {"event":"exit", …} lines.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/path.h"
#ifdef HAVE_DOCKER_DRIVER
#include "daemon/driver/docker/docker.h"
#endif
#include "daemon/driver/native/native.h"
#include "daemon/driver/native/netns.h"
#include "oci/store.h"

static struct driver *driver;
static const char *state_dir;
static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_done = PTHREAD_COND_INITIALIZER;
static int working; /* commands on threads of their own */

static void say(json_t *j) {
    char *text = json_dumps(j, JSON_COMPACT);
    pthread_mutex_lock(&out_lock);
    puts(text ? text : "{}");
    fflush(stdout);
    pthread_mutex_unlock(&out_lock);
    free(text);
    json_decref(j);
}

static json_t *info_json(const struct instance_info *i) {
    static const char *const states[] = {"running", "paused",  "exited",
                                         "gone",    "pending", "unknown"};
    return json_pack("{s:s, s:s, s:i, s:b, s:I, s:I}", "id", i->id, "state", states[i->state],
                     "exit_code", i->exit_code, "oom_killed", i->oom_killed, "started_us",
                     (json_int_t)i->started_us, "finished_us", (json_int_t)i->finished_us);
}

static void on_change_event(const struct instance_info *info, void *ud) {
    json_t *j = info_json(info);
    json_object_set_new(j, "event", json_string("exit"));
    say(j);
}

static int do_create(const json_t *q, json_t *a, struct err *err) {
    struct sandbox_spec spec;
    struct instance_info info;
    struct step_times steps = {.n = 0};
    int r = sandbox_spec_from_json(json_object_get(q, "spec"), &spec, err);

    if (r < 0)
        return r;
    int64_t t0 = clock_mono_us();
    r = driver->ops->create(driver, &spec, &info, &steps, err);
    json_object_set_new(a, "us", json_integer(clock_mono_us() - t0));
    if (r == 0) {
        json_t *s = json_object();
        for (size_t i = 0; i < steps.n; i++)
            json_object_set_new(s, steps.t[i].name, json_integer(steps.t[i].us));
        json_object_set_new(a, "steps", s);
        json_object_set_new(a, "info", info_json(&info));
    }
    sandbox_spec_done(&spec);
    return r;
}

static int do_list(json_t *a, struct err *err) {
    struct instance_info *v;
    size_t n;
    int r = driver->ops->list(driver, &v, &n, err);

    if (r < 0)
        return r;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, info_json(&v[i]));
    free(v);
    json_object_set_new(a, "list", list);
    return 0;
}

static int do_logs(const json_t *q, json_t *a, struct err *err) {
    char *text;
    int r = driver->ops->logs(driver, json_str(q, "id"), (unsigned)json_int(q, "tail", 100),
                              json_bool(q, "timestamps", false), json_int(q, "since_us", 0), &text,
                              err);

    if (r < 0)
        return r;
    json_object_set_new(a, "text", json_string(text));
    free(text);
    return 0;
}

static int connect_to(const struct sock_addr *at) {
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct timeval limit = {.tv_sec = 30};
    struct addrinfo *ai;
    char port[8];

    snprintf(port, sizeof port, "%u", at->port);
    if (getaddrinfo(at->host, port, &hints, &ai) != 0)
        return -EHOSTUNREACH;
    int s =
        at->netns_fd > 0 ? netns_tcp(at->netns_fd) : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int r = s < 0 ? -errno : connect(s, ai->ai_addr, ai->ai_addrlen) < 0 ? -errno : 0;
    freeaddrinfo(ai);
    if (r < 0) {
        fd_close(s);
        return r;
    }
    return s;
}

/* The request with the target's prefix before its path. */
static char *with_prefix(const char *request, const char *prefix) {
    const char *path = strchr(request, ' ');
    return prefix && path
               ? str_printf("%.*s %s%s", (int)(path - request), request, prefix, path + 1)
               : strdup(request);
}

/* Sends the request; the answer is everything until the peer closes. */
static int do_http(const json_t *q, json_t *a, struct err *err) {
    _cleanup_free_ char *request = NULL;
    _cleanup_buf_ struct buf in = BUF_INIT((size_t)16 << 20);
    struct target at;
    char chunk[16384];
    ssize_t n;
    int r = driver->ops->address(driver, json_str(q, "id"),
                                 (uint16_t)json_int(q, "port", AGENT_PORT), &at);

    if (r < 0)
        return err_sys(err, r, "address");
    _cleanup_close_ int s = connect_to(&at.addr);
    if (s < 0)
        return err_sys(err, s, "connect");
    request = with_prefix(json_str(q, "request"), at.path_prefix);
    r = fd_write_full(s, request, strlen(request));
    while (r == 0 && (n = read(s, chunk, sizeof chunk)) > 0)
        r = buf_append(&in, chunk, (size_t)n);
    if (r < 0)
        return err_sys(err, r, "exchange");
    json_object_set_new(a, "answer", json_string_nocheck(in.data ? in.data : ""));
    return 0;
}

/* ---- what only some drivers have ---- */

static int not_here(struct err *err) {
    return err_set(err, -EOPNOTSUPP, "not by this driver");
}

static int do_address(const json_t *q, json_t *a, struct err *err) {
    struct target at;
    int r = driver->ops->address(driver, json_str(q, "id"), (uint16_t)json_int(q, "port", 0), &at);

    if (r < 0)
        return err_sys(err, r, "address");
    json_object_set_new(a, "host", json_string(at.addr.host));
    json_object_set_new(a, "port", json_integer(at.addr.port));
    if (at.path_prefix)
        json_object_set_new(a, "prefix", json_string(at.path_prefix));
    return 0;
}

static int do_published(const json_t *q, json_t *a, struct err *err) {
    struct published p;

    if (!driver->ops->published)
        return not_here(err);
    int r = driver->ops->published(driver, json_str(q, "id"), (uint16_t)json_int(q, "port", 0), &p,
                                   err);
    if (r == 0) {
        json_object_set_new(a, "host_port", json_integer(p.host_port));
        json_object_set_new(a, "via_agent", json_boolean(p.via_agent));
    }
    return r;
}

static int do_describe(const json_t *q, json_t *a, struct err *err) {
    json_t *j;

    if (!driver->ops->describe)
        return not_here(err);
    int r = driver->ops->describe(driver, json_str(q, "id"), &j, err);
    if (r == 0)
        json_object_set_new(a, "details", j);
    return r;
}

static int do_guard_token(const json_t *q, json_t *a, struct err *err) {
    if (!driver->ops->guard_token)
        return not_here(err);
    _cleanup_free_ char *token = driver->ops->guard_token(driver, json_str(q, "id"));
    json_object_set_new(a, "token", token ? json_string(token) : json_null());
    return 0;
}

static int do_volume(const json_t *q, json_t *a, struct err *err) {
    struct volume_info v = {0};
    int r;

    if (!driver->rules.named_volumes)
        return not_here(err);
    if (str_eq(json_str(q, "op"), "volume_remove"))
        return driver->ops->volume_remove(driver, json_str(q, "name"), json_str(q, "for"), err);
    r = driver->ops->volume_open(driver, json_str(q, "name"), json_str(q, "for"), &v, err);
    if (r < 0)
        return r;
    json_object_set_new(a, "driver", json_string(v.driver));
    json_object_set_new(a, "mountpoint", v.mountpoint ? json_string(v.mountpoint) : json_null());
    json_object_set_new(a, "created", json_boolean(v.created));
    free(v.mountpoint);
    return 0;
}

static int do_snapshot(const json_t *q, json_t *a, struct err *err) {
    const char *op = json_str(q, "op"), *image = json_str(q, "image");
    char *made;

    if (!driver->rules.snapshots)
        return not_here(err);
    if (str_eq(op, "snapshot_exists"))
        return driver->ops->snapshot_exists(driver, image, err);
    if (str_eq(op, "snapshot_remove"))
        return driver->ops->snapshot_remove(driver, image, err);
    int r = driver->ops->snapshot_create(driver, json_str(q, "id"), json_str(q, "snapshot"), &made,
                                         err);
    if (r == 0) {
        json_object_set_new(a, "image", json_string(made));
        free(made);
    }
    return r;
}

static int on_found(struct found_sandbox *f, void *ud) {
    json_t *one = json_pack("{s:o, s:I, s:I}", "spec", sandbox_spec_to_json(&f->spec), "created_us",
                            (json_int_t)f->created_us, "expires_us", (json_int_t)f->expires_us);
    if (f->metadata)
        json_object_set(one, "metadata", f->metadata);
    if (f->platform)
        json_object_set(one, "platform", f->platform);
    return json_array_append_new(ud, one);
}

static int do_found(json_t *a, struct err *err) {
    json_t *list = json_array();

    json_object_set_new(a, "found", list);
    return driver->ops->found ? driver->ops->found(driver, on_found, list, err) : 0;
}

/* Everything that a create asks first, in its order. */
static int do_check(const json_t *q, struct err *err) {
    struct sandbox_spec spec;
    const struct driver_ops *o = driver->ops;
    int r = sandbox_spec_from_json(json_object_get(q, "spec"), &spec, err);

    if (r < 0)
        return r;
    if (o->check_policy)
        r = o->check_policy(driver, &spec, err);
    if (r == 0 && o->check_network)
        r = o->check_network(driver, err);
    if (r == 0)
        r = o->ensure_image(driver, &spec, err);
    if (r == 0 && o->check_late)
        r = o->check_late(driver, &spec, err);
    sandbox_spec_done(&spec);
    return r;
}

static json_t *rules_json(void) {
    const struct driver_rules *r = &driver->rules;
    return json_pack("{s:s,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b,s:b}", "provider",
                     r->provider, "named_volumes", r->named_volumes, "oss_volumes", r->oss_volumes,
                     "gpu", r->gpu, "windows", r->windows, "any_arch", r->any_arch, "snapshots",
                     r->snapshots, "image_auth", r->image_auth, "isolation", r->isolation,
                     "disk_limit", r->disk_limit, "net_choice", r->net_choice, "cwd_choice",
                     r->cwd_choice, "no_entrypoint", r->no_entrypoint, "ignores_limits",
                     r->ignores_limits);
}

static int dispatch_more(const json_t *q, json_t *a, struct err *err) {
    const char *op = json_str(q, "op"), *id = json_str(q, "id");

    if (str_eq(op, "rules"))
        return json_object_set_new(a, "rules", rules_json());
    if (str_eq(op, "check"))
        return do_check(q, err);
    if (str_eq(op, "address"))
        return do_address(q, a, err);
    if (str_eq(op, "published"))
        return do_published(q, a, err);
    if (str_eq(op, "describe"))
        return do_describe(q, a, err);
    if (str_eq(op, "guard_token"))
        return do_guard_token(q, a, err);
    if (str_starts(op, "volume_"))
        return do_volume(q, a, err);
    if (str_starts(op, "snapshot_"))
        return do_snapshot(q, a, err);
    if (str_eq(op, "found"))
        return do_found(a, err);
    if (str_eq(op, "note_expiry")) {
        if (!driver->ops->note_expiry)
            return not_here(err);
        driver->ops->note_expiry(driver, id, json_int(q, "us", 0));
        return 0;
    }
    return err_set(err, -EINVAL, "unknown command");
}

static int do_recover(const json_t *q, struct err *err) {
    static const char *known[4096], *undone[4096];
    json_t *v;
    size_t i;

    memset(known, 0, sizeof known);
    memset(undone, 0, sizeof undone);
    json_array_foreach(json_object_get(q, "known"), i, v) if (i + 1 < ARRAY_SIZE(known)) known[i] =
        json_string_value(v);
    json_array_foreach(json_object_get(q, "undone"), i, v) if (i + 1 < ARRAY_SIZE(undone))
        undone[i] = json_string_value(v);
    return driver->ops->recover(driver, known, undone, err);
}

static int do_import(const json_t *q, struct err *err) {
    struct store_import_opts o = STORE_IMPORT_OPTS_INIT;
    _cleanup_free_ char *dir = path_join(state_dir, "store");
    _cleanup_close_ int fd = open(json_str(q, "path"), O_RDONLY | O_CLOEXEC);
    struct store *s;
    int r;

    if (fd < 0)
        return err_sys(err, -errno, "open");
    r = store_open(dir, NULL, &s, err);
    if (r < 0)
        return r;
    o.reference = json_str(q, "name");
    r = store_import(s, fd, &o, NULL, err);
    store_free(s);
    return r;
}

static int dispatch(const json_t *q, json_t *a, struct err *err) {
    const char *op = json_str(q, "op"), *id = json_str(q, "id");
    struct instance_info info;
    int r;

    if (str_eq(op, "create"))
        return do_create(q, a, err);
    if (str_eq(op, "list"))
        return do_list(a, err);
    if (str_eq(op, "logs"))
        return do_logs(q, a, err);
    if (str_eq(op, "http"))
        return do_http(q, a, err);
    if (str_eq(op, "recover"))
        return do_recover(q, err);
    if (str_eq(op, "import"))
        return do_import(q, err);
    if (str_eq(op, "ensure_image")) {
        struct sandbox_spec spec = {.image = strdup(json_str(q, "image"))};
        r = driver->ops->ensure_image(driver, &spec, err);
        sandbox_spec_done(&spec);
        return r;
    }
    if (str_eq(op, "capabilities"))
        return json_object_set_new(a, "capabilities", driver->ops->capabilities(driver));
    if (str_eq(op, "remove")) {
        int64_t t0 = clock_mono_us();
        r = driver->ops->remove(driver, id, err);
        json_object_set_new(a, "us", json_integer(clock_mono_us() - t0));
        return r;
    }
    if (str_eq(op, "pause"))
        return driver->ops->pause(driver, id, err);
    if (str_eq(op, "resume"))
        return driver->ops->resume(driver, id, err);
    if (str_eq(op, "inspect")) {
        r = driver->ops->inspect(driver, id, &info, err);
        if (r == 0)
            json_object_set_new(a, "info", info_json(&info));
        return r;
    }
    return dispatch_more(q, a, err);
}

static void *run_command(void *arg) {
    _cleanup_json_ json_t *q = arg;
    struct err err = {0};
    json_t *a = json_object(), *seq = json_object_get(q, "seq");
    int r = dispatch(q, a, &err);

    json_object_set_new(a, "code", json_integer(r));
    if (r < 0)
        json_object_set_new(a, "error", json_string(err_text(&err)));
    if (seq)
        json_object_set(a, "seq", seq);
    say(a);
    return NULL;
}

static void add_working(int n) {
    pthread_mutex_lock(&work_lock);
    working += n;
    pthread_cond_signal(&work_done);
    pthread_mutex_unlock(&work_lock);
}

static void *run_threaded(void *arg) {
    run_command(arg);
    add_working(-1);
    return NULL;
}

static int open_native(char **argv, json_t *extra, struct err *err) {
    const struct driver_events events = {.on_change = on_change_event};
    struct native_config c;

    native_config_init(&c);
    c.state_dir = argv[2];
    c.run_dir = argv[3];
    c.userns = json_bool(extra, "userns", true);
    c.runtime = json_str(extra, "runtime");
    c.subnet = json_str(extra, "subnet");
    c.lease_dir = json_str(extra, "lease_dir");
    c.libexec_dir = json_str(extra, "libexec_dir");
    c.netns_pool = (unsigned)json_int(extra, "netns_pool", c.netns_pool);
    c.parked_pool = (unsigned)json_int(extra, "parked_pool", c.parked_pool);
    c.warm_image = json_str(extra, "warm_image");
    c.warm_pool = (unsigned)json_int(extra, "warm_pool", 0);
    c.start_timeout_ms = (unsigned)json_int(extra, "start_timeout_ms", 0);
    return native_driver_new(&c, &events, &driver, err);
}

#ifdef HAVE_DOCKER_DRIVER
static int open_docker(char **argv, json_t *extra, struct err *err) {
    static const char *const drop[] = {"AUDIT_WRITE",    "MKNOD",      "NET_ADMIN",  "NET_RAW",
                                       "SYS_ADMIN",      "SYS_MODULE", "SYS_PTRACE", "SYS_TIME",
                                       "SYS_TTY_CONFIG", NULL};
    struct docker_config c = {
        .state_dir = argv[2],
        .libexec_dir = json_str(extra, "libexec_dir"),
        .engine_host = json_str(extra, "engine_host"),
        .api_timeout_s = (unsigned)json_int(extra, "api_timeout_s", 0),
        .execd_image = json_str(extra, "execd_image"),
        .run_as_init = json_bool(extra, "run_as_init", false),
        .access_token_checked = json_bool(extra, "access_token", true),
        .network_mode = json_str(extra, "network_mode") ?: "bridge",
        .host_ip = json_str(extra, "host_ip"),
        .server_host = json_str(extra, "server_host") ?: "127.0.0.1",
        .drop_capabilities = drop,
        .no_new_privileges = true,
        .pids_limit = json_int(extra, "pids_limit", 4096),
        .port_min = (unsigned)json_int(extra, "port_min", 40000),
        .port_max = (unsigned)json_int(extra, "port_max", 60000),
        .publish_host = json_str(extra, "publish_host") ?: "127.0.0.1",
        .sandbox_env = json_object_get(extra, "sandbox_env"),
        .resolve_internal = json_bool(extra, "resolve_internal", true),
        .allow_isolation = json_bool(extra, "allow_isolation", false),
        .runtime = json_str(extra, "runtime"),
        .egress_image = json_str(extra, "egress_image"),
        .egress_mode = json_str(extra, "egress_mode"),
        .disable_ipv6 = json_bool(extra, "disable_ipv6", true),
        .readiness_timeout_s = (double)json_int(extra, "readiness_timeout_s", 30),
        .legacy_metadata_dir = json_str(extra, "legacy_metadata_dir"),
        .start_timeout_ms = (unsigned)json_int(extra, "start_timeout_ms", 0),
    };
    int r = docker_driver_new(&c, &driver, err);

    if (r == 0)
        driver->events = (struct driver_events){.on_change = on_change_event};
    return r;
}
#endif

static int open_driver(int argc, char **argv, struct err *err) {
    bool is_native = str_eq(argv[1], "native");
    int at = is_native ? 4 : 3;
    _cleanup_json_ json_t *extra =
        argc > at ? json_parse(argv[at], strlen(argv[at]), err) : json_object();

    if (!extra)
        return -EINVAL;
    state_dir = argv[2];
    if (is_native && argc >= 4)
        return open_native(argv, extra, err);
#ifdef HAVE_DOCKER_DRIVER
    if (str_eq(argv[1], "docker"))
        return open_docker(argv, extra, err);
#endif
    return err_set(err, -EOPNOTSUPP, "no driver '%s' in this build", argv[1]);
}

int main(int argc, char **argv) {
    struct err err = {0};
    char *line = NULL;
    size_t size = 0;

    if (argc < 3)
        return 2;
    struct rlimit files; /* like coved: as many descriptors as there may be */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int r = open_driver(argc, argv, &err);
    say(json_pack("{s:i, s:s}", "code", r, "error", r < 0 ? err_text(&err) : ""));
    if (r < 0)
        return 1;
    while (getline(&line, &size, stdin) > 0) {
        json_t *q = json_parse(line, strlen(line), &err);
        if (str_eq(json_str(q, "op"), "quit")) {
            json_decref(q);
            break;
        }
        pthread_t t;
        if (!json_object_get(q, "seq")) {
            run_command(q);
            continue;
        }
        add_working(1);
        if (pthread_create(&t, NULL, run_threaded, q) == 0)
            pthread_detach(t);
        else
            run_threaded(q);
    }
    free(line);
    pthread_mutex_lock(&work_lock);
    while (working > 0)
        pthread_cond_wait(&work_done, &work_lock);
    pthread_mutex_unlock(&work_lock);
    driver->ops->free(driver);
    return 0;
}
