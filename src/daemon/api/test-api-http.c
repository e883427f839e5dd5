/* What every request meets: keys, paths, methods, request ids, CORS. */
#include "daemon/api/test-kit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* Its size is told by nobody: the answer has our envelope and headers all the same. */
TEST(a_body_of_unknown_size_that_is_too_large) {
    char piece[1024];
    struct h1_call *c;

    memset(piece, ' ', sizeof piece);
    set_up();
    c = begin_sized("POST", "/v1/sandboxes", -1, with_key);
    for (int i = 0; i < 6; i++)
        h1_call_write(c, piece, sizeof piece);
    wait_reply();
    ASSERT_INT(last.status, 413);
    ASSERT_STR(text(), "{\"code\":\"GENERAL::BODY_TOO_LARGE\",\"message\":\"The request body may "
                       "have at most 4096 bytes.\"}");
    ASSERT(strcasestr(last.headers.data, "X-Request-ID: ") && has_header("Vary: Origin") &&
           has_header("Connection: close"));
    reply_clear();
    tear_down();
}

/* The piece many times, with its number in the place of #. */
static char *body_with(const char *before, const char *piece, size_t times, const char *after) {
    struct buf b = BUF_INIT(0);

    buf_str(&b, before);
    for (size_t i = 0; i < times; i++)
        buf_printf(&b, "%.*s%zu%s", (int)strcspn(piece, "#"), piece, i, strchr(piece, '#') + 1);
    buf_str(&b, after);
    return buf_take(&b, NULL);
}

TEST(limits_of_bodies) {
    const struct {
        const char *before, *piece, *after, *want;
        size_t times;
        int status;
    } cases[] = {
        {"{" IMAGE "," GOOD ",\"env\":{\"a\":\"b\"", ",\"k#\":\"v\"", "}}",
         "env may have at most 256 entries.", 256, 400},
        {"{" IMAGE ",\"resourceLimits\":{},\"entrypoint\":[\"a\"", ",\"#\"", "]}",
         "entrypoint may have at most 1024 entries.", 1024, 400},
        {"{" IMAGE "," GOOD ",\"metadata\":{\"a\":\"", "x#", "\"}}",
         "metadata.a may have at most 131072 bytes.", 70000, 400},
        {"{" IMAGE "," GOOD ",\"networkPolicy\":{\"egress\":[{\"action\":\"allow\",\"target\":\"",
         "x#", "\"}]}}", "networkPolicy.egress[0].target may have at most 131072 bytes.", 70000,
         400},
    };
    struct api_opts wide = {.max_body = 1 << 20};

    set_up_with(&wide);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_free_ char *body =
            body_with(cases[i].before, cases[i].piece, cases[i].times, cases[i].after);
        EXPECT(ask("POST", "/v1/sandboxes", body), cases[i].status, cases[i].want);
    }
    _cleanup_free_ char *patch = body_with("{\"a\":null", ",\"k#\":\"v\"", 256, "}");
    EXPECT(ask("PATCH", "/v1/sandboxes/x/metadata", patch), 400, "The body may have at most 256");
    ASSERT_INT(fake_count(drv), 0);
    reply_clear();
    tear_down();
}

TEST_MAIN()
