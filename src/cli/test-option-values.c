/* What people write as values of options. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/test.h"
#include "cli/option_values.h"

TEST(sizes) {
    static const struct {
        const char *text;
        uint64_t bytes; /* 0 = refused */
    } cases[] = {{"1", 1},
                 {"512m", 512ull << 20},
                 {"512M", 512ull << 20},
                 {"512MiB", 512ull << 20},
                 {"2g", 2ull << 30},
                 {"1.5g", 3ull << 29},
                 {"64Ki", 65536},
                 {"0.5k", 512},
                 {"1t", 1ull << 40},
                 {"100b", 100},
                 {"9223372036854775807", INT64_MAX},
                 {"", 0},
                 {"0", 0},
                 {"m", 0},
                 {"-1m", 0},
                 {"1 m", 0},
                 {"1x", 0},
                 {"1.m", 0},
                 {".5m", 0},
                 {"1..5m", 0},
                 {"1mm", 0},
                 {"9999999999t", 0},
                 {"18446744073709551616", 0},
                 {"9223372036854775808", 0},
                 {"0x10", 0},
                 {"1e9", 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = {0};
        uint64_t got = 0;
        int r = parse_size(cases[i].text, &got, &err);
        if ((r == 0) != (cases[i].bytes != 0) || got != cases[i].bytes)
            test_fail(__FILE__, __LINE__, "\"%s\": r %d, %llu bytes", cases[i].text, r,
                      (unsigned long long)got);
        ASSERT(r == 0 || strstr(err.msg, "is not a size"));
    }
}

TEST(cpus) {
    static const struct {
        const char *text;
        uint64_t millis;
    } cases[] = {{"1", 1000},  {"0.5", 500}, {"1.25", 1250}, {"500m", 500}, {"16", 16000},
                 {"0.001", 1}, {"", 0},      {"0", 0},       {"0.0001", 0}, {"-1", 0},
                 {"1.5.2", 0}, {"two", 0},   {"2000", 0},    {"1c", 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t got = 0;
        int r = parse_cpu(cases[i].text, &got, NULL);
        if ((r == 0) != (cases[i].millis != 0) || got != cases[i].millis)
            test_fail(__FILE__, __LINE__, "\"%s\": r %d, %llu", cases[i].text, r,
                      (unsigned long long)got);
    }
}

TEST(times) {
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {{"1", 1000},     {"90", 90000},    {"500ms", 500}, {"1.5s", 1500}, {"5m", 300000},
                 {"2h", 7200000}, {"1d", 86400000}, {"", 0},        {"0", 0},       {"0s", 0},
                 {"-5", 0},       {"5 s", 0},       {"5w", 0},      {"60d", 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t got = 0;
        int r = parse_time(cases[i].text, &got, NULL);
        if ((r == 0) != (cases[i].ms != 0) || got != cases[i].ms)
            test_fail(__FILE__, __LINE__, "\"%s\": r %d, %llu", cases[i].text, r,
                      (unsigned long long)got);
    }
}

TEST(users) {
    int64_t uid, gid;
    ASSERT_OK(parse_user("1000", &uid, &gid, NULL));
    ASSERT_INT(uid, 1000);
    ASSERT_INT(gid, -1);
    ASSERT_OK(parse_user("0:5", &uid, &gid, NULL));
    ASSERT_INT(uid, 0);
    ASSERT_INT(gid, 5);
    static const char *const bad[] = {"",   "root",       "1:",           ":1", "1:2:3",
                                      "-1", "4294967295", "1:4294967295", " 1"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (parse_user(bad[i], &uid, &gid, NULL) != -EINVAL)
            test_fail(__FILE__, __LINE__, "\"%s\" was taken for a user", bad[i]);
}

TEST(variables) {
    _cleanup_strv_ struct strv env = {0};
    setenv("COVE_TEST_GIVEN", "from here", 1);
    unsetenv("COVE_TEST_ABSENT");
    ASSERT_OK(parse_env("A=1", &env, NULL));
    ASSERT_OK(parse_env("B=", &env, NULL));
    ASSERT_OK(parse_env("C=a=b c", &env, NULL));
    ASSERT_OK(parse_env("COVE_TEST_GIVEN", &env, NULL));
    ASSERT_OK(parse_env("COVE_TEST_ABSENT", &env, NULL));
    ASSERT_INT(env.n, 4);
    ASSERT_STR(env.v[1], "B=");
    ASSERT_STR(env.v[2], "C=a=b c");
    ASSERT_STR(env.v[3], "COVE_TEST_GIVEN=from here");
    ASSERT_INT(parse_env("=x", &env, NULL), -EINVAL);
    ASSERT_INT(parse_env("", &env, NULL), -EINVAL);
    ASSERT_INT(parse_env("A B=x", &env, NULL), -EINVAL);
    ASSERT_INT(parse_env("1A=x", &env, NULL), -EINVAL);
}

static void check_mount(const char *text, bool local, const char *source, const char *target,
                        bool ro) {
    struct mount_arg m = {0};
    struct err err = {0};
    if (parse_mount(text, local, &m, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", text, err.msg);
    ASSERT_STR(m.source, source);
    ASSERT_STR(m.target, target);
    ASSERT_INT(m.read_only, ro);
    mount_arg_done(&m);
}

static void refuse_mount(const char *text, bool local, const char *why) {
    struct mount_arg m = {0};
    struct err err = {0};
    ASSERT(parse_mount(text, local, &m, &err) < 0);
    if (!strstr(err.msg, why))
        test_fail(__FILE__, __LINE__, "%s: \"%s\" does not say \"%s\"", text, err.msg, why);
}

TEST(mounts) {
    char dir[] = "/tmp/cove-test-mount-XXXXXX", cwd[4096];
    ASSERT(mkdtemp(dir));
    ASSERT_OK(chdir(dir));
    ASSERT(getcwd(cwd, sizeof(cwd)));
    ASSERT_OK(mkdir("src", 0755));
    _cleanup_free_ char *src = str_printf("%s/src", cwd);
    check_mount(".:/workspace", true, cwd, "/workspace", false);
    check_mount("src:/a:ro", true, src, "/a", true);
    check_mount("./src:/a:rw", true, src, "/a", false);
    check_mount("src", true, src, "/workspace", false);
    check_mount("src:ro", true, src, "/workspace", true);
    check_mount("/data//x:/a", false, "/data/x", "/a", false);
    refuse_mount("", true, "begins with a path");
    refuse_mount(":/a", true, "begins with a path");
    refuse_mount("src:a", true, "absolute");
    refuse_mount("src:", true, "absolute");
    refuse_mount("src:/a:/b", true, "too many colons");
    refuse_mount("absent:/a", true, "No such file");
    refuse_mount("src:/a", false, "must be absolute");
    ASSERT_OK(rmdir("src"));
    ASSERT_OK(rmdir(dir));
}

TEST(names_in_sandboxes) {
    ASSERT_STR(split_remote("3f2a:/tmp/x"), "/tmp/x");
    ASSERT_STR(split_remote("box:"), "");
    ASSERT_STR(split_remote("a:/b:c"), "/b:c");
    ASSERT(!split_remote("file"));
    ASSERT(!split_remote("./a:b"));
    ASSERT(!split_remote("/a:b"));
    ASSERT(!split_remote("dir/a:b"));
    ASSERT(!split_remote(":x"));
    ASSERT(!split_remote("-"));
}

TEST(texts_for_people) {
    char t[32];
    format_age(5000000, t, sizeof(t));
    ASSERT_STR(t, "5s");
    format_age(-1, t, sizeof(t));
    ASSERT_STR(t, "0s");
    format_age(125ll * 1000000, t, sizeof(t));
    ASSERT_STR(t, "2m");
    format_age(3ll * 86400 * 1000000, t, sizeof(t));
    ASSERT_STR(t, "3d");
    format_bytes(1023, t, sizeof(t));
    ASSERT_STR(t, "1023 B");
    format_bytes(1536, t, sizeof(t));
    ASSERT_STR(t, "1.5 KiB");
    format_bytes(5ull << 40, t, sizeof(t));
    ASSERT_STR(t, "5.0 TiB");
}

TEST_MAIN()
