/* Conversations with the lifecycle API over the test driver: statuses, codes, headers, bodies. */
#include "daemon/api/api.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"
#include "base/test.h"
#include "daemon/driver/fake/fake.h"
#include "net/h1_client.h"

static char dir[64], file[80], sock_path[80];
static uv_loop_t loop;
static struct driver *drv;
static struct statedb *db;
static struct service *svc;
static struct api *api;
static struct h1_server *server;
static uint16_t port;
static const char *const allowed[] = {"/tmp", NULL};

static void set_up(void) {
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
    ASSERT_OK(api_new(&ao, &api));
    struct h1_server_opts ho = {.on_request = api_on_request, .on_done = api_on_done, .ud = api};
    ASSERT_OK(h1_server_new(&loop, &ho, &server));
    ASSERT_OK(h1_server_listen_tcp(server, "127.0.0.1", 0, 16, &port, &err));
    ASSERT_OK(h1_server_listen_unix(server, sock_path, 0600, &err));
}

static void tear_down(void) {
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

struct reply {
    int status, error;
    bool done;
    struct buf headers, body;
};

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

static struct reply last;

static void reply_clear(void) {
    buf_done(&last.headers);
    buf_done(&last.body);
    last = (struct reply){0};
}

/* Starts a request; `last` gets the answer. headers: pairs ended by NULL. */
static struct h1_call *begin(const char *method, const char *target, const char *body,
                             const struct h1_header *headers, bool unix_side) {
    struct h1_call *c;
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
    reply_clear();
    ASSERT_OK(h1_call(&loop, &o, &client_ops, &last, &c));
    return c;
}

static void wait_reply(void) {
    while (!last.done)
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT_INT(last.error, 0);
}

static const struct h1_header with_key[] = {{"OPEN-SANDBOX-API-KEY", "secret-key"}, {NULL, NULL}};

static int ask_with(const char *method, const char *target, const char *body,
                    const struct h1_header *headers) {
    begin(method, target, body, headers, false);
    wait_reply();
    return last.status;
}

static int ask(const char *method, const char *target, const char *body) {
    return ask_with(method, target, body, with_key);
}

static const char *text(void) {
    return last.body.data ? last.body.data : "";
}

static bool has_header(const char *line) {
    _cleanup_free_ char *want = str_printf("%s\n", line);
    return last.headers.data && strcasestr(last.headers.data, want);
}

static json_t *json(void) {
    json_t *j = json_parse(text(), strlen(text()), NULL);
    if (!j)
        test_fail(__FILE__, __LINE__, "no JSON: %s", text());
    return j;
}

#define EXPECT(call, want_status, want_text)                                                \
    do {                                                                                    \
        int got_ = (call);                                                                  \
        if (got_ != (want_status) || !strstr(text(), want_text))                            \
            test_fail(__FILE__, __LINE__, "%s: %d %s, expected %d %s", #call, got_, text(), \
                      want_status, want_text);                                              \
    } while (0)

#define GOOD "\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\"],\"resourceLimits\":{\"cpu\":\"1\"}"
#define IMAGE "\"image\":{\"uri\":\"host\"}"

static const char *create(const char *body) {
    static char id[64];
    EXPECT(ask("POST", "/v1/sandboxes", body), 202, "\"id\"");
    _cleanup_json_ json_t *j = json();
    str_copy(id, sizeof id, json_str(j, "id"));
    return id;
}

static const char *url(const char *fmt, const char *id) {
    static char out[4][256];
    static int at;
    at = (at + 1) % 4;
    const char *hole = strchr(fmt, '@');
    snprintf(out[at], sizeof out[at], "%.*s%s%s", (int)(hole - fmt), fmt, id, hole + 1);
    return out[at];
}

/* ---- tests ---- */

TEST(a_life_over_the_api) {
    set_up();
    const char *id = create("{" IMAGE "," GOOD ",\"timeout\":600,\"metadata\":{\"a\":\"b\"},"
                            "\"extensions\":{\"opensandbox.extensions.x\":\"y\",\"other\":\"z\"}}");
    {
        _cleanup_json_ json_t *j = json();
        ASSERT_STR(json_str(json_object_get(j, "status"), "state"), "Running");
        ASSERT_STR(json_str(json_object_get(j, "metadata"), "a"), "b");
        ASSERT_INT(json_object_size(json_object_get(j, "extensions")), 1);
        ASSERT(json_str(j, "expiresAt") && json_str(j, "createdAt"));
        ASSERT(!json_object_get(j, "image"));
        ASSERT(has_header("Content-Type: application/json"));
        ASSERT(strcasestr(last.headers.data, "Server-Timing: intent;dur="));
    }
    EXPECT(ask("GET", url("/sandboxes/@", id), NULL), 200, "\"image\":{\"uri\":\"host\"}");
    ASSERT(!strstr(text(), "null,") && !strstr(text(), ":null"));
    EXPECT(ask("GET", "/v1/sandboxes?state=running&metadata=a%3Db", NULL), 200, "\"totalItems\":1");
    EXPECT(ask("PATCH", url("/v1/sandboxes/@/metadata", id), "{\"a\":null,\"c\":\"d\"}"), 200,
           "\"metadata\":{\"c\":\"d\"}");
    EXPECT(ask("POST", url("/v1/sandboxes/@/pause", id), NULL), 202, "");
    ASSERT_INT(last.body.len, 0);
    ASSERT(has_header("Content-Length: 0"));
    EXPECT(ask("POST", url("/v1/sandboxes/@/pause", id), NULL), 409, "DOCKER::SANDBOX_NOT_RUNNING");
    EXPECT(ask("GET", url("/v1/sandboxes/@", id), NULL), 200, "\"state\":\"Paused\"");
    EXPECT(ask("POST", url("/v1/sandboxes/@/resume", id), NULL), 202, "");
    EXPECT(ask("POST", url("/v1/sandboxes/@/resume", id), NULL), 409, "DOCKER::SANDBOX_NOT_PAUSED");
    EXPECT(ask("POST", url("/v1/sandboxes/@/renew-expiration", id),
               "{\"expiresAt\":\"2199-01-01T02:00:00.5+02:00\"}"),
           200, "{\"expiresAt\":\"2199-01-01T00:00:00.500000Z\"}");
    EXPECT(ask("POST", url("/v1/sandboxes/@/renew-expiration", id),
               "{\"expires_at\":\"2001-01-01T00:00:00Z\"}"),
           400, "DOCKER::INVALID_EXPIRATION");
    EXPECT(ask("DELETE", url("/v1/sandboxes/@", id), NULL), 204, "");
    ASSERT_INT(last.body.len, 0);
    EXPECT(ask("DELETE", url("/v1/sandboxes/@", id), NULL), 404, "DOCKER::SANDBOX_NOT_FOUND");
    EXPECT(ask("GET", url("/v1/sandboxes/@", id), NULL), 404, "DOCKER::SANDBOX_NOT_FOUND");
    reply_clear();
    tear_down();
}

TEST(bad_creates) {
    static const struct {
        const char *body;
        int status;
        const char *want;
    } cases[] = {
        {"", 422, "\"type\":\"missing\",\"loc\":[\"body\"]"},
        {"{", 422, "\"type\":\"json_invalid\""},
        {"{\"a\" 1}", 422, "\"message\":\"body.0: JSON decode error: ':' expected near '1'"},
        {"[]", 422, "\"type\":\"model_attributes_type\""},
        {"{\"a\":1,\"a\":2}", 422, "json_invalid"},
        {"{" IMAGE "," GOOD ",\"timeout\":59}", 422,
         "\"type\":\"greater_than_equal\",\"loc\":[\"body\",\"timeout\"]"},
        {"{" IMAGE "," GOOD ",\"timeout\":120.5}", 422, "int_from_float"},
        {"{" IMAGE "," GOOD ",\"timeout\":\"x\"}", 422, "int_parsing"},
        {"{" IMAGE "," GOOD ",\"env\":{\"A\":1}}", 422,
         "\"type\":\"string_type\",\"loc\":[\"body\",\"env\",\"A\"]"},
        {"{" IMAGE "," GOOD ",\"metadata\":{\"A\":null}}", 422,
         "\"loc\":[\"body\",\"metadata\",\"A\"]"},
        {"{" IMAGE "," GOOD ",\"secureAccess\":\"maybe\"}", 422, "bool_parsing"},
        {"{\"image\":{}," GOOD "}", 422,
         "\"loc\":[\"body\",\"image\",\"uri\"],\"msg\":\"Field required\""},
        {"{\"image\":{\"uri\":\"x\",\"auth\":{\"username\":\"u\"}}," GOOD "}", 422,
         "\"auth\",\"password\""},
        {"{\"image\":{\"uri\":\" \"}," GOOD "}", 422,
         "Value error, Exactly one of image or snapshotId"},
        {"{" IMAGE "," GOOD ",\"snapshotId\":\"s\"}", 422,
         "\"type\":\"value_error\",\"loc\":[\"body\"]"},
        {"{" IMAGE ",\"resourceLimits\":{}}", 422, "entrypoint is required"},
        {"{" IMAGE ",\"entrypoint\":[],\"resourceLimits\":{}}", 422, "\"type\":\"too_short\""},
        {"{" IMAGE ",\"entrypoint\":[\"a\"]}", 422, "resourceLimits is required"},
        {"{" IMAGE "," GOOD ",\"env\":{\"OPENSANDBOX_LIFECYCLE\":\"x\"}}", 422, "reserved"},
        {"{" IMAGE "," GOOD ",\"credentialProxy\":{\"enabled\":true}}", 422,
         "requires networkPolicy"},
        {"{" IMAGE "," GOOD ",\"lifecycle\":{\"bogus\":1}}", 422, "\"type\":\"extra_forbidden\""},
        {"{" IMAGE "," GOOD ",\"lifecycle\":{\"preStart\":{\"command\":[\" \"]}}}", 422,
         "must not be blank"},
        {"{" IMAGE "," GOOD ",\"volumes\":[{\"name\":\"A\",\"mountPath\":\"x\"}]}", 422,
         "string_pattern_mismatch"},
        {"{\"templateId\":\"t\"," IMAGE ",\"env\":{}}", 422,
         "templateId cannot be combined with: env, image"},
        {"{\"templateId\":\"t\"}", 422, "timeout is required"},
        {"{\"templateId\":\"t\",\"timeout\":60}", 501, "FSB::API_NOT_SUPPORTED"},
        {"{\"snapshotId\":\"s\",\"resourceLimits\":{}}", 501, "SNAPSHOT::NOT_IMPLEMENTED"},
        {"{" IMAGE "," GOOD ",\"extensions\":{\"access.renew.extend.seconds\":\"1\"}}", 400,
         "300 to 86400"},
        {"{" IMAGE "," GOOD ",\"lifecycle\":{}}", 400, "lifecycle hooks are not supported"},
        {"{\"extensions\":{\"poolRef\":\"p\"},\"entrypoint\":[\"a\"]}", 400,
         "SANDBOX::UNSUPPORTED_POOL_REF"},
        {"{" IMAGE "," GOOD ",\"metadata\":{\"a b\":\"c\"}}", 400,
         "SANDBOX::INVALID_METADATA_LABEL"},
        {"{" IMAGE "," GOOD ",\"metadata\":{\"opensandbox.io/x\":\"c\"}}", 400,
         "SANDBOX::INVALID_METADATA_LABEL"},
        {"{" IMAGE "," GOOD ",\"platform\":{\"os\":\"darwin\",\"arch\":\"amd64\"}}", 400,
         "SANDBOX::INVALID_PARAMETER"},
        {"{" IMAGE "," GOOD ",\"timeout\":7200}", 400, "configured maximum of 3600s"},
        {"{" IMAGE "," GOOD ",\"secureAccess\":true}", 400,
         "secureAccess is not supported when runtime.type="},
        {"{" IMAGE "," GOOD ",\"networkPolicy\":{}}", 400, "networkPolicy"},
        {"{" IMAGE ",\"entrypoint\":[\"a\"],\"resourceLimits\":{\"memory\":\"0\"}}", 400,
         "Invalid resourceLimits.memory: '0'; must resolve to a positive resource limit."},
        {"{" IMAGE ",\"entrypoint\":[\"a\"],\"resourceLimits\":{\"gpu\":\"no\"}}", 400,
         "device count or 'all'"},
        {"{" IMAGE "," GOOD ",\"env\":{\"OPENSANDBOX_EGRESS_X\":\"1\"}}", 400,
         "OPENSANDBOX_EGRESS_LOG_LEVEL"},
        {"{" IMAGE "," GOOD ",\"extensions\":{\"cove.network\":\"wifi\"}}", 400, "'none' or 'nat'"},
        {"{" IMAGE "," GOOD ",\"extensions\":{\"cove.bogus\":\"1\"}}", 400, "Unknown extension"},
        {"{" IMAGE ",\"entrypoint\":[\"sh -c 'x\"],\"resourceLimits\":{}}", 400,
         "DOCKER::INVALID_ENTRYPOINT"},
        {"{" IMAGE "," GOOD ",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\"}]}", 400,
         "VOLUME::INVALID_BACKEND"},
        {"{" IMAGE "," GOOD
         ",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\",\"host\":{\"path\":\"/etc\"}}]}",
         400, "VOLUME::HOST_PATH_NOT_ALLOWED"},
        {"{" IMAGE "," GOOD
         ",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\",\"pvc\":{\"claimName\":\"c\"}}]}",
         400, "VOLUME::UNSUPPORTED_BACKEND"},
        {"{\"image\":{\"uri\":\"local/missing\"}," GOOD "}", 400,
         "DOCKER::SANDBOX_IMAGE_PULL_FAILED"},
    };
    set_up();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int got = ask("POST", "/v1/sandboxes", cases[i].body);
        if (got != cases[i].status || !strstr(text(), cases[i].want))
            test_fail(__FILE__, __LINE__, "case %zu %s: %d %s", i, cases[i].body, got, text());
        _cleanup_json_ json_t *j = json();
        ASSERT(json_str(j, "code") && json_str(j, "message") && *json_str(j, "message"));
        ASSERT(got != 422 || json_is_array(json_object_get(j, "detail")));
    }
    ASSERT_INT(fake_count(drv), 0);
    reply_clear();
    tear_down();
}

TEST(lenient_creates) {
    set_up();
    create("{" IMAGE ",\"entrypoint\":[\"sh -c 'echo a  "
           "b'\"],\"resource_limits\":{\"cpu\":\"500m\",\"memory\":\"2gi\",\"pids\":\"7\","
           "\"disk\":\"1G\"},\"timeout\":\"120\",\"unknown\":{},\"env\":{\"E\":"
           "\"\",\"N\":null},"
           "\"metadata\":{},\"snapshotId\":\" "
           "\",\"secure_access\":\"no\",\"resourceRequests\":{\"cpu\":\"1\"},"
           "\"platform\":null,\"extensions\":{\"cove.network\":\"nat\",\"cove.cwd\":\"/w\"}}");
    ASSERT(strstr(text(), "\"entrypoint\":[\"sh\",\"-c\",\"echo a  b\"]"));
    ASSERT(strstr(text(), "\"metadata\":{}")); /* an empty map stays one, in this answer */
    _cleanup_json_ json_t *s = fake_last_spec(drv);
    ASSERT_INT(json_int(s, "cpuMillis", 0), 500);
    ASSERT_INT(json_int(s, "memoryBytes", 0), 1LL << 31);
    ASSERT_INT(json_int(s, "pids", 0), 7);
    ASSERT_INT(json_int(s, "diskBytes", 0), 1000000000);
    ASSERT_STR(json_str(s, "net"), "nat");
    ASSERT_STR(json_str(s, "cwd"), "/w");
    ASSERT_STR(json_string_value(json_array_get(json_object_get(s, "env"), 0)), "E=");
    ASSERT_INT(json_array_size(json_object_get(s, "env")), 2); /* and OPENSANDBOX_ID */
    create("{" IMAGE "," GOOD "}");                            /* no timeout: it stays */
    ASSERT(!strstr(text(), "expiresAt") && !strstr(text(), "metadata"));
    create("{" IMAGE ",\"resourceLimits\":{},\"extensions\":{\"cove.entrypoint\":\"none\"}}");
    ASSERT(strstr(text(), "\"entrypoint\":[]"));
    reply_clear();
    tear_down();
}

TEST(keys_and_exemptions) {
    static const struct h1_header none[] = {{NULL, NULL}},
                                  wrong[] = {{"open-sandbox-api-key", "secret-kez"}, {NULL, NULL}};
    set_up();
    EXPECT(ask_with("GET", "/v1/sandboxes", NULL, none), 401, "\"code\":\"MISSING_API_KEY\"");
    ASSERT(strcasestr(last.headers.data, "X-Request-ID: "));
    EXPECT(ask_with("GET", "/v1/sandboxes", NULL, wrong), 401, "\"code\":\"INVALID_API_KEY\"");
    EXPECT(ask_with("GET", "/nothing", NULL, none), 401, "MISSING_API_KEY");
    EXPECT(ask_with("GET", "/health", NULL, none), 200, "{\"status\":\"healthy\"}");
    EXPECT(ask_with("GET", "/version", NULL, none), 200, "\"compat\":\"1.1.1\"");
    EXPECT(ask_with("GET", "/healthy", NULL, none), 401, "MISSING_API_KEY");
    EXPECT(ask_with("GET", "/v1/version", NULL, none), 401, "MISSING_API_KEY");
    EXPECT(ask_with("GET", "/v1/sandboxes/x/proxy/80/", NULL, none), 404,
           "DOCKER::SANDBOX_NOT_FOUND");
    EXPECT(ask_with("GET", "/sandboxes/x/proxy/80", NULL, none), 404, "DOCKER::SANDBOX_NOT_FOUND");
    EXPECT(ask_with("GET", "/v1/sandboxes/x/proxy/80x/", NULL, none), 401, "MISSING_API_KEY");
    EXPECT(ask_with("GET", "/v1/sandboxes/x/proxy/80/../../../y", NULL, none), 401,
           "MISSING_API_KEY");
    begin("GET", "/v1/sandboxes", NULL, none, true);
    wait_reply();
    ASSERT_INT(last.status, 200); /* the Unix socket needs no key */
    _cleanup_json_ json_t *named = json_pack("{s:s,s:s}", "ci", "key-of-ci", "ops", "key-of-ops");
    static const struct h1_header ops[] = {{"OPEN-SANDBOX-API-KEY", "key-of-ops"}, {NULL, NULL}},
                                  part[] = {{"OPEN-SANDBOX-API-KEY", "key-of"}, {NULL, NULL}};
    ASSERT_OK(api_set_keys(api, "secret-key", named)); /* several: each of them opens */
    EXPECT(ask("GET", "/v1/sandboxes", NULL), 200, "items");
    EXPECT(ask_with("GET", "/v1/sandboxes", NULL, ops), 200, "items");
    EXPECT(ask_with("GET", "/v1/sandboxes", NULL, part), 401, "INVALID_API_KEY");
    ASSERT_OK(api_set_keys(api, NULL, named));
    EXPECT(ask("GET", "/v1/sandboxes", NULL), 401, "INVALID_API_KEY");
    EXPECT(ask_with("GET", "/v1/sandboxes", NULL, ops), 200, "items");
    ASSERT_OK(api_set_keys(api, "other", NULL));
    EXPECT(ask("GET", "/v1/sandboxes", NULL), 401, "INVALID_API_KEY");
    ASSERT_OK(api_set_keys(api, " ", NULL));
    EXPECT(ask_with("GET", "/v1/sandboxes", NULL, none), 200, "items");
    reply_clear();
    tear_down();
}

TEST(paths_and_methods) {
    set_up();
    EXPECT(ask("GET", "/v1/nothing", NULL), 404, "\"detail\":\"Not Found\"");
    EXPECT(ask("GET", "/v1/nothing", NULL), 404, "\"code\":\"GENERAL::NOT_FOUND\"");
    EXPECT(ask("PUT", "/v1/sandboxes", "{}"), 405, "\"detail\":\"Method Not Allowed\"");
    ASSERT(strcasestr(last.headers.data, "Allow: ") && strstr(last.headers.data, "POST"));
    ASSERT_INT(ask("HEAD", "/v1/sandboxes", NULL), 405);
    ASSERT_INT(ask("HEAD", "/health", NULL), 405);
    ASSERT_INT(ask("GET", "/v1/sandboxes/?page=2", NULL), 307);
    ASSERT(has_header("Location: /v1/sandboxes?page=2"));
    ASSERT_INT(ask("GET", "/sandboxes/", NULL), 307);
    ASSERT(has_header("Location: /sandboxes"));
    EXPECT(ask("GET", "/metrics/events", NULL), 404, "Not Found"); /* under /v1 alone */
    EXPECT(ask("GET", "/v1/health", NULL), 404, "Not Found");
    EXPECT(ask("GET", "/v1/sandboxes/%zz", NULL), 400, "");
    EXPECT(ask("POST", "/v1/sandboxes", "{\"pad\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}"),
           422, "");
    static char big[6000];
    memset(big, ' ', sizeof big - 1);
    ASSERT_INT(ask("POST", "/v1/sandboxes", big), 413);
    reply_clear();
    tear_down();
}

TEST(renewals_want_whole_times) {
    static const char *const bodies[] = {"{\"expiresAt\":4000000000}",
                                         "{\"expiresAt\":\"2050-01-01\"}"};
    set_up();
    const char *id = create("{" IMAGE "," GOOD ",\"timeout\":600}");
    for (size_t i = 0; i < ARRAY_SIZE(bodies); i++)
        EXPECT(ask("POST", url("/v1/sandboxes/@/renew-expiration", id), bodies[i]), 422,
               "\"loc\":[\"body\",\"expiresAt\"]");
    EXPECT(ask("POST", url("/v1/sandboxes/@/renew-expiration", id),
               "{\"expiresAt\":\"2050-01-01T00:00:00+02:00\"}"),
           200, "2049-12-31T22:00:00Z");
    EXPECT(ask("POST", "/v1/sandboxes", "{\"templateId\":\"a\\u0000b\"}"), 422, "json_invalid");
    reply_clear();
    tear_down();
}

TEST(network_policy_bodies_come_first) {
    static const struct {
        const char *method, *body, *want;
        int status;
    } cases[] = {
        {"PUT", NULL, "\"loc\":[\"body\"]", 422},
        {"PUT", "[]", "\"loc\":[\"body\"]", 422},
        {"PUT", "{\"egress\":[{\"action\":\"allow\"}]}",
         "\"loc\":[\"body\",\"egress\",0,\"target\"]", 422},
        {"PUT", "{\"egress\":[]}", "SANDBOX::API_NOT_SUPPORTED", 409},
        {"PATCH", "{}", "\"loc\":[\"body\"]", 422},
        {"PATCH", "[{\"action\":\"allow\",\"target\":\"a.b\"}]", "SANDBOX::API_NOT_SUPPORTED", 409},
        {"DELETE", "[1]", "\"loc\":[\"body\",0]", 422},
        {"DELETE", "[\"a.b\"]", "SANDBOX::API_NOT_SUPPORTED", 409},
        {"GET", NULL, "SANDBOX::API_NOT_SUPPORTED", 409},
    };
    set_up();
    const char *id = create("{" IMAGE "," GOOD "}");
    _cleanup_free_ char *path = strdup(url("/v1/sandboxes/@/networkpolicy", id));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        EXPECT(ask(cases[i].method, path, cases[i].body), cases[i].status, cases[i].want);
    EXPECT(ask("PUT", "/v1/sandboxes/none/networkpolicy", "[]"), 422, "detail");
    EXPECT(ask("PUT", "/v1/sandboxes/none/networkpolicy", "{}"), 404, "SANDBOX_NOT_FOUND");
    reply_clear();
    tear_down();
}

TEST(request_ids_and_cors) {
    static const struct h1_header id[] = {{"OPEN-SANDBOX-API-KEY", "secret-key"},
                                          {"x-request-id", "  mine-1 "},
                                          {"Origin", "http://a.b"},
                                          {NULL, NULL}};
    static const struct h1_header pre[] = {{"Origin", "http://a.b"},
                                           {"Access-Control-Request-Method", "POST"},
                                           {"Access-Control-Request-Headers", "x-a, x-b"},
                                           {NULL, NULL}};
    set_up();
    ASSERT_INT(ask_with("GET", "/v1/sandboxes", NULL, id), 200);
    ASSERT(has_header("X-Request-ID: mine-1"));
    ASSERT(has_header("Access-Control-Allow-Origin: http://a.b"));
    ASSERT(has_header("Access-Control-Allow-Credentials: true"));
    ASSERT(has_header("Access-Control-Expose-Headers: OPEN-SANDBOX-ORIGIN"));
    ASSERT(has_header("Vary: Origin"));
    const char *date = strcasestr(last.headers.data, "date: ");
    ASSERT(date && !strcasestr(date + 1, "\ndate: "));
    ASSERT_INT(ask_with("OPTIONS", "/v1/sandboxes", NULL, pre), 200);
    ASSERT(has_header("Access-Control-Allow-Headers: x-a, x-b"));
    ASSERT(
        has_header("Access-Control-Allow-Methods: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"));
    ASSERT(has_header("Access-Control-Max-Age: 600"));
    ASSERT_INT(ask("GET", "/v1/sandboxes", NULL), 200);
    const char *made = strcasestr(last.headers.data, "X-Request-ID: ");
    ASSERT(made && strspn(made + 14, "0123456789abcdef") == 32);
    reply_clear();
    tear_down();
}

TEST(lists) {
    set_up();
    for (int i = 0; i < 5; i++) {
        _cleanup_free_ char *body =
            str_printf("{" IMAGE "," GOOD ",\"metadata\":{\"n\":\"%d\",\"e\":\"\"}}", i);
        create(body);
    }
    EXPECT(ask("GET", "/v1/sandboxes?pageSize=2&page=3", NULL), 200,
           "\"pagination\":{\"page\":3,\"pageSize\":2,\"totalItems\":5,\"totalPages\":3,"
           "\"hasNextPage\":false}");
    EXPECT(ask("GET", "/v1/sandboxes?pageSize=2", NULL), 200, "\"hasNextPage\":true");
    EXPECT(ask("GET", "/v1/sandboxes?page=99", NULL), 200, "{\"items\":[],");
    EXPECT(ask("GET", "/v1/sandboxes?pageSize=201", NULL), 422, "[\"query\",\"pageSize\"]");
    EXPECT(ask("GET", "/v1/sandboxes?page=0", NULL), 422, "greater_than_equal");
    EXPECT(ask("GET", "/v1/sandboxes?page=x", NULL), 422, "int_parsing");
    EXPECT(ask("GET", "/v1/sandboxes?metadata=n%3D3%26e%3D", NULL), 200, "\"totalItems\":1,");
    EXPECT(ask("GET", "/v1/sandboxes?metadata=n%253D3", NULL), 400, "INVALID_METADATA_FORMAT");
    EXPECT(ask("GET", "/v1/sandboxes?metadata=n%3D%2533", NULL), 200,
           "\"totalItems\":1,"); /* encoded twice */
    EXPECT(ask("GET", "/v1/sandboxes?metadata=n%3D1%26n%3D2", NULL), 200, "\"n\":\"2\"");
    EXPECT(ask("GET", "/v1/sandboxes?metadata=n", NULL), 400, "INVALID_METADATA_FORMAT");
    EXPECT(ask("GET", "/v1/sandboxes?state=Paused&state=RUNNING", NULL), 200, "\"totalItems\":5,");
    EXPECT(ask("GET", "/v1/sandboxes?state=nonsense", NULL), 200,
           "\"totalItems\":0,\"totalPages\":0,");
    reply_clear();
    tear_down();
}

TEST(endpoints) {
    static const struct h1_header host[] = {
        {"OPEN-SANDBOX-API-KEY", "secret-key"}, {"Host", "front.example:99"}, {NULL, NULL}};
    set_up();
    const char *id = create("{" IMAGE "," GOOD "}");
    _cleanup_json_ json_t *spec = fake_last_spec(drv);
    _cleanup_free_ char *token =
        str_printf("\"headers\":{\"X-EXECD-ACCESS-TOKEN\":\"%s\"}", json_str(spec, "accessToken"));
    _cleanup_free_ char *direct =
        str_printf("{\"endpoint\":\"127.0.0.1:8080/v1/sandboxes/%s/proxy/44772\"", id);
    _cleanup_free_ char *v1 = str_printf("\"front.example:99/v1/sandboxes/%s/proxy/18080\"}", id);
    _cleanup_free_ char *bare = str_printf("\"front.example:99/sandboxes/%s/proxy/44772\"", id);
    EXPECT(ask("GET", url("/v1/sandboxes/@/endpoints/44772", id), NULL), 200, direct);
    ASSERT(strstr(text(), token));
    EXPECT(ask_with("GET", url("/v1/sandboxes/@/endpoints/18080?use_server_proxy=true", id), NULL,
                    host),
           200, v1);
    EXPECT(ask_with("GET", url("/sandboxes/@/endpoints/44772?use_server_proxy=1", id), NULL, host),
           200, bare);
    EXPECT(ask("GET", url("/v1/sandboxes/@/endpoints/0", id), NULL), 400, "DOCKER::INVALID_PORT");
    EXPECT(ask("GET", url("/v1/sandboxes/@/endpoints/70000", id), NULL), 400,
           "DOCKER::INVALID_PORT");
    EXPECT(ask("GET", url("/v1/sandboxes/@/endpoints/x", id), NULL), 422, "[\"path\",\"port\"]");
    EXPECT(ask("GET", url("/v1/sandboxes/@/endpoints/0?expires=9", id), NULL), 400,
           "not supported");
    EXPECT(ask("GET", url("/v1/sandboxes/@/endpoints/1?expires=9&use_server_proxy=yes", id), NULL),
           400, "SANDBOX::INVALID_PARAMETER");
    EXPECT(ask("GET", "/v1/sandboxes/none/endpoints/80", NULL), 404, "DOCKER::SANDBOX_NOT_FOUND");
    reply_clear();
    tear_down();
}

/* A server that plays the sandbox: tells what it was asked. */
static struct buf seen;

static void upstream(struct h1_req *r, void *ud) {
    size_t n;
    const struct h1_header *h = h1_req_headers(r, &n);
    static const struct h1_header out[] = {{"Server", "other"},
                                           {"Set-Cookie", "a=1"},
                                           {"Set-Cookie", "b=2"},
                                           {"Location", "/login"},
                                           {NULL, NULL}};

    buf_clear(&seen);
    buf_printf(&seen, "%s %s\n", h1_req_method(r), h1_req_target(r));
    for (size_t i = 0; i < n; i++)
        buf_printf(&seen, "%s: %s\n", h[i].name, h[i].value);
    h1_respond(r, 201, out, "from inside", 11);
}

TEST(the_proxy) {
    static const struct h1_header dirty[] = {{"Cookie", "c=1"},
                                             {"Authorization", "Bearer x"},
                                             {"OPEN-SANDBOX-API-KEY", "secret-key"},
                                             {"X-Forwarded-For", "6.6.6.6"},
                                             {"X-EXECD-ACCESS-TOKEN", "t"},
                                             {"X-Keep", "me"},
                                             {"OpenSandbox-Access-Renew", "skip"},
                                             {NULL, NULL}};
    struct h1_server *inner;
    struct h1_server_opts ho = {.on_request = upstream};
    uint16_t inner_port;
    struct err err = {0};

    set_up();
    ASSERT_OK(h1_server_new(&loop, &ho, &inner));
    ASSERT_OK(h1_server_listen_tcp(inner, "127.0.0.1", 0, 16, &inner_port, &err));
    const char *id = create("{" IMAGE "," GOOD "}");
    fake_set_address(drv, "127.0.0.1", inner_port);
    EXPECT(
        ask_with("POST", url("/v1/sandboxes/@/proxy/3000/a%2Fb//c?x=%20y&&z", id), "body", dirty),
        201, "from inside");
    ASSERT(str_starts(seen.data, "POST /a%2Fb//c?x=%20y&&z\n"));
    ASSERT(!strcasestr(seen.data, "cookie") && !strcasestr(seen.data, "authorization") &&
           !strstr(seen.data, "secret-key"));
    ASSERT(!strstr(seen.data, "6.6.6.6") && !strcasestr(seen.data, "access-renew"));
    ASSERT(strcasestr(seen.data, "x-execd-access-token: t") && strcasestr(seen.data, "x-keep: me"));
    ASSERT(strcasestr(seen.data, "x-forwarded-for: 127.0.0.1") &&
           strcasestr(seen.data, "x-forwarded-proto: http"));
    ASSERT(strcasestr(seen.data, "host: 127.0.0.1:3000"));
    ASSERT(!has_header("Server: other") && has_header("Set-Cookie: a=1") &&
           has_header("Set-Cookie: b=2"));
    ASSERT(has_header(url("Location: /v1/sandboxes/@/proxy/3000/login", id)));
    ASSERT(strcasestr(last.headers.data, "X-Request-ID: "));
    EXPECT(ask("GET", url("/sandboxes/@/proxy/3000", id), NULL), 201, "");
    ASSERT(str_starts(seen.data, "GET /\n"));
    EXPECT(ask("OPTIONS", url("/sandboxes/@/proxy/3000/x", id), NULL), 405, "Method Not Allowed");
    h1_server_free(inner);
    EXPECT(ask("GET", url("/sandboxes/@/proxy/3000/x", id), NULL), 502,
           "BACKEND_CONNECTION_FAILED");
    EXPECT(ask("GET", url("/sandboxes/@/proxy/0/x", id), NULL), 400, "DOCKER::INVALID_PORT");
    reply_clear();
    buf_done(&seen);
    tear_down();
}

TEST(diagnostics) {
    set_up();
    const char *id = create(
        "{" IMAGE ",\"entrypoint\":[\"a\"],\"resourceLimits\":{\"cpu\":\"1.5\",\"memory\":\"1Gi\"},"
        "\"env\":{\"MY_TOKEN\":\"hidden\",\"PLAIN\":\"shown\"}}");
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/logs?tail=7", id), NULL), 200, "7 lines");
    ASSERT(has_header("Deprecation: true") &&
           has_header("Content-Type: text/plain; charset=utf-8"));
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/logs?tail=0", id), NULL), 422, "tail");
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/inspect", id), NULL), 200,
           "cpu: 1.50 cores");
    ASSERT(strstr(text(), "MY_TOKEN=***") && strstr(text(), "PLAIN=shown") &&
           !strstr(text(), "hidden"));
    ASSERT(!has_header("Deprecation: true"));
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/events", id), NULL), 200, "created");
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/summary", id), NULL), 200,
           "LOGS (last 50 lines)");
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/logs?scope=%20ALL", id), NULL), 200,
           "\"scope\":\"all\"");
    ASSERT(strstr(text(), "\"warnings\":[") && strstr(text(), "\"delivery\":\"inline\"") &&
           !has_header("Deprecation: true"));
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/events?scope=runtime", id), NULL), 200,
           "\"kind\":\"events\"");
    EXPECT(ask("GET", "/v1/sandboxes/none/diagnostics/logs?scope=Bogus", NULL), 400,
           "Unsupported logs diagnostics scope 'Bogus'. Supported scopes: container, all.");
    EXPECT(ask("GET", "/v1/sandboxes/none/diagnostics/logs", NULL), 404,
           "DOCKER::SANDBOX_NOT_FOUND");
    EXPECT(ask("GET", "/v1/sandboxes/none/diagnostics/summary", NULL), 404,
           "DOCKER::SANDBOX_NOT_FOUND");
    fake_fail(drv, FAKE_LOGS, -EIO, "no log", 1);
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/logs", id), NULL), 500,
           "DOCKER::SANDBOX_QUERY_FAILED");
    reply_clear();
    tear_down();
}

TEST(what_is_not_offered) {
    set_up();
    EXPECT(ask("GET", "/v1/pools", NULL), 501, "KUBERNETES::POOL_NOT_SUPPORTED");
    EXPECT(ask("POST", "/pools", "{}"), 422, "capacitySpec");
    EXPECT(ask("PUT", "/pools/x",
               "{\"capacitySpec\":{\"bufferMax\":1,\"bufferMin\":0,\"poolMax\":1,\"poolMin\":0}}"),
           501, "POOL_NOT_SUPPORTED");
    EXPECT(ask("GET", "/v1/templates", NULL), 501, "FSB::API_NOT_SUPPORTED");
    EXPECT(ask("POST", "/v1/templates", "{\"image\":\"a\",\"publish\":\"b\",\"x\":1}"), 422,
           "extra_forbidden");
    EXPECT(ask("GET", "/v1/snapshots", NULL), 501, "SNAPSHOT::NOT_IMPLEMENTED");
    EXPECT(ask("POST", "/v1/sandboxes/none/snapshots", NULL), 404, "SANDBOX_NOT_FOUND");
    EXPECT(ask("POST", "/v1/metrics/events",
               "{\"eventType\":\"sandbox.create\",\"createDurationMs\":5,\"success\":true}"),
           204, "");
    EXPECT(ask("POST", "/v1/metrics/events",
               "{\"eventType\":\"x\",\"createDurationMs\":5,\"success\":true}"),
           422, "literal_error");
    EXPECT(ask("GET", "/v1/capabilities", NULL), 200, "\"driver\":\"fake\"");
    EXPECT(ask("GET", "/v1/images", NULL), 501, "IMAGE::UNSUPPORTED");
    reply_clear();
    tear_down();
}

TEST(faults_of_the_driver) {
    set_up();
    fake_fail(drv, FAKE_CREATE, -EIO, "original text", 1);
    EXPECT(ask("POST", "/v1/sandboxes", "{" IMAGE "," GOOD "}"), 500,
           "\"code\":\"DOCKER::SANDBOX_START_FAILED\"");
    ASSERT(strstr(text(), "original text"));
    fake_fail(drv, FAKE_CREATE, -EINVAL, "cannot be honoured", 1);
    EXPECT(ask("POST", "/v1/sandboxes", "{" IMAGE "," GOOD "}"), 400, "SANDBOX::INVALID_PARAMETER");
    const char *id = create("{" IMAGE "," GOOD "}");
    fake_fail(drv, FAKE_REMOVE, -EIO, "busy", 1);
    EXPECT(ask("DELETE", url("/v1/sandboxes/@", id), NULL), 500, "DOCKER::SANDBOX_DELETE_FAILED");
    fake_fail(drv, FAKE_PAUSE, -EIO, "no freezer", 1);
    EXPECT(ask("POST", url("/v1/sandboxes/@/pause", id), NULL), 500,
           "DOCKER::SANDBOX_PAUSE_FAILED");
    fake_exit(drv, id, 4);
    while (service_get(svc, id)->state == SB_RUNNING)
        uv_run(&loop, UV_RUN_ONCE);
    EXPECT(ask("GET", url("/v1/sandboxes/@", id), NULL), 200,
           "\"reason\":\"CONTAINER_EXITED_ERROR\"");
    ASSERT(strstr(text(), "exit code 4"));
    reply_clear();
    tear_down();
}

TEST(a_client_that_leaves_during_a_create) {
    set_up();
    for (int manual = 0; manual < 2; manual++) {
        fake_hold(drv, FAKE_CREATE);
        struct h1_call *c =
            begin("POST", "/v1/sandboxes",
                  manual ? "{" IMAGE "," GOOD "}" : "{" IMAGE "," GOOD ",\"timeout\":60}", with_key,
                  false);
        while (fake_calls(drv, FAKE_CREATE) == (unsigned)manual)
            uv_run(&loop, UV_RUN_NOWAIT);
        h1_call_cancel(c);
        while (h1_server_connections(server) > 0)
            uv_run(&loop, UV_RUN_ONCE);
        fake_release(drv, FAKE_CREATE);
        while (service_pending(svc))
            uv_run(&loop, UV_RUN_ONCE);
        ASSERT_INT(fake_count(drv),
                   1); /* with an expiry it stays; without one nobody would ever end it */
    }
    reply_clear();
    tear_down();
}

TEST_MAIN()
