/* The table of file name patterns. */
#include "execd/glob.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/test.h"

static int check(const char *pattern, const char *name) {
    struct glob g = {0};
    struct err err = {0};
    int r = glob_compile(pattern, &g, &err);

    if (r < 0)
        return r;
    r = glob_match(&g, name);
    glob_done(&g);
    return r;
}

static void yes(const char *p, const char *s) {
    if (check(p, s) != 1)
        test_fail(__FILE__, __LINE__, "%s should match %s", p, s);
}

static void no(const char *p, const char *s) {
    if (check(p, s) != 0)
        test_fail(__FILE__, __LINE__, "%s should not match %s", p, s);
}

TEST(simple_tokens) {
    yes("*", "a.b");
    yes("*", "");
    yes("*", ".hidden");
    no("*", "a/b");
    yes("a*b*c", "aXbYc");
    no("a*b", "abc");
    yes("?", "\xc3\xa9");
    no("?", "/");
    no("??", "\xc3\xa9");
    yes("a\\*", "a*");
    no("a\\*", "ab");
    yes("", "");
    no("", "x");
    yes("*.conf", "x.conf");
    no("*.CONF", "x.conf");
}

TEST(classes) {
    yes("[a-c]x", "bx");
    no("[a-c]x", "dx");
    yes("[^a-c]", "d");
    yes("[!a]", "b");
    no("[!a]", "/");
    yes("[a-]", "-");
    yes("[-a]", "-");
    yes("[a-b-d]", "-");
    yes("[\\]]", "]");
    yes("[\xc3\xa0-\xc3\xbf]", "\xc3\xa9");
}

TEST(braces) {
    yes("{a,b}c", "bc");
    yes("a{,b}", "a");
    yes("a{,b}", "ab");
    yes("{a{1,2},b}", "a2");
    no("{a{1,2},b}", "a3");
    yes("*.{js,t{s,sx}}", "x.tsx");
    yes("{[a-c],x}", "b");
    yes("a\\{b", "a{b");
}

TEST(globstar) {
    yes("**", "a/b");
    yes("**/x", "x");
    yes("**/x", "a/b/x");
    no("**/x", "a/bx");
    yes("a/**", "a");
    yes("a/**", "a/");
    yes("a/**", "a/b/c");
    no("a/**", "ab");
    yes("a/**/c", "a/c");
    yes("a/**/c", "a/x/y/c");
    yes("a**b", "axxb");
    no("a**b", "ax/xb");
}

TEST(negation) {
    yes("node_modules/!(.cache)/**", "node_modules/react/index.js");
    no("node_modules/!(.cache)/**", "node_modules/.cache/x");
    yes("!(a)", "b");
    no("!(a)", "a");
    yes("x!(*.c)", "xa.h");
    no("x!(*.c)", "xa.c");
    no("!({a,b})", "b");
    yes("!({a,b})", "c");
    no("{x,y}!(a){1,2}", "ya2");
    yes("{x,y}!(a){1,2}", "yb2");
    yes("{a,!(b,c)}d", "b,d");
    no("{a,!(b,c)}d", "b,cd");
}

TEST(bad_patterns) {
    const char *bad[] = {"[",  "[]a]", "a[",     "ad[", "\\",  "a\\", "{",
                         "a}", "{a",   "{a,{b}", "!",   "a!b", "!(a", "[a\\"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (check(bad[i], "ab") != -EINVAL)
            test_fail(__FILE__, __LINE__, "%s should be bad", bad[i]);
    ASSERT_INT(check("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "x"), -E2BIG);
}

TEST(hard_cases_are_quick) {
    char pattern[201], name[201];
    int64_t start = clock_mono_ms();

    for (int i = 0; i < 200; i += 2)
        memcpy(pattern + i, "a*", 2);
    memset(name, 'a', 200);
    pattern[199] = 'b';
    pattern[200] = name[200] = 0;
    no(pattern, name);
    no("*!(*!(*!(*!(*!(*!(*!(*!(*!(*x)))))))))", name);
    ASSERT(clock_mono_ms() - start < 5000);
}

TEST_MAIN()
