/* sandbox_spec_to_json and back. */
#include "daemon/driver/driver.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

static int parse(const char *text, struct sandbox_spec *ret, struct err *err) {
    _cleanup_json_ json_t *j = json_parse(text, strlen(text), err);
    ASSERT(j);
    return sandbox_spec_from_json(j, ret, err);
}

TEST(round_trip) {
    struct sandbox_spec a, b;
    struct err err = {0};
    const char *text =
        "{\"id\":\"i1\",\"image\":\"host\",\"entrypoint\":[\"a\",\"b c\"],\"env\":[\"K=V\"],"
        "\"cwd\":\"/w\",\"hostname\":\"h\",\"accessToken\":\"t\",\"memoryBytes\":1048576,"
        "\"cpuMillis\":500,\"pids\":64,\"diskBytes\":7,\"net\":\"nat\","
        "\"mounts\":[{\"source\":\"/s\",\"target\":\"/t\",\"readOnly\":true}],"
        "\"labels\":{\"x\":\"y\"}}";

    ASSERT_OK(parse(text, &a, &err));
    _cleanup_json_ json_t *j = sandbox_spec_to_json(&a);
    ASSERT(j);
    ASSERT_OK(sandbox_spec_from_json(j, &b, &err));
    ASSERT_STR(b.id, "i1");
    ASSERT_STR(b.image, "host");
    ASSERT_INT(b.entrypoint.n, 2);
    ASSERT_STR(b.entrypoint.v[1], "b c");
    ASSERT_STR(b.env.v[0], "K=V");
    ASSERT_STR(b.cwd, "/w");
    ASSERT_STR(b.hostname, "h");
    ASSERT_STR(b.access_token, "t");
    ASSERT_INT(b.memory_bytes, 1048576);
    ASSERT_INT(b.cpu_millis, 500);
    ASSERT_INT(b.pids, 64);
    ASSERT_INT(b.disk_bytes, 7);
    ASSERT_INT(b.net, NET_NAT);
    ASSERT_INT(b.n_mounts, 1);
    ASSERT_STR(b.mounts[0].source, "/s");
    ASSERT_STR(b.mounts[0].target, "/t");
    ASSERT(b.mounts[0].read_only);
    ASSERT_STR(json_str(b.labels, "x"), "y");
    sandbox_spec_done(&a);
    sandbox_spec_done(&b);
}

TEST(absent_fields_stay_empty) {
    struct sandbox_spec a;
    struct err err = {0};

    ASSERT_OK(parse("{\"id\":\"i\",\"image\":\"host\"}", &a, &err));
    _cleanup_json_ json_t *j = sandbox_spec_to_json(&a);
    ASSERT(j);
    ASSERT(!a.cwd && !a.access_token && !a.labels);
    ASSERT_INT(a.net, NET_NONE);
    ASSERT_INT(a.n_mounts, 0);
    sandbox_spec_done(&a);
}

TEST(wrong_shapes_are_refused) {
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"id\":\"\",\"image\":\"host\"}",
        "{\"id\":\"i\"}",
        "{\"id\":\"i\",\"image\":\"host\",\"pids\":-1}",
        "{\"id\":\"i\",\"image\":\"host\",\"env\":\"K=V\"}",
        "{\"id\":\"i\",\"image\":\"host\",\"env\":[1]}",
        "{\"id\":\"i\",\"image\":\"host\",\"mounts\":[{\"source\":\"/a\"}]}",
        "{\"image\":\"host\",\"id\":"
        "\"0123456789012345678901234567890123456789012345678901234567890123456\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct sandbox_spec a;
        struct err err = {0};
        ASSERT_INT(parse(bad[i], &a, &err), -EINVAL);
        ASSERT(err.msg[0]);
    }
}

TEST_MAIN()
