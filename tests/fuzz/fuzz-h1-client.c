/*
 * Responses as the HTTP client reads them: byte 0 chooses HEAD (bit 0), upgrades (bit 1) and the
 * piece size. Parsed whole and in pieces; both must tell the same head, body and outcome.
 */
#include <errno.h>
#include <string.h>

#include "net/h1_client_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run(const uint8_t *wire, size_t len, size_t piece, uint8_t how, struct buf *out) {
    struct h1_response p;
    struct err err;
    int r = H1_RESPONSE_MORE;

    h1_response_init(&p, how & 1, how & 2);
    for (size_t pos = 0; r == H1_RESPONSE_MORE && pos < len; pos += piece) {
        size_t left = MIN(piece, len - pos);
        char *copy = malloc(left);
        const char *s = copy;
        memcpy(copy, wire + pos, left);
        while ((r = h1_response_next(&p, &s, &left, &err)) == H1_RESPONSE_HEAD ||
               r == H1_RESPONSE_DATA) {
            if (r == H1_RESPONSE_DATA) {
                buf_append(out, p.piece, p.piece_len);
                continue;
            }
            buf_printf(out, "%d %lld", p.status, (long long)p.length);
            for (size_t i = 0; i < p.n_headers; i++)
                buf_printf(out, "|%s: %s", p.headers[i].name, p.headers[i].value);
            h1_response_drop_head(&p);
        }
        free(copy);
    }
    if (r == H1_RESPONSE_MORE)
        r = 100 + (h1_response_eof(&p, &err) == 0);
    h1_response_done(&p);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf whole = BUF_INIT(0), pieces = BUF_INIT(0);

    if (size < 2)
        return 0;
    int a = run(data + 1, size - 1, size - 1, data[0], &whole);
    int b = run(data + 1, size - 1, data[0] / 4 % 16 + 1u, data[0], &pieces);
    if (a != b || whole.len != pieces.len ||
        (whole.len && memcmp(whole.data, pieces.data, whole.len) != 0))
        abort();
    buf_done(&whole);
    buf_done(&pieces);
    return 0;
}
