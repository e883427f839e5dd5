/* The pure parts: frames, lines, references. Also with allocations that fail. */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "base/test.h"
#include "docker/demux.h"
#include "docker/internal.h"
#include "docker/lines.h"
#include "net/test-nomem.h"

/* ---- frames ---- */

static const char stream[] =
    "\1\0\0\0\0\0\0\3abc\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\2de\0\0\0\0\0\0\0\1f";
#define STREAM_LEN (sizeof stream - 1)

/* The stream in pieces of `step`, given out in pieces of at most `max`, as "1abc2de0f". */
static void demux_in_steps(size_t step, size_t max) {
    struct demux d = {0};
    char out[64];
    size_t n = 0;
    int last = -1;

    for (size_t at = 0; at < STREAM_LEN; at += step) {
        const char *data = stream + at, *piece;
        size_t len = MIN(step, STREAM_LEN - at), got;
        int which, r;
        while ((r = demux_next(&d, &data, &len, max, &which, &piece, &got, NULL)) > 0) {
            ASSERT(got > 0 && got <= max);
            if (which != last)
                out[n++] = (char)('0' + which);
            last = which;
            memcpy(out + n, piece, got);
            n += got;
        }
        ASSERT_INT(r, 0);
        ASSERT_INT(len, 0);
    }
    out[n] = 0;
    ASSERT_STR(out, "1abc2de0f");
    ASSERT_OK(demux_end(&d, NULL));
}

TEST(frames_however_they_are_cut) {
    for (size_t step = 1; step <= STREAM_LEN; step++)
        for (size_t max = 1; max <= 4; max++)
            demux_in_steps(step, max);
}

TEST(a_stream_ends_between_frames_only) {
    static const size_t ends[] = {0, 11, 19, 29, 38};

    for (size_t n = 0, e = 0; n <= STREAM_LEN; n++) {
        struct demux d = {0};
        const char *data = stream, *piece;
        size_t len = n, got;
        int which;
        while (demux_next(&d, &data, &len, 100, &which, &piece, &got, NULL) > 0)
            ;
        ASSERT_INT(demux_end(&d, NULL), n == ends[e] ? 0 : -EBADMSG);
        e += n == ends[e];
    }
}

static int demux_head(const char *head, struct err *err) {
    struct demux d = {0};
    const char *piece;
    size_t len = 8, got;
    int which;

    return demux_next(&d, &head, &len, 100, &which, &piece, &got, err);
}

TEST(heads_that_are_none) {
    struct err err;

    ASSERT_OK(demux_head("\3\0\0\0\4\0\0\0", NULL));
    ASSERT_INT(demux_head("\1\0\0\0\4\0\0\1", &err), -EBADMSG);
    ASSERT(strstr(err.msg, "67108865 bytes"));
    ASSERT_INT(demux_head("\1\0\0\0\xff\xff\xff\xff", NULL), -EBADMSG);
    ASSERT_INT(demux_head("\4\0\0\0\0\0\0\1", NULL), -EBADMSG);
    ASSERT_INT(demux_head("\1\1\0\0\0\0\0\1", NULL), -EBADMSG);
    ASSERT_INT(demux_head("\1\0\0\1\0\0\0\1", NULL), -EBADMSG);
    ASSERT_INT(demux_head("hello wo", NULL), -EBADMSG);
}

/* ---- lines ---- */

static int sum_lines(const char *text, size_t step, size_t max, int *ret) {
    _cleanup_lines_ struct json_lines l;
    size_t total = strlen(text);
    struct err err;
    json_t *j;
    int r = 0, sum = 0;

    json_lines_init(&l, max);
    for (size_t at = 0; r >= 0 && at < total; at += step) {
        const char *data = text + at;
        size_t len = MIN(step, total - at);
        while ((r = json_lines_next(&l, &data, &len, &j, &err)) > 0) {
            sum = 10 * sum + (int)json_integer_value(j);
            json_decref(j);
        }
    }
    if (r >= 0 && (r = json_lines_end(&l, &j, &err)) > 0) {
        sum = 10 * sum + (int)json_integer_value(j);
        json_decref(j);
    }
    *ret = sum;
    return r < 0 ? r : 0;
}

TEST(lines_however_they_are_cut) {
    static const char text[] = "1\n\n2\r\n \t\r\n3\n4";
    int sum;

    for (size_t step = 1; step <= sizeof text; step++) {
        ASSERT_OK(sum_lines(text, step, 100, &sum));
        ASSERT_INT(sum, 1234);
    }
    ASSERT_OK(sum_lines("", 1, 100, &sum));
    ASSERT_INT(sum, 0);
}

TEST(lines_have_a_maximum_and_are_json) {
    int sum;

    for (size_t step = 1; step < 12; step++) {
        ASSERT_OK(sum_lines("1\n\"34567890\"\n2", step, 10, &sum));
        ASSERT_INT(sum_lines("1\n\"345678901\"\n2", step, 10, &sum), -EMSGSIZE);
        ASSERT_INT(sum, 1);
        ASSERT_INT(sum_lines("1\n{\n2", step, 10, &sum), -EBADMSG);
        ASSERT_INT(sum_lines("1\n{}{}\n2", step, 10, &sum), -EBADMSG);
        ASSERT_INT(sum_lines("1\n2\n{", step, 10, &sum), -EBADMSG);
    }
}

/* ---- references ---- */

static void check_ref(const char *ref, const char *repo, const char *tag) {
    char *r, *t;

    ASSERT_OK(engine_ref_split(ref, &r, &t));
    ASSERT_STR(r, repo);
    ASSERT_STR(t, tag);
    free(r);
    free(t);
}

TEST(references) {
    static const char *const bad[] = {"", ":", "a:", "@sha256:x", "a@", ":x", "r:1/", "/a"};
    char *r, *t;

    check_ref("a", "a", "latest");
    check_ref("a:1", "a", "1");
    check_ref("r:5000/a", "r:5000/a", "latest");
    check_ref("r:5000/a/b:1.2", "r:5000/a/b", "1.2");
    check_ref("a@sha256:ab", "a", "sha256:ab");
    check_ref("r:5000/a:1@sha256:ab", "r:5000/a", "sha256:ab");
    check_ref("r:5000/a@sha256:ab", "r:5000/a", "sha256:ab");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ASSERT_INT(engine_ref_split(bad[i], &r, &t), -EINVAL);
}

TEST(paths) {
    _cleanup_buf_ struct buf b = BUF_INIT(1000);

    ASSERT_OK(engine_image_path(&b, "r:5000/a b@sha256:1", "/json", NULL));
    ASSERT_STR(b.data, "/images/r%3A5000/a%20b%40sha256%3A1/json");
    buf_clear(&b);
    ASSERT_OK(engine_path(&b, "/x/", "a?b#c%d", "/e", NULL));
    ASSERT_STR(b.data, "/x/a%3Fb%23c%25d/e");
    buf_clear(&b);
    ASSERT_INT(engine_path(&b, "/x/", "..", "", NULL), -EINVAL);
    ASSERT_INT(engine_path(&b, "/x/", "a/b", "", NULL), -EINVAL);
    ASSERT_INT(engine_image_path(&b, "a/../b", "", NULL), -EINVAL);
    ASSERT_INT(engine_image_path(&b, "/a", "", NULL), -EINVAL);
    ASSERT_INT(engine_image_path(&b, "a/", "", NULL), -EINVAL);
}

/* ---- with allocations that fail ---- */

static int run_lines(void) {
    int sum, r = sum_lines("1\n{\"a\":[\"b\",{}]}\n2", 3, 100, &sum);

    ASSERT(r < 0 || sum == 102);
    return r;
}

static int run_ref(void) {
    char *repo, *tag;
    int r = engine_ref_split("r:1/a:2", &repo, &tag);

    if (r < 0)
        return r;
    ASSERT_STR(repo, "r:1/a");
    ASSERT_STR(tag, "2");
    free(repo);
    free(tag);
    return 0;
}

static int run_auth(void) {
    char *text;
    int r = engine_auth_header("r:1/a", "u", "p", &text);

    if (r == 0)
        engine_wipe(text);
    return r;
}

static int run_paths(void) {
    _cleanup_buf_ struct buf b = BUF_INIT(1000);
    int r = engine_image_path(&b, "a/b:c", "/json", NULL);

    ASSERT(r < 0 || str_eq(b.data, "/images/a/b%3Ac/json"));
    return r;
}

static int run_engine(void) {
    struct engine_opts o = {.host = "http://[::1]:1/"};
    struct engine *e;
    int r = engine_new(&o, &e, NULL);

    if (r == 0)
        engine_free(e);
    return r;
}

TEST(allocations_fail) {
    nomem_exhaust(run_lines, false);
    nomem_exhaust(run_ref, false);
    nomem_exhaust(run_auth, false);
    nomem_exhaust(run_paths, false);
    nomem_exhaust(run_engine, false);
}

TEST_MAIN()
