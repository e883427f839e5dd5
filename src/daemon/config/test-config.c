/* The table of keys: defaults, bounds, messages with positions and without values, both renderings.
 */
#include "daemon/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/test.h"
#include "daemon/config/toml.h"

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

TEST(an_empty_file_gives_the_defaults) {
    ASSERT_OK(parse(""));
    ASSERT_STR(c.host, "127.0.0.1");
    ASSERT_INT(c.port, 8080);
    ASSERT_INT(c.socket_mode, 0660);
    ASSERT_STR(c.runtime_type, "native");
    ASSERT_STR(c.state_dir, "/var/lib/cove");
    ASSERT(c.userns && c.access_token && !c.log_json);
    ASSERT(!c.api_key && !c.store_dir);
    ASSERT_INT(c.allowed_host_paths.n, 0);
    ASSERT_INT(warnings.n, 0);
    done();
}

TEST(values_are_taken) {
    ASSERT_OK(
        parse("[server]\nport = 99\napi_key = \"k\"\nmax_sandbox_timeout_seconds = 3600\n"
              "[log]\nlevel = \"DEBUG\"\n[runtime]\ntype = \"native\"\n"
              "[storage]\nallowed_host_paths = [\"/a\", \"/b\"]\n[native]\nuserns = false\n"));
    ASSERT_INT(c.port, 99);
    ASSERT_STR(c.api_key, "k");
    ASSERT_INT(c.max_sandbox_timeout_s, 3600);
    ASSERT_STR(c.allowed_host_paths.v[1], "/b");
    ASSERT(!c.userns);
    enum log_level l;
    ASSERT_OK(config_log_level(&c, &l));
    ASSERT_INT(l, LOG_DEBUG);
    done();
}

TEST(files_of_opensandbox_are_understood) {
    ASSERT_OK(parse("[server]\nhost = \"0.0.0.0\"\nloop = \"uvloop\"\ntimeout_keep_alive = 30\n"
                    "[runtime]\ntype = \"native\"\nexecd_image = \"x:y\"\n"
                    "[docker]\nnetwork_mode = \"bridge\"\ndrop_capabilities = [\"A\"]\nsandbox_env "
                    "= { A = \"b\" }\n"
                    "[docker.other]\nx = 1\n"
                    "[ingress]\nmode = \"direct\"\n"
                    "[egress]\nimage = \"e\"\nmode = \"dns+nft\"\nreadiness_timeout_seconds = 3\n"
                    "[renew_intent]\nenabled = true\nredis.enabled = false\n"
                    "[store]\ntype = \"sqlite\"\n[router]\na = 1\n[pause]\nb = 2\n"));
    size_t unknown = 0, unused = 0;
    for (size_t i = 0; i < warnings.n; i++) {
        unknown += strstr(warnings.v[i], "is no known key, ignored") != NULL;
        unused += strstr(warnings.v[i], "has no effect in this version") != NULL;
    }
    ASSERT_INT(unknown, 6); /* docker.other, router, pause, and what is in them */
    ASSERT_INT(unused, 0);
    ASSERT(c.renew.enabled && !c.renew.redis_enabled);
    ASSERT_STR(c.docker.network_mode, "bridge");
    ASSERT_STR(c.docker.drop_capabilities.v[0], "A");
    ASSERT_STR(json_str(c.docker.sandbox_env, "A"), "b");
    ASSERT_STR(c.egress.mode, "dns+nft");
    ASSERT(c.egress.readiness_timeout_s > 2.9 && c.egress.readiness_timeout_s < 3.1);
    done();
}

TEST(messages_name_the_place_and_what_was_expected) {
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"[server]\nport = 0\n", "f.toml:2: server.port: expected an integer from 1 to 65535"},
        {"[server]\nport = \"secret-1\"\n",
         "f.toml:2: server.port: expected an integer from 1 to 65535"},
        {"[server]\nhost = \" \"\n", "f.toml:2: server.host: expected a text that is not blank"},
        {"[server]\napi_key = 5\n", "f.toml:2: server.api_key: expected a text"},
        {"\n\n[server]\nloop = \"other\"\n",
         "f.toml:4: server.loop: expected one of \"auto\", \"uvloop\", \"asyncio\""},
        {"[server]\nmax_sandbox_timeout_seconds = 59\n",
         "f.toml:2: server.max_sandbox_timeout_seconds: expected an integer from 60"},
        {"[storage]\nallowed_host_paths = [1]\n",
         "f.toml:2: storage.allowed_host_paths: expected a list of texts"},
        {"[log]\njson = \"yes\"\n", "f.toml:2: log.json: expected true or false"},
        {"[log]\nlevel = \"verbose\"\n",
         "f.toml:2: log.level: expected error, warning, info or debug"},
        {"[egress]\nreadiness_timeout_seconds = 0.0\n", "expected a number above 0"},
        {"[docker]\nsandbox_env = { A = 1 }\n", "f.toml:2: docker.sandbox_env.A: expected a text"},
        {"server = 3\n", "f.toml:1: server: expected a table"},
        {"[server\n", "f.toml: line 1, column"},
        {"[{x]\n", "f.toml: not valid TOML"},
        {"[server]\nport = 1\nport = 2\n",
         "f.toml: line 3, column 8: not valid TOML: the key is there already"},
        {"[runtime]\ntype = \"kubernetes\"\n", "f.toml:2: runtime.type: expected \"native\" or"},
        {"[runtime]\ntype = \"podman\"\n",
         "f.toml:2: runtime.type: expected one of \"native\", \"docker\", \"kubernetes\""},
        {"[tenants]\nprovider = \"file\"\n", "f.toml:1: tenants: expected no such section"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int r = parse(cases[i].text);
        const char *got = r < 0 ? err.msg : warnings.n ? warnings.v[0] : "";
        if (!strstr(got, cases[i].want))
            test_fail(__FILE__, __LINE__, "case %zu: \"%s\", expected \"%s\"", i, got,
                      cases[i].want);
        ASSERT(!strstr(got, "secret") && !strstr(got, "verbose") && !strstr(got, "podman"));
        done();
    }
}

TEST(the_environment_comes_last) {
    char path[] = "/tmp/cove-test-config-XXXXXX";
    int fd = mkstemp(path);
    ASSERT(fd >= 0);
    dprintf(fd, "[server]\napi_key = \"from-file\"\n");
    fd_close(fd);
    setenv("SANDBOX_CONFIG_PATH", path, 1);
    ASSERT_OK(config_load(NULL, &c, &warnings, &err));
    ASSERT_STR(c.api_key, "from-file");
    ASSERT_STR(c.path, path);
    ASSERT(!c.insecure_ok);
    done();
    setenv("OPENSANDBOX_SERVER_API_KEY", "", 1);
    setenv("OPENSANDBOX_INSECURE_SERVER", "YES", 1);
    ASSERT_OK(config_load(NULL, &c, &warnings, &err));
    ASSERT_STR(c.api_key, ""); /* set to nothing is set */
    ASSERT(c.insecure_ok);
    done();
    setenv("OPENSANDBOX_INSECURE_SERVER", "yes", 1);
    ASSERT_OK(config_load(NULL, &c, &warnings, &err));
    ASSERT(!c.insecure_ok);
    done();
    unlink(path);
    ASSERT_INT(config_load(NULL, &c, &warnings, &err), -ENOENT);
    ASSERT(strstr(err.msg, path));
}

TEST(the_document_is_the_tables) {
    _cleanup_free_ char *file = NULL;
    struct buf b = BUF_INIT(0);

    config_write_doc(&b);
    ASSERT_OK(path_read_file_at(AT_FDCWD, CONFIG_DOC, 1 << 20, &file, NULL));
    if (strcmp(file, b.data) != 0)
        test_fail(__FILE__, __LINE__,
                  "out of date: coved --print-config-doc > docs/configuration.md");
    buf_done(&b);
}

TEST(the_table_describes_itself) {
    struct buf b = BUF_INIT(0);

    config_write_doc(&b);
    ASSERT(buf_ok(&b));
    for (const struct config_key *k = config_keys; k->key; k++) {
        const char *last = strrchr(k->key, '.') + 1;
        _cleanup_free_ char *cell = str_printf("\n| `%s` |", last);
        ASSERT(strstr(b.data, cell));
        ASSERT(k->help && k->help[strlen(k->help) - 1] == '.');
        ASSERT(k->type != KEY_INT || k->min <= k->max);
        for (const struct config_key *o = config_keys; o != k; o++)
            ASSERT(strcmp(o->key, k->key) != 0);
    }
    buf_done(&b);
}

TEST(the_sample_is_the_defaults) {
    static const char *const types[] = {"native", "docker"};

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        struct buf b = BUF_INIT(0);
        config_write_sample(&b, types[i]);
        if (parse(b.data) < 0) /* all comments: the defaults */
            test_fail(__FILE__, __LINE__, "%s", err.msg);
        ASSERT_STR(c.runtime_type, types[i]);
        ASSERT_INT(c.port, 8080);
        ASSERT_INT(warnings.n, 0);
        done();
        for (char *p = b.data; (p = strstr(p, "\n#")); p++)
            if (p[2] != ' ') /* and with its settings taken out of the comments */
                p[1] = ' ';
        char *mode = strstr(b.data, "mode = \"dns\"\n");
        _cleanup_free_ char *text = /* an upstream proxy needs the other mode */
            mode ? str_printf("%.*smode = \"dns+nft\"%s", (int)(mode - b.data), b.data, mode + 12)
                 : strdup(b.data);
        if (parse(text) < 0)
            test_fail(__FILE__, __LINE__, "%s: %s", types[i], err.msg);
        ASSERT_INT(warnings.n, 0);
        ASSERT_INT(c.max_sandbox_timeout_s, 3600);
        buf_done(&b);
        done();
    }
}

TEST_MAIN()
