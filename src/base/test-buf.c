#include "base/buf.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

TEST(append_and_limits) {
    _cleanup_buf_ struct buf b = BUF_INIT(10);
    ASSERT_OK(buf_str(&b, "hello"));
    ASSERT_OK(buf_printf(&b, "%d", 12345));
    ASSERT_INT(b.len, 10);
    ASSERT_INT(buf_char(&b, 'x'), -ENOBUFS);
    ASSERT(!buf_ok(&b));
    ASSERT_STR(b.data, "hello12345");
    buf_consume(&b, 5);
    ASSERT_STR(b.data, "12345");
}

TEST(take_gives_an_empty_string_too) {
    struct buf b = BUF_INIT(0);
    size_t n = 9;
    char *p = buf_take(&b, &n);
    ASSERT_STR(p, "");
    ASSERT_INT(n, 0);
    free(p);
}

static void check_json(const char *in, size_t len, const char *want) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    ASSERT_OK(buf_json_str(&b, in, len));
    ASSERT_STR(b.data, want);
}

TEST(json_strings) {
    check_json("a\"\\\n\r\t", 6, "\"a\\\"\\\\\\n\\r\\t\"");
    check_json("\0\x0b\x0c\x1f", 4, "\"\\u0000\\u000b\\u000c\\u001f\"");
    check_json("\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa", 11,
               "\"\\u0085\\u2028\\u2029\xe2\x80\xaa\"");
    check_json("\xff\xc3", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    check_json("h\xc3\xa9\xf0\x9f\x98\x80", 7, "\"h\xc3\xa9\xf0\x9f\x98\x80\"");
    check_json("", 0, "\"\"");
}

TEST(long_printf) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    char big[1000];
    memset(big, 'x', sizeof big);
    big[999] = 0;
    ASSERT_OK(buf_printf(&b, "%s!", big));
    ASSERT_INT(b.len, 1000);
    ASSERT(b.data[999] == '!');
}
TEST_MAIN()
