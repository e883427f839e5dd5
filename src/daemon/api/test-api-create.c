/* Bodies of creates: what is refused, and in which words. */
#include "daemon/api/test-kit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifdef __aarch64__
#define HOST_ARCH "arm64"
#define OTHER_ARCH "amd64"
#else
#define HOST_ARCH "amd64"
#define OTHER_ARCH "arm64"
#endif

TEST(bad_creates) {
    static const struct {
        const char *body;
        int status;
        const char *want;
    } cases[] = {
        {"", 422, "\"type\":\"missing\",\"loc\":[\"body\"]"},
        {"{", 422, "\"type\":\"json_invalid\""},
        {"{\"a\" 1}", 422, "\"message\":\"body.0: JSON decode error: ':' expected near '1'"},
        {"[]", 422, "\"type\":\"model_attributes_type\""},
        {"{\"a\":1,\"a\":2}", 422, "json_invalid"},
        {"{" IMAGE "," GOOD ",\"timeout\":59}", 422,
         "\"type\":\"greater_than_equal\",\"loc\":[\"body\",\"timeout\"]"},
        {"{" IMAGE "," GOOD ",\"timeout\":120.5}", 422, "int_from_float"},
        {"{" IMAGE "," GOOD ",\"timeout\":\"x\"}", 422, "int_parsing"},
        {"{" IMAGE "," GOOD ",\"env\":{\"A\":1}}", 422,
         "\"type\":\"string_type\",\"loc\":[\"body\",\"env\",\"A\"]"},
        {"{" IMAGE "," GOOD ",\"metadata\":{\"A\":null}}", 422,
         "\"loc\":[\"body\",\"metadata\",\"A\"]"},
        {"{" IMAGE "," GOOD ",\"secureAccess\":\"maybe\"}", 422, "bool_parsing"},
        {"{\"image\":{}," GOOD "}", 422,
         "\"loc\":[\"body\",\"image\",\"uri\"],\"msg\":\"Field required\""},
        {"{\"image\":{\"uri\":\"x\",\"auth\":{\"username\":\"u\"}}," GOOD "}", 422,
         "\"auth\",\"password\""},
        {"{\"image\":{\"uri\":\" \"}," GOOD "}", 422,
         "Value error, Exactly one of image or snapshotId"},
        {"{" IMAGE "," GOOD ",\"snapshotId\":\"s\"}", 422,
         "\"type\":\"value_error\",\"loc\":[\"body\"]"},
        {"{" IMAGE ",\"resourceLimits\":{}}", 422, "entrypoint is required"},
        {"{" IMAGE ",\"entrypoint\":[],\"resourceLimits\":{}}", 422, "\"type\":\"too_short\""},
        {"{" IMAGE ",\"entrypoint\":[\"a\"]}", 422, "resourceLimits is required"},
        {"{" IMAGE "," GOOD ",\"env\":{\"OPENSANDBOX_LIFECYCLE\":\"x\"}}", 422, "reserved"},
        {"{" IMAGE "," GOOD ",\"credentialProxy\":{\"enabled\":true}}", 422,
         "requires networkPolicy"},
        {"{" IMAGE "," GOOD ",\"lifecycle\":{\"periodic\":[{\"name\":\"a\",\"schedule\":\"x\","
         "\"command\":[\"c\"]},{\"name\":\"a \",\"schedule\":\"x\",\"command\":[\"c\"]}]}}",
         422, "\"loc\":[\"body\",\"lifecycle\"],\"msg\":\"Value error, names of periodic hooks"},
        {"{" IMAGE "," GOOD ",\"lifecycle\":{\"periodic\":[{\"name\":\" \",\"schedule\":\"x\","
         "\"command\":[\"c\"]}]}}",
         422, "[\"body\",\"lifecycle\",\"periodic\",0]"},
        {"{" IMAGE "," GOOD ",\"lifecycle\":{\"bogus\":1}}", 422, "\"type\":\"extra_forbidden\""},
        {"{" IMAGE "," GOOD ",\"lifecycle\":{\"preStart\":{\"command\":[\" \"]}}}", 422,
         "must not be blank"},
        {"{" IMAGE "," GOOD ",\"volumes\":[{\"name\":\"A\",\"mountPath\":\"x\"}]}", 422,
         "string_pattern_mismatch"},
        {"{\"templateId\":\"t\"," IMAGE ",\"env\":{}}", 422,
         "templateId cannot be combined with: env, image"},
        {"{\"templateId\":\"t\"}", 422, "timeout is required"},
        {"{\"templateId\":\"t\",\"timeout\":60}", 501, "FSB::API_NOT_SUPPORTED"},
        {"{\"snapshotId\":\"s\",\"resourceLimits\":{}}", 501, "SNAPSHOT::NOT_IMPLEMENTED"},
        {"{" IMAGE "," GOOD ",\"extensions\":{\"access.renew.extend.seconds\":\"1\"}}", 400,
         "300 to 86400"},
        {"{" IMAGE "," GOOD ",\"lifecycle\":{}}", 400, "lifecycle hooks are not supported"},
        {"{\"extensions\":{\"poolRef\":\"p\"},\"entrypoint\":[\"a\"]}", 400,
         "SANDBOX::UNSUPPORTED_POOL_REF"},
        {"{" IMAGE "," GOOD ",\"metadata\":{\"a b\":\"c\"}}", 400,
         "SANDBOX::INVALID_METADATA_LABEL"},
        {"{" IMAGE "," GOOD ",\"metadata\":{\"opensandbox.io/x\":\"c\"}}", 400,
         "SANDBOX::INVALID_METADATA_LABEL"},
        {"{" IMAGE "," GOOD ",\"platform\":{\"os\":\"darwin\",\"arch\":\"amd64\"}}", 400,
         "SANDBOX::INVALID_PARAMETER"},
        {"{" IMAGE "," GOOD ",\"timeout\":7200}", 400, "configured maximum of 3600s"},
        {"{" IMAGE "," GOOD ",\"secureAccess\":true}", 400,
         "secureAccess is not supported when runtime.type="},
        {"{" IMAGE "," GOOD ",\"networkPolicy\":{}}", 400, "networkPolicy"},
        {"{" IMAGE ",\"entrypoint\":[\"a\"],\"resourceLimits\":{\"memory\":\"0\"}}", 400,
         "Invalid resourceLimits.memory: '0'; must resolve to a positive resource limit."},
        {"{" IMAGE ",\"entrypoint\":[\"a\"],\"resourceLimits\":{\"gpu\":\"no\"}}", 400,
         "device count or 'all'"},
        {"{" IMAGE "," GOOD ",\"env\":{\"OPENSANDBOX_EGRESS_X\":\"1\"}}", 400,
         "OPENSANDBOX_EGRESS_LOG_LEVEL"},
        {"{" IMAGE "," GOOD ",\"extensions\":{\"cove.network\":\"wifi\"}}", 400, "'none' or 'nat'"},
        {"{" IMAGE "," GOOD ",\"extensions\":{\"cove.bogus\":\"1\"}}", 400, "Unknown extension"},
        {"{" IMAGE ",\"entrypoint\":[\"sh -c 'x\"],\"resourceLimits\":{}}", 400,
         "DOCKER::INVALID_ENTRYPOINT"},
        {"{" IMAGE "," GOOD ",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\"}]}", 422,
         "\"loc\":[\"body\",\"volumes\",0]"},
        {"{" IMAGE "," GOOD
         ",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\",\"host\":{\"path\":\"/etc\"}}]}",
         400, "VOLUME::HOST_PATH_NOT_ALLOWED"},
        {"{" IMAGE "," GOOD
         ",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\",\"pvc\":{\"claimName\":\"c\"}}]}",
         400, "VOLUME::UNSUPPORTED_BACKEND"},
        {"{\"image\":{\"uri\":\"local/missing\"}," GOOD "}", 400,
         "DOCKER::SANDBOX_IMAGE_PULL_FAILED"},
    };
    set_up();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int got = ask("POST", "/v1/sandboxes", cases[i].body);
        if (got != cases[i].status || !strstr(text(), cases[i].want))
            test_fail(__FILE__, __LINE__, "case %zu %s: %d %s", i, cases[i].body, got, text());
        _cleanup_json_ json_t *j = json();
        ASSERT(json_str(j, "code") && json_str(j, "message") && *json_str(j, "message"));
        ASSERT(got != 422 || json_is_array(json_object_get(j, "detail")));
    }
    ASSERT_INT(fake_count(drv), 0);
    reply_clear();
    tear_down();
}

TEST(lenient_creates) {
    set_up();
    create("{" IMAGE ",\"entrypoint\":[\"sh -c 'echo a  "
           "b'\"],\"resource_limits\":{\"cpu\":\"500m\",\"memory\":\"2gi\",\"pids\":\"7\","
           "\"disk\":\"1G\"},\"timeout\":\"120\",\"unknown\":{},\"env\":{\"E\":"
           "\"\",\"N\":null},"
           "\"metadata\":{},\"snapshotId\":\" "
           "\",\"secure_access\":\"no\",\"resourceRequests\":{\"cpu\":\"1\"},"
           "\"platform\":null,\"extensions\":{\"cove.network\":\"nat\",\"cove.cwd\":\"/w\"}}");
    ASSERT(strstr(text(), "\"entrypoint\":[\"sh\",\"-c\",\"echo a  b\"]"));
    ASSERT(strstr(text(), "\"metadata\":{}")); /* an empty map stays one, in this answer */
    _cleanup_json_ json_t *s = fake_last_spec(drv);
    ASSERT_INT(json_int(s, "cpuMillis", 0), 500);
    ASSERT_INT(json_int(s, "memoryBytes", 0), 1LL << 31);
    ASSERT_INT(json_int(s, "pids", 0), 7);
    ASSERT_INT(json_int(s, "diskBytes", 0), 1000000000);
    ASSERT_STR(json_str(s, "net"), "nat");
    ASSERT_STR(json_str(s, "cwd"), "/w");
    ASSERT_STR(json_string_value(json_array_get(json_object_get(s, "env"), 0)), "E=");
    ASSERT_INT(json_array_size(json_object_get(s, "env")), 2); /* and OPENSANDBOX_ID */
    create("{" IMAGE "," GOOD "}");                            /* no timeout: it stays */
    ASSERT(!strstr(text(), "expiresAt") && !strstr(text(), "metadata"));
    create("{" IMAGE ",\"resourceLimits\":{},\"extensions\":{\"cove.entrypoint\":\"none\"}}");
    ASSERT(strstr(text(), "\"entrypoint\":[]"));
    reply_clear();
    tear_down();
}

/* Each field of the capabilities, and a member that asks for it. */
static const struct {
    const char *field, *member;
} asked[] = {
    {"image.auth", "\"image\":{\"uri\":\"host\",\"auth\":{\"username\":\"u\",\"password\":\"p\"}}"},
    {"snapshotId", "\"snapshotId\":\"s\""},
    {"templateId", "\"templateId\":\"t\""},
    {"resourceLimits.cpu", "\"resourceLimits\":{\"cpu\":\"1\"}"},
    {"resourceLimits.memory", "\"resourceLimits\":{\"memory\":\"1Gi\"}"},
    {"resourceLimits.gpu", "\"resourceLimits\":{\"gpu\":\"1\"}"},
    {"resourceLimits.pids", "\"resourceLimits\":{\"pids\":\"9\"}"},
    {"resourceLimits.disk", "\"resourceLimits\":{\"disk\":\"1Gi\"}"},
    {"resourceLimits.ephemeral-storage", "\"resourceLimits\":{\"ephemeral-storage\":\"1Gi\"}"},
    {"resourceLimits.*", "\"resourceLimits\":{\"fantasy\":\"1\"}"},
    {"resourceRequests", "\"resourceRequests\":{\"cpu\":\"1\"}"},
    {"platform", "\"platform\":{\"os\":\"linux\",\"arch\":\"" HOST_ARCH "\"}"},
    {"platform.os=windows",
     "\"platform\":{\"os\":\"windows\",\"arch\":\"amd64\"},"
     "\"resourceLimits\":{\"cpu\":\"4\",\"memory\":\"8Gi\",\"disk\":\"64Gi\"}"},
    {"platform.arch=*", "\"platform\":{\"os\":\"linux\",\"arch\":\"" OTHER_ARCH "\"}"},
    {"networkPolicy", "\"networkPolicy\":{}"},
    {"credentialProxy", "\"networkPolicy\":{},\"credentialProxy\":{\"enabled\":true}"},
    {"secureAccess", "\"secureAccess\":true"},
    {"lifecycle", "\"lifecycle\":{}"},
    {"volumes.host",
     "\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\",\"host\":{\"path\":\"/tmp\"}}]"},
    {"volumes.pvc",
     "\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\",\"pvc\":{\"claimName\":\"c\"}}]"},
    {"volumes.ossfs",
     "\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/x\",\"ossfs\":{\"bucket\":"
     "\"abc\",\"endpoint\":\"e\",\"accessKeyId\":\"i\",\"accessKeySecret\":\"s\"}}]"},
    {"extensions.poolRef", "\"extensions\":{\"poolRef\":\"p\"}"},
    {"extensions.access.renew.extend.seconds",
     "\"extensions\":{\"access.renew.extend.seconds\":\"300\"}"},
    {"extensions.bootstrap.execd.isolation",
     "\"extensions\":{\"bootstrap.execd.isolation\":\"enable\"}"},
    {"extensions.cove.network", "\"extensions\":{\"cove.network\":\"nat\"}"},
    {"extensions.cove.cwd", "\"extensions\":{\"cove.cwd\":\"/x\"}"},
    {"extensions.cove.entrypoint", "\"extensions\":{\"cove.entrypoint\":\"none\"}"},
    {"extensions.opensandbox.extensions.*", "\"extensions\":{\"opensandbox.extensions.a\":\"b\"}"},
    {"extensions.*", "\"extensions\":{\"other\":\"b\"}"},
    {"env", "\"env\":{\"A\":\"b\"}"},
    {"metadata", "\"metadata\":{\"a\":\"b\"}"},
    {"timeout", "\"timeout\":60"},
    {"image", IMAGE},
    {"entrypoint", "\"entrypoint\":[\"a\"]"},
};

/* A create that asks for one thing more than it must. */
static char *create_with(const char *member) {
    _cleanup_json_ json_t *o =
        json_parse("{" IMAGE "," GOOD "}", strlen("{" IMAGE "," GOOD "}"), NULL);
    _cleanup_free_ char *text_of = str_printf("{%s}", member);
    _cleanup_json_ json_t *more = json_parse(text_of, strlen(text_of), NULL);

    ASSERT(o && more);
    json_object_update(o, more);
    if (json_object_get(more, "snapshotId"))
        json_object_del(o, "image");
    if (json_object_get(more, "templateId")) {
        json_object_clear(o);
        json_object_update(o, more);
        json_object_set_new(o, "timeout", json_integer(60));
    }
    return json_dumps(o, JSON_COMPACT);
}

TEST(capabilities_are_true) {
    set_up();
    ASSERT_INT(ask("GET", "/v1/capabilities", NULL), 200);
    _cleanup_json_ json_t *j = json();
    json_t *fields = json_object_get(j, "create");
    ASSERT_INT(json_object_size(fields), ARRAY_SIZE(asked)); /* none is left out here */
    for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
        const char *what = json_str(fields, asked[i].field);
        _cleanup_free_ char *body = create_with(asked[i].member);
        int status = ask("POST", "/v1/sandboxes", body);
        bool is_refused = status == 400 || status == 501;
        if (!what || is_refused != str_eq(what, "refused") || (!is_refused && status != 202))
            test_fail(__FILE__, __LINE__, "%s is %s, but %s: %d %s", asked[i].field,
                      what ? what : "absent", body, status, text());
    }
    reply_clear();
    tear_down();
}

TEST_MAIN()
