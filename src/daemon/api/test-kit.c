/* The API over the test driver, and a client (see test-kit.h). */
#include "daemon/api/test-kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"

static char dir[64], file[80], sock_path[80];
uv_loop_t loop;
struct driver *drv;
static struct statedb *db;
struct service *svc;
struct api *api;
struct h1_server *server;
uint16_t port;
bool renews_by_use;
static const char *const allowed[] = {"/tmp", NULL};

void set_up(void) {
    set_up_with(&(struct api_opts){0});
}

void set_up_with(const struct api_opts *more) {
    struct err err = {0};

    log_setup(LOG_ERROR, false, "test");
    str_copy(dir, sizeof dir, "/tmp/cove-test-api-XXXXXX");
    ASSERT(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/state.db", dir);
    snprintf(sock_path, sizeof sock_path, "%s/api.sock", dir);
    uv_loop_init(&loop);
    drv = fake_new();
    ASSERT_OK(statedb_open(file, &db, NULL));
    struct service_opts so = {
        .loop = &loop,
        .driver = drv,
        .store = db,
        .max_workers = 8,
        .max_timeout_s = 3600,
        .renew = {.enabled = renews_by_use, .min_interval_s = 60},
        .allowed_host_paths = allowed,
    };
    if (service_open(&so, &svc, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    struct api_opts ao = {.loop = &loop,
                          .service = svc,
                          .api_key = "secret-key",
                          .host = "127.0.0.1",
                          .port = 8080,
                          .max_body = 4096};
    if (more->eip)
        ao.eip = more->eip;
    if (more->host)
        ao.host = more->host;
    ao.proxy_address = more->proxy_address;
    ao.server_host = more->server_host;
    ao.host_ip = more->host_ip;
    ao.trusted_proxies = more->trusted_proxies;
    if (more->max_body)
        ao.max_body = more->max_body;
    ASSERT_OK(api_new(&ao, &api));
    struct h1_server_opts ho = {.on_request = api_on_request, .on_done = api_on_done, .ud = api};
    ASSERT_OK(h1_server_new(&loop, &ho, &server));
    ASSERT_OK(h1_server_listen_tcp(server, "127.0.0.1", 0, 16, &port, &err));
    ASSERT_OK(h1_server_listen_unix(server, sock_path, 0600, &err));
}

void tear_down(void) {
    h1_server_free(server);
    service_close(svc);
    api_free(api);
    uv_run(&loop, UV_RUN_DEFAULT);
    ASSERT_INT(uv_loop_close(&loop), 0);
    statedb_close(db);
    fake_destroy(drv);
    uv_library_shutdown();
    path_remove_tree_at(AT_FDCWD, dir);
}

/* ---- a client ---- */

static void on_response(struct h1_call *c, int status, const struct h1_header *h, size_t n,
                        int64_t length, void *ud) {
    struct reply *r = ud;
    r->status = status;
    for (size_t i = 0; i < n; i++)
        buf_printf(&r->headers, "%s: %s\n", h[i].name, h[i].value);
}

static void on_data(struct h1_call *c, const char *data, size_t len, void *ud) {
    struct reply *r = ud;
    buf_append(&r->body, data, len);
}

static void on_end(struct h1_call *c, int error, const struct err *err, void *ud) {
    struct reply *r = ud;
    r->error = error;
    r->done = true;
}

static const struct h1_call_ops client_ops = {
    .on_response = on_response, .on_data = on_data, .on_end = on_end};

struct reply last;

void reply_clear(void) {
    buf_done(&last.headers);
    buf_done(&last.body);
    last = (struct reply){0};
}

/* Starts a request; `last` gets the answer. headers: pairs ended by NULL. */
static struct h1_call *start(struct h1_call_opts *o) {
    struct h1_call *c;

    reply_clear();
    ASSERT_OK(h1_call(&loop, o, &client_ops, &last, &c));
    return c;
}

struct h1_call *begin(const char *method, const char *target, const char *body,
                      const struct h1_header *headers, bool unix_side) {
    struct h1_call_opts o = {
        .addr = {.host = "127.0.0.1", .port = port},
        .method = method,
        .target = target,
        .headers = headers,
        .body = body,
        .body_length = body ? (int64_t)strlen(body) : 0,
    };
    if (unix_side)
        o.addr = (struct sock_addr){.unix_path = sock_path};
    return start(&o);
}

struct h1_call *begin_sized(const char *method, const char *target, int64_t size,
                            const struct h1_header *headers) {
    return start(&(struct h1_call_opts){.addr = {.host = "127.0.0.1", .port = port},
                                        .method = method,
                                        .target = target,
                                        .headers = headers,
                                        .body_length = size});
}

void wait_reply(void) {
    while (!last.done)
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT_INT(last.error, 0);
}

const struct h1_header with_key[] = {{"OPEN-SANDBOX-API-KEY", "secret-key"}, {NULL, NULL}};

int ask_with(const char *method, const char *target, const char *body,
             const struct h1_header *headers) {
    begin(method, target, body, headers, false);
    wait_reply();
    return last.status;
}

int ask(const char *method, const char *target, const char *body) {
    return ask_with(method, target, body, with_key);
}

const char *text(void) {
    return last.body.data ? last.body.data : "";
}

bool has_header(const char *line) {
    _cleanup_free_ char *want = str_printf("%s\n", line);
    return last.headers.data && strcasestr(last.headers.data, want);
}

json_t *json(void) {
    json_t *j = json_parse(text(), strlen(text()), NULL);
    if (!j)
        test_fail(__FILE__, __LINE__, "no JSON: %s", text());
    return j;
}

const char *create(const char *body) {
    static char id[64];
    EXPECT(ask("POST", "/v1/sandboxes", body), 202, "\"id\"");
    _cleanup_json_ json_t *j = json();
    str_copy(id, sizeof id, json_str(j, "id"));
    return id;
}

const char *url(const char *fmt, const char *id) {
    static char out[4][256];
    static int at;
    at = (at + 1) % 4;
    const char *hole = strchr(fmt, '@');
    snprintf(out[at], sizeof out[at], "%.*s%s%s", (int)(hole - fmt), fmt, id, hole + 1);
    return out[at];
}
