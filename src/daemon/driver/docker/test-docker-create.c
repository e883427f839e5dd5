/* The pure parts of the create half: labels, environment, body of the container, ports, platforms,
 * the Windows profile, archives. Names in comments are the seed's tests whose rule is pinned. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/test.h"
#include "daemon/driver/docker/agent_priv.h"

#define ID "0a1b2c3d-0000-4000-8000-000000000001"

static const char *const drops[] = {"NET_ADMIN", "NET_RAW", "SYS_ADMIN", NULL};

/* A driver that is never connected; spec and driver are freed by done(). */
struct set {
    struct docker k;
    struct sandbox_spec s;
    struct label_extras lx;
    struct container_extras cx;
};

static struct set *make(void) {
    struct set *t = calloc(1, sizeof *t);
    ASSERT(t);
    str_copy(t->k.instance, sizeof t->k.instance, "feedfacefeedface");
    t->k.config = (struct docker_config){.network_mode = "bridge",
                                         .publish_host = "0.0.0.0",
                                         .drop_capabilities = drops,
                                         .no_new_privileges = true,
                                         .pids_limit = 4096};
    str_copy(t->s.id, sizeof t->s.id, ID);
    t->s.image = strdup("python:3.11");
    ASSERT_OK(strv_add(&t->s.entrypoint, "python"));
    return t;
}

static void done(struct set *t) {
    sandbox_spec_done(&t->s);
    free(t);
}

static json_t *labels_of(struct set *t) {
    json_t *o = docker_labels(&t->k, &t->s, &t->lx);
    ASSERT(o);
    return o;
}

static json_t *parse(const char *text) {
    struct err err = {0};
    json_t *j = json_parse(text, strlen(text), &err);
    if (!j)
        test_fail(__FILE__, __LINE__, "%s", err_text(&err));
    return j;
}

/* ---- labels ---- */

/* test_build_labels_marks_manual_cleanup_without_expiration */
TEST(labels_manual_cleanup) {
    struct set *t = make();
    t->s.labels = parse("{\"team\":\"manual\"}");
    json_t *o = labels_of(t);

    ASSERT_STR(json_str(o, LABEL_ID), ID);
    ASSERT_STR(json_str(o, LABEL_MANUAL_CLEANUP), "true");
    ASSERT(!json_object_get(o, LABEL_EXPIRES_AT));
    ASSERT_STR(json_str(o, "team"), "manual");
    ASSERT_STR(json_str(o, LABEL_INSTANCE), "feedfacefeedface");
    ASSERT(!json_object_get(o, LABEL_MANAGED_BY) && !json_object_get(o, LABEL_AGENT_PORT));
    json_decref(o);
    done(t);
}

TEST(labels_expiry_has_an_offset) {
    struct set *t = make();
    t->s.expires_us = 1767225600000000; /* 2026-01-01 */
    json_t *o = labels_of(t);
    ASSERT_STR(json_str(o, LABEL_EXPIRES_AT), "2026-01-01T00:00:00+00:00");
    ASSERT(!json_object_get(o, LABEL_MANUAL_CLEANUP));
    json_decref(o);
    t->s.expires_us += 120034;
    o = labels_of(t);
    ASSERT_STR(json_str(o, LABEL_EXPIRES_AT), "2026-01-01T00:00:00.120034+00:00");
    json_decref(o);
    done(t);
}

/* test_build_labels_stores_extensions_json, test_build_labels_stores_opensandbox_extensions,
 * test_build_labels_store_platform_constraints */
TEST(labels_extensions_and_platform) {
    struct set *t = make();
    t->s.extensions = parse("{\"opensandbox.extensions.pool-ref\":\"my-pool\","
                            "\"opensandbox.extensions.custom\":\"value\"}");
    t->s.renew_extend = strdup("1800");
    t->s.os = strdup("linux");
    t->s.arch = strdup("arm64");
    t->s.snapshot_id = strdup("snap-1");
    json_t *o = labels_of(t);
    ASSERT_STR(json_str(o, "opensandbox.io/extensions.pool-ref"), "my-pool");
    ASSERT_STR(json_str(o, "opensandbox.io/extensions.custom"), "value");
    ASSERT(!json_object_get(o, "opensandbox.io/extensions.access.renew.extend.seconds"));
    ASSERT_STR(json_str(o, LABEL_RENEW_EXTEND), "1800");
    ASSERT_STR(json_str(o, LABEL_OS), "linux");
    ASSERT_STR(json_str(o, LABEL_ARCH), "arm64");
    ASSERT_STR(json_str(o, LABEL_SNAPSHOT_ID), "snap-1");
    json_decref(o);
    done(t);
}

TEST(labels_lists_ports_and_token) {
    struct set *t = make();
    ASSERT_OK(strv_add(&t->s.own_volumes, "data"));
    ASSERT_OK(strv_add(&t->s.oss_mounts, "/mnt/ossfs/b/p"));
    t->lx = (struct label_extras){
        .agent_port = 40001, .http_port = 40002, .guard_token = "tok", .has_runtime_volume = true};
    json_t *o = labels_of(t);
    ASSERT_STR(json_str(o, LABEL_MANAGED_BY), "[\"data\",\"opensandbox-runtime-" ID "\"]");
    ASSERT_STR(json_str(o, LABEL_OSS_MOUNTS), "[\"/mnt/ossfs/b/p\"]");
    ASSERT_STR(json_str(o, LABEL_AGENT_PORT), "40001");
    ASSERT_STR(json_str(o, LABEL_HTTP_PORT), "40002");
    ASSERT_STR(json_str(o, LABEL_GUARD_TOKEN), "tok");
    json_decref(o);
    done(t);
}

TEST(labels_of_users_cannot_be_ours) {
    struct set *t = make();
    t->s.labels = parse("{\"opensandbox.io/cove.helper\":\"agent\",\"opensandbox.io/"
                        "cove.instance\":\"x\",\"cove.other\":\"y\"}");
    json_t *o = labels_of(t);
    ASSERT(!json_object_get(o, LABEL_HELPER));
    ASSERT_STR(json_str(o, LABEL_INSTANCE), "feedfacefeedface");
    ASSERT_STR(json_str(o, "cove.other"), "y");
    json_decref(o);
    done(t);
}

TEST(labels_of_the_image_are_blanked) {
    struct set *t = make();
    json_t *o = labels_of(t),
           *image = parse("{\"opensandbox.io/expires-at\":\"2001-01-01T00:00:00+00:00\","
                          "\"opensandbox.io/id\":\"other\",\"opensandbox.io/new-one\":\"1\","
                          "\"opensandbox.io/cove.helper\":\"agent\",\"maintainer\":\"me\"}");
    ASSERT_OK(docker_labels_shadow(o, image));
    ASSERT_STR(json_str(o, LABEL_EXPIRES_AT), "");
    ASSERT_STR(json_str(o, LABEL_ID), ID);
    ASSERT_STR(json_str(o, "opensandbox.io/new-one"), "");
    ASSERT_STR(json_str(o, LABEL_HELPER), "");
    ASSERT(!json_object_get(o, "maintainer"));
    ASSERT_OK(docker_labels_shadow(o, NULL));
    json_decref(image);
    json_decref(o);
    done(t);
}

static json_t *inspect_of(json_t *labels, const char *env) {
    json_t *j = json_pack("{s:s, s:s, s:{s:O, s:s, s:[s,s], s:[s,s]}, s:{s:I,s:I}}", "Id", "c1",
                          "Created", "2026-01-01T00:00:00.5Z", "Config", "Labels", labels, "Image",
                          "python:3.11", "Cmd", "python", "-V", "Env", "A=1", env, "HostConfig",
                          "Memory", (json_int_t)1024, "NanoCpus", (json_int_t)1500000000);
    ASSERT(j);
    return j;
}

TEST(found_is_what_a_create_stored) {
    struct set *t = make();
    struct found_sandbox f;
    struct err err = {0};
    t->s.labels = parse("{\"team\":\"a\"}");
    t->s.extensions = parse("{\"opensandbox.extensions.x\":\"1\"}");
    t->s.expires_us = 1767225600000000;
    t->s.os = strdup("linux");
    t->s.arch = strdup("amd64");
    ASSERT_OK(strv_add(&t->s.own_volumes, "data"));
    json_t *labels = labels_of(t);
    json_object_set_new(labels, "maintainer", json_string("of the image"));
    json_t *inspect = inspect_of(labels, "EXECD_ACCESS_TOKEN=secret");

    ASSERT_OK(docker_found(&t->k, inspect, &f, &err));
    ASSERT_STR(f.spec.id, ID);
    ASSERT_STR(f.spec.image, "python:3.11");
    ASSERT_INT(f.spec.entrypoint.n, 2);
    ASSERT_STR(f.spec.access_token, "secret");
    ASSERT(!env_get(&f.spec.env, "EXECD_ACCESS_TOKEN"));
    ASSERT_STR(env_get(&f.spec.env, "A"), "1");
    ASSERT_INT(json_object_size(f.metadata), 1);
    ASSERT_STR(json_str(f.metadata, "team"), "a");
    ASSERT_STR(json_str(f.spec.extensions, "opensandbox.extensions.x"), "1");
    ASSERT_STR(json_str(f.platform, "arch"), "amd64");
    ASSERT_INT(f.expires_us, 1767225600000000);
    ASSERT_INT(f.created_us, 1767225600500000);
    ASSERT_INT(f.spec.memory_bytes, 1024);
    ASSERT_INT(f.spec.cpu_millis, 1500);
    ASSERT_STR(f.spec.own_volumes.v[0], "data");
    ASSERT(!f.spec.policy && !f.spec.snapshot_id);
    found_sandbox_done(&f);
    json_decref(inspect);
    json_decref(labels);
    done(t);
}

/* Row 26 of lifecycle.md 11; and a container of another server of this wire. */
TEST(found_of_another_server) {
    struct set *t = make();
    struct found_sandbox f;
    struct err err = {0};
    json_t *labels = parse("{\"opensandbox.io/id\":\"x\",\"opensandbox.io/expires-at\":\"soon\","
                           "\"opensandbox.io/egress-auth-token\":\"t\",\"team\":\"b\","
                           "\"opensandbox.io/snapshot-id\":\"\"}");
    json_t *inspect = inspect_of(labels, "B=2");
    ASSERT_OK(docker_found(&t->k, inspect, &f, &err));
    ASSERT_INT(f.expires_us, 0);
    ASSERT(f.spec.policy && !f.spec.snapshot_id && !f.platform);
    ASSERT_INT(json_object_size(f.metadata), 1);
    found_sandbox_done(&f);
    json_object_set_new(labels, LABEL_INSTANCE, json_string("another"));
    ASSERT_INT(docker_found(&t->k, inspect, &f, &err), -ENOENT);
    json_object_set_new(labels, LABEL_ID, json_string("")); /* blanked */
    ASSERT_INT(docker_found(&t->k, inspect, &f, &err), -EINVAL);
    json_decref(inspect);
    json_decref(labels);
    done(t);
}

TEST(labels_that_slipped_in_are_seen) {
    struct set *t = make();
    json_t *ours = labels_of(t), *real = json_deep_copy(ours);
    json_object_set_new(real, "vendor", json_string("v"));
    json_object_set_new(real, LABEL_MANAGED_BY, json_string("")); /* blanked */
    ASSERT(docker_labels_hold(ours, real));
    json_object_set_new(real, LABEL_MANAGED_BY, json_string("[\"data\"]"));
    ASSERT(!docker_labels_hold(ours, real));
    json_object_set_new(ours, LABEL_MANAGED_BY, json_string("[\"data\"]"));
    ASSERT(docker_labels_hold(ours, real));
    json_decref(ours);
    json_decref(real);
    done(t);
}

/* ---- environment ---- */

static struct strv env_of(struct set *t) {
    struct strv env = {0};
    ASSERT_OK(docker_environment(&t->k, &t->s, &env));
    return env;
}

/* test_env_allows_empty_string_and_skips_none (nulls end in the service) */
TEST(env_order) {
    struct set *t = make();
    json_t *fixed = parse("{\"FIRST\":\"op\",\"SHARED\":\"op\"}");
    t->k.config.sandbox_env = fixed;
    t->k.config.run_as_init = true;
    t->s.access_token = strdup("tok");
    ASSERT_OK(strv_add(&t->s.env, "FOO=bar"));
    ASSERT_OK(strv_add(&t->s.env, "SHARED=user"));
    ASSERT_OK(strv_add(&t->s.env, "EMPTY="));
    ASSERT_OK(strv_add(&t->s.env, "OPENSANDBOX_ID=forged"));
    ASSERT_OK(strv_add(&t->s.env, "OPENSANDBOX_ID=" ID)); /* the service's own */
    struct strv env = env_of(t);
    static const char *const want[] = {"FIRST=op",
                                       "SHARED=user",
                                       "FOO=bar",
                                       "EMPTY=",
                                       "OPENSANDBOX_ID=forged",
                                       "EXECD_INIT=1",
                                       "EXECD_ACCESS_TOKEN=tok",
                                       "OPENSANDBOX_ID=" ID};
    ASSERT_INT(env.n, ARRAY_SIZE(want));
    for (size_t i = 0; i < env.n; i++)
        ASSERT_STR(env.v[i], want[i]);
    strv_done(&env);
    json_decref(fixed);
    done(t);
}

TEST(env_keeps_the_users_token) {
    struct set *t = make();
    t->s.access_token = strdup("ours");
    ASSERT_OK(strv_add(&t->s.env, "EXECD_ACCESS_TOKEN=theirs"));
    struct strv env = env_of(t);
    ASSERT_INT(env.n, 2);
    ASSERT_STR(env_get(&env, "EXECD_ACCESS_TOKEN"), "theirs");
    strv_done(&env);
    done(t);
}

#define MITM "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"

/* test_create_sandbox_network_policy_enables_mitm_only_for_credential_proxy; row 30 */
TEST(env_interception) {
    struct set *t = make();
    ASSERT_OK(strv_add(&t->s.env, MITM "=yes"));
    ASSERT_OK(strv_add(&t->s.env, "SSL_CERT_FILE=/custom.pem"));
    struct strv env = env_of(t); /* no policy: nobody makes a certificate */
    ASSERT(!env_get(&env, MITM));
    strv_done(&env);
    t->s.policy = json_object();
    env = env_of(t);
    ASSERT_STR(env_get(&env, MITM), "true");
    ASSERT_STR(env_get(&env, "SSL_CERT_FILE"), "/custom.pem");
    strv_done(&env);
    ASSERT_OK(env_set(&t->s.env, MITM, "no"));
    env = env_of(t);
    ASSERT(!env_get(&env, MITM));
    strv_done(&env);
    t->s.credential_proxy = true;
    env = env_of(t);
    ASSERT_STR(env_get(&env, MITM), "true");
    ASSERT_INT(env.n, 3);
    strv_done(&env);
    t->s.credential_proxy = false;
    env_unset(&t->s.env, MITM);
    ASSERT_OK(strv_add(&t->s.guard_env, MITM "= ON "));
    env = env_of(t);
    ASSERT_STR(env_get(&env, MITM), "true");
    strv_done(&env);
    done(t);
}

/* ---- body ---- */

static json_t *body_of(struct set *t) {
    json_t *labels = json_object(), *b = docker_container_body(&t->k, &t->s, labels, &t->cx);
    json_decref(labels);
    ASSERT(b);
    return b;
}

static void assert_json(const json_t *o, const char *key, const char *want) {
    const json_t *v = json_object_get(o, key);
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : strdup("(absent)");
    ASSERT_STR(text, want);
    free(text);
}

/* test_create_sandbox_applies_security_defaults, test_create_sandbox_without_gpu_…,
 * test_no_volumes_omits_binds_from_host_config */
TEST(body_defaults) {
    struct set *t = make();
    static const struct port_binding ports[] = {{"44772", 40001}, {"3389/udp", 40002}};
    t->cx.ports = ports;
    t->cx.n_ports = 2;
    json_t *b = body_of(t), *h = json_object_get(b, "HostConfig");
    assert_json(b, "Entrypoint", "[\"/opt/opensandbox/bootstrap.sh\"]");
    assert_json(b, "Cmd", "[\"python\"]");
    assert_json(b, "Image", "\"python:3.11\"");
    assert_json(b, "ExposedPorts", "{\"44772/tcp\":{},\"3389/udp\":{}}");
    assert_json(h, "PortBindings",
                "{\"44772/tcp\":[{\"HostIp\":\"0.0.0.0\",\"HostPort\":\"40001\"}],"
                "\"3389/udp\":[{\"HostIp\":\"0.0.0.0\",\"HostPort\":\"40002\"}]}");
    assert_json(h, "SecurityOpt", "[\"no-new-privileges=true\"]");
    assert_json(h, "CapDrop", "[\"NET_ADMIN\",\"NET_RAW\",\"SYS_ADMIN\"]");
    assert_json(h, "PidsLimit", "4096");
    assert_json(h, "NetworkMode", "\"bridge\"");
    static const char *const absent[] = {"Binds",   "Mounts",     "CapAdd", "DeviceRequests",
                                         "Memory",  "Devices",    "Tmpfs",  "NanoCpus",
                                         "Runtime", "MaskedPaths"};
    for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
        assert_json(h, absent[i], "(absent)");
    static const char *const never[] = {"Tty", "User", "WorkingDir", "OpenStdin", "Hostname"};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++)
        assert_json(b, never[i], "(absent)");
    json_decref(b);
    done(t);
}

/* test_create_sandbox_passes_gpu_device_requests, test_create_sandbox_user_defined_network_… */
TEST(body_limits_and_choices) {
    struct set *t = make();
    t->s.memory_bytes = 536870912;
    t->s.cpu_nanos = 500000000;
    t->s.gpus = 2;
    t->k.config.runtime = "runsc";
    t->k.config.network_mode = "My-Net";
    t->k.config.apparmor_profile = "p";
    t->k.config.seccomp_profile = "unconfined";
    t->k.config.no_new_privileges = false;
    t->k.config.pids_limit = 0;
    t->k.config.drop_capabilities = NULL;
    json_t *b = body_of(t), *h = json_object_get(b, "HostConfig");
    assert_json(h, "Memory", "536870912");
    assert_json(h, "NanoCpus", "500000000");
    assert_json(h, "DeviceRequests", "[{\"Count\":2,\"Capabilities\":[[\"gpu\"]]}]");
    assert_json(h, "Runtime", "\"runsc\"");
    assert_json(h, "NetworkMode", "\"My-Net\"");
    assert_json(h, "SecurityOpt", "[\"apparmor=p\",\"seccomp=unconfined\"]");
    assert_json(h, "PidsLimit", "(absent)");
    assert_json(h, "CapDrop", "(absent)");
    assert_json(h, "PortBindings", "(absent)");
    assert_json(b, "ExposedPorts", "(absent)");
    json_decref(b);
    done(t);
}

TEST(body_seccomp_file_is_read) {
    struct set *t = make();
    char path[] = "/tmp/cove-seccomp-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    ASSERT(fd >= 0);
    ASSERT_OK(fd_write_full(fd, "{\"x\":1}", 7));
    fd_close(fd);
    t->k.config.seccomp_profile = path;
    t->k.config.no_new_privileges = false;
    json_t *b = body_of(t);
    assert_json(json_object_get(b, "HostConfig"), "SecurityOpt", "[\"seccomp={\\\"x\\\":1}\"]");
    json_decref(b);
    unlink(path);
    done(t);
}

static void add_mount(struct set *t, const char *source, const char *target, bool ro,
                      const char *volume) {
    t->s.mounts = realloc(t->s.mounts, (t->s.n_mounts + 1) * sizeof *t->s.mounts);
    ASSERT(t->s.mounts);
    t->s.mounts[t->s.n_mounts++] = (struct mount_spec){.source = source ? strdup(source) : NULL,
                                                       .target = strdup(target),
                                                       .read_only = ro,
                                                       .volume = volume ? strdup(volume) : NULL};
}

/* test_host_volume_binds_passed_to_docker, test_pvc_volume_readonly_binds_…, and the guard's */
TEST(body_binds) {
    struct set *t = make();
    static const char *const fixed[] = {"/etc/ca:/etc/ca:ro", NULL};
    static const char *const agent[] = {"/s/agent/x/execd:/opt/opensandbox/execd:ro", NULL};
    t->k.config.sandbox_binds = fixed;
    t->cx.has_runtime_volume = true;
    t->cx.agent_binds = agent;
    add_mount(t, "/data", "/mnt/data", false, NULL);
    add_mount(t, "/var/lib/docker/volumes/c/_data", "/mnt/c", true, "c");
    json_t *b = body_of(t), *h = json_object_get(b, "HostConfig");
    assert_json(h, "Binds",
                "[\"/etc/ca:/etc/ca:ro\",\"/data:/mnt/data:rw\",\"c:/mnt/c:ro\","
                "\"opensandbox-runtime-" ID ":/opt/opensandbox:rw\"]");
    assert_json(h, "Mounts",
                "[{\"Type\":\"bind\",\"Source\":\"/s/agent/x/execd\",\"Target\":\"/opt/opensandbox/"
                "execd\",\"ReadOnly\":true}]");
    json_decref(b);
    add_mount(t, "/mine", "/opt/opensandbox", false, NULL); /* the user's own wins */
    b = body_of(t);
    assert_json(json_object_get(b, "HostConfig"), "Binds",
                "[\"/etc/ca:/etc/ca:ro\",\"/data:/mnt/data:rw\",\"c:/mnt/c:ro\","
                "\"/mine:/opt/opensandbox:rw\"]");
    json_decref(b);
    done(t);
}

/* test_egress_sidecar_injection_and_capabilities */
TEST(body_behind_a_guard) {
    struct set *t = make();
    static const char *const other[] = {"MKNOD", NULL};
    static const struct port_binding ports[] = {{"44772", 40001}};
    t->s.policy = json_object();
    t->cx = (struct container_extras){
        .guard_container = "sidecar-id", .ports = ports, .n_ports = 1, .has_runtime_volume = true};
    json_t *b = body_of(t), *h = json_object_get(b, "HostConfig");
    assert_json(h, "NetworkMode", "\"container:sidecar-id\"");
    assert_json(h, "PortBindings", "(absent)");
    assert_json(b, "ExposedPorts", "(absent)");
    assert_json(h, "CapDrop", "[\"NET_ADMIN\",\"NET_RAW\",\"SYS_ADMIN\"]");
    json_decref(b);
    t->k.config.drop_capabilities = other;
    b = body_of(t);
    assert_json(json_object_get(b, "HostConfig"), "CapDrop", "[\"MKNOD\",\"NET_ADMIN\"]");
    json_decref(b);
    done(t);
}

TEST(body_isolation) {
    struct set *t = make();
    t->s.isolation = true;
    t->k.config.seccomp_profile = "strict";
    json_t *b = body_of(t), *h = json_object_get(b, "HostConfig");
    assert_json(h, "CapAdd", "(absent)"); /* row 31: not unless the operator allows it */
    assert_json(h, "Tmpfs", "(absent)");
    json_decref(b);
    t->k.config.allow_isolation = true;
    b = body_of(t);
    h = json_object_get(b, "HostConfig");
    assert_json(h, "CapAdd", "[\"SYS_ADMIN\"]");
    assert_json(h, "CapDrop", "[\"NET_ADMIN\",\"NET_RAW\",\"SYS_ADMIN\"]");
    assert_json(h, "SecurityOpt",
                "[\"no-new-privileges=true\",\"apparmor=unconfined\",\"seccomp=unconfined\"]");
    assert_json(h, "Tmpfs", "{\"/var/lib/execd/isolation\":\"\"}");
    assert_json(h, "MaskedPaths", "[]");
    assert_json(h, "ReadonlyPaths", "[]");
    json_decref(b);
    done(t);
}

/* ---- windows ---- */

static struct set *make_windows(void) {
    struct set *t = make();
    t->s.os = strdup("windows");
    t->s.arch = strdup("amd64");
    t->s.limits = parse("{\"cpu\":\"4\",\"memory\":\"8G\",\"disk\":\"64G\"}");
    t->s.memory_bytes = 8000000000;
    t->s.cpu_nanos = 4000000000;
    ASSERT_OK(strv_add(&t->s.env, "VERSION=11"));
    return t;
}

/* test_create_sandbox_windows_profile_accepts_dockur_demo_like_request, …_injects_runtime_defaults,
 * test_create_and_start_container_windows_profile_keeps_image_entrypoint */
TEST(windows_body) {
    struct set *t = make_windows();
    json_t *b = body_of(t), *h = json_object_get(b, "HostConfig");
    assert_json(b, "Entrypoint", "(absent)");
    assert_json(b, "Env",
                "[\"VERSION=11\",\"CPU_CORES=4\",\"RAM_SIZE=8G\",\"DISK_SIZE=64G\","
                "\"USER_PORTS=44772,8080,3389,8006\",\"OPENSANDBOX_ID=" ID "\"]");
    assert_json(h, "Memory", "(absent)");
    assert_json(h, "NanoCpus", "(absent)");
    assert_json(h, "CapAdd", "[\"NET_ADMIN\",\"NET_RAW\"]");
    assert_json(h, "CapDrop", "[\"SYS_ADMIN\"]");
    assert_json(h, "Binds", "[\"opensandbox-win-oem-" ID ":/oem:rw\"]");
    ASSERT_INT(json_array_size(json_object_get(h, "Devices")), 2);
    ASSERT_STR(json_str(json_array_get(json_object_get(h, "Devices"), 0), "PathOnHost"),
               "/dev/kvm");
    json_decref(b);
    done(t);
}

/* test_create_sandbox_windows_profile_with_network_policy_maps_windows_ports */
TEST(windows_behind_a_guard) {
    struct set *t = make_windows();
    t->s.policy = json_object();
    t->cx.guard_container = "sidecar-123";
    json_t *b = body_of(t), *h = json_object_get(b, "HostConfig");
    assert_json(h, "NetworkMode", "\"container:sidecar-123\"");
    assert_json(h, "CapAdd", "[\"NET_ADMIN\",\"NET_RAW\"]");
    assert_json(h, "CapDrop", "[\"SYS_ADMIN\"]");
    assert_json(b, "ExposedPorts", "(absent)");
    json_decref(b);
    done(t);
}

TEST(windows_amounts) {
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {{"8G", 8},     {"8Gi", 8},      {"8GB", 8},        {"2T", 2048}, {"1ti", 1024},
                 {"8192Mi", 8}, {"8193M", 9},    {"1Mi", 1},        {"", 0},      {"x", 0},
                 {NULL, 0},     {"4194304k", 4}, {"4294967297", 5}, {"0", 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ASSERT_INT(windows_gigabytes(cases[i].text), cases[i].want);
    ASSERT_INT(windows_cpus("4"), 4);
    ASSERT_INT(windows_cpus("2500m"), 3);
    ASSERT_INT(windows_cpus("2.1"), 3);
    ASSERT_INT(windows_cpus("none"), 0);
    ASSERT_INT(windows_cpus(NULL), 0);
}

TEST(windows_variables) {
    struct set *t = make_windows();
    struct strv env = {0};
    ASSERT_OK(strv_add(&env, "USER_PORTS= 9000 ,3389,,"));
    ASSERT_OK(strv_add(&env, "CPU_CORES=1"));
    json_decref(t->s.limits);
    t->s.limits = parse("{\"cpu\":\"2500m\",\"memory\":\"4097Mi\",\"ephemeral-storage\":\"1T\"}");
    ASSERT_OK(windows_environment(&t->s, &env));
    ASSERT_STR(env_get(&env, "USER_PORTS"), "9000,3389,44772,8080,8006");
    ASSERT_STR(env_get(&env, "CPU_CORES"), "3");
    ASSERT_STR(env_get(&env, "RAM_SIZE"), "5G");
    ASSERT_STR(env_get(&env, "DISK_SIZE"), "1024G");
    strv_done(&env);
    done(t);
}

/* test_create_sandbox_windows_profile_rejects_missing_runtime_devices */
TEST(windows_devices_are_named) {
    struct set *t = make_windows();
    struct err err = {0};
    int r = windows_check_devices(&t->s, &err);
    if (access("/dev/kvm", F_OK) < 0) {
        ASSERT_INT(r, -EINVAL);
        ASSERT(strstr(err.msg, "/dev/kvm"));
    }
    str_copy(t->s.os, 8, "linux");
    ASSERT_OK(windows_check_devices(&t->s, &err));
    done(t);
}

/* ---- ports ---- */

static struct ports *ports_in(unsigned min, unsigned max, const char *host) {
    struct docker k = {.config = {.port_min = min, .port_max = max, .publish_host = host}};
    struct ports *p;
    ASSERT_OK(ports_new(&k, &p));
    return p;
}

/* test_egress_sidecar_normalizes_windows_port_bindings */
TEST(ports_are_distinct_and_normalised) {
    static const char *const keys[] = {"44772", "8080", "3389/tcp", "3389/udp", "8006/tcp"};
    struct ports *p = ports_in(42000, 42400, "127.0.0.1");
    struct port_binding b[5];
    struct err err = {0};
    ASSERT_OK(ports_reserve(p, keys, b, 5, &err));
    ASSERT_STR(b[0].key, "44772");
    ASSERT_STR(b[2].key, "3389");
    ASSERT_STR(b[3].key, "3389/udp");
    ASSERT_STR(b[4].key, "8006");
    for (size_t i = 0; i < 5; i++) {
        ASSERT(b[i].host_port >= 42000 && b[i].host_port <= 42400);
        for (size_t j = 0; j < i; j++)
            ASSERT(b[i].host_port != b[j].host_port);
    }
    ports_free(p);
}

TEST(ports_stay_reserved_until_released) {
    static const char *const key[] = {"44772"};
    struct port_binding a[20], last;
    struct err err = {0};
    struct ports *p = ports_in(23000, 23019, "127.44.0.9");
    size_t got = 0;
    /* fill the range: random picks, so each may take several rounds */
    for (int i = 0; i < 2000 && got < 20; i++)
        got += ports_reserve(p, key, &a[got], 1, &err) == 0;
    ASSERT_INT(got, 20);
    ASSERT_INT(ports_reserve(p, key, &last, 1, &err), -ENOSPC);
    ports_release(p, &a[7], 1);
    for (int i = 0, r = -1; i < 200 && r < 0; i++)
        r = ports_reserve(p, key, &last, 1, &err);
    ASSERT_INT(last.host_port, a[7].host_port);
    ports_free(p);
}

static int listen_on(int type, uint16_t *ret_port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t size = sizeof a;
    int s = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    ASSERT(s >= 0 && bind(s, (struct sockaddr *)&a, size) == 0);
    if (type == SOCK_STREAM)
        ASSERT(listen(s, 1) == 0);
    ASSERT(getsockname(s, (struct sockaddr *)&a, &size) == 0);
    *ret_port = ntohs(a.sin_port);
    return s;
}

/* Row 4: the right protocol is probed; an address that is not here is probed on all. */
TEST(ports_are_probed) {
    static const char *const tcp[] = {"8006/tcp"}, *const udp[] = {"3389/udp"};
    static const char *const hosts[] = {"0.0.0.0", "203.0.113.7", "not an address"};
    struct port_binding b;
    struct err err = {0};
    uint16_t t, u;
    int st = listen_on(SOCK_STREAM, &t), su = listen_on(SOCK_DGRAM, &u);
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        struct ports *p = ports_in(t, t, hosts[i]);
        ASSERT_INT(ports_reserve(p, tcp, &b, 1, &err), -ENOSPC);
        ASSERT(strstr(err.msg, "50"));
        ASSERT_OK(ports_reserve(p, udp, &b, 1, &err));
        ports_free(p);
        p = ports_in(u, u, hosts[i]);
        ASSERT_INT(ports_reserve(p, udp, &b, 1, &err), -ENOSPC);
        ASSERT_OK(ports_reserve(p, tcp, &b, 1, &err));
        ports_free(p);
    }
    fd_close(st);
    fd_close(su);
}

TEST(ports_conflict_texts) {
    static const char *const yes[] = {
        "driver failed: Bind for 0.0.0.0:40001 failed: port is already allocated",
        "Ports are not available: exposing port",
        "listen tcp4 0.0.0.0:1: bind: address ALREADY in use", "listen: bind: permission denied",
        "bind: An attempt was made ... forbidden by"};
    static const char *const no[] = {"permission denied", "bind mount failed", "", NULL};
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        ASSERT(ports_is_conflict(yes[i]));
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        ASSERT(!ports_is_conflict(no[i]));
}

/* ---- platforms, archives ---- */

TEST(platform_aliases) {
    static const char *const cases[][3] = {{"linux", "x86_64", "linux/amd64"},
                                           {"Linux", " X86-64 ", "linux/amd64"},
                                           {"linux", "aarch64", "linux/arm64"},
                                           {"linux", "arm64/v8", "linux/arm64"},
                                           {"linux", "arm64v8", "linux/arm64"},
                                           {"linux", "riscv64", "linux/riscv64"},
                                           {"linux", NULL, ""},
                                           {"", "amd64", ""}};
    char got[64];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        platform_normalise(cases[i][0], cases[i][1], got, sizeof got);
        ASSERT_STR(got, cases[i][2]);
    }
}

TEST(tar_round_trip) {
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
    const void *data;
    size_t len;
    ASSERT_OK(tar_file(&b, "opensandbox/execd", 0755, "hello", 5));
    ASSERT_OK(tar_link(&b, "opensandbox/bootstrap.sh", 0755, "opensandbox/execd"));
    ASSERT_OK(tar_end(&b));
    ASSERT_INT(b.len % 512, 0);
    ASSERT_OK(tar_first_file(b.data, b.len, &data, &len));
    ASSERT_INT(len, 5);
    ASSERT(memcmp(data, "hello", 5) == 0);
    ASSERT_INT(tar_first_file(b.data, 512, &data, &len), -EINVAL); /* cut off */
    ASSERT_INT(tar_first_file(b.data, 511, &data, &len), -ENOENT);
    ASSERT_INT(tar_first_file(b.data + 1024, b.len - 1024, &data, &len), -EINVAL); /* a link */
    ASSERT_INT(tar_first_file(NULL, 0, &data, &len), -ENOENT);
}

TEST(tar_extended_headers_are_skipped) {
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
    const void *data;
    size_t len;
    ASSERT_OK(tar_file(&b, "PaxHeaders/execd", 0644, "18 mtime=1.000000\n", 18));
    b.data[156] = 'x';
    ASSERT_OK(tar_file(&b, "execd", 0755, "body", 4));
    ASSERT_OK(tar_end(&b));
    ASSERT_OK(tar_first_file(b.data, b.len, &data, &len));
    ASSERT_INT(len, 4);
    memset(b.data + 124, '7', 11); /* a size beyond everything */
    ASSERT_INT(tar_first_file(b.data, b.len, &data, &len), -EINVAL);
}

TEST_MAIN()
