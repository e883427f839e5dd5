/* Environment layers and the grammar of the EXECD_ENVS file. */
#include "execd/env.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"

static const char *apply(const char *text, const char *key, int want_skipped) {
    static char value[256];
    _cleanup_strv_ struct strv base = {0}, out = {0};

    env_set(&base, "BASE", "b");
    ASSERT_INT(envfile_apply(text, strlen(text), &base, &out), want_skipped);
    const char *v = env_get(&out, key);
    if (!v)
        return NULL;
    snprintf(value, sizeof value, "%s", v);
    return value;
}

TEST(plain_values) {
    ASSERT_STR(apply("K=v", "K", 0), "v");
    ASSERT_STR(apply("  K =  a b  \r\n", "K", 0), "a b");
    ASSERT_STR(apply("K=$BASE-${BASE}-$NONE-${NONE}.$", "K", 0), "b-b--.$");
    ASSERT_STR(apply("K=1\nK=2\n", "K", 0), "2");
    ASSERT_STR(apply("K=\n", "K", 0), "");
    ASSERT_STR(apply("K=a#b # c\n", "K", 0), "a#b # c");
    ASSERT_STR(apply("K=a=b\n", "K", 0), "a=b");
}

TEST(quoted_values) {
    ASSERT_STR(apply("K='it is $BASE \\n'\n", "K", 0), "it is $BASE \\n");
    ASSERT_STR(apply("K=\"a\\tb\\n\\\\\\\"\\x $BASE\"\n", "K", 0), "a\tb\n\\\"\\x b");
    ASSERT_STR(apply("K='two\nlines'\nJ=1\n", "K", 0), "two\nlines");
    ASSERT_STR(apply("K=\"two\nlines\" \t\nJ=1\n", "J", 0), "1");
    ASSERT_STR(apply("K= \t'x'\n", "K", 0), "x");
    ASSERT_STR(apply("K=''", "K", 0), "");
}

TEST(malformed_entries_are_skipped) {
    ASSERT(!apply("K='x' y\n", "K", 1));
    ASSERT(!apply("K='x\n", "K", 1));
    ASSERT_STR(apply("K=\"open\nJ=1\n", "J", 1), "1");
    ASSERT_STR(apply("no equals\n=v\n  = v\nJ=1\n", "J", 3), "1");
    ASSERT_STR(apply("# K=1\n\n \t\nJ=1", "J", 0), "1");
    ASSERT(!apply("# K=1\n", "K", 0));
}

TEST(names_that_the_file_cannot_set) {
    ASSERT(!apply("EXECD_ACCESS_TOKEN=x\n", "EXECD_ACCESS_TOKEN", 0));
    ASSERT(!apply("OPENSANDBOX_ID=x\n", "OPENSANDBOX_ID", 0));
    ASSERT(env_is_hidden("JUPYTER_TOKEN") && !env_is_hidden("EXECD_ENVS"));
}

TEST(layers) {
    char *in[] = {"A=1",
                  "B=1",
                  "COVE_TOKEN=s",
                  "EXECD_ACCESS_TOKEN=s",
                  "=odd",
                  "JUPYTER_HOST=h",
                  "noequals",
                  "EXECD_ENVS=/does/not/exist",
                  NULL};
    _cleanup_(env_done) struct env e = {0};
    _cleanup_strv_ struct strv extra = {0}, got = {0}, entry = {0};

    ASSERT_OK(env_init(&e, in));
    env_set(&e.claim, "B", "2");
    env_set(&e.claim, "C", "2");
    env_set(&extra, "C", "3");
    ASSERT_OK(env_build(&e, &extra, &got));
    ASSERT_STR(env_get(&got, "A"), "1");
    ASSERT_STR(env_get(&got, "B"), "2");
    ASSERT_STR(env_get(&got, "C"), "3");
    ASSERT(env_get(&got, "EXECD_ENVS") && !env_get(&got, "COVE_TOKEN"));
    ASSERT(!env_get(&got, "EXECD_ACCESS_TOKEN") && !env_get(&got, "JUPYTER_HOST"));
    ASSERT_OK(env_build_entrypoint(&e, &entry));
    ASSERT_STR(env_get(&entry, "JUPYTER_HOST"), "h");
    ASSERT(!env_get(&entry, "EXECD_ACCESS_TOKEN"));
}

TEST_MAIN()
