/* The response parser of the HTTP client, by table: every text whole, byte by byte and split at
 * every place. */
#include "net/h1_client_parser.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "base/test.h"

/* Renders what a response means: "200 len=3 |a=b| body <end>". */
static void parse(const char *text, size_t len, size_t first, size_t rest, bool head, bool upgrade,
                  struct buf *out) {
    struct h1_response p;
    struct err err = {0};
    int r = H1_RESPONSE_MORE;
    size_t n = first;

    h1_response_init(&p, head, upgrade);
    for (size_t pos = 0; pos < len && r >= 0; pos += n, n = rest) {
        n = MIN(n, len - pos);
        char *copy = malloc(n);
        const char *data = copy;
        size_t left = n;
        memcpy(copy, text + pos, n);
        do {
            r = h1_response_next(&p, &data, &left, &err);
            if (r == H1_RESPONSE_HEAD) {
                buf_printf(out, "%d len=%lld|", p.status, (long long)p.length);
                for (size_t i = 0; i < p.n_headers; i++)
                    buf_printf(out, "%s=%s|", p.headers[i].name, p.headers[i].value);
                h1_response_drop_head(&p);
            } else if (r == H1_RESPONSE_DATA) {
                buf_append(out, p.piece, p.piece_len);
            } else if (r == H1_RESPONSE_END) {
                buf_printf(out, "<end%s>", p.keep_alive ? " keep" : "");
            } else if (r == H1_RESPONSE_UPGRADE) {
                buf_str(out, "<upgrade>");
            }
        } while (r > H1_RESPONSE_MORE && r != H1_RESPONSE_END && r != H1_RESPONSE_UPGRADE);
        free(copy);
        if (r == H1_RESPONSE_END || r == H1_RESPONSE_UPGRADE)
            break;
    }
    if (r == H1_RESPONSE_MORE)
        r = h1_response_eof(&p, &err) == 0 ? buf_str(out, "<eof>") : buf_str(out, "<cut>");
    if (r == -EBADMSG) {
        ASSERT(err.code == -EBADMSG && err.msg[0]);
        buf_str(out, "<bad>");
    }
    h1_response_done(&p);
}

static void check(const char *text, const char *want, bool head, bool upgrade) {
    size_t len = strlen(text);

    for (size_t mode = 0; mode <= len + 1; mode++) {
        struct buf out = BUF_INIT(1 << 20);
        if (mode <= 1)
            parse(text, len, mode ? 1 : len, mode ? 1 : len, head, upgrade, &out);
        else
            parse(text, len, mode - 1, len, head, upgrade, &out);
        buf_str(&out, "");
        /* pieces before an error may differ; its being one may not */
        bool bad = str_ends(want, "<bad>");
        if (bad ? !str_ends(out.data, "<bad>") : strcmp(out.data, want) != 0)
            test_fail(__FILE__, __LINE__, "mode %zu of \"%.200s\": got \"%s\", expected \"%s\"",
                      mode, text, out.data, want);
        buf_done(&out);
    }
}

TEST(parser_good) {
    static const struct {
        const char *text, *want;
    } t[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
         "200 len=3|Content-Length=3|abc<end keep>"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcEXTRA",
         "200 len=3|Content-Length=3|abc<end keep>"},
        {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "200 len=0|Content-Length=0|<end keep>"},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:1\r\n\r\nx",
         "200 len=1|Connection=close|Content-Length=1|x<end>"},
        {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "200 len=1|Content-Length=1|x<end>"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
         "chunked\r\n\r\n3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
         "200 len=-1|Transfer-Encoding=chunked|abc0123456789<end keep>"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked  \r\n\r\n0\r\n\r\n",
         "200 len=-1|Transfer-Encoding=Chunked|<end keep>"},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "200 len=-1|until the end<eof>"},
        {"HTTP/1.1 204 No Content\r\n\r\n", "204 len=-1|<end keep>"},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
         "304 len=5|Content-Length=5|<end keep>"},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 "
         "Created\r\nContent-Length: 2\r\n\r\nok",
         "201 len=2|Content-Length=2|ok<end keep>"},
        {"HTTP/1.1 200 OK\r\nA:\r\nB:   x y \t\r\nA: 2\r\nC: \xc3\xa9\r\nContent-Length: 0\r\n\r\n",
         "200 len=0|A=|B=x y|A=2|C=\xc3\xa9|Content-Length=0|<end keep>"},
        {"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 1\r\n\r\nx",
         "200 len=1|Upgrade=h2c|Connection=Upgrade|Content-Length=1|x<end keep>"},
        /* cut short */
        {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", "200 len=4|Content-Length=4|abc<cut>"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
         "200 len=-1|Transfer-Encoding=chunked|abc<cut>"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
         "200 len=-1|Transfer-Encoding=chunked|abc<cut>"},
        {"HTTP/1.1 200 OK\r\nContent-Len", "<cut>"},
        {"HTTP/1.1 100 Continue\r\n\r\n", "<cut>"},
        {"HT", "<cut>"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        check(t[i].text, t[i].want, false, false);
    check("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "200 len=7|Content-Length=7|<end keep>",
          true, false);
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
          "200 len=-1|Transfer-Encoding=chunked|<end keep>", true, false);
    check("HTTP/1.1 200 OK\r\n\r\n", "200 len=-1|<end keep>", true, false);
    check(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81",
        "<upgrade>", false, true);
}

TEST(parser_bad) {
    static const char *const t[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: "
        "3\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nA: x\ry\r\nContent-Length: 0\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
        "<html>not http</html>\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2p1\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: "
        "websocket\r\n\r\n", /* not asked for */
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        check(t[i], "<bad>", false, false);
    check("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n", "<bad>", false, true);
}

TEST(parser_limits) {
    struct buf text = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

    for (size_t extra = 0; extra < 2; extra++) { /* the head: 65536 bytes pass, one more does not */
        buf_clear(&text);
        buf_clear(&out);
        buf_str(&text, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: ");
        while (text.len < 65536 - 4 + extra)
            buf_char(&text, 'x');
        buf_str(&text, "\r\n\r\n");
        parse(text.data, text.len, 1000, 1000, false, false, &out);
        ASSERT(str_ends(out.data, extra ? "<bad>" : "<end keep>"));
    }
    for (size_t extra = 0; extra < 2; extra++) { /* 256 headers pass */
        buf_clear(&text);
        buf_clear(&out);
        buf_str(&text, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
        for (size_t i = 0; i < 255 + extra; i++)
            buf_str(&text, "A: x\r\n");
        buf_str(&text, "\r\n");
        parse(text.data, text.len, 1000, 1000, false, false, &out);
        ASSERT(str_ends(out.data, extra ? "<bad>" : "<end keep>"));
    }
    /* interim responses, chunk extensions and trailers have an end, too */
    buf_clear(&text);
    for (int i = 0; i < 33; i++)
        buf_str(&text, "HTTP/1.1 100 Continue\r\n\r\n");
    buf_clear(&out);
    parse(text.data, text.len, 100, 100, false, false, &out);
    ASSERT_STR(out.data, "<bad>");
    for (int trailer = 0; trailer < 2; trailer++) {
        buf_clear(&text);
        buf_clear(&out);
        buf_str(&text, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        buf_str(&text, trailer ? "0\r\nT: " : "1;x=");
        for (int i = 0; i < 70000; i++)
            buf_char(&text, 'y');
        parse(text.data, text.len, 1000, 1000, false, false, &out);
        ASSERT(str_ends(out.data, "<bad>"));
    }
    buf_done(&text);
    buf_done(&out);
}

TEST_MAIN()
