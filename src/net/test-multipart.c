/* Conversation table of the multipart parser: each body is fed whole, byte by byte and split at
 * every place. */
#include "net/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/test.h"

#define CT "multipart/form-data; boundary=B"

struct log {
    struct buf out;
    int fail_at; /* fail the nth callback */
    int calls;
};

static int step(struct log *l) {
    return ++l->calls == l->fail_at ? -ENOSPC : 0;
}

static int on_part(const struct multipart_part *p, void *ud) {
    struct log *l = ud;
    buf_printf(&l->out, "<%s|%s|%s>", p->name, p->filename ? p->filename : "-",
               p->content_type ? p->content_type : "-");
    return step(l);
}

static int on_data(const char *data, size_t len, void *ud) {
    struct log *l = ud;
    buf_append(&l->out, data, len);
    return l->fail_at ? step(l) : 0;
}

static int on_part_end(void *ud) {
    struct log *l = ud;
    buf_str(&l->out, "</>");
    return step(l);
}

static const struct multipart_ops ops = {on_part, on_data, on_part_end};

/* Feeds in pieces of `first` bytes, then `rest` at a time. Returns the error of feed or end. */
static int run(const char *ct, const char *body, size_t len, size_t first, size_t rest,
               struct log *l, struct err *err) {
    struct multipart *m = NULL;
    size_t n = first;
    int r = multipart_new(ct, &ops, l, &m, err);

    for (size_t pos = 0; r == 0 && pos < len; pos += n, n = rest) {
        n = MIN(n, len - pos);
        char *copy = malloc(n ? n : 1); /* exact size: over-reads are seen by the sanitizer */
        memcpy(copy, body + pos, n);
        r = multipart_feed(m, copy, n, err);
        free(copy);
    }
    if (r == 0)
        r = multipart_end(m, err);
    else if (m)
        ASSERT(multipart_feed(m, "x", 1, NULL) == r); /* errors are final */
    multipart_free(m);
    return r;
}

static void check(const char *ct, const char *body, const char *want, int want_error) {
    size_t len = strlen(body);

    for (size_t mode = 0; mode <= len + 1; mode++) {
        struct log l = {.out = BUF_INIT(1 << 20)};
        struct err err = {0};
        /* mode 0: whole; 1: byte by byte; n: split before byte n-1 */
        int r = mode == 0   ? run(ct, body, len, len, len, &l, &err)
                : mode == 1 ? run(ct, body, len, 1, 1, &l, &err)
                            : run(ct, body, len, mode - 1, len, &l, &err);
        if (r != want_error)
            test_fail(__FILE__, __LINE__, "mode %zu of \"%.60s\": %d (%s), expected %d", mode, body,
                      r, err.msg, want_error);
        if (want && strcmp(l.out.data ? l.out.data : "", want) != 0)
            test_fail(__FILE__, __LINE__, "mode %zu of \"%.60s\": got \"%s\", expected \"%s\"",
                      mode, body, l.out.data ? l.out.data : "", want);
        ASSERT(r == 0 || (err.code == r && strstr(err.msg, "multipart: ")));
        buf_done(&l.out);
    }
}

#define CD "Content-Disposition: form-data; "
#define HEAD "--B\r\n" CD "name=a\r\n\r\n"

TEST(bodies) {
    static const struct {
        const char *body, *want;
    } t[] = {
        {"--B--", ""},
        {"--B--\r\n", ""},
        {HEAD "x\r\n--B--\r\n", "<a|-|->x</>"},
        {HEAD "\r\n--B--", "<a|-|-></>"},
        {HEAD "--B--",
         "<a|-|-></>"}, /* no content at all: the blank line's CRLF is the delimiter's */
        {"preamble\r\n--Bx\r\n--B\r\n" CD "name=a\r\n\r\n1\r\n--B--epilogue\r\n--B\r\n",
         "<a|-|->1</>"},
        {HEAD "1\r\n--B \t \r\n" CD "name=\"b\"\r\n\r\n2\r\n--B--", "<a|-|->1</><b|-|->2</>"},
        /* near misses are content */
        {HEAD "\r\r\n\r\n-\r\n--\r\n--C\r\n--b\r\n--B--",
         "<a|-|->\r\r\n\r\n-\r\n--\r\n--C\r\n--b</>"},
        {HEAD "\r\n--Bx\r\n--B-x\r\n--B-\r\n--B x\r\n--B \r\r\n--B\rx\r\n--B--",
         "<a|-|->\r\n--Bx\r\n--B-x\r\n--B-\r\n--B x\r\n--B \r\r\n--B\rx</>"},
        {HEAD "a--B--\r\n--B--", "<a|-|->a--B--</>"},
        {HEAD "a\n--B--\r\n--B--", "<a|-|->a\n--B--</>"},
        {HEAD "\r\n--B\r\r\n--B--", "<a|-|->\r\n--B\r</>"},
        {HEAD "--Bx\r\n--B--", "<a|-|->--Bx</>"},
        {HEAD "-\r\n--B--", "<a|-|->-</>"},
        {HEAD "\r\n\r\n\r\n--B--", "<a|-|->\r\n\r\n</>"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        check(CT, t[i].body, t[i].want, 0);
}

TEST(part_headers) {
    static const struct {
        const char *headers, *want; /* NULL = -EBADMSG */
    } t[] = {
        {CD "name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain; charset=x\r\n",
         "<f|x.txt|text/plain; charset=x>"},
        {"content-disposition:form-data;NAME=f;FileName=y\r\nCONTENT-TYPE:a/b\r\n", "<f|y|a/b>"},
        {CD "name=\"a\\\"b\\\\c\"; filename=\"C:\\dir\\f\"\r\n", "<a\"b\\c|C:\\dir\\f|->"},
        {CD "name=\"a;b=c\"; filename=\"\"\r\n", "<a;b=c||->"},
        {CD "name=f; filename*=UTF-8''na%C3%AFve%20x\r\n", "<f|na\xc3\xafve x|->"},
        {CD "name=f; filename=plain; filename*=utf-8'en'star\r\n", "<f|star|->"},
        {CD "name=f; filename=plain; filename*=latin1''star\r\n", "<f|plain|->"},
        {CD "filename=x; name=f;\r\n", "<f|x|->"},
        {"Content-Disposition: form-data;\r\n\tname=f;\r\n filename=x\r\n", "<f|x|->"},
        {"X-Other: y\r\n" CD
         "name = \"f\" ; filename = \"g h\"\r\nContent-Transfer-Encoding: binary\r\n",
         "<f|g h|->"},
        {CD "name=\"\"\r\n", "<|-|->"},
        {CD "name=f\r\nContent-Transfer-Encoding: base64\r\n", NULL},
        {CD "name=f\r\n" CD "name=g\r\n", NULL},
        {"X: y\r\n", NULL},
        {"", NULL},
        {CD "filename=f\r\n", NULL},
        {"Content-Disposition: attachment; name=f\r\n", NULL},
        {"Content-Disposition:\r\n", NULL},
        {CD "name=\"f\r\n", NULL},
        {CD "name\r\n", NULL},
        {CD "name=\"f\"x\r\n", NULL},
        {CD "name=f; =x\r\n", NULL},
        {CD "name=f; filename*=utf-8''%zz\r\n", NULL},
        {CD "name=f\n", NULL},
        {CD "name=a\rb\r\n", NULL},
        {"no colon\r\n" CD "name=f\r\n", NULL},
        {": x\r\n" CD "name=f\r\n", NULL},
        {" folded: first\r\n" CD "name=f\r\n", NULL},
        {"bad name: x\r\n" CD "name=f\r\n", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        char body[512], want[256];
        snprintf(body, sizeof body, "--B\r\n%s\r\ndata\r\n--B--", t[i].headers);
        snprintf(want, sizeof want, "%sdata</>", t[i].want ? t[i].want : "");
        check(CT, body, t[i].want ? want : NULL, t[i].want ? 0 : -EBADMSG);
    }
}

TEST(truncated) {
    const char *whole = "--B\r\n" CD "name=a\r\n\r\nx\r\n--B--";
    for (size_t n = 0; n < strlen(whole); n++) {
        char *cut = strndup(whole, n);
        check(CT, cut, NULL, -EBADMSG);
        free(cut);
    }
}

TEST(content_types) {
    static const struct {
        const char *ct, *boundary; /* NULL = -EINVAL */
    } t[] = {
        {"multipart/form-data; boundary=abc", "abc"},
        {"Multipart/Form-Data;BOUNDARY=\"a b:c\"", "a b:c"},
        {"multipart/form-data; charset=utf-8; boundary=\"q\\\"q\"; x=y", "q\"q"},
        {"multipart/form-data ; boundary=abc ", "abc"},
        {"multipart/form-data", NULL},
        {"multipart/form-data; boundary=", NULL},
        {"multipart/form-data; boundary=\"\"", NULL},
        {"multipart/form-data; boundary=\"a ", NULL},
        {"multipart/form-data; boundary=\"a \"", NULL},
        {"multipart/form-data; boundary=\"a\tb\"", NULL},
        {"multipart/mixed; boundary=abc", NULL},
        {"", NULL},
        {NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        char body[256];
        snprintf(body, sizeof body, "--%s\r\n" CD "name=a\r\n\r\nx\r\n--%s--",
                 t[i].boundary ? t[i].boundary : "", t[i].boundary ? t[i].boundary : "");
        check(t[i].ct, body, t[i].boundary ? "<a|-|->x</>" : NULL, t[i].boundary ? 0 : -EINVAL);
    }
}

TEST(limits) {
    struct err err = {0};
    struct log l = {0};
    struct multipart *m;
    struct buf body = BUF_INIT(1 << 20);
    char ct[300];

    /* the header block of a part: one byte below the limit works, one above does not */
    for (size_t extra = 0; extra < 2; extra++) {
        l = (struct log){.out = BUF_INIT(1 << 20)};
        buf_clear(&body);
        buf_str(&body, "--B\r\n" CD "name=a\r\nX: ");
        while (body.len < 5 + (16 << 10) - 4 + extra)
            buf_char(&body, 'x');
        buf_str(&body, "\r\n\r\nx\r\n--B--");
        int r = run(CT, body.data, body.len, 1000, 1000, &l, &err);
        ASSERT_INT(r, extra ? -EBADMSG : 0);
        buf_done(&l.out);
    }
    ASSERT(strstr(err.msg, "16384 bytes"));

    memset(ct, 0, sizeof ct);
    snprintf(ct, sizeof ct, "multipart/form-data; boundary=");
    memset(ct + 30, 'b', 201);
    ASSERT_INT(multipart_new(ct, &ops, NULL, &m, &err), -EINVAL);
    ASSERT(strstr(err.msg, "200 bytes"));
    ct[230] = 0;
    ASSERT_OK(multipart_new(ct, &ops, NULL, &m, &err));
    multipart_free(m);
    multipart_free(NULL);
    buf_done(&body);
}

TEST(callbacks_can_refuse) {
    const char *body = HEAD "x\r\n--B--";
    for (int at = 1; at <= 3; at++) {
        struct log l = {.out = BUF_INIT(0), .fail_at = at};
        struct err err = {0};
        ASSERT_INT(run(CT, body, strlen(body), strlen(body), 1, &l, &err), -ENOSPC);
        ASSERT_INT(l.calls, at);
        buf_done(&l.out);
    }
}

TEST(binary_content) {
    /* every byte value and many CRs: large content in odd pieces comes out as it went in */
    struct log l = {.out = BUF_INIT(1 << 20)};
    struct buf body = BUF_INIT(1 << 20), want = BUF_INIT(1 << 20);
    struct err err = {0};
    uint32_t x = 1;

    buf_str(&want, "<a|-|->");
    buf_str(&body, HEAD);
    for (size_t i = 0; i < 100000; i++) {
        x = x * 1664525u + 1013904223u;
        char c = i % 3 ? (char)(x >> 24) : "\r\n-B"[x >> 30];
        buf_char(&body, c);
        buf_char(&want, c);
    }
    buf_str(&body, "\r\n--B--");
    buf_str(&want, "</>");
    ASSERT_OK(run(CT, body.data, body.len, 7, 113, &l, &err));
    ASSERT(l.out.len == want.len && memcmp(l.out.data, want.data, want.len) == 0);
    buf_done(&l.out);
    buf_done(&body);
    buf_done(&want);
}

TEST_MAIN()
