/* Percent-encoding and queries. */
#include "net/url.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

TEST(decode) {
    static const struct {
        const char *in, *out; /* out NULL = refused */
    } table[] = {
        {"", ""},           {"abc", "abc"},         {"a%20b", "a b"}, {"a+b", "a+b"},
        {"%2Fx%2f", "/x/"}, {"%c3%A4", "\xc3\xa4"}, {"%", NULL},      {"%2", NULL},
        {"%2g", NULL},      {"%g2", NULL},          {"a%00b", NULL},  {"%%30", NULL},
        {"%41%42%", NULL},  {"100%25", "100%"},     {"%2e%2e", ".."}, {"% 41", NULL},
        {"%+1", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        char *got = NULL;
        int r = url_decode(table[i].in, strlen(table[i].in), &got);
        if (!table[i].out)
            ASSERT_INT(r, -EINVAL);
        else
            ASSERT_STR(got, table[i].out);
        free(got);
    }
}

TEST(decode_stops_at_len) {
    char *got = NULL;

    ASSERT_INT(url_decode("%41", 2, &got), -EINVAL);
    ASSERT_OK(url_decode("ab%41", 2, &got));
    ASSERT_STR(got, "ab");
    free(got);
    ASSERT_INT(url_decode("a\0b", 3, &got), -EINVAL);
}

TEST(encode) {
    char *s;

    ASSERT_STR(s = url_encode("aZ0-._~", false), "aZ0-._~");
    free(s);
    ASSERT_STR(s = url_encode("a b/c?\xc3\xa4%+", false), "a%20b%2Fc%3F%C3%A4%25%2B");
    free(s);
    ASSERT_STR(s = url_encode("/a b/", true), "/a%20b/");
    free(s);
    ASSERT_STR(s = url_encode("", true), "");
    free(s);
}

TEST(encode_then_decode) {
    char all[256], *enc, *dec = NULL;

    for (int i = 1; i < 256; i++)
        all[i - 1] = (char)i;
    all[255] = 0;
    enc = url_encode(all, false);
    ASSERT_OK(url_decode(enc, strlen(enc), &dec));
    ASSERT_STR(dec, all);
    free(enc);
    free(dec);
}

static void expect_query(const char *raw, const char *key, const char *value, size_t n) {
    struct query q;

    ASSERT_OK(query_parse(raw, raw ? strlen(raw) : 0, &q));
    ASSERT_INT(q.keys.n, n);
    ASSERT_INT(q.values.n, n);
    if (value)
        ASSERT_STR(query_get(&q, key), value);
    else
        ASSERT(!query_get(&q, key));
    query_done(&q);
}

TEST(queries) {
    expect_query(NULL, "a", NULL, 0);
    expect_query("", "a", NULL, 0);
    expect_query("a=1", "a", "1", 1);
    expect_query("a", "a", "", 1);
    expect_query("a=", "a", "", 1);
    expect_query("=x", "", "x", 1);
    expect_query("a=1&a=2", "a", "2", 2);
    expect_query("&&a=1&&", "a", "1", 1);
    expect_query("a=b=c", "a", "b=c", 1);
    expect_query("a=x+y%20z", "a", "x y z", 1);
    expect_query("a+b=1", "a b", "1", 1);
    expect_query("%61=1", "a", "1", 1);
    expect_query("a=%zz%4", "a", "%zz%4", 1);
    expect_query("a=x%00y", "a", "x", 1);
    expect_query("a=1;b=2", "a", "1;b=2", 1);
    expect_query("A=1", "a", NULL, 1);
}

TEST(query_pairs_are_bounded) {
    char raw[4001];
    struct query q;

    for (size_t i = 0; i < sizeof raw - 1; i += 2) {
        raw[i] = 'a';
        raw[i + 1] = '&';
    }
    ASSERT_OK(query_parse(raw, sizeof raw - 1, &q));
    ASSERT_INT(q.keys.n, 1000);
    query_done(&q);
}

TEST_MAIN()
