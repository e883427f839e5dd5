/*
 * WebSocket frames: byte 0 chooses the side (bit 0) and the piece size, the rest is the wire.
 * Decoded whole and in pieces; both must tell the same events and fail alike.
 */
#include <string.h>

#include "base/str.h"
#include "net/ws_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_MESSAGE 4096

static int run(const uint8_t *wire, size_t len, size_t piece, bool server, struct buf *out) {
    struct ws_decoder d;
    struct ws_event ev;
    int r = 0;

    ws_decoder_init(&d, server, MAX_MESSAGE);
    for (size_t pos = 0; r >= 0 && pos < len; pos += piece) {
        size_t left = MIN(piece, len - pos);
        char *copy = malloc(left);
        const char *p = copy;
        memcpy(copy, wire + pos, left);
        while ((r = ws_decode(&d, &p, &left, &ev)) > 0) {
            if (ev.len > MAX_MESSAGE ||
                (ev.opcode == WS_OP_TEXT && !utf8_is_valid(ev.data, ev.len)))
                abort();
            buf_printf(out, "%d %d %zu:", ev.opcode, ev.close_code, ev.len);
            buf_append(out, ev.data, ev.len);
        }
        if (r == 0 && left)
            abort();
        free(copy);
    }
    r = r < 0 ? d.fail_code : 0;
    ws_decoder_done(&d);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf whole = BUF_INIT(0), pieces = BUF_INIT(0);

    if (size < 2)
        return 0;
    bool server = data[0] & 1;
    int a = run(data + 1, size - 1, size - 1, server, &whole);
    int b = run(data + 1, size - 1, data[0] / 2 % 16 + 1u, server, &pieces);
    if (a != b || whole.len != pieces.len ||
        (whole.len && memcmp(whole.data, pieces.data, whole.len) != 0))
        abort();
    buf_done(&whole);
    buf_done(&pieces);
    return 0;
}
