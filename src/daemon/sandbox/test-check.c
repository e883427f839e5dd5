/* Rules of creates: amounts, labels, words, volumes. */
#include "daemon/sandbox/check.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

static const struct driver_ops no_ops;
static struct driver plain = {.ops = &no_ops, .rules = {.provider = "native"}};

TEST(memory_amounts) {
    static const struct {
        const char *s;
        uint64_t want; /* 0 = refused */
    } cases[] = {
        {"512Mi", 536870912},
        {"1G", 1000000000},
        {"2gi", 1ull << 31},
        {" 7 ", 7},
        {"7b", 7},
        {"1kb", 1000},
        {"1KI", 1024},
        {"3t", 3000000000000},
        {"1Ti", 1ull << 40},
        {"garbage", 0},
        {"", 0},
        {"0", 0},
        {"1.5G", 0},
        {"1kib", 0},
        {"-1", 0},
        {"1 G", 0},
        {"G", 0},
        {"99999999999999999999", 0},
        {"9999999999ti", 0},
        {"1G x", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t n = 0;
        int r = parse_memory(cases[i].s, &n);
        if ((r < 0) != (cases[i].want == 0) || n != cases[i].want)
            test_fail(__FILE__, __LINE__, "\"%s\": %d, %llu", cases[i].s, r, (unsigned long long)n);
    }
}

TEST(cpu_amounts) {
    static const struct {
        const char *s;
        uint64_t want;
    } cases[] = {
        {"500m", 500000000},
        {"2", 2000000000},
        {"1.5", 1500000000},
        {".25", 250000000},
        {"0.0001", 100000},
        {"1.000000001", 1000000001},
        {"1.0000000019", 1000000001},
        {"0.0000000001", 0},
        {"1.5m", 1500000},
        {"1.", 1000000000},
        {"1m", 1000000},
        {"0", 0},
        {"0.0", 0},
        {"0m", 0},
        {"", 0},
        {"x", 0},
        {"-1", 0},
        {"1x", 0},
        {"inf", 0},
        {"nan", 0},
        {"9999999999999999", 0},
        {".", 0},
        {"m", 0},
        {"1 2", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t n = 0;
        int r = parse_cpu(cases[i].s, &n);
        if ((r < 0) != (cases[i].want == 0) || n != cases[i].want)
            test_fail(__FILE__, __LINE__, "\"%s\": %d, %llu", cases[i].s, r, (unsigned long long)n);
    }
}

TEST(gpu_amounts) {
    int64_t n;
    ASSERT_OK(parse_gpu("2", &n));
    ASSERT_INT(n, 2);
    ASSERT_OK(parse_gpu("ALL", &n));
    ASSERT_INT(n, -1);
    ASSERT_INT(parse_gpu("", &n), -EINVAL);
    ASSERT_INT(parse_gpu("0", &n), -EINVAL);
    ASSERT_INT(parse_gpu("-1", &n), -EINVAL);
    ASSERT_INT(parse_gpu("one", &n), -EINVAL);
}

TEST(labels) {
    static char long64[65], long63[64];
    memset(long64, 'a', 64);
    memset(long63, 'a', 63);
    const struct {
        const char *key, *value;
        enum fault want;
    } cases[] = {
        {"a", "b", 0},
        {"a", "", 0},
        {"A-b_c.d", "X", 0},
        {"example.com/a", "b", 0},
        {long63, long63, 0},
        {"a b", "c", FAULT_LABEL},
        {"", "c", FAULT_LABEL},
        {"-a", "c", FAULT_LABEL},
        {"a-", "c", FAULT_LABEL},
        {long64, "c", FAULT_LABEL},
        {"a", long64, FAULT_LABEL},
        {"a", "b c", FAULT_LABEL},
        {"a", "-b", FAULT_LABEL},
        {"Example.com/a", "b", FAULT_LABEL},
        {"/a", "b", FAULT_LABEL},
        {"x/", "b", FAULT_LABEL},
        {"x..y/a", "b", FAULT_LABEL},
        {"x-/a", "b", FAULT_LABEL},
        {"x/y/z", "b", FAULT_LABEL},
        {"opensandbox.io/a", "b", FAULT_LABEL},
        {"\xc3\xa9", "b", FAULT_LABEL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = {0};
        _cleanup_json_ json_t *m = json_pack("{s:s}", cases[i].key, cases[i].value);
        enum fault f = check_metadata(m, &err);
        if (f != cases[i].want)
            test_fail(__FILE__, __LINE__, "case %zu \"%s\"=\"%s\": %d", i, cases[i].key,
                      cases[i].value, f);
    }
}

TEST(words) {
    static const struct {
        const char *in, *want; /* '|' between words; NULL = refused */
    } cases[] = {
        {"a b  c", "a|b|c"},  {" a ", "a"},     {"", ""},           {"'a b' c", "a b|c"},
        {"\"a b\"c", "a bc"}, {"a\\ b", "a b"}, {"'a\"b'", "a\"b"}, {"\"a\\\"b\\n\"", "a\"b\\n"},
        {"''", ""},           {"a ''", "a|"},   {"'a", NULL},       {"\"a", NULL},
        {"a\\", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_strv_ struct strv v = {0};
        _cleanup_buf_ struct buf b = BUF_INIT(0);
        int r = shell_split(cases[i].in, &v);
        for (size_t k = 0; k < v.n; k++)
            buf_printf(&b, "%s%s", k ? "|" : "", v.v[k]);
        const char *got = b.data ? b.data : "";
        if (!cases[i].want ? r != -EINVAL : r != 0 || strcmp(got, cases[i].want) != 0)
            test_fail(__FILE__, __LINE__, "%s: %d %s", cases[i].in, r, got);
    }
}

TEST(volumes) {
    static const char *const allowed[] = {"/data", NULL};
    static const struct {
        const char *name, *mount, *host, *sub;
        unsigned backends;
        enum fault want;
    } cases[] = {
        {"a", "/m", "/data", NULL, 1, 0},
        {"a", "/m", "/data/x", "y/z", 1, 0},
        {"a", "/m", "/database", NULL, 1, FAULT_VOLUME_NOT_ALLOWED},
        {"a", "/m", "/", NULL, 1, FAULT_VOLUME_NOT_ALLOWED},
        {"a", "/m", "/data/", NULL, 1, FAULT_VOLUME_HOST_PATH},
        {"a", "/m", "/data/../etc", NULL, 1, FAULT_VOLUME_HOST_PATH},
        {"a", "/m", "/data//x", NULL, 1, FAULT_VOLUME_HOST_PATH},
        {"a", "/m", "/data/..x", NULL, 1, 0},
        {"A", "/m", "/data", NULL, 1, FAULT_VOLUME_NAME},
        {"a-", "/m", "/data", NULL, 1, FAULT_VOLUME_NAME},
        {"a", "m", "/data", NULL, 1, FAULT_VOLUME_MOUNT_PATH},
        {"a", "/m/../n", "/data", NULL, 1, FAULT_VOLUME_MOUNT_PATH},
        {"a", "/m", "/data", "/x", 1, FAULT_VOLUME_SUB_PATH},
        {"a", "/m", "/data", "x/..", 1, FAULT_VOLUME_SUB_PATH},
        {"a", "/m", "/data", NULL, 0, FAULT_VOLUME_BACKEND},
        {"a", "/m", "/data", NULL, 2, FAULT_VOLUME_BACKEND},
    };
    struct service_opts o = {.allowed_host_paths = allowed, .driver = &plain};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct volume_request v[2] = {{.name = (char *)cases[i].name,
                                       .mount_path = (char *)cases[i].mount,
                                       .host_path = (char *)cases[i].host,
                                       .sub_path = (char *)cases[i].sub,
                                       .n_backends = cases[i].backends}};
        struct create_request rq = {.volumes = v, .n_volumes = 1};
        struct err err = {0};
        enum fault f = check_volumes(&o, &rq, &err);
        if (f != cases[i].want)
            test_fail(__FILE__, __LINE__, "case %zu: %d %s", i, f, err.msg);
        v[1] = v[0];
        rq.n_volumes = 2;
        f = check_volumes(&o, &rq, &err);
        ASSERT_INT(f, cases[i].want ? cases[i].want : FAULT_VOLUME_DUPLICATE);
    }
}

TEST(sizes_are_bounded) {
    struct create_request rq = {.image = strdup("host")};
    struct sandbox_spec spec = {0};
    struct service_opts o = {.driver = &plain};
    struct err err = {0};

    strv_add(&rq.entrypoint, "a");
    for (int i = 0; i <= CHECK_MAX_MAP; i++)
        strv_addf(&rq.env, "K%d=v", i);
    ASSERT_INT(check_source(&o, &rq, &spec, &err), FAULT_INVALID);
    ASSERT_STR(err.msg, "env may have at most 256 entries.");
    create_request_done(&rq);
    sandbox_spec_done(&spec);
}

/* Both stand in every list that a runtime gives of its containers. */
TEST(bytes_are_bounded) {
    char *large = malloc(CHECK_MAX_ENTRYPOINT_BYTES + 1);
    struct create_request rq = {.image = strdup("host")};
    struct sandbox_spec spec = {0};
    struct service_opts o = {.driver = &plain};
    struct err err = {0};

    memset(large, 'x', CHECK_MAX_ENTRYPOINT_BYTES);
    large[CHECK_MAX_ENTRYPOINT_BYTES] = '\0';
    strv_add(&rq.entrypoint, large);
    ASSERT_INT(check_source(&o, &rq, &spec, &err), FAULT_NONE);
    strv_add(&rq.entrypoint, "y");
    ASSERT_INT(check_source(&o, &rq, &spec, &err), FAULT_INVALID);
    ASSERT_STR(err.msg, "entrypoint may have at most 131072 bytes.");
    strv_done(&rq.entrypoint);
    large[CHECK_MAX_EXTENSIONS_BYTES - 1] = '\0';
    rq.extensions = json_pack("{s:s}", "a", large);
    ASSERT_INT(check_source(&o, &rq, &spec, &err), FAULT_NONE);
    json_object_set_new(rq.extensions, "b", json_string(""));
    ASSERT_INT(check_source(&o, &rq, &spec, &err), FAULT_INVALID);
    ASSERT_STR(err.msg, "extensions may have at most 32768 bytes.");
    create_request_done(&rq);
    sandbox_spec_done(&spec);
    free(large);
}

TEST_MAIN()
