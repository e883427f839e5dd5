/* Counting and both renderings; series whose names come from outside are bounded. */
#include "daemon/telemetry/telemetry.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "base/test.h"

static struct buf text;

static const char *render(void) {
    static const char *const states[] = {"Running", "Paused"};
    static const size_t counts[] = {3, 1};
    struct telemetry_now now = {.driver = "fake",
                                .states = states,
                                .sandboxes = counts,
                                .n_states = 2,
                                .workers = 5,
                                .workers_idle = 2,
                                .workers_max = 64};
    buf_done(&text);
    ASSERT_OK(telemetry_write(&text, &now));
    return text.data;
}

static void shown(const char *line) {
    _cleanup_free_ char *whole = str_printf("\n%s\n", line);
    if (!strstr(render(), whole))
        test_fail(__FILE__, __LINE__, "no line \"%s\" in\n%s", line, text.data);
}

static size_t count_of(const char *needle) {
    size_t n = 0;
    for (const char *p = render(); (p = strstr(p, needle)); p++)
        n++;
    return n;
}

TEST(requests_are_counted_by_route_method_and_status) {
    static const char route[] = "/sandboxes/{id}", v1[] = "/v1", bare[] = "";

    telemetry_reset();
    telemetry_request("GET", v1, route, 200, 2000, 10);
    telemetry_request("GET", v1, route, 200, 2000000, 5);
    telemetry_request("GET", bare, route, 200, 1, 0);
    telemetry_request("BREW", v1, NULL, 404, 1, 0);
    shown("cove_http_request_seconds_bucket{method=\"GET\",route=\"/v1/sandboxes/{id}\","
          "status=\"200\",le=\"0.001\"} 0");
    shown("cove_http_request_seconds_bucket{method=\"GET\",route=\"/v1/sandboxes/{id}\","
          "status=\"200\",le=\"0.0025\"} 1");
    shown("cove_http_request_seconds_bucket{method=\"GET\",route=\"/v1/sandboxes/{id}\","
          "status=\"200\",le=\"+Inf\"} 2");
    shown("cove_http_request_seconds_sum{method=\"GET\",route=\"/v1/sandboxes/{id}\","
          "status=\"200\"} 2.002000");
    shown("cove_http_response_bytes_total{method=\"GET\",route=\"/v1/sandboxes/{id}\","
          "status=\"200\"} 15");
    shown("cove_http_request_seconds_count{method=\"GET\",route=\"/sandboxes/{id}\","
          "status=\"200\"} 1");
    shown("cove_http_request_seconds_count{method=\"other\",route=\"unknown\",status=\"404\"} 1");
}

TEST(series_of_requests_are_bounded) {
    static const char route[] = "/x";

    telemetry_reset();
    for (int status = 0; status < 2000; status++)
        telemetry_request("GET", "", route, status, 1, 0);
    ASSERT_INT(count_of("cove_http_request_seconds_count{"), 769);
    shown("cove_http_request_seconds_count{method=\"other\",route=\"other\",status=\"0\"} 1232");
}

TEST(creates_operations_and_what_is_so_now) {
    telemetry_reset();
    telemetry_create(true, 300000);
    telemetry_create(false, 10);
    telemetry_create_step("image", 5000);
    telemetry_create_step("image", 7000);
    telemetry_op(TELEMETRY_EXPIRE, true);
    shown("cove_sandbox_create_seconds_count{driver=\"fake\",success=\"true\"} 1");
    shown("cove_sandbox_create_seconds_bucket{driver=\"fake\",success=\"true\",le=\"0.25\"} 0");
    shown("cove_sandbox_create_seconds_bucket{driver=\"fake\",success=\"true\",le=\"0.5\"} 1");
    shown("cove_sandbox_create_step_seconds_sum{step=\"image\"} 0.012000");
    shown("cove_sandbox_create_step_seconds_count{step=\"image\"} 2");
    shown("cove_sandbox_operations_total{operation=\"expire\",success=\"true\"} 1");
    shown("cove_sandboxes{state=\"Running\"} 3");
    shown("cove_workers_busy 3");
    shown("cove_build_info{version=\"" COVE_VERSION "\",driver=\"fake\"} 1");
    ASSERT(strstr(text.data, "\nprocess_resident_memory_bytes "));
    ASSERT(strstr(text.data, "\nprocess_open_fds "));
}

TEST(every_family_is_announced_once_and_before_its_samples) {
    char name[100], line[400];
    struct strv seen = {0};

    telemetry_reset();
    telemetry_request("GET", "", "/x", 200, 1, 0);
    telemetry_engine_call("GET", "/info", 0, 5);
    for (const char *p = render(); *p; p += strcspn(p, "\n") + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        if (sscanf(line, "# TYPE %99s", name) == 1) {
            for (size_t i = 0; i < seen.n; i++)
                ASSERT(strcmp(seen.v[i], name) != 0);
            ASSERT_OK(strv_add(&seen, name));
        } else if (line[0] != '#') {
            ASSERT(seen.n > 0 && str_starts(line, seen.v[seen.n - 1]));
        }
    }
    strv_done(&seen);
}

TEST(sdks_tell_of_creates) {
    telemetry_reset();
    telemetry_sdk_create("OpenSandbox-Python-SDK/1.1.1", true, 250);
    telemetry_sdk_create("x OpenSandbox-JavaScript-SDK/0.1.11 (node)", false, 250);
    telemetry_sdk_create(NULL, true, 1);
    telemetry_sdk_create("OpenSandbox-Ev\"il\n-SDK/1", true, INT64_MAX);
    shown(
        "cove_sdk_create_seconds_count{language=\"python\",version=\"1.1.1\",success=\"true\"} 1");
    shown("cove_sdk_create_seconds_count{language=\"javascript\",version=\"0.1.11\","
          "success=\"false\"} 1");
    shown("cove_sdk_create_seconds_count{language=\"unknown\",version=\"unknown\","
          "success=\"true\"} 1");
    ASSERT(!strstr(text.data, "il\""));
    for (int i = 0; i < 500; i++) {
        _cleanup_free_ char *agent = str_printf("OpenSandbox-L%d-SDK/1", i);
        telemetry_sdk_create(agent, i % 2, 1);
    }
    ASSERT_INT(count_of("cove_sdk_create_seconds_count{"), 64);
}

static void *calls(void *arg) {
    for (int i = 0; i < 10000; i++)
        telemetry_engine_call("POST", "/containers/abc/start", i % 10 == 0 ? -5 : 0, 3);
    return NULL;
}

TEST(engine_calls_are_counted_from_any_thread) {
    static const struct {
        const char *method, *path, *call;
    } cases[] = {
        {"POST", "/v1.41/containers/create?name=x", "containers create"},
        {"GET", "/containers/abc/json", "containers inspect"},
        {"GET", "/containers/json?all=1", "containers list"},
        {"DELETE", "/containers/abc?force=1", "containers remove"},
        {"PUT", "/containers/abc/archive?path=%2F", "containers archive"},
        {"POST", "/images/create?fromImage=a", "images create"},
        {"GET", "/images/a/b:c/json", "images inspect"},
        {"DELETE", "/images/a", "images remove"},
        {"GET", "/volumes/x", "volumes inspect"},
        {"POST", "/volumes/create", "volumes create"},
        {"GET", "/networks/x", "networks inspect"},
        {"GET", "/info", "info list"},
        {"GET", "/events?since=1", "events list"},
        {"POST", "/commit?container=x", "commit create"},
        {"GET", "/something/else", "other other"},
        {"GET", "", "other other"},
    };
    pthread_t threads[4];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        telemetry_reset();
        telemetry_engine_call(cases[i].method, cases[i].path, 0, 1);
        _cleanup_free_ char *line =
            str_printf("cove_engine_calls_total{call=\"%s\"} 1", cases[i].call);
        shown(line);
    }
    telemetry_reset();
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        ASSERT_INT(pthread_create(&threads[i], NULL, calls, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        pthread_join(threads[i], NULL);
    shown("cove_engine_calls_total{call=\"containers start\"} 40000");
    shown("cove_engine_call_failures_total{call=\"containers start\"} 4000");
    shown("cove_engine_call_seconds_total{call=\"containers start\"} 0.120000");
}

TEST(the_export_has_both_histograms) {
    _cleanup_json_ json_t *resource = json_pack("{s:s}", "service.name", "mine");

    telemetry_reset();
    _cleanup_json_ json_t *empty = telemetry_otlp(resource);
    ASSERT(empty);
    telemetry_sdk_create("OpenSandbox-Go-SDK/2", true, 7);
    telemetry_request("POST", "/v1", "/sandboxes", 202, 1500000, 0);
    _cleanup_json_ json_t *j = telemetry_otlp(resource);
    _cleanup_free_ char *out = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
    static const char *const parts[] = {
        "{\"key\":\"service.name\",\"value\":{\"stringValue\":\"mine\"}}",
        "\"name\":\"opensandbox.sandbox.create.duration\"",
        "{\"key\":\"sdk.language\",\"value\":{\"stringValue\":\"go\"}}",
        "{\"key\":\"success\",\"value\":{\"boolValue\":true}}",
        "\"name\":\"server.http.request.duration\"",
        "{\"key\":\"http_route\",\"value\":{\"stringValue\":\"/v1/sandboxes\"}}",
        "{\"key\":\"http_status_code\",\"value\":{\"intValue\":\"202\"}}",
        "\"sum\":1500.0",
        "\"count\":\"1\"",
        "\"aggregationTemporality\":2",
        "\"unit\":\"ms\"",
        "\"bucketCounts\":[\"0\",\"0\",\"0\",\"1\",",
    };
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        if (!strstr(out, parts[i]))
            test_fail(__FILE__, __LINE__, "no %s in %s", parts[i], out);
    buf_done(&text);
}

TEST_MAIN()
