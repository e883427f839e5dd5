/* The runtime's configuration: its parsed form against what was asked, refusals, clamping. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "base/test.h"
#include "oci/runtime_config.h"

static const char *const caps[] = {"CAP_CHOWN", "CAP_KILL", NULL};
static const char *const args[] = {"/opt/cove/execd", "--init", NULL};

static struct runtime_config minimal(void) {
    struct runtime_config c;
    runtime_config_init(&c);
    c.args = args;
    c.caps = caps;
    return c;
}

static json_t *write_and_parse(const struct runtime_config *c) {
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
    struct err err = {0};
    int r = runtime_config_write(c, &b, &err);
    if (r < 0)
        test_fail(__FILE__, __LINE__, "%s", err_text(&err));
    json_t *j = json_parse(b.data, b.len, &err);
    if (!j)
        test_fail(__FILE__, __LINE__, "%s", err_text(&err));
    return j;
}

/* Compares with JSON text of the expectation, member by member of an object. */
static void check(const json_t *got, const char *want_text) {
    struct err err = {0};
    _cleanup_json_ json_t *want = json_parse(want_text, strlen(want_text), &err);
    if (!want)
        test_fail(__FILE__, __LINE__, "expectation: %s", err_text(&err));
    if (!json_equal(got, want)) {
        _cleanup_free_ char *text = json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY);
        test_fail(__FILE__, __LINE__, "is %s, expected %s", text, want_text);
    }
}

TEST(defaults) {
    struct runtime_config c = minimal();
    _cleanup_json_ json_t *j = write_and_parse(&c);
    const json_t *p = json_object_get(j, "process"), *l = json_object_get(j, "linux");

    ASSERT_STR(json_str(j, "ociVersion"), "1.0.0");
    check(json_object_get(p, "args"), "[\"/opt/cove/execd\",\"--init\"]");
    check(json_object_get(p, "env"), "[]");
    check(json_object_get(p, "user"), "{\"uid\":0,\"gid\":0}");
    check(json_object_get(p, "capabilities"),
          "{\"bounding\":[\"CAP_CHOWN\",\"CAP_KILL\"],\"effective\":[\"CAP_CHOWN\",\"CAP_KILL\"],"
          "\"permitted\":[\"CAP_CHOWN\",\"CAP_KILL\"],\"inheritable\":[],\"ambient\":[]}");
    ASSERT(json_is_true(json_object_get(p, "noNewPrivileges")));
    ASSERT_STR(json_str(p, "cwd"), "/");
    check(json_object_get(j, "root"), "{\"path\":\"rootfs\",\"readonly\":false}");
    check(json_object_get(l, "namespaces"), "[{\"type\":\"pid\"},{\"type\":\"ipc\"},{\"type\":"
                                            "\"uts\"},{\"type\":\"mount\"},{\"type\":\"cgroup\"}]");
    ASSERT_INT(json_array_size(json_object_get(l, "maskedPaths")), 14);
    ASSERT_INT(json_array_size(json_object_get(l, "readonlyPaths")), 5);
    ASSERT_INT(json_array_size(json_object_get(j, "mounts")), 5);
    /* Not ours to write: limits, cgroups, /sys, annotations of others. */
    ASSERT(!json_object_get(l, "resources"));
    ASSERT(!json_object_get(l, "cgroupsPath"));
    ASSERT(!json_object_get(l, "uidMappings"));
    ASSERT(!json_object_get(j, "annotations"));
    ASSERT(!json_object_get(j, "hostname"));
}

TEST(everything) {
    static const char *const env[] = {"A=\"quoted\"\n", "B=ü", NULL};
    static const struct rt_mount mounts[] = {{"/opt/cove/execd", "bind", "/x/execd", rt_bind_ro},
                                             {"/work", "bind", "/srv/a b", rt_bind_rw}};
    static const struct rt_namespace ns[] = {
        {"pid", NULL}, {"uts", NULL}, {"network", "/proc/7/fd/9"}, {"user", NULL}};
    static const struct rt_idmap map[] = {{0, 1000000000, 65536}};
    struct runtime_config c = minimal();

    c.env = env;
    c.hostname = "box";
    c.mounts = mounts;
    c.n_mounts = 2;
    c.shm_bytes = 1 << 20;
    c.namespaces = ns;
    c.n_namespaces = 4;
    c.uid_map = c.gid_map = map;
    c.n_uid_map = c.n_gid_map = 1;
    c.seccomp_bpf_base64 = "AAAA";
    c.root_readonly = true;
    c.oom_score_adj = -5;
    _cleanup_json_ json_t *j = write_and_parse(&c);
    const json_t *m = json_object_get(j, "mounts"), *l = json_object_get(j, "linux");

    ASSERT_STR(json_str(j, "hostname"), "box");
    check(json_object_get(json_object_get(j, "process"), "env"),
          "[\"A=\\\"quoted\\\"\\n\",\"B=ü\"]");
    ASSERT_INT(json_int(json_object_get(j, "process"), "oomScoreAdj", 0), -5);
    check(json_array_get(m, 3),
          "{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"shm\",\"options\":"
          "[\"nosuid\",\"nodev\",\"noexec\",\"mode=1777\",\"size=1048576\"]}");
    check(json_array_get(m, 5),
          "{\"destination\":\"/opt/cove/execd\",\"type\":\"bind\",\"source\":\"/x/execd\","
          "\"options\":[\"bind\",\"ro\",\"nosuid\",\"nodev\"]}");
    check(json_array_get(m, 6),
          "{\"destination\":\"/work\",\"type\":\"bind\",\"source\":\"/srv/a b\","
          "\"options\":[\"bind\",\"rw\",\"nosuid\",\"nodev\"]}");
    check(json_array_get(json_object_get(l, "namespaces"), 2),
          "{\"type\":\"network\",\"path\":\"/proc/7/fd/9\"}");
    check(json_object_get(l, "uidMappings"),
          "[{\"containerID\":0,\"hostID\":1000000000,\"size\":65536}]");
    check(json_object_get(l, "gidMappings"),
          "[{\"containerID\":0,\"hostID\":1000000000,\"size\":65536}]");
    check(json_object_get(j, "annotations"), "{\"run.oci.seccomp_bpf_data\":\"AAAA\"}");
    check(json_object_get(j, "root"), "{\"path\":\"rootfs\",\"readonly\":true}");
}

TEST(no_standard_mounts) {
    struct runtime_config c = minimal();
    static const struct rt_mount one[] = {{"/data", "bind", "/d", rt_bind_ro}};

    c.standard_mounts = false;
    c.mounts = one;
    c.n_mounts = 1;
    _cleanup_json_ json_t *j = write_and_parse(&c);
    ASSERT_INT(json_array_size(json_object_get(j, "mounts")), 1);
}

TEST(rlimits_are_clamped) {
    struct rlimit own = {100, 100};
    struct runtime_config c = minimal();

    ASSERT_INT(setrlimit(RLIMIT_NOFILE, &own), 0);
    _cleanup_json_ json_t *j = write_and_parse(&c);
    check(json_object_get(json_object_get(j, "process"), "rlimits"),
          "[{\"type\":\"RLIMIT_NOFILE\",\"soft\":100,\"hard\":100},{\"type\":\"RLIMIT_CORE\","
          "\"soft\":0,\"hard\":0}]");
}

#define REFUSED(change, text)                                                    \
    do {                                                                         \
        struct runtime_config c = minimal();                                     \
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);                          \
        struct err err = {0};                                                    \
        change;                                                                  \
        ASSERT_INT(runtime_config_write(&c, &b, &err), -EINVAL);                 \
        if (!strstr(err_text(&err), text))                                       \
            test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", err.msg, text); \
        ASSERT_INT(b.len, 0);                                                    \
    } while (0)

TEST(refusals) {
    static const char *const bad_utf8[] = {"\xff", NULL}, *const none[] = {NULL};
    static const struct rt_mount relative[] = {{"data", "bind", "/x", rt_bind_ro}},
                                 relative_source[] = {{"/data", "bind", "x", rt_bind_ro}},
                                 bad_source[] = {{"/data", "bind", "/\xff", rt_bind_ro}},
                                 no_type[] = {{"/data", NULL, "/x", rt_bind_ro}};
    static const struct rt_namespace pid_only[] = {{"pid", NULL}},
                                     bad_path[] = {{"network", "relative"}};
    static const struct rt_idmap map[] = {{0, 1, 2}};

    REFUSED(c.args = NULL, "args");
    REFUSED(c.args = none, "args");
    REFUSED(c.args = bad_utf8, "args");
    REFUSED(c.env = bad_utf8, "env");
    REFUSED(c.caps = NULL, "caps");
    REFUSED(c.cwd = "relative", "cwd");
    REFUSED(c.root_path = "", "root_path");
    REFUSED((c.mounts = relative, c.n_mounts = 1), "target");
    REFUSED((c.mounts = relative_source, c.n_mounts = 1), "/data");
    REFUSED((c.mounts = bad_source, c.n_mounts = 1), "source");
    REFUSED((c.mounts = no_type, c.n_mounts = 1), "type");
    REFUSED((c.namespaces = bad_path, c.n_namespaces = 1), "namespace");
    REFUSED((c.uid_map = map, c.n_uid_map = 1), "user namespace");
    REFUSED((c.hostname = "h", c.namespaces = pid_only, c.n_namespaces = 1), "hostname");
}

TEST(full_buffer) {
    struct runtime_config c = minimal();
    _cleanup_buf_ struct buf b = BUF_INIT(100);
    struct err err = {0};

    ASSERT_INT(runtime_config_write(&c, &b, &err), -ENOBUFS);
    ASSERT(strstr(err_text(&err), "100 bytes"));
}

TEST_MAIN()
