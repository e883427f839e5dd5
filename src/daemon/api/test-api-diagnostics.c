/* Diagnostics in text and JSON. */
#include "daemon/api/test-kit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

TEST_MAIN()
