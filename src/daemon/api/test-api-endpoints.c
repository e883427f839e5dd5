/* Addresses of sandbox ports. */
#include "daemon/api/test-kit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/opensandbox/hosts.h"

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

static void expect_endpoint(const char *id, const char *path, const char *want) {
    EXPECT(ask("GET", url(path, id), NULL), 200, want);
}

TEST(published_ports) {
    set_up_with(&(struct api_opts){.host = "10.1.2.3"});
    const char *id = create("{" IMAGE "," GOOD "}");
    fake_set_published(drv, (struct published){.host_port = 45001});
    expect_endpoint(id, "/v1/sandboxes/@/endpoints/8080", "{\"endpoint\":\"10.1.2.3:45001\"}");
    fake_set_published(drv, (struct published){.host_port = 45002, .via_agent = true});
    expect_endpoint(id, "/v1/sandboxes/@/endpoints/3000",
                    "{\"endpoint\":\"10.1.2.3:45002/proxy/3000\","
                    "\"headers\":{\"X-EXECD-ACCESS-TOKEN\":");
    fake_set_guard(drv, "guard-token");
    expect_endpoint(id, "/v1/sandboxes/@/endpoints/18080",
                    "{\"OPENSANDBOX-EGRESS-AUTH\":\"guard-token\",\"X-EXECD-ACCESS-TOKEN\":");
    /* through this server: the guard's token is needed, the agent's is not */
    EXPECT(ask("GET", url("/v1/sandboxes/@/endpoints/18080?use_server_proxy=true", id), NULL), 200,
           "\"headers\":{\"OPENSANDBOX-EGRESS-AUTH\":\"guard-token\"}}");
    EXPECT(ask("GET", url("/v1/sandboxes/@/endpoints/3000?use_server_proxy=true", id), NULL), 200,
           "/proxy/3000\"}");
    ASSERT(!strcasestr(last.headers.data, "OPEN-SANDBOX-ORIGIN:"));
    reply_clear();
    tear_down();
}

TEST(a_public_address) {
    static const struct {
        const char *eip, *direct, *proxied, *proxy_address;
    } cases[] = {
        {"9.9.9.9", "\"9.9.9.9:45001\"", "\"9.9.9.9:8080/sandboxes/"},
        {"front.example:99", "\"front.example:45001\"", "\"front.example:99/sandboxes/"},
        {"https://front.example/base/", "\"front.example:45001\"",
         "\"front.example/base/sandboxes/"},
        {"[2001:db8::1]:7", "\"[2001:db8::1]:45001\"", "\"[2001:db8::1]:7/sandboxes/"},
        {"9.9.9.9", "\"9.9.9.9:45001\"", "\"front.example/api/sandboxes/", "front.example/api"},
        {"9.9.9.9", "\"9.9.9.9:45001\"", "\"front:8080/sandboxes/", "front"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        set_up_with(
            &(struct api_opts){.eip = cases[i].eip, .proxy_address = cases[i].proxy_address});
        const char *id = create("{" IMAGE "," GOOD "}");
        fake_set_published(drv, (struct published){.host_port = 45001});
        expect_endpoint(id, "/v1/sandboxes/@/endpoints/8080", cases[i].direct);
        expect_endpoint(id, "/v1/sandboxes/@/endpoints/8080?use_server_proxy=true",
                        cases[i].proxied);
        fake_set_published(drv, (struct published){0}); /* nothing published: the same way */
        expect_endpoint(id, "/v1/sandboxes/@/endpoints/8080", cases[i].proxied);
        reply_clear();
        tear_down();
    }
}

TEST(the_host_that_is_told) {
    static const struct {
        struct hosts_setup in;
        const char *want;
    } cases[] = {
        {{.eip = "1.1.1.1", .server_host = "2.2.2.2", .host_ip = "3.3.3.3", true}, "1.1.1.1"},
        {{.server_host = "0.0.0.0", .host_ip = "3.3.3.3", .in_container = true}, "3.3.3.3"},
        {{.server_host = "", .host_ip = "3.3.3.3", .in_container = true}, "3.3.3.3"},
        {{.server_host = "localhost", .host_ip = "3.3.3.3", .in_container = true}, "3.3.3.3"},
        {{.server_host = "::1", .host_ip = "fd00::3", .in_container = true}, "[fd00::3]"},
        {{.server_host = "2.2.2.2", .host_ip = "3.3.3.3", .in_container = true}, "2.2.2.2"},
        {{.server_host = "127.0.0.1", .host_ip = "3.3.3.3"}, "127.0.0.1"},
        {{.server_host = "fd00::2"}, "[fd00::2]"},
    };
    char got[256];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ASSERT_STR(hosts_public(&cases[i].in, got, sizeof got), cases[i].want);
    const char *found = hosts_public(&(struct hosts_setup){.server_host = "0.0.0.0"}, got, 256);
    ASSERT(*found && strcmp(found, "0.0.0.0") != 0);
}

TEST(signs_of_a_container) {
    static const char *const yes[] = {"A=b", "container=podman", NULL},
                             *const also[] = {"CONTAINER=systemd-nspawn", NULL},
                             *const no[] = {"container=other", "XCONTAINER=docker", NULL};
    char root[] = "/tmp/cove-test-hosts-XXXXXX", file[64];

    ASSERT(mkdtemp(root));
    ASSERT(hosts_in_container(root, yes) && hosts_in_container(root, also));
    ASSERT(!hosts_in_container(root, no) && !hosts_in_container(root, NULL));
    snprintf(file, sizeof file, "%s/.dockerenv", root);
    FILE *f = fopen(file, "w");
    ASSERT(f && fclose(f) == 0);
    ASSERT(hosts_in_container(root, no));
    ASSERT(unlink(file) == 0 && rmdir(root) == 0);
}

TEST_MAIN()
