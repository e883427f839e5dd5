/*
 * drv: a driver behind standard input and output, for the integration tests. Each line in is a JSON
 * command, each answer one JSON line. Commands with "seq" run on threads of their own and their
 * answers carry it; others run one after the other.
 *
 *   drv native STATE_DIR RUN_DIR [{"key": value} of the configuration]
 *
 *   {"op":"create","spec":{...}}   {"op":"remove|pause|resume|inspect","id":"x"}   {"op":"list"}
 *   {"op":"logs","id":"x","tail":10}   {"op":"recover","known":["x"]}   {"op":"capabilities"}
 *   {"op":"ensure_image","image":"host"}   {"op":"http","id":"x","port":44772,"request":"GET …"}
 *   {"op":"import","name":"local/x","path":"rootfs.tar"}   {"op":"quit"}
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
    static const char *const states[] = {"running", "paused", "exited", "gone"};
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
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(at->port)};
    struct timeval limit = {.tv_sec = 30};
    int s =
        at->netns_fd > 0 ? netns_tcp(at->netns_fd) : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (s >= 0 && connect(s, (struct sockaddr *)&a, sizeof a) < 0) {
        int r = -errno;
        fd_close(s);
        return r;
    }
    return s;
}

/* Sends the request as it is; the answer is everything until the peer closes. */
static int do_http(const json_t *q, json_t *a, struct err *err) {
    const char *request = json_str(q, "request");
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
    r = fd_write_full(s, request, strlen(request));
    while (r == 0 && (n = read(s, chunk, sizeof chunk)) > 0)
        r = buf_append(&in, chunk, (size_t)n);
    if (r < 0)
        return err_sys(err, r, "exchange");
    json_object_set_new(a, "answer", json_string_nocheck(in.data ? in.data : ""));
    return 0;
}

static int do_recover(const json_t *q, struct err *err) {
    static const char *known[4096], *undone[4096];
    json_t *v;
    size_t i;

    memset(known, 0, sizeof known);
    memset(undone, 0, sizeof undone);
    json_array_foreach(json_object_get(q, "known"), i, v) if (i + 1 < ARRAY_SIZE(known)) known[i] =
        json_string_value(v);
    json_array_foreach(json_object_get(q, "undone"), i,
                       v) if (i + 1 < ARRAY_SIZE(undone)) undone[i] = json_string_value(v);
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
    return err_set(err, -EINVAL, "unknown command");
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

static struct native_config parse_config(char **argv, json_t *extra) {
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
    return c;
}

int main(int argc, char **argv) {
    const struct driver_events events = {.on_change = on_change_event};
    _cleanup_json_ json_t *extra = NULL;
    struct err err = {0};
    char *line = NULL;
    size_t size = 0;

    if (argc < 4 || !str_eq(argv[1], "native"))
        return 2;
    struct rlimit files; /* like coved: as many descriptors as there may be */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    extra = argc > 4 ? json_parse(argv[4], strlen(argv[4]), &err) : json_object();
    struct native_config c = parse_config(argv, extra);
    state_dir = argv[2];
    int r = native_driver_new(&c, &events, &driver, &err);
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
