/* Byte ranges, line ranges, HTTP dates. */
#include "execd/range.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

static void part(const char *h, uint64_t size, uint64_t a, uint64_t b) {
    uint64_t start = 99, end = 99;
    ASSERT_INT(range_parse(h, size, &start, &end), RANGE_PART);
    ASSERT_INT(start, a);
    ASSERT_INT(end, b);
}

TEST(byte_ranges) {
    uint64_t s, e;

    part("bytes=0-9", 100, 0, 9);
    part("bytes=0-0", 1, 0, 0);
    part("bytes=5-", 10, 5, 9);
    part("bytes=-4", 10, 6, 9);
    part("bytes=-40", 10, 0, 9);
    part("bytes=3-400", 10, 3, 9);
    part("bytes=20-30, 1-2 ,3-4", 10, 1, 2);
    part("bytes=0-18446744073709551615", 10, 0, 9);
    ASSERT_INT(range_parse(NULL, 10, &s, &e), RANGE_FULL);
    const char *bad[] = {
        "bytes=10-",   "bytes=-0", "bytes=", "bytes=-",     "bytes=a-b",
        "bytes=3-2",   "byte=0-1", "",       "bytes=1-2,x", "bytes=0-99999999999999999999",
        "bytes=1 - 2", "bytes=--1"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ASSERT_INT(range_parse(bad[i], 10, &s, &e), RANGE_BAD);
    ASSERT_INT(range_parse("bytes=0-", 0, &s, &e), RANGE_BAD);
    ASSERT_INT(range_parse("bytes=-5", 0, &s, &e), RANGE_BAD);
}

static void lines(const char *in, uint64_t first, uint64_t count, const char *want) {
    size_t len = strlen(in);

    for (size_t step = 1; step <= len + 1; step++) {
        _cleanup_buf_ struct buf out = BUF_INIT(4096);
        struct line_range l;
        line_range_init(&l, first, count);
        for (size_t i = 0; i < len; i += step)
            ASSERT_OK(line_range_feed(&l, in + i, MIN(step, len - i), &out));
        buf_char(&out, '.');
        ASSERT_STR(out.data, want);
    }
}

TEST(line_ranges) {
    lines("a\nb\nc\n", 1, UINT64_MAX, "a\nb\nc.");
    lines("a\nb\nc", 2, UINT64_MAX, "b\nc.");
    lines("a\nb\nc", 2, 1, "b.");
    lines("a\n\nc\n", 1, 2, "a\n.");
    lines("a\r\nb\r\r\nc\rd\r", 1, 9, "a\nb\nc\rd.");
    lines("a\n", 2, 9, ".");
    lines("", 1, 9, ".");
    lines("\n\n", 1, 9, "\n.");
    lines("x", 1, 1, "x.");
}

TEST(http_dates) {
    char s[40];
    int64_t t;

    http_date_format(784111777, s);
    ASSERT_STR(s, "Sun, 06 Nov 1994 08:49:37 GMT");
    ASSERT_OK(http_date_parse(s, &t));
    ASSERT_INT(t, 784111777);
    http_date_format(0, s);
    ASSERT_STR(s, "Thu, 01 Jan 1970 00:00:00 GMT");
    http_date_format(951782400, s);
    ASSERT_STR(s, "Tue, 29 Feb 2000 00:00:00 GMT");
    http_date_format(-1, s);
    ASSERT_STR(s, "Wed, 31 Dec 1969 23:59:59 GMT");
    ASSERT_INT(http_date_parse("yesterday", &t), -EINVAL);
    ASSERT_INT(http_date_parse(NULL, &t), -EINVAL);
    ASSERT_INT(http_date_parse("Sun, 06 Foo 1994 08:49:37 GMT", &t), -EINVAL);
}

TEST_MAIN()
