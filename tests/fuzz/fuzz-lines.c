/* Splits the input at cuts taken from it; joined texts must give the bytes back (keep), whatever
 * the cuts. */
#include <string.h>

#include "execd/lines.h"

static void collect(const char *text, size_t len, void *ud) {
    buf_append(ud, text, len);
}

static void check_event(const char *text, size_t len, void *ud) {
    struct buf b = BUF_INIT(0);
    if (len == 0)
        abort();
    if (buf_json_str(&b, text, len) < 0 || b.len > (size_t)4 << 20)
        abort();
    buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct buf out = BUF_INIT(0);
    struct lines keep, strip;
    size_t step = size ? data[0] % 17 + 1 : 1;

    lines_init(&keep, LINES_KEEP);
    lines_init(&strip, LINES_STRIP);
    for (size_t i = 0; i < size; i += step) {
        size_t n = MIN(step, size - i);
        lines_feed(&keep, (const char *)data + i, n, collect, &out);
        lines_feed(&strip, (const char *)data + i, n, check_event, NULL);
        if (data[i] & 1)
            lines_flush_cr(&keep, collect, &out);
    }
    lines_finish(&keep, collect, &out);
    lines_finish(&strip, check_event, NULL);
    if (out.len != size || (size && memcmp(out.data, data, size) != 0))
        abort();
    lines_done(&keep);
    lines_done(&strip);
    buf_done(&out);
    return 0;
}
