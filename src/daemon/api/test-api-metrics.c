/* GET /metrics over the API: who may read it, and what an afternoon's traffic leaves there. */
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "daemon/api/test-kit.h"
#include "daemon/telemetry/telemetry.h"

static const struct h1_header none[] = {{NULL, NULL}};

TEST(metrics_need_the_key_unless_they_are_public) {
    set_up();
    EXPECT(ask_with("GET", "/metrics", NULL, none), 401, "MISSING_API_KEY");
    EXPECT(ask("GET", "/metrics", NULL), 200, "# TYPE cove_sandboxes gauge");
    ASSERT(has_header("Content-Type: " TELEMETRY_TYPE));
    EXPECT(ask("GET", "/v1/metrics", NULL), 404, "Not Found"); /* bare only */
    EXPECT(ask("POST", "/metrics", "{}"), 405, "Method Not Allowed");
    begin("GET", "/metrics", NULL, none, true);
    wait_reply();
    ASSERT_INT(last.status, 200); /* the Unix socket */
    reply_clear();
    tear_down();
}

TEST(what_was_done_is_counted) {
    static const struct h1_header agent[] = {{"OPEN-SANDBOX-API-KEY", "secret-key"},
                                             {"User-Agent", "OpenSandbox-Python-SDK/1.1.1"},
                                             {NULL, NULL}};
    set_up();
    telemetry_reset();
    const char *id = create("{" IMAGE "," GOOD "}");
    EXPECT(ask("POST", "/v1/sandboxes", "{}"), 422, "");
    ASSERT_INT(ask("POST", url("/v1/sandboxes/@/pause", id), NULL), 202);
    EXPECT(ask_with("POST", "/v1/metrics/events",
                    "{\"eventType\":\"sandbox.create\",\"createDurationMs\":12,\"success\":true}",
                    agent),
           204, "");
    EXPECT(ask_with("POST", "/v1/metrics/events", "{\"eventType\":\"other\"}", agent), 422, "");
    ASSERT_INT(ask("GET", "/metrics", NULL), 200);
    static const char *const lines[] = {
        "cove_sandboxes{state=\"Paused\"} 1\n",
        "cove_sandboxes{state=\"Running\"} 0\n",
        "cove_sandbox_create_seconds_count{driver=\"fake\",success=\"true\"} 1\n",
        "cove_sandbox_create_seconds_count{driver=\"fake\",success=\"false\"} 0\n",
        "cove_sandbox_operations_total{operation=\"pause\",success=\"true\"} 1\n",
        "cove_http_request_seconds_count{method=\"POST\",route=\"/v1/sandboxes\",status=\"202\"} "
        "1\n",
        "cove_http_request_seconds_count{method=\"POST\",route=\"/v1/sandboxes\",status=\"422\"} "
        "1\n",
        "route=\"/v1/sandboxes/{id}/pause\",status=\"202\"} 1\n",
        "cove_sdk_create_seconds_count{language=\"python\",version=\"1.1.1\",success=\"true\"} 1\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        if (!strstr(text(), lines[i]))
            test_fail(__FILE__, __LINE__, "no %s in %s", lines[i], text());
    ASSERT(!strstr(text(), id)); /* no series per sandbox */
    ASSERT_INT(ask("DELETE", url("/v1/sandboxes/@", id), NULL), 204);
    EXPECT(ask("GET", "/metrics", NULL), 200,
           "cove_sandbox_operations_total{operation=\"delete\",success=\"true\"} 1\n");
    reply_clear();
    tear_down();
}

TEST_MAIN()
