/* Frames passed through: close codes that must not travel, ends without a close frame, any cut. */
#include "net/ws_relay.h"

#include <string.h>

#include "base/test.h"

static struct buf out;

static ssize_t collect(void *ud, const char *data, size_t len) {
    buf_append(&out, data, len);
    return (ssize_t)out.len;
}

/* Feeds in pieces of `step` bytes. */
static void feed(struct ws_relay *r, const char *data, size_t len, size_t step) {
    buf_clear(&out);
    for (size_t i = 0; i < len; i += step)
        ASSERT(ws_relay_feed(r, data + i, MIN(step, len - i), collect, NULL) >= 0);
}

static void expect(const char *want, size_t len, size_t step) {
    if (out.len != len || memcmp(out.data, want, len) != 0)
        test_fail(__FILE__, __LINE__, "step %zu: %zu bytes, expected %zu", step, out.len, len);
}

#define S(text) text, sizeof(text) - 1

static void check(bool to_client, const char *in, size_t in_len, const char *want, size_t want_len,
                  int closed) {
    for (size_t step = 1; step <= in_len; step++) {
        struct ws_relay r;
        ws_relay_init(&r, to_client);
        feed(&r, in, in_len, step);
        expect(want, want_len, step);
        ASSERT_INT(r.closed, closed);
    }
    buf_done(&out);
}

TEST(good_frames_pass_untouched) {
    static const char text[] = "\x81\x05hello\x82\x02\x88\x88\x89\x00\x88\x05\x03\xe8"
                               "bye";
    check(true, text, sizeof text - 1, text, sizeof text - 1, 1000);
}

TEST(long_frames_pass_untouched) {
    struct buf b = BUF_INIT(0);
    static const char head[] = "\x82\x7e\x01\x00", wide[] = "\x82\x7f\0\0\0\0\0\1\0\0";
    char *fill = malloc(65536);

    ASSERT(fill);
    memset(fill, 0x88, 65536); /* looks like close frames */
    buf_append(&b, head, 4);
    buf_append(&b, fill, 256);
    buf_append(&b, wide, 10);
    buf_append(&b, fill, 65536);
    buf_append(&b, "\x88\x02\x03\xe9", 4);
    for (size_t step = 1; step < 70000; step = step * 3 + 1) {
        struct ws_relay r;
        ws_relay_init(&r, true);
        feed(&r, b.data, b.len, step);
        expect(b.data, b.len, step);
        ASSERT_INT(r.closed, 1001);
    }
    free(fill);
    buf_done(&b);
    buf_done(&out);
}

TEST(codes_towards_a_client) {
    check(true, S("\x88\x00"), S("\x88\x02\x03\xe8"), 1000);
    check(true, S("\x88\x02\x03\xee"), S("\x88\x02\x03\xf3"), 1011); /* 1006 */
    check(true, S("\x88\x02\x03\xed"), S("\x88\x02\x03\xf3"), 1011); /* 1005 */
    check(true, S("\x81\x01x\x88\x04\x00\x01no"), S("\x81\x01x\x88\x04\x03\xf3no"), 1011);
    check(true, S("\x88\x01\x03"), S("\x88\x02\x03\xf3"), 1011);
    check(true, S("\x88\x04\x0f\xa0go"), S("\x88\x04\x0f\xa0go"), 4000);
}

/* Masked with 1 2 3 4. */
TEST(codes_towards_an_upstream) {
    check(false, S("\x88\x80\1\2\3\4"), S("\x88\x82\1\2\3\4\x02\xea"), 1000);
    check(false, S("\x88\x82\1\2\3\4\x02\xef"), S("\x88\x82\1\2\3\4\x02\xea"), 1000); /* 1005 */
    check(false, S("\x88\x82\1\2\3\4\x02\xec"), S("\x88\x82\1\2\3\4\x02\xeb"), 1001); /* 1006 */
    check(false, S("\x88\x84\1\2\3\4\x02\xeak\x6d"), S("\x88\x84\1\2\3\4\x02\xeak\x6d"), 1000);
}

TEST(what_is_no_close_frame_is_left_to_the_receiver) {
    check(true, S("\x88\x7e\x01\x00zz"), S("\x88\x7e\x01\x00zz"), 0);
    check(true, S("\xc8\x02\x03\xee"), S("\xc8\x02\x03\xee"), 0);
}

static size_t end_of(struct ws_relay *r, const struct ws_relay *other, char ret[16]) {
    return ws_relay_end(r, other, ret);
}

TEST(an_end_without_a_word) {
    struct ws_relay up, down;
    char frame[16];

    ws_relay_init(&up, false);
    ws_relay_init(&down, true);
    ASSERT_INT(end_of(&down, &up, frame), 4);
    ASSERT(memcmp(frame, "\x88\x02\x03\xf3", 4) == 0);
    ASSERT_INT(end_of(&up, &down, frame), 8);
    ASSERT((frame[1] & 0x80) && (char)(frame[6] ^ frame[2]) == 0x03 &&
           (unsigned char)(frame[7] ^ frame[3]) == 0xe9);
    feed(&up, S("\x88\x84\0\0\0\0\x0f\xa0ok"), 99); /* the client says 4000: so it is answered */
    ASSERT_INT(end_of(&down, &up, frame), 4);
    ASSERT(memcmp(frame, "\x88\x02\x0f\xa0", 4) == 0);
    feed(&down, S("\x81\x05he"), 99);
    ASSERT_INT(end_of(&down, &up, frame), 0); /* inside a frame: nothing can be said */
    ws_relay_init(&down, true);
    feed(&down, S("\x88\x04\x03"), 99); /* inside a close frame that was held back */
    ASSERT_INT(out.len, 0);
    ASSERT_INT(end_of(&down, &up, frame), 4);
    feed(&down, S("\xe8xx"), 99);
    ASSERT_INT(down.closed, 1000);
    ASSERT_INT(end_of(&down, &up, frame), 0);
    buf_done(&out);
}

TEST_MAIN()
