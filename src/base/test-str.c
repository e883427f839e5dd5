#include "base/str.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

TEST(compare) {
    ASSERT(str_eq(NULL, NULL) && !str_eq("", NULL) && str_eq("a", "a"));
    ASSERT(str_ieq("Content-TYPE", "content-type") && !str_ieq("a", "ab"));
    ASSERT(str_eq_const_time("secret", "secret"));
    ASSERT(!str_eq_const_time("secret", "secreT") && !str_eq_const_time("a", "") &&
           !str_eq_const_time("", "a"));
    ASSERT(!str_eq_const_time("aa", "a") && !str_eq_const_time(NULL, NULL));
}

TEST(integers) {
    uint64_t u;
    int64_t i;
    ASSERT_OK(str_to_u64("18446744073709551615", &u));
    ASSERT(u == UINT64_MAX);
    ASSERT_INT(str_to_u64("18446744073709551616", &u), -ERANGE);
    ASSERT_INT(str_to_u64("", &u), -EINVAL);
    ASSERT_INT(str_to_u64("+1", &u), -EINVAL);
    ASSERT_INT(str_to_u64(" 1", &u), -EINVAL);
    ASSERT_OK(str_to_i64("-9223372036854775808", &i));
    ASSERT(i == INT64_MIN);
    ASSERT_INT(str_to_i64("9223372036854775808", &i), -ERANGE);
    ASSERT_INT(str_to_i64("--1", &i), -EINVAL);
}

TEST(vectors_and_env) {
    _cleanup_strv_ struct strv v = {0};
    ASSERT_OK(env_set(&v, "A", "1"));
    ASSERT_OK(env_set(&v, "AB", "2"));
    ASSERT_OK(env_set(&v, "A", "3"));
    ASSERT_INT(v.n, 2);
    ASSERT_STR(env_get(&v, "A"), "3");
    ASSERT(env_get(&v, "B") == NULL);
    env_unset(&v, "A");
    ASSERT_INT(v.n, 1);
    ASSERT(v.v[1] == NULL);
    for (int i = 0; i < 100; i++)
        ASSERT_OK(strv_addf(&v, "x%d", i));
    ASSERT_INT(v.n, 101);
    ASSERT(v.v[101] == NULL);
}

TEST(utf8) {
    ASSERT_INT(utf8_next("\xed\xa0\x80", 3), 0); /* surrogate */
    ASSERT_INT(utf8_next("\xc0\x80", 2), 0);     /* overlong */
    ASSERT_INT(utf8_next("\xf4\x90\x80\x80", 4), 0);
    ASSERT_INT(utf8_next("\xe2\x82", 2), -1);
    ASSERT_INT(utf8_next("\xe2\x28", 2), 0);
    ASSERT_INT(utf8_next("\xf0\x9f\x98\x80", 4), 4);
    char out[4];
    ASSERT(!str_copy(out, sizeof out, "a\xc3\xa9\xc3\xa9"));
    ASSERT_STR(out, "a\xc3\xa9");
}

TEST(base64_and_hex) {
    static const char *const plain[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
        _cleanup_free_ char *e = base64_encode(plain[i], strlen(plain[i]));
        _cleanup_free_ void *d = NULL;
        size_t n;
        ASSERT_OK(base64_decode(e, strlen(e), &d, &n));
        ASSERT(n == strlen(plain[i]) && memcmp(d, plain[i], n) == 0);
    }
    void *d;
    size_t n;
    ASSERT_INT(base64_decode("Zg=", 3, &d, &n), -EINVAL);
    ASSERT_INT(base64_decode("Z!==", 4, &d, &n), -EINVAL);
    ASSERT_INT(base64_decode("Zh==", 4, &d, &n), -EINVAL);
    ASSERT_INT(base64_decode("Zg", 2, &d, &n), 0);
    free(d);
    unsigned char b[2];
    ASSERT_OK(hex_decode("0aFf", 4, b));
    ASSERT(b[0] == 10 && b[1] == 255);
    ASSERT_INT(hex_decode("0g", 2, b), -EINVAL);
}
TEST(dns_labels) {
    static const char *const good[] = {"a", "0", "a-b", "a--b", "data-1"}, *const bad[] = {
                                                                               "",        "-",
                                                                               "-a",      "a-",
                                                                               "A",       "a.b",
                                                                               "a_b",     "a b",
                                                                               "\xc3\xa4"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ASSERT(str_is_dns_label(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ASSERT(!str_is_dns_label(bad[i]));
}

TEST_MAIN()
