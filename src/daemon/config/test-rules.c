/* The rules between keys: what is refused, with which words, and that no value is ever among them.
 */
#include <errno.h>
#include <string.h>

#include "base/test.h"
#include "daemon/config/config.h"

#define DOCKER "[runtime]\ntype = \"docker\"\n"

static struct config c;
static struct strv warnings;
static struct err err;

static int parse(const char *text) {
    err = (struct err){0};
    strv_done(&warnings);
    return config_parse(text, strlen(text), "f.toml", &c, &warnings, &err);
}

static void done(void) {
    config_done(&c);
    strv_done(&warnings);
}

struct refusal {
    const char *text, *want;
};

/* "s3cret" stands in every value that must not show. */
static void refused(const struct refusal *all, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (parse(all[i].text) == 0)
            test_fail(__FILE__, __LINE__, "case %zu passes: %s", i, all[i].text);
        if (!strstr(err.msg, all[i].want))
            test_fail(__FILE__, __LINE__, "case %zu: \"%s\", expected \"%s\"", i, err.msg,
                      all[i].want);
        ASSERT(!strstr(err.msg, "s3cret"));
        strv_done(&warnings);
    }
}

TEST(docker_has_its_own_defaults) {
    ASSERT_OK(parse(DOCKER));
    ASSERT(config_is_docker(&c));
    ASSERT_STR(c.host, "0.0.0.0");
    ASSERT_STR(c.docker.network_mode, "host");
    ASSERT_STR(c.docker.publish_host, "0.0.0.0");
    ASSERT_INT(c.docker.port_min, 40000);
    ASSERT_INT(c.docker.port_max, 60000);
    ASSERT_INT(c.docker.pids_limit, 4096);
    ASSERT_INT(c.docker.drop_capabilities.n, 9);
    ASSERT_STR(c.docker.drop_capabilities.v[0], "AUDIT_WRITE");
    ASSERT_STR(c.docker.drop_capabilities.v[8], "SYS_TTY_CONFIG");
    ASSERT(c.docker.no_new_privileges && !c.docker.access_token && !c.docker.allow_isolation);
    ASSERT(!c.docker.sandbox_env && c.docker.sandbox_binds.n == 0 && c.docker.api_timeout_s == 0);
    ASSERT(c.proxy_resolve_internal && c.egress.disable_ipv6 && !c.egress.image);
    ASSERT_STR(c.egress.mode, "dns");
    ASSERT(c.egress.readiness_timeout_s > 29.9);
    ASSERT_STR(c.ossfs_mount_root, "/mnt/ossfs");
    ASSERT(!c.renew.enabled && !c.otel.enabled && !config_secure_runtime(&c));
    ASSERT_INT(c.renew.min_interval_s, 60);
    ASSERT_STR(c.otel.service_name, "opensandbox-server");
    ASSERT(!c.docker.legacy_metadata_dir || c.docker.legacy_metadata_dir[0] == '/');
    done();
    ASSERT_OK(parse(DOCKER "[docker]\ndrop_capabilities = []\npublish_host = \" \"\n"
                           "[server]\nhost = \"127.0.0.1\"\n"));
    ASSERT_INT(c.docker.drop_capabilities.n, 0);
    ASSERT_STR(c.docker.publish_host, "0.0.0.0");
    ASSERT_STR(c.host, "127.0.0.1");
    done();
    ASSERT_OK(parse("")); /* no [runtime]: native, on this machine only */
    ASSERT(!config_is_docker(&c));
    ASSERT_STR(c.host, "127.0.0.1");
    done();
}

TEST(what_belongs_to_another_runtime) {
    static const struct refusal all[] = {
        {"[runtime]\ntype = \"kubernetes\"\n", "f.toml:2: runtime.type: expected \"native\" or"},
        {DOCKER "[kubernetes]\n", "f.toml:3: kubernetes: expected no such section"},
        {DOCKER "[agent_sandbox]\n", "f.toml:3: agent_sandbox: expected no such section"},
        {DOCKER "[ingress]\nmode = \"gateway\"\n", "f.toml:4: ingress.mode: expected \"direct\""},
        {"[ingress]\nmode = \"gateway\"\n", "f.toml:2: ingress.mode: expected \"direct\""},
        {DOCKER "[ingress.gateway]\naddress = \"s3cret\"\n", "f.toml:3: ingress.gateway: expected"},
        {DOCKER "[ingress.secure_access]\nactive_key = \"a\"\n",
         "f.toml:3: ingress.secure_access: expected"},
        {DOCKER "[tenants]\n", "f.toml:3: tenants: expected no such section"},
        {"[tenants]\nprovider = \"file\"\n", "f.toml:1: tenants: expected no such section"},
        {DOCKER "[secure_runtime]\ntype = \"firecracker\"\nk8s_runtime_class = \"s3cret\"\n",
         "f.toml:4: secure_runtime.type: expected \"gvisor\" or \"kata\""},
        {DOCKER "[secure_runtime]\ntype = \"gvisor\"\n", "secure_runtime.docker_runtime or"},
        {DOCKER "[secure_runtime]\ndocker_runtime = \"s3cret\"\n",
         "f.toml:4: secure_runtime.docker_runtime: expected to be unset"},
        {DOCKER "[secure_runtime]\nk8s_runtime_class = \"s3cret\"\n",
         "f.toml:4: secure_runtime.k8s_runtime_class: expected to be unset"},
        {"[secure_runtime]\ntype = \"gvisor\"\ndocker_runtime = \"s3cret\"\n",
         "f.toml:2: secure_runtime.type: expected empty"},
        {DOCKER "[store]\ntype = \"postgresql\"\n", "store.postgresql.dsn: expected to be set"},
        {DOCKER "[store]\ntype = \"postgresql\"\n[store.postgresql]\ndsn = "
                "\"s3cret\"\nmin_pool_size = 11\n",
         "f.toml:7: store.postgresql.min_pool_size: expected not more than"},
    };
    refused(all, ARRAY_SIZE(all));
}

TEST(the_name_of_a_secure_runtime) {
    static const struct {
        const char *text, *name;
    } all[] = {
        {"type = \"gvisor\"\ndocker_runtime = \"mine\"\n", "mine"},
        {"type = \"gvisor\"\nk8s_runtime_class = \"x\"\n", "runsc"},
        {"type = \"kata\"\nk8s_runtime_class = \"x\"\n", "kata-runtime"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        _cleanup_free_ char *text = str_printf(DOCKER "[secure_runtime]\n%s", all[i].text);
        ASSERT_OK(parse(text));
        ASSERT_STR(config_secure_runtime(&c), all[i].name);
        done();
    }
}

TEST(gvisor_and_a_guard_is_a_warning) {
    ASSERT_OK(parse(DOCKER "[secure_runtime]\ntype = \"gvisor\"\ndocker_runtime = \"runsc\"\n"
                           "[egress]\nimage = \"e\"\n"));
    ASSERT_INT(warnings.n, 1);
    ASSERT(strstr(warnings.v[0], "f.toml:7: egress.image has no use"));
    done();
}

TEST(what_has_no_use_is_a_warning) {
    ASSERT_OK(parse("[docker]\nnetwork_mode = \"bridge\"\n"));
    ASSERT_INT(warnings.n, 1);
    ASSERT(strstr(warnings.v[0], "f.toml:1: docker has no use with runtime.type \"native\""));
    done();
    ASSERT_OK(parse(DOCKER "[egress]\nimage = \"e\"\nmode = \"dns+nft\"\n"));
    ASSERT_INT(warnings.n, 0); /* our own agent makes sandboxes trust the guard's certificate */
    done();
}

TEST(values_of_the_docker_section) {
    static const struct refusal all[] = {
        {DOCKER "[docker]\nport_range_min = 50000\nport_range_max = 50000\n",
         "f.toml:5: docker.port_range_max: expected more than docker.port_range_min"},
        {DOCKER "[docker]\nport_range_min = 50000\nport_range_max = 50099\n",
         "f.toml:5: docker.port_range_max: expected at least 100 more"},
        {DOCKER "[docker]\nport_range_min = 1023\n",
         "f.toml:4: docker.port_range_min: expected an integer from 1024 to 65535"},
        {DOCKER "[docker]\npublish_host = \"s3cret.example\"\n",
         "f.toml:4: docker.publish_host: expected an IPv4 address in digits"},
        {DOCKER "[docker]\npublish_host = \"::\"\n", "expected an IPv4 address in digits"},
        {DOCKER "[docker]\npublish_host = \"127.1\"\n", "expected an IPv4 address in digits"},
        {DOCKER "[docker]\napi_timeout = 0\n", "docker.api_timeout: expected an integer from 1"},
        {DOCKER "[docker]\npids_limit = 0\n", "docker.pids_limit: expected an integer from 1"},
        {DOCKER "[docker]\nnetwork_mode = \" \"\n", "docker.network_mode: expected a text that is"},
        {DOCKER "[docker]\nsandbox_binds = [\"s3cret\"]\n", "docker.sandbox_binds: expected"},
        {DOCKER "[docker]\nsandbox_env = { \"a=s3cret\" = \"b\" }\n",
         "docker.sandbox_env: expected"},
        {DOCKER "[docker]\ndrop_capabilities = [\"\"]\n", "docker.drop_capabilities: expected"},
    };
    refused(all, ARRAY_SIZE(all));
    ASSERT_OK(parse(DOCKER "[docker]\nport_range_min = 50000\nport_range_max = 50100\n"));
    done();
}

#define NFT DOCKER "[egress]\nmode = \"dns+nft\"\n[egress.upstream_proxy]\n"

TEST(the_guard_and_its_proxy) {
    static const struct refusal all[] = {
        {DOCKER "[egress]\nimage = \"\"\n", "f.toml:4: egress.image: expected a text that is not"},
        {DOCKER "[egress]\nreadiness_timeout_seconds = 0\n", "expected a number above 0"},
        {DOCKER "[egress]\notlp_endpoint = \"ftp://s3cret\"\n", "f.toml:4: egress.otlp_endpoint:"},
        {DOCKER "[egress]\notlp_endpoint = \"http://\"\n", "egress.otlp_endpoint: expected"},
        {DOCKER "[egress.upstream_proxy]\nurl = \"http://s3cret:3128\"\n",
         "f.toml:3: egress.upstream_proxy: expected egress.mode \"dns+nft\""},
        {NFT "authorization = \"s3cret\"\n", "f.toml:5: egress.upstream_proxy: expected a url"},
        {NFT "url = \"s3cret:3128\"\n", "f.toml:6: egress.upstream_proxy.url: expected http://"},
        {NFT "url = \"http://u:s3cret@p:1\"\n", "egress.upstream_proxy.url: expected"},
        {NFT "url = \"http://p/s3cret\"\n", "egress.upstream_proxy.url: expected"},
        {NFT "url = \"http://p?s3cret\"\n", "egress.upstream_proxy.url: expected"},
        {NFT "url = \"http://p#s3cret\"\n", "egress.upstream_proxy.url: expected"},
        {NFT "url = \"http://p:0\"\n", "egress.upstream_proxy.url: expected"},
        {NFT "url = \"http://p:65536\"\n", "egress.upstream_proxy.url: expected"},
        {NFT "url = \"http://:80\"\n", "egress.upstream_proxy.url: expected"},
        {NFT "url = \"http://s3\\u0007cret\"\n", "egress.upstream_proxy.url: expected"},
        {NFT "url = \"http://p\"\nauthorization = \"s3cret\\r\\nX: y\"\n",
         "f.toml:7: egress.upstream_proxy.authorization: expected one line"},
        {NFT "url = \"http://p\"\nca_cert_path = \"s3cret\"\n",
         "ca_cert_path: expected an absolute"},
        {NFT "url = \"http://p\"\nca_cert_path = \"/a:s3cret\"\n", "ca_cert_path: expected"},
        {NFT "url = \"http://p\"\nca_secret_name = \"s3cret\"\n",
         "ca_secret_name: expected to be unset"},
    };
    refused(all, ARRAY_SIZE(all));
    ASSERT_OK(
        parse(NFT "url = \" https://proxy.example:3128/ \"\nca_cert_path = \"/etc/ca.pem\"\n"));
    ASSERT_STR(c.egress.proxy_url, "https://proxy.example:3128/");
    done();
    ASSERT_OK(parse(NFT "url = \"http://[::1]:3128\"\n"));
    done();
}

TEST(several_keys_with_names) {
    static const struct refusal all[] = {
        {"[server.api_keys]\nci = \"\"\n", "f.toml:2: server.api_keys.ci: expected a text that"},
        {"[server.api_keys]\nci = 5\n", "f.toml:2: server.api_keys.ci: expected a text"},
        {"[server.api_keys]\n\"a b\" = \"s3cret\"\n", "f.toml:1: server.api_keys: expected names"},
        {"[server.api_keys]\ndefault = \"s3cret\"\n",
         "f.toml:2: server.api_keys.default: expected"},
        {"[server.api_keys]\na = \"s3cret\"\nb = \"s3cret\"\n", "expected a key that no other"},
        {"[server]\napi_key = \"s3cret\"\n[server.api_keys]\nb = \"s3cret\"\n",
         "f.toml:4: server.api_keys.b: expected a key that no other"},
        {"[server.api_keys]\nb = \"s3cret\\n\"\n", "expected a key without control characters"},
    };
    refused(all, ARRAY_SIZE(all));
    ASSERT_OK(parse("[server.api_keys]\nci = \"0123456789abcdef\"\nops = \"short\"\n"));
    ASSERT(config_has_key(&c));
    ASSERT_STR(json_str(c.api_keys, "ci"), "0123456789abcdef");
    ASSERT_INT(warnings.n, 1);
    ASSERT(strstr(warnings.v[0], "f.toml:3: server.api_keys.ops is short"));
    done();
    ASSERT_OK(parse("[server]\napi_key = \" \"\n"));
    ASSERT(!config_has_key(&c));
    done();
}

TEST(trusted_proxies) {
    static const struct refusal all[] = {
        {"[server]\ntrusted_proxies = [\"s3cret\"]\n",
         "f.toml:2: server.trusted_proxies: expected"},
        {"[server]\ntrusted_proxies = [\"10.0.0.0/33\"]\n", "server.trusted_proxies: expected"},
        {"[server]\ntrusted_proxies = [\"::/129\"]\n", "server.trusted_proxies: expected"},
        {"[server]\ntrusted_proxies = \"10.0.0.1\"\n", "expected a list of texts"},
    };
    refused(all, ARRAY_SIZE(all));
    ASSERT_OK(parse("[server]\ntrusted_proxies = [\"10.0.0.1\", \"10.0.0.0/8\", \"fd00::/8\"]\n"));
    ASSERT_INT(c.trusted_proxies.n, 3);
    done();
}

TEST(renewal_and_export) {
    static const struct refusal all[] = {
        {"[renew_intent]\nredis.enabled = true\n", "renew_intent.redis.dsn: expected to be set"},
        {"[otel]\nenabled = true\nendpoint = \"https://s3cret\"\n", "f.toml:3: otel.endpoint:"},
        {"[otel]\nenabled = true\nendpoint = \"s3cret\"\n", "f.toml:3: otel.endpoint: expected"},
        {"[otel]\nexport_interval_millis = 999\n", "expected an integer from 1000"},
    };
    refused(all, ARRAY_SIZE(all));
}

TEST(older_files_are_no_mistake) {
    ASSERT_OK(parse("[kubernetes]\ninformer_enabled = true\nservice_account = \"x\"\n"
                    "snapshot_create_timeout_seconds = 5\n"));
    ASSERT_INT(warnings.n, 0);
    done();
}

TEST(older_names_of_directories_hold) {
    ASSERT_OK(parse("[native]\nstate_dir = \"/a\"\nrun_dir = \"/b\"\nlibexec_dir = \"/c\"\n"));
    ASSERT_STR(c.state_dir, "/a");
    ASSERT_STR(c.run_dir, "/b");
    ASSERT_STR(c.libexec_dir, "/c");
    done();
    setenv("HOME", "/home/somebody", 1);
    ASSERT_OK(parse("[server]\nstate_dir = \"~/a\"\n"));
    ASSERT_STR(c.state_dir, "/home/somebody/a");
    ASSERT_STR(c.docker.legacy_metadata_dir, "/home/somebody/.opensandbox/metadata");
    done();
}

TEST_MAIN()
