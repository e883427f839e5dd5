/* Line splitting: the contract's examples in both modes, under every way of cutting the input. */
#include "execd/lines.h"

#include <string.h>

#include "base/str.h"
#include "base/test.h"

static void put(const char *text, size_t len, void *ud) {
    struct buf *b = ud;
    buf_char(b, '[');
    buf_append(b, text, len);
    buf_char(b, ']');
}

static void check(enum lines_mode mode, const char *in, size_t len, const char *want) {
    for (size_t step = 1; step <= len + 1; step++) {
        _cleanup_buf_ struct buf out = BUF_INIT(0);
        struct lines l;
        lines_init(&l, mode);
        for (size_t i = 0; i < len; i += step)
            ASSERT_OK(lines_feed(&l, in + i, MIN(step, len - i), put, &out));
        lines_finish(&l, put, &out);
        lines_done(&l);
        buf_char(&out, '.');
        ASSERT_STR(out.data, want);
    }
}
#define CHECK(mode, in, want) check(mode, in, sizeof(in) - 1, want)

TEST(strip_examples) {
    CHECK(LINES_STRIP, "a\n\nb\n\n\nc\n", "[a][\n][b][\n][\n][c].");
    CHECK(LINES_STRIP, "c\n\r\nd", "[c][\n][d].");
    CHECK(LINES_STRIP, "x\ry\n", "[x][y].");
    CHECK(LINES_STRIP, "hi", "[hi].");
    CHECK(LINES_STRIP, "", ".");
    CHECK(LINES_STRIP, "a\r\r\nb", "[a][\n][b].");
    CHECK(LINES_STRIP, "\r", "[\n].");
    CHECK(LINES_STRIP, "a\r\nb\r\n", "[a][b].");
}

TEST(keep_examples) {
    CHECK(LINES_KEEP, "a\n\nb", "[a\n][\n][b].");
    CHECK(LINES_KEEP, "x\ry\n", "[x\r][y\n].");
    CHECK(LINES_KEEP, "a\r\nb\r\n", "[a\r\n][b\r\n].");
    CHECK(LINES_KEEP, "a\r\r\nb", "[a\r][\r\n][b].");
    CHECK(LINES_KEEP, "tail\r", "[tail\r].");
    CHECK(LINES_KEEP, "\n\n", "[\n][\n].");
}

TEST(waiting_cr_is_flushed) {
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    struct lines l;

    lines_init(&l, LINES_KEEP);
    lines_feed(&l, "50%\r", 4, put, &out);
    ASSERT(lines_has_waiting_cr(&l) && out.len == 0);
    lines_flush_cr(&l, put, &out);
    ASSERT_STR(out.data, "[50%\r]");
    lines_feed(&l, "\nx", 2, put, &out);
    lines_finish(&l, put, &out);
    ASSERT_STR(out.data, "[50%\r][\n][x]");
    lines_done(&l);
}

struct total {
    size_t n, bytes, longest;
    bool split_point;
};

static void count(const char *text, size_t len, void *ud) {
    struct total *t = ud;
    t->n++;
    t->bytes += len;
    t->longest = MAX(t->longest, len);
    t->split_point |= len > 0 && (text[0] & 0xc0) == 0x80;
}

TEST(long_lines) {
    size_t size = (size_t)9 << 20;
    char *big = malloc(size);
    struct total t = {0};
    struct lines l;

    memset(big, 'x', size);
    lines_init(&l, LINES_KEEP);
    ASSERT_OK(lines_feed(&l, big, 256 << 10, count, &t));
    ASSERT_OK(lines_feed(&l, "\n", 1, count, &t));
    ASSERT_INT(t.n, 1);
    for (size_t i = 0; i + 2 < size; i += 3)
        memcpy(big + i, "\xe2\x82\xac", 3);
    t = (struct total){0};
    ASSERT_OK(lines_feed(&l, big, size, count, &t));
    lines_finish(&l, count, &t);
    ASSERT_INT(t.bytes, size);
    ASSERT(t.n > 1 && t.longest < (size_t)4 << 20 && !t.split_point);
    memset(big, 1, size); /* six bytes each as JSON */
    t = (struct total){0};
    ASSERT_OK(lines_feed(&l, big, size, count, &t));
    lines_finish(&l, count, &t);
    ASSERT(t.bytes == size && t.longest * 6 < (size_t)4 << 20);
    lines_done(&l);
    free(big);
}

TEST_MAIN()
