/*
 * Multipart bodies: the first byte is the piece size, the rest of the first line the boundary, the
 * remainder the body. Fed whole and in pieces; both must tell the same.
 */
#include <string.h>

#include "base/buf.h"
#include "net/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_part(const struct multipart_part *p, void *ud) {
    return buf_printf(ud, "<%s|%s|%s>", p->name, p->filename ? p->filename : "-",
                      p->content_type ? p->content_type : "-");
}

static int on_data(const char *data, size_t len, void *ud) {
    return buf_append(ud, data, len);
}

static int on_part_end(void *ud) {
    return buf_str(ud, "</>");
}

static int run(const char *type, const char *body, size_t len, size_t piece, struct buf *out) {
    static const struct multipart_ops ops = {on_part, on_data, on_part_end};
    struct multipart *m;
    struct err err;
    int r = multipart_new(type, &ops, out, &m, &err);

    if (r < 0)
        return r;
    for (size_t pos = 0; r == 0 && pos < len; pos += piece) {
        size_t n = MIN(piece, len - pos);
        char *copy = malloc(n);
        memcpy(copy, body + pos, n);
        r = multipart_feed(m, copy, n, &err);
        free(copy);
    }
    if (r == 0)
        r = multipart_end(m, &err);
    multipart_free(m);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf whole = BUF_INIT(1 << 20), pieces = BUF_INIT(1 << 20), type = BUF_INIT(1024);
    const uint8_t *nl = size > 1 ? memchr(data + 1, '\n', size - 1) : NULL;
    size_t n = nl ? (size_t)(nl - data) : 0, piece = size ? data[0] % 16 + 1u : 1;

    if (!nl || n > 300)
        return 0;
    buf_str(&type, "multipart/form-data; boundary=");
    buf_append(&type, data + 1, n - 1);
    const char *body = (const char *)nl + 1;
    size_t len = size - n - 1;
    int a = run(type.data, body, len, len ? len : 1, &whole);
    int b = run(type.data, body, len, piece, &pieces);
    /* after an error the two may have told a different amount of content, never different content
     */
    size_t same = a == 0 ? MAX(whole.len, pieces.len) : MIN(whole.len, pieces.len);
    if (a != b || (same && (!whole.data || !pieces.data || whole.len < same || pieces.len < same ||
                            memcmp(whole.data, pieces.data, same) != 0)))
        abort();
    buf_done(&whole);
    buf_done(&pieces);
    buf_done(&type);
    return 0;
}
