/* The server proxy and the network policy that goes through it. */
#include "daemon/api/test-kit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "net/ws.h"

/* A server that plays the sandbox: tells what it was asked. */
static struct buf seen;

static void upstream(struct h1_req *r, void *ud) {
    size_t n;
    const struct h1_header *h = h1_req_headers(r, &n);
    static const struct h1_header out[] = {{"Server", "other"},
                                           {"Set-Cookie", "a=1"},
                                           {"Set-Cookie", "b=2"},
                                           {"Location", "/login"},
                                           {"Service-Worker-Allowed", "/"},
                                           {"Clear-Site-Data", "\"*\""},
                                           {"NEL", "{}"},
                                           {"Report-To", "{}"},
                                           {"Strict-Transport-Security", "max-age=1"},
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
    ASSERT(!strcasestr(last.headers.data, "service-worker") &&
           !strcasestr(last.headers.data, "clear-site") && !strcasestr(last.headers.data, "nel:") &&
           !strcasestr(last.headers.data, "report-to") &&
           !strcasestr(last.headers.data, "strict-transport"));
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

TEST(network_policy_bodies_come_first) {
    static const struct {
        const char *method, *body, *want;
        int status;
    } cases[] = {
        {"PUT", NULL, "\"loc\":[\"body\"]", 422},
        {"PUT", "[]", "\"loc\":[\"body\"]", 422},
        {"PUT", "{\"egress\":[{\"action\":\"allow\"}]}",
         "\"loc\":[\"body\",\"egress\",0,\"target\"]", 422},
        {"PUT", "{\"egress\":[]}", "SANDBOX::NETWORK_POLICY_NOT_ENABLED", 409},
        {"PATCH", "{}", "\"loc\":[\"body\"]", 422},
        {"PATCH", "[{\"action\":\"allow\",\"target\":\"a.b\"}]",
         "SANDBOX::NETWORK_POLICY_NOT_ENABLED", 409},
        {"DELETE", "[1]", "\"loc\":[\"body\",0]", 422},
        {"DELETE", "[\"a.b\"]", "SANDBOX::NETWORK_POLICY_NOT_ENABLED", 409},
        {"GET", NULL, "SANDBOX::NETWORK_POLICY_NOT_ENABLED", 409},
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

static struct h1_server *inner;

static void start_inner(void (*handler)(struct h1_req *r, void *ud)) {
    struct h1_server_opts ho = {.on_request = handler};
    uint16_t inner_port;

    ASSERT_OK(h1_server_new(&loop, &ho, &inner));
    ASSERT_OK(h1_server_listen_tcp(inner, "127.0.0.1", 0, 16, &inner_port, NULL));
    fake_set_address(drv, "127.0.0.1", inner_port);
}

static void stop(void) {
    h1_server_free(inner);
    reply_clear();
    buf_done(&seen);
    tear_down();
}

static void guard_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    buf_printf(&seen, "body: %s\n", data);
    h1_respond(r, 200, NULL, "{\"status\":\"ok\"}", 15);
}

static void guard(struct h1_req *r, void *ud) {
    size_t n;
    const struct h1_header *h = h1_req_headers(r, &n);

    buf_clear(&seen);
    buf_printf(&seen, "%s %s\n", h1_req_method(r), h1_req_target(r));
    for (size_t i = 0; i < n; i++)
        buf_printf(&seen, "%s: %s\n", h[i].name, h[i].value);
    h1_req_collect(r, 4096, guard_body, NULL);
}

TEST(network_policies_go_to_the_guard) {
    static const struct h1_header with_token[] = {{"OPEN-SANDBOX-API-KEY", "secret-key"},
                                                  {"OPENSANDBOX-EGRESS-AUTH", "forged"},
                                                  {NULL, NULL}};
    static const char rules[] = "[ {\"action\":\"allow\", \"target\":\"a.b\"} ]";
    set_up();
    start_inner(guard);
    fake_set_guard(drv, "guard-token");
    const char *id = create("{" IMAGE "," GOOD "}");
    EXPECT(ask_with("PATCH", url("/v1/sandboxes/@/networkpolicy?x=%20", id), rules, with_token),
           200, "{\"status\":\"ok\"}");
    ASSERT(str_starts(seen.data, "PATCH /policy?x=%20\n") && strstr(seen.data, rules));
    ASSERT(strcasestr(seen.data, "opensandbox-egress-auth: guard-token\n") &&
           !strstr(seen.data, "forged") && !strstr(seen.data, "secret-key"));
    ASSERT(strcasestr(last.headers.data, "X-Request-ID: "));
    EXPECT(ask("GET", url("/sandboxes/@/networkpolicy", id), NULL), 200, "ok");
    ASSERT(str_starts(seen.data, "GET /policy\n") && strstr(seen.data, "body: \n"));
    EXPECT(ask("DELETE", url("/sandboxes/@/networkpolicy", id), "[\"a.b\"]"), 200, "ok");
    ASSERT(strstr(seen.data, "body: [\"a.b\"]\n"));
    EXPECT(ask("PUT", url("/sandboxes/@/networkpolicy", id), "{}"), 200, "ok");
    EXPECT(ask("GET", "/v1/sandboxes/fsb-1/networkpolicy", NULL), 404, "Fsb sandbox not found.");
    /* through the proxy the token is the client's affair */
    EXPECT(ask_with("GET", url("/v1/sandboxes/@/proxy/18080/policy", id), NULL, with_token), 200,
           "ok");
    ASSERT(strcasestr(seen.data, "opensandbox-egress-auth: forged\n"));
    h1_server_free(inner);
    EXPECT(ask("GET", url("/sandboxes/@/networkpolicy", id), NULL), 502,
           "BACKEND_CONNECTION_FAILED");
    inner = NULL;
    reply_clear();
    buf_done(&seen);
    tear_down();
}

TEST(sandboxes_behind_a_guard) {
    set_up();
    start_inner(upstream);
    fake_set_prefix(drv, "/proxy/3000");
    const char *id = create("{" IMAGE "," GOOD "}");
    _cleanup_json_ json_t *spec = fake_last_spec(drv);
    EXPECT(ask("GET", url("/v1/sandboxes/@/proxy/3000/a%2Fb?q", id), NULL), 201, "from inside");
    ASSERT(str_starts(seen.data, "GET /proxy/3000/a%2Fb?q\n"));
    /* the agent forwards, and wants its token for that */
    _cleanup_free_ char *token =
        str_printf("X-EXECD-ACCESS-TOKEN: %s\n", json_str(spec, "accessToken"));
    ASSERT(strcasestr(seen.data, token));
    EXPECT(ask("GET", url("/v1/sandboxes/@/proxy/44772/ping", id), NULL), 201, "");
    ASSERT(!strcasestr(seen.data, "x-execd-access-token"));
    stop();
}

TEST(whose_forwarding_headers_are_believed) {
    static const char *const trusted[] = {"10.0.0.0/8", "127.0.0.0/24", NULL};
    static const struct h1_header told[] = {
        {"X-Forwarded-For", "6.6.6.6"}, {"X-Forwarded-For", "7.7.7.7"},
        {"X-Forwarded-Proto", "https"}, {"X-Forwarded-Host", "front.example"},
        {"Forwarded", "for=1.2.3.4"},   {NULL, NULL}};
    set_up_with(&(struct api_opts){.trusted_proxies = trusted});
    start_inner(upstream);
    const char *id = create("{" IMAGE "," GOOD "}");
    EXPECT(ask_with("GET", url("/v1/sandboxes/@/proxy/3000/", id), NULL, told), 201, "");
    ASSERT(strcasestr(seen.data, "x-forwarded-for: 6.6.6.6, 7.7.7.7, 127.0.0.1\n"));
    ASSERT(strcasestr(seen.data, "x-forwarded-proto: https\n") &&
           strcasestr(seen.data, "x-forwarded-host: front.example\n"));
    ASSERT(!strcasestr(seen.data, "for=1.2.3.4"));
    stop();
}

TEST(use_renews) {
    static const struct h1_header skip[] = {{"OpenSandbox-Access-Renew", "skip"}, {NULL, NULL}},
                                  other[] = {{"OpenSandbox-Access-Renew", "Skip"}, {NULL, NULL}};
    renews_by_use = true;
    set_up();
    start_inner(upstream);
    const char *id = create("{" IMAGE "," GOOD ",\"timeout\":60,"
                            "\"extensions\":{\"access.renew.extend.seconds\":\"3000\"}}");
    int64_t before = service_get(svc, id)->expires_us;
    EXPECT(ask_with("GET", url("/v1/sandboxes/@/proxy/3000/", id), NULL, skip), 201, "");
    EXPECT(ask("GET", url("/v1/sandboxes/@/proxy/0/", id), NULL), 400, "INVALID_PORT");
    EXPECT(ask("GET", url("/v1/sandboxes/@", id), NULL), 200, "");
    ASSERT_INT(service_pending(svc), 0);
    ASSERT_INT(service_get(svc, id)->expires_us, before);
    EXPECT(ask_with("GET", url("/v1/sandboxes/@/proxy/3000/", id), NULL, other), 201, "");
    while (service_pending(svc) > 0)
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT(service_get(svc, id)->expires_us > before + 2000LL * 1000000);
    stop();
}

/* ---- WebSockets ---- */

#define HANDSHAKE                                                                         \
    {"Connection", "Upgrade"}, {"Upgrade", "websocket"}, {"Sec-WebSocket-Version", "13"}, \
        {"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, {                              \
        NULL, NULL                                                                        \
    }

static struct {
    struct ws *ws;
    int code;
    char reason[130];
} socket_end;

static void on_socket_close(struct ws *w, int code, const char *reason, void *ud) {
    socket_end.ws = NULL;
    socket_end.code = code;
    snprintf(socket_end.reason, sizeof socket_end.reason, "%s", reason ? reason : "");
}

static const struct ws_ops client_ws_ops = {.on_close = on_socket_close};

static void on_upgraded(struct h1_call *c, const struct h1_header *headers, size_t n,
                        struct sock *s, void *ud) {
    ASSERT_OK(ws_client(s, &client_ws_ops, NULL, &socket_end.ws));
}

static void on_call_end(struct h1_call *c, int error, const struct err *err, void *ud) {
    test_fail(__FILE__, __LINE__, "no upgrade: %s", err_text(err));
}

/* The code a WebSocket client of `path` is told in the end. */
static int close_code(const char *path) {
    static const struct h1_header headers[] = {HANDSHAKE};
    static const struct h1_call_ops ops = {.on_upgrade = on_upgraded, .on_end = on_call_end};
    struct h1_call_opts o = {.addr = {.host = "127.0.0.1", .port = port},
                             .method = "GET",
                             .target = path,
                             .headers = headers,
                             .keep_upgrade = true};
    struct h1_call *c;

    socket_end.code = 0;
    ASSERT_OK(h1_call(&loop, &o, &ops, NULL, &c));
    while (!socket_end.code)
        uv_run(&loop, UV_RUN_ONCE);
    return socket_end.code;
}

static void on_inner_close(struct ws *w, int code, const char *reason, void *ud) {
}

/* By the last segment: refuse, 4000 (closes so), die (ends without a word). */
static void socket_server(struct h1_req *r, void *ud) {
    static const struct ws_ops ops = {.on_close = on_inner_close};
    _cleanup_free_ char *how = strdup(strrchr(h1_req_path(r), '/') + 1); /* outlives the request */
    struct ws *w;

    if (str_eq(how, "refuse")) {
        h1_respond(r, 403, NULL, "no", 2);
        return;
    }
    ASSERT_OK(ws_accept(r, NULL, &ops, NULL, &w));
    if (str_eq(how, "die"))
        ws_free(w);
    else
        ws_close(w, 4000, "done");
}

TEST(how_websockets_end) {
    static const struct h1_header half[] = {{"Upgrade", "websocket"}, {NULL, NULL}};
    set_up();
    start_inner(socket_server);
    const char *id = create("{" IMAGE "," GOOD "}");
    ASSERT_INT(close_code(url("/v1/sandboxes/@/proxy/3000/4000", id)), 4000);
    ASSERT_STR(socket_end.reason, "done");
    ASSERT_INT(close_code(url("/v1/sandboxes/@/proxy/3000/die", id)), 1011);
    ASSERT_INT(close_code(url("/v1/sandboxes/@/proxy/3000/refuse", id)), 1008);
    ASSERT(strstr(socket_end.reason, "403"));
    ASSERT_INT(close_code("/v1/sandboxes/none/proxy/3000/x"), 1011);
    ASSERT(strstr(socket_end.reason, "not found"));
    EXPECT(ask_with("GET", url("/v1/sandboxes/@/proxy/3000/x", id), NULL, half), 400,
           "GENERAL::UNKNOWN_ERROR");
    fake_set_address(drv, "127.0.0.1", 1);
    ASSERT_INT(close_code(url("/v1/sandboxes/@/proxy/3000/x", id)), 1011);
    stop();
}

TEST_MAIN()
