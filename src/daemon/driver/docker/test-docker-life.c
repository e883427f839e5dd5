/* The pure parts of the Docker driver's life half: states, addresses, the index, reach rules, found
 * sandboxes, the sidecar's make-up. Engine answers are written out as an engine gives them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/test.h"
#include "daemon/driver/docker/docker_priv.h"

#define INSTANCE "00000000000000aa"

/* A driver without an engine: enough for what asks none. */
static struct docker *new_docker(const char *mode) {
    struct docker *k = calloc(1, sizeof *k);
    pthread_mutex_init(&k->lock, NULL);
    k->boxes = map_new();
    k->interned = map_new();
    k->config.network_mode = mode;
    k->config.egress_image = "guard:1";
    k->config.egress_mode = "dns";
    k->config.resolve_internal = true;
    k->proxy_host = strdup("192.0.2.9");
    str_copy(k->instance, sizeof k->instance, INSTANCE);
    return k;
}

static void end_docker(struct docker *k) {
    size_t at = 0;
    void *v;
    while (map_next(k->boxes, &at, NULL, &v))
        docker_box_free(v);
    at = 0;
    while (map_next(k->interned, &at, NULL, &v))
        free(v);
    map_free(k->boxes);
    map_free(k->interned);
    free(k->proxy_host);
    free(k);
}

static json_t *parse(const char *text) {
    struct err err = {0};
    json_t *j = json_parse(text, strlen(text), &err);
    if (!j)
        test_fail(__FILE__, __LINE__, "%s: %s", err_text(&err), text);
    return j;
}

static enum instance_state state_of(const char *state, struct instance_info *i) {
    char text[512];
    snprintf(text, sizeof text, "{\"Id\":\"c\",\"State\":%s,\"Config\":{\"Labels\":{}}}", state);
    _cleanup_json_ json_t *j = parse(text);
    docker_read_state(j, i);
    return i->state;
}

TEST(states_first_match_wins) {
    struct instance_info i;
    static const struct {
        const char *state;
        enum instance_state want;
    } rows[] = {
        {"{\"Status\":\"running\",\"Running\":true,\"Paused\":false}", INST_RUNNING},
        {"{\"Status\":\"paused\",\"Running\":true,\"Paused\":true}", INST_PAUSED},
        {"{\"Status\":\"paused\",\"Running\":false,\"Paused\":true}", INST_PAUSED},
        {"{\"Status\":\"restarting\",\"Running\":false,\"Restarting\":true}", INST_RUNNING},
        {"{\"Status\":\"created\",\"Running\":false}", INST_PENDING},
        {"{\"Status\":\"starting\"}", INST_PENDING},
        {"{\"Status\":\"exited\",\"ExitCode\":0}", INST_EXITED},
        {"{\"Status\":\"dead\",\"ExitCode\":3}", INST_EXITED},
        {"{\"Status\":\"removing\"}", INST_UNKNOWN},
        {"{}", INST_UNKNOWN},
        {"null", INST_UNKNOWN},
    };
    for (size_t r = 0; r < ARRAY_SIZE(rows); r++)
        ASSERT_INT(state_of(rows[r].state, &i), rows[r].want);
}

TEST(exit_details) {
    struct instance_info i;
    state_of("{\"Status\":\"exited\",\"ExitCode\":137,\"OOMKilled\":true,"
             "\"StartedAt\":\"2026-01-02T03:04:05.123456789Z\","
             "\"FinishedAt\":\"2026-01-02T03:04:06Z\"}",
             &i);
    ASSERT_INT(i.exit_code, 137);
    ASSERT(i.oom_killed);
    ASSERT_INT(i.finished_us - i.started_us, 1000000 - 123456);
    /* of an earlier life, or never */
    state_of("{\"Status\":\"running\",\"Running\":true,\"FinishedAt\":\"2026-01-02T03:04:06Z\","
             "\"StartedAt\":\"2026-01-02T03:04:07Z\",\"ExitCode\":4}",
             &i);
    ASSERT_INT(i.finished_us, 0);
    ASSERT_INT(i.exit_code, 0);
    state_of("{\"Status\":\"created\",\"StartedAt\":\"0001-01-01T00:00:00Z\"}", &i);
    ASSERT_INT(i.started_us, 0);
}

TEST(address_of_a_container) {
    _cleanup_json_ json_t *j =
        parse("{\"NetworkSettings\":{\"IPAddress\":\"172.17.0.2\",\"Networks\":{"
              "\"bridge\":{\"IPAddress\":\"172.17.0.2\"},\"mine\":{\"IPAddress\":\"10.9.0.7\"}}}}");
    ASSERT_STR(docker_read_address("mine", j), "10.9.0.7");
    ASSERT_STR(docker_read_address("bridge", j), "172.17.0.2");
    ASSERT_STR(docker_read_address("gone", j), "172.17.0.2");
    _cleanup_json_ json_t *only =
        parse("{\"NetworkSettings\":{\"IPAddress\":\"\",\"Networks\":{\"a\":{\"IPAddress\":\"\"},"
              "\"b\":{\"IPAddress\":\"10.1.0.3\"}}}}");
    ASSERT_STR(docker_read_address("mine", only), "10.1.0.3");
    _cleanup_json_ json_t *none = parse("{\"NetworkSettings\":{}}");
    ASSERT(docker_read_address("bridge", none) == NULL);
}

/* An inspect answer of sandbox "s1". */
static json_t *inspect_of(const char *container, const char *status, const char *started,
                          const char *ip, const char *more_labels, const char *mode) {
    bool paused = str_eq(status, "paused"), running = paused || str_eq(status, "running");
    _cleanup_free_ char *text = str_printf(
        "{\"Id\":\"%s\",\"State\":{\"Status\":\"%s\",\"Running\":%s,\"Paused\":%s,\"ExitCode\":7,"
        "\"StartedAt\":\"%s\",\"FinishedAt\":\"2026-01-01T09:00:00Z\"},"
        "\"HostConfig\":{\"NetworkMode\":\"%s\"},\"NetworkSettings\":{\"IPAddress\":\"%s\"},"
        "\"Config\":{\"Labels\":{\"opensandbox.io/id\":\"s1\",\"opensandbox.io/"
        "cove.instance\":\"" INSTANCE "\"%s}}}",
        container, status, running ? "true" : "false", paused ? "true" : "false", started, mode, ip,
        more_labels);
    return parse(text);
}

#define T1 "2026-01-01T08:00:00Z"
#define T2 "2026-01-01T10:00:00Z"

static enum instance_state update(struct docker *k, const char *status, const char *started) {
    _cleanup_json_ json_t *j = inspect_of("c1", status, started, "10.0.0.5", "", "bridge");
    struct instance_info i;
    ASSERT_OK(docker_index_update(k, j, &i, NULL));
    return i.state;
}

TEST(index_keeps_an_exit_against_older_answers) {
    struct docker *k = new_docker("bridge");
    struct target at;

    ASSERT_INT(docker_address(&k->driver, "s1", 80, &at), -ENOENT);
    ASSERT_INT(update(k, "created", "0001-01-01T00:00:00Z"), INST_PENDING);
    ASSERT_INT(docker_address(&k->driver, "s1", 80, &at), -EADDRNOTAVAIL);
    ASSERT_INT(update(k, "running", T1), INST_RUNNING);
    ASSERT_OK(docker_address(&k->driver, "s1", 80, &at));
    ASSERT_STR(at.addr.host, "10.0.0.5");
    ASSERT_INT(update(k, "exited", T1), INST_EXITED);
    /* an answer that was under way when it ended */
    ASSERT_INT(update(k, "running", T1), INST_EXITED);
    ASSERT_INT(update(k, "paused", T1), INST_EXITED);
    ASSERT_INT(docker_address(&k->driver, "s1", 80, &at), -EADDRNOTAVAIL);
    /* started again by hand */
    ASSERT_INT(update(k, "running", T2), INST_RUNNING);
    ASSERT_OK(docker_address(&k->driver, "s1", 80, &at));
    docker_index_drop(k, "s1");
    ASSERT_INT(docker_address(&k->driver, "s1", 80, &at), -ENOENT);
    end_docker(k);
}

TEST(refresh_touches_only_what_is_known) {
    struct docker *k = new_docker("bridge");
    _cleanup_json_ json_t *j = inspect_of("c1", "running", T1, "10.0.0.5", "", "bridge"),
                          *other = inspect_of("c2", "exited", T1, "", "", "bridge");
    enum instance_state old;
    struct instance_info now;

    ASSERT(!docker_index_refresh(k, j, &old, &now));
    ASSERT_INT(map_size(k->boxes), 0);
    ASSERT_OK(docker_index_update(k, j, NULL, NULL));
    ASSERT(!docker_index_refresh(k, other, &old, &now)); /* another container with the same label */
    ASSERT(docker_index_refresh(k, j, &old, &now));
    ASSERT_INT(old, INST_RUNNING);
    end_docker(k);
}

TEST(index_refuses_what_has_no_id) {
    struct docker *k = new_docker("bridge");
    struct err err = {0};
    _cleanup_json_ json_t *j = parse("{\"Id\":\"c\",\"Config\":{\"Labels\":{\"opensandbox.io/id\":"
                                     "\"\"}}}");
    ASSERT_INT(docker_index_update(k, j, NULL, &err), -EINVAL);
    ASSERT(docker_label(j, LABEL_ID) == NULL);
    end_docker(k);
}

TEST(who_a_container_belongs_to) {
    struct docker *k = new_docker("bridge");
    _cleanup_json_ json_t *ours = parse("{\"opensandbox.io/cove.instance\":\"" INSTANCE "\"}"),
                          *theirs = parse("{\"opensandbox.io/cove.instance\":\"1\"}"),
                          *none = parse("{}");
    ASSERT(docker_is_mine(k, ours));
    ASSERT(docker_is_mine(k, none));
    ASSERT(docker_is_mine(k, NULL));
    ASSERT(!docker_is_mine(k, theirs));
    end_docker(k);
}

#define PORTS \
    ",\"opensandbox.io/embedding-proxy-port\":\"41000\",\"opensandbox.io/http-port\":\"41001\""

static void enter(struct docker *k, const char *labels, const char *mode) {
    _cleanup_json_ json_t *j = inspect_of("c1", "running", T1, "10.0.0.5", labels, mode);
    ASSERT_OK(docker_index_update(k, j, NULL, NULL));
}

static void assert_target(struct docker *k, uint16_t port, const char *host, uint16_t want,
                          const char *prefix) {
    struct target at = {0};
    ASSERT_OK(docker_address(&k->driver, "s1", port, &at));
    ASSERT_STR(at.addr.host, host);
    ASSERT_INT(at.addr.port, want);
    ASSERT(str_eq(at.path_prefix, prefix));
}

TEST(reach_inside) {
    struct docker *k = new_docker("bridge");
    enter(k, PORTS, "bridge");
    assert_target(k, 44772, "10.0.0.5", 44772, NULL);
    assert_target(k, 8080, "10.0.0.5", 8080, NULL);
    k->config.resolve_internal = false;
    assert_target(k, 44772, "192.0.2.9", 41000, "/proxy/44772");
    assert_target(k, 8080, "192.0.2.9", 41001, NULL);
    end_docker(k);
}

TEST(reach_through_the_guard) {
    struct docker *k = new_docker("bridge");
    enter(k, PORTS ",\"opensandbox.io/egress-auth-token\":\"tok\"", "container:abc");
    assert_target(k, 3000, "192.0.2.9", 41000, "/proxy/3000");
    assert_target(k, 8080, "192.0.2.9", 41001, NULL);
    _cleanup_free_ char *token = docker_guard_token(&k->driver, "s1");
    ASSERT(docker_guard_token(&k->driver, "s2") == NULL);
    docker_index_drop(k, "s1"); /* as a removal does meanwhile on a worker */
    ASSERT_STR(token, "tok");
    end_docker(k);
}

TEST(reach_in_host_mode) {
    struct docker *k = new_docker("host");
    struct published p;
    enter(k, "", "host");
    assert_target(k, 3000, "127.0.0.1", 3000, NULL);
    ASSERT_OK(docker_published(&k->driver, "s1", 3000, &p, NULL));
    ASSERT_INT(p.host_port, 3000);
    ASSERT(!p.via_agent);
    k->config.resolve_internal = false;
    assert_target(k, 3000, "192.0.2.9", 3000, NULL);
    end_docker(k);
}

TEST(published_ports_and_their_labels) {
    struct docker *k = new_docker("bridge");
    struct published p;
    struct err err = {0};

    ASSERT_INT(docker_published(&k->driver, "s1", 80, &p, &err), -ENOENT);
    enter(k, PORTS, "bridge");
    ASSERT_OK(docker_published(&k->driver, "s1", 8080, &p, &err));
    ASSERT_INT(p.host_port, 41001);
    ASSERT(!p.via_agent);
    ASSERT_OK(docker_published(&k->driver, "s1", 44772, &p, &err));
    ASSERT_INT(p.host_port, 41000);
    ASSERT(p.via_agent);
    static const char *const bad[] = {"", "0", "65536", "x", "-1", " 80"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char labels[128];
        snprintf(labels, sizeof labels, ",\"opensandbox.io/embedding-proxy-port\":\"%s\"", bad[i]);
        enter(k, labels, "bridge");
        ASSERT_INT(docker_published(&k->driver, "s1", 80, &p, &err), -EADDRNOTAVAIL);
        ASSERT(strstr(err.msg, "opensandbox.io/embedding-proxy-port") != NULL);
        ASSERT_INT(docker_published(&k->driver, "s1", 8080, &p, &err), -EADDRNOTAVAIL);
        ASSERT(strstr(err.msg, "opensandbox.io/http-port") != NULL);
    }
    end_docker(k);
}

TEST(proxy_host) {
    struct docker_config c = {0};
    ASSERT_STR(docker_pick_proxy_host(&c, false), "127.0.0.1");
    c.server_host = "0.0.0.0";
    c.host_ip = "10.1.1.1";
    ASSERT_STR(docker_pick_proxy_host(&c, false), "127.0.0.1");
    ASSERT_STR(docker_pick_proxy_host(&c, true), "10.1.1.1");
    c.server_host = "localhost";
    ASSERT_STR(docker_pick_proxy_host(&c, true), "10.1.1.1");
    ASSERT_STR(docker_pick_proxy_host(&c, false), "localhost");
    c.server_host = "192.0.2.4";
    ASSERT_STR(docker_pick_proxy_host(&c, true), "192.0.2.4");
    c.publish_host = "0.0.0.0";
    ASSERT_STR(docker_pick_proxy_host(&c, false), "192.0.2.4");
    c.publish_host = "192.0.2.5"; /* the only place where the ports are */
    ASSERT_STR(docker_pick_proxy_host(&c, false), "192.0.2.5");
}

/* ---- found sandboxes ---- */

static json_t *found_inspect(const char *labels) {
    _cleanup_free_ char *text =
        str_printf("{\"Id\":\"c1\",\"Created\":\"2026-01-01T07:00:00.5Z\",\"Name\":\"/sandbox-s1\","
                   "\"State\":{\"Status\":\"running\",\"Running\":true},\"HostConfig\":{},"
                   "\"Config\":{\"Image\":\"python:3\",\"Cmd\":[\"sleep\",\"1\"],\"Env\":[\"A=b\"],"
                   "\"Labels\":{\"opensandbox.io/id\":\"s1\",\"team\":\"blue\"%s}}}",
                   labels);
    return parse(text);
}

static void put_file(const char *dir, const char *name, const char *text) {
    _cleanup_free_ char *path = path_join(dir, name);
    ASSERT_OK(path_write_file_at(AT_FDCWD, path, text, strlen(text), 0600, false));
}

TEST(found_takes_records_before_labels) {
    char dir[] = "/tmp/cove-found-XXXXXX", sub[64];
    struct docker *k = new_docker("bridge");
    struct found_sandbox f;
    struct err err = {0};
    int64_t want;

    ASSERT(mkdtemp(dir) != NULL);
    snprintf(sub, sizeof sub, "%s/_expiration", dir);
    ASSERT(mkdir(sub, 0700) == 0);
    k->config.legacy_metadata_dir = dir;
    _cleanup_json_ json_t *j =
        found_inspect(",\"opensandbox.io/expires-at\":\"2026-02-01T00:00:00+00:00\"");
    ASSERT_OK(docker_decode_found(k, j, &f, &err));
    ASSERT_STR(f.spec.id, "s1");
    ASSERT_STR(f.spec.image, "python:3");
    ASSERT_STR(json_str(f.metadata, "team"), "blue");
    rfc3339_parse("2026-02-01T00:00:00Z", &want);
    ASSERT_INT(f.expires_us, want);
    found_sandbox_done(&f);
    /* renewed and patched by the other server */
    put_file(sub, "s1.json", "{\"expires_at\": \"2026-03-01T00:00:00+00:00\"}");
    put_file(dir, "s1.json", "{\"team\": \"red\", \"bad\": 3}");
    ASSERT_OK(docker_decode_found(k, j, &f, &err));
    rfc3339_parse("2026-03-01T00:00:00Z", &want);
    ASSERT_INT(f.expires_us, want);
    ASSERT_STR(json_str(f.metadata, "team"), "red");
    ASSERT(!json_object_get(f.metadata, "bad"));
    found_sandbox_done(&f);
    /* unreadable ones count as missing */
    put_file(sub, "s1.json", "{\"expires_at\": \"soon\"}");
    put_file(dir, "s1.json", "{");
    ASSERT_OK(docker_decode_found(k, j, &f, &err));
    rfc3339_parse("2026-02-01T00:00:00Z", &want);
    ASSERT_INT(f.expires_us, want);
    ASSERT_STR(json_str(f.metadata, "team"), "blue");
    found_sandbox_done(&f);
    path_remove_tree_at(AT_FDCWD, dir);
    end_docker(k);
}

TEST(found_with_an_id_that_is_no_name_is_left_alone) {
    static const char *const ids[] = {"a/b", "..", "", "a b", "a\\n", "-a", "%2e"};
    struct docker *k = new_docker("bridge");

    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct found_sandbox f;
        struct err err = {0};
        _cleanup_free_ char *more = str_printf(",\"x\":\"\",\"%s\":\"%s\"", "y", ids[i]);
        _cleanup_json_ json_t *j = found_inspect(more);
        json_t *labels = json_object_get(json_object_get(j, "Config"), "Labels");
        json_object_set(labels, "opensandbox.io/id", json_object_get(labels, "y"));
        ASSERT_INT(docker_decode_found(k, j, &f, &err), -EINVAL);
    }
    end_docker(k);
}

TEST(found_with_a_bad_expiry_lives_on) {
    static const char *const labels[] = {"", ",\"opensandbox.io/expires-at\":\"tomorrow\"",
                                         ",\"opensandbox.io/expires-at\":\"\"",
                                         ",\"opensandbox.io/manual-cleanup\":\"true\""};
    for (size_t i = 0; i < ARRAY_SIZE(labels); i++) {
        struct docker *k = new_docker("bridge");
        struct found_sandbox f;
        struct err err = {0};
        _cleanup_json_ json_t *j = found_inspect(labels[i]);
        ASSERT_OK(docker_decode_found(k, j, &f, &err));
        ASSERT_INT(f.expires_us, 0);
        found_sandbox_done(&f);
        end_docker(k);
    }
}

TEST(expiry_is_noted_where_the_other_server_looks) {
    char dir[] = "/tmp/cove-note-XXXXXX";
    struct docker *k = new_docker("bridge");
    json_t *metadata;
    int64_t us, back;

    ASSERT(mkdtemp(dir) != NULL);
    rfc3339_parse("2026-03-01T10:00:00.25Z", &us);
    docker_note_expiry(&k->driver, "s1", us); /* no directory configured: nothing */
    k->config.legacy_metadata_dir = dir;
    docker_note_expiry(&k->driver, "s1", us);
    docker_note_expiry(&k->driver, "../s1", us);
    legacy_read(k, "s1", &back, &metadata);
    ASSERT_INT(back, us);
    ASSERT(!metadata);
    _cleanup_free_ char *text = NULL, *path = path_join(dir, "_expiration/s1.json");
    size_t len;
    ASSERT_OK(path_read_file_at(AT_FDCWD, path, 1000, &text, &len));
    ASSERT_STR(text, "{\"expires_at\": \"2026-03-01T10:00:00.250000+00:00\"}");
    legacy_forget(k, "s1");
    legacy_read(k, "s1", &back, &metadata);
    ASSERT_INT(back, 0);
    path_remove_tree_at(AT_FDCWD, dir);
    end_docker(k);
}

/* ---- guard ---- */

static int check_policy(struct docker *k, const struct sandbox_spec *s, const char *part) {
    struct err err = {0};
    int r = guard_check_policy(&k->driver, s, &err);
    if (part && (r != -EINVAL || !strstr(err.msg, part)))
        test_fail(__FILE__, __LINE__, "%d, %s: no '%s'", r, err.msg, part);
    return r;
}

TEST(policies_are_refused_in_order) {
    struct docker *k = new_docker("host");
    struct sandbox_spec s = {.credential_proxy = true};

    ASSERT_OK(check_policy(k, &s, NULL)); /* no policy */
    s.policy = json_pack("{s:s, s:[]}", "defaultAction", "deny", "egress");
    k->config.is_gvisor = true;
    k->config.egress_image = NULL;
    check_policy(k, &s, "'host'");
    k->config.network_mode = "sandbox-net";
    check_policy(k, &s, "'sandbox-net'");
    k->config.network_mode = "bridge";
    check_policy(k, &s, "egress.image");
    k->config.egress_image = "guard:1";
    check_policy(k, &s, "dns+nft");
    k->config.egress_mode = "dns+nft";
    check_policy(k, &s, "gvisor");
    k->config.is_gvisor = false;
    ASSERT_OK(check_policy(k, &s, NULL));
    json_decref(s.policy);
    end_docker(k);
}

TEST(guard_switches) {
    struct docker *k = new_docker("bridge");
    struct sandbox_spec s = {.policy = json_object(), .credential_proxy = true};
    struct err err = {0};

    ASSERT_OK(guard_check_switches(k, &s, &err));
    strv_add(&s.guard_env, "OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE=0");
    ASSERT_INT(guard_check_switches(k, &s, &err),
               -EINVAL); /* any text, with the credential proxy */
    s.credential_proxy = false;
    ASSERT_OK(guard_check_switches(k, &s, &err));
    k->config.upstream_proxy = "http://p:3128";
    ASSERT_INT(guard_check_switches(k, &s, &err), -EINVAL); /* nothing intercepts */
    strv_add(&s.guard_env, "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT= Yes ");
    ASSERT_OK(guard_check_switches(k, &s, &err));
    env_set(&s.guard_env, "OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE", "ON");
    ASSERT_INT(guard_check_switches(k, &s, &err), -EINVAL);
    strv_done(&s.guard_env);
    json_decref(s.policy);
    end_docker(k);
}

static bool has_text(const json_t *list, const char *text) {
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        if (str_eq(json_string_value(v), text))
            return true;
    }
    return false;
}

TEST(guard_environment_in_order) {
    struct docker *k = new_docker("bridge");
    struct sandbox_spec s = {.credential_proxy = true};
    s.policy = json_pack("{s:s}", "defaultAction", "deny");
    str_copy(s.id, sizeof s.id, "s1");
    k->config.otlp_endpoint = "http://o:4318";
    k->config.upstream_proxy = "http://p:3128";
    k->config.upstream_proxy_auth = "Basic x";
    k->config.upstream_ca_path = "/ca.pem";
    strv_add(&s.guard_env, "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=1");
    strv_add(&s.guard_env, "OPENSANDBOX_EGRESS_LOG_LEVEL=debug");
    _cleanup_json_ json_t *env = guard_environment(k, &s, "tok");
    static const char *const want[] = {
        "OPENSANDBOX_EGRESS_RULES={\"defaultAction\":\"deny\"}",
        "OPENSANDBOX_EGRESS_MODE=dns",
        "OPENSANDBOX_EGRESS_TOKEN=tok",
        "OPENSANDBOX_EGRESS_SANDBOX_ID=s1",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://o:4318",
        "OPENSANDBOX_EGRESS_UPSTREAM_PROXY=http://p:3128",
        "OPENSANDBOX_EGRESS_UPSTREAM_PROXY_AUTH=Basic x",
        "OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_EXTRA_CA="
        "/etc/ssl/certs/opensandbox-upstream-extra-ca.pem",
        "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true",
        "OPENSANDBOX_EGRESS_LOG_LEVEL=debug",
    };
    ASSERT_INT(json_array_size(env), ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        ASSERT_STR(json_string_value(json_array_get(env, i)), want[i]);
    json_decref(s.policy);
    strv_done(&s.guard_env);
    end_docker(k);
}

TEST(guard_container) {
    const struct port_binding ports[] = {{"44772", 41000}, {"8080", 41001}, {"3389/udp", 41002}};
    struct docker *k = new_docker("bridge");
    struct sandbox_spec s = {0};
    s.policy = json_object();
    str_copy(s.id, sizeof s.id, "s1");
    _cleanup_json_ json_t *b = guard_body(k, &s, "tok", json_object(), ports, 3, true),
                          *plain = guard_body(k, &s, "tok", json_object(), ports, 3, false);
    const json_t *host = json_object_get(b, "HostConfig");
    ASSERT_STR(json_str(host, "NetworkMode"), "bridge");
    ASSERT(has_text(json_object_get(host, "CapAdd"), "NET_ADMIN"));
    ASSERT(has_text(json_object_get(host, "CapDrop"), "ALL"));
    ASSERT(has_text(json_object_get(host, "Binds"), "opensandbox-runtime-s1:/opt/opensandbox:rw"));
    ASSERT_STR(json_str(json_object_get(host, "Sysctls"), "net.ipv6.conf.all.disable_ipv6"), "1");
    ASSERT(!json_object_get(json_object_get(plain, "HostConfig"), "Sysctls"));
    const json_t *bindings = json_object_get(host, "PortBindings");
    ASSERT_STR(json_str(json_array_get(json_object_get(bindings, "44772/tcp"), 0), "HostPort"),
               "41000");
    ASSERT_STR(json_str(json_array_get(json_object_get(bindings, "3389/udp"), 0), "HostIp"),
               "0.0.0.0");
    ASSERT_INT(json_object_size(json_object_get(b, "ExposedPorts")), 3);
    ASSERT(json_int(host, "Memory", 0) > 0 && json_int(host, "PidsLimit", 0) > 0);
    json_decref(s.policy);
    end_docker(k);
}

TEST(sysctl_refusals_are_told_apart) {
    ASSERT(guard_is_sysctl_error(
        "open /proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory"));
    ASSERT(guard_is_sysctl_error("OCI runtime create failed: write sysctl key "
                                 "net.ipv6.conf.all.disable_ipv6: open /proc/sys/net/ipv6: x"));
    ASSERT(!guard_is_sysctl_error("no such image"));
    ASSERT(!guard_is_sysctl_error(NULL));
}

TEST(tokens_are_random_and_plain) {
    char a[40], b[40];
    guard_make_token(a);
    guard_make_token(b);
    ASSERT_INT(strlen(a), 32);
    ASSERT(strcmp(a, b) != 0);
    ASSERT_INT(strspn(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), 32);
}

/* ---- the rest ---- */

TEST(snapshots_lose_what_is_the_sandbox_s_own) {
    _cleanup_json_ json_t *j = parse("{\"Config\":{\"Labels\":{\"opensandbox.io/"
                                     "id\":\"s1\",\"opensandbox.io/cove.instance\":\"x\","
                                     "\"team\":\"blue\"},\"Env\":[\"PATH=/"
                                     "bin\",\"EXECD_ACCESS_TOKEN=secret\",\"OPENSANDBOX_ID=s1\","
                                     "\"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true\"]}}");
    _cleanup_json_ json_t *c = docker_snapshot_config(j);
    const json_t *labels = json_object_get(c, "Labels"), *env = json_object_get(c, "Env");
    ASSERT_STR(json_str(labels, "opensandbox.io/id"), "");
    ASSERT_STR(json_str(labels, "opensandbox.io/cove.instance"), "");
    ASSERT(!json_object_get(labels, "team"));
    ASSERT_INT(json_array_size(env), 3);
    ASSERT(has_text(env, "EXECD_ACCESS_TOKEN="));
    ASSERT(has_text(env, "OPENSANDBOX_ID="));
}

TEST(volumes_are_removed_only_if_made_here) {
    struct docker *k = new_docker("bridge");
    static const struct {
        const char *labels, *created_for;
        bool want;
    } rows[] = {
        {"{}", NULL, false},
        {"{\"opensandbox.io/volume-managed-by\":\"user\"}", NULL, false},
        {"{\"opensandbox.io/volume-managed-by\":\"server\"}", NULL, true},
        {"{\"opensandbox.io/volume-managed-by\":\"server\"}", "s1", true},
        {"{\"opensandbox.io/volume-managed-by\":\"server\",\"opensandbox.io/"
         "cove.created-for\":\"s2\"}",
         "s1", false},
        {"{\"opensandbox.io/volume-managed-by\":\"server\",\"opensandbox.io/"
         "cove.created-for\":\"s1\"}",
         "s1", true},
        {"{\"opensandbox.io/volume-managed-by\":\"server\",\"opensandbox.io/"
         "cove.instance\":\"other\"}",
         NULL, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_json_ json_t *labels = parse(rows[i].labels);
        ASSERT_INT(docker_volume_is_ours(k, labels, rows[i].created_for), rows[i].want);
    }
    ASSERT(!docker_volume_is_ours(k, NULL, NULL));
    end_docker(k);
}

TEST(runtimes_are_named) {
    _cleanup_json_ json_t *info = parse("{\"Runtimes\":{\"runc\":{},\"runsc\":{}}}");
    struct err err = {0};
    ASSERT_OK(docker_check_runtime(info, NULL, &err));
    ASSERT_OK(docker_check_runtime(info, "runsc", &err));
    ASSERT_INT(docker_check_runtime(info, "kata-runtime", &err), -EINVAL);
    ASSERT(strstr(err.msg, "kata-runtime") && strstr(err.msg, "runc, runsc"));
}

TEST(details) {
    _cleanup_json_ json_t *j =
        parse("{\"Id\":\"c1\",\"Name\":\"/sandbox-s1\",\"Created\":\"2026-01-01T07:00:00Z\","
              "\"State\":{\"Status\":\"exited\",\"Running\":false,\"ExitCode\":3,\"Error\":\"\","
              "\"Health\":{\"Status\":\"healthy\",\"Log\":[{\"Output\":\"ok\"}]}},"
              "\"HostConfig\":{\"Memory\":1048576,\"NanoCpus\":0,\"PidsLimit\":null},"
              "\"Config\":{\"Image\":\"i\",\"Env\":[\"A=b\"],\"Labels\":{\"x\":\"y\"}},"
              "\"NetworkSettings\":{\"Networks\":{\"bridge\":{\"IPAddress\":\"10.0.0.2\"}},"
              "\"Ports\":{\"44772/tcp\":[{\"HostIp\":\"0.0.0.0\",\"HostPort\":\"41000\"}],\"80/"
              "tcp\":null}}}");
    _cleanup_json_ json_t *d = docker_describe_inspect(j);
    ASSERT_STR(json_str(d, "name"), "sandbox-s1");
    ASSERT_INT(json_int(d, "memoryBytes", 0), 1048576);
    ASSERT(!json_object_get(d, "nanoCpus") && !json_object_get(d, "pidsLimit"));
    ASSERT(!json_object_get(d, "error"));
    ASSERT_STR(json_str(json_object_get(d, "ports"), "44772/tcp"), "0.0.0.0:41000");
    ASSERT(json_is_null(json_object_get(json_object_get(d, "ports"), "80/tcp")));
    ASSERT_STR(json_str(json_object_get(d, "networks"), "bridge"), "10.0.0.2");
    ASSERT_STR(
        json_string_value(json_array_get(json_object_get(json_object_get(d, "health"), "log"), 0)),
        "ok");
    _cleanup_json_ json_t *empty = json_object(), *none = docker_describe_inspect(empty);
    ASSERT(none != NULL);
}

TEST_MAIN()
