/* Conversations with the lifecycle API over the test driver: sandboxes, lists, faults. */
#include "daemon/api/test-kit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

TEST_MAIN()
