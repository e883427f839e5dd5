/* Diagnostics in text and JSON. */
#include "daemon/api/test-kit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api/opensandbox/diagnostics.h"

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
           "  CPU:          1.50 cores\n  Memory:       1024 MiB\n");
    ASSERT(strstr(text(), "MY_TOKEN=***") && strstr(text(), "PLAIN=shown") &&
           !strstr(text(), "hidden"));
    ASSERT(!has_header("Deprecation: true"));
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/events", id), NULL), 200,
           "Status:     running\nCreated:    ");
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

TEST(what_the_driver_describes) {
    static const char json_text[] =
        "{\"containerId\":\"0123456789abcdef\",\"name\":\"sandbox-x\",\"image\":\"python:3\","
        "\"status\":\"exited\",\"running\":false,\"oomKilled\":true,\"exitCode\":137,"
        "\"startedAt\":\"2026-01-01T00:00:00Z\",\"finishedAt\":\"2026-01-01T00:01:00Z\","
        "\"createdAt\":\"2025-12-31T23:59:59Z\",\"error\":\"no route to http://me:pw@proxy/\","
        "\"nanoCpus\":500000000,\"memoryBytes\":268435456,\"pidsLimit\":4096,"
        "\"networks\":{\"bridge\":\"172.17.0.2\"},"
        "\"ports\":{\"44772/tcp\":\"0.0.0.0:45001\",\"9/udp\":null},"
        "\"labels\":{\"z\":\"1\",\"opensandbox.io/egress-auth-token\":\"secret\",\"a\":\"2\"},"
        "\"env\":[\"API_KEY=secret\",\"URL=https://user:secret@host/p?x=y@z\",\"EMPTY=\"],"
        "\"health\":{\"status\":\"unhealthy\",\"log\":[\"first\",\"second\\nline\"]}}";
    static const char inspect[] = "Container ID:   0123456789ab\n"
                                  "Name:           sandbox-x\n"
                                  "Image:          python:3\n"
                                  "Status:         exited\n"
                                  "Running:        False\n"
                                  "Paused:         False\n"
                                  "OOMKilled:      True\n"
                                  "Exit Code:      137\n"
                                  "Started At:     2026-01-01T00:00:00Z\n"
                                  "Finished At:    2026-01-01T00:01:00Z\n"
                                  "Error:          no route to http://***@proxy/\n"
                                  "\nResources:\n"
                                  "  CPU:          0.50 cores\n"
                                  "  Memory:       256 MiB\n"
                                  "  PIDs Limit:   4096\n"
                                  "\nNetwork:\n"
                                  "  bridge: 172.17.0.2\n"
                                  "\nPorts:\n"
                                  "  44772/tcp -> 0.0.0.0:45001\n"
                                  "  9/udp (not bound)\n"
                                  "\nLabels:\n"
                                  "  a=2\n"
                                  "  opensandbox.io/egress-auth-token=***\n"
                                  "  z=1\n"
                                  "\nEnvironment:\n"
                                  "  API_KEY=***\n"
                                  "  URL=https://***@host/p?x=y@z\n"
                                  "  EMPTY=\n";
    static const char events[] =
        "Container:  0123456789ab (sandbox-x)\n"
        "Status:     exited\n"
        "Created:    2025-12-31T23:59:59Z\n"
        "Started:    2026-01-01T00:00:00Z\n"
        "Finished:   2026-01-01T00:01:00Z\n"
        "Event:      OOMKilled - container was killed due to out-of-memory\n"
        "Event:      Exited with code 137\n"
        "Event:      Error - no route to http://***@proxy/\n"
        "Health:     unhealthy\n"
        "  second line\n";
    set_up();
    const char *id = create("{" IMAGE "," GOOD "}");
    fake_set_details(drv, json_parse(json_text, sizeof json_text - 1, NULL));
    ASSERT_INT(ask("GET", url("/v1/sandboxes/@/diagnostics/inspect", id), NULL), 200);
    ASSERT_STR(text(), inspect);
    ASSERT_INT(ask("GET", url("/v1/sandboxes/@/diagnostics/events?limit=1", id), NULL), 200);
    ASSERT_STR(text(), events);
    ASSERT(has_header("Deprecation: true"));
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/summary?tail=3", id), NULL), 200, inspect);
    ASSERT(strstr(text(), "\nEVENTS\n----------------------------------------\nContainer:  ") &&
           strstr(text(), "\nLOGS (last 3 lines)\n"));
    ASSERT(!strstr(text(), "secret"));
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/summary?event_limit=501", id), NULL), 422,
           "event_limit");
    fake_fail(drv, FAKE_LOGS, -EIO, "with a secret inside", 1);
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/summary", id), NULL), 200,
           "[error: the log could not be read]");
    EXPECT(ask("GET", url("/v1/sandboxes/@/diagnostics/events?scope=", id), NULL), 400,
           "Unsupported events diagnostics scope ''. Supported scopes: runtime, all.");
    reply_clear();
    tear_down();
}

TEST(parts_of_a_log) {
    bool more;

    ASSERT_STR(diag_last_lines("a\nb\nc\n", 2, &more), "b\nc\n");
    ASSERT(more);
    ASSERT_STR(diag_last_lines("a\nb", 2, &more), "a\nb");
    ASSERT(!more);
    ASSERT_STR(diag_last_bytes("aaaa\nbb\ncc\n", 8, &more), "bb\ncc\n");
    ASSERT(more);
    ASSERT_STR(diag_last_bytes("aaaaaaaa", 3, &more), "aaa");
    ASSERT_STR(diag_last_bytes("aa\n", 3, &more), "aa\n");
    ASSERT(!more);
    _cleanup_free_ char *clean = diag_to_utf8("a\xff\xc3\xa9\xe2\x82");
    ASSERT_STR(clean, "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(how_far_back) {
    static const struct {
        const char *in;
        int64_t want;
    } cases[] = {{"30", 30},
                 {"10m", 600},
                 {" 2 H ", 7200},
                 {"1d", 86400},
                 {"5s", 5},
                 {"", 600},
                 {"m", 600},
                 {"-5m", 600},
                 {"5 w", 600},
                 {"1.5h", 600},
                 {"5mm", 600},
                 {"0", 0},
                 {"99999999999999999999", 600}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ASSERT_INT(diag_parse_since(cases[i].in), cases[i].want);
}

TEST(names_that_smell) {
    ASSERT(diag_is_secret_name("MY_TOKEN", 8) && diag_is_secret_name("apiKey", 6) &&
           diag_is_secret_name("password", 8) && diag_is_secret_name("xSeCrEtx", 8));
    ASSERT(!diag_is_secret_name("TOKE", 4) && !diag_is_secret_name("KEYS", 2));
}

TEST_MAIN()
