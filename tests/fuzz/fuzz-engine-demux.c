/*
 * The engine's multiplexed streams: however the bytes are cut, and however small the pieces are
 * that are taken, the same comes out of each stream, and never more than came in.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "docker/demux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
    size_t bytes[4];
    uint32_t sum[4]; /* depends on the order */
    bool failed, whole;
};

static struct result run(const uint8_t *data, size_t size, size_t step, size_t max) {
    struct result r = {.failed = false};
    struct demux d = {.have = 0};
    struct err err;

    for (size_t at = 0; at < size && !r.failed; at += step) {
        size_t len = MIN(step, size - at), n;
        char *copy = malloc(len); /* exact, so that reading past the end is seen */
        const char *p = memcpy(copy, data + at, len), *piece;
        int which = -1, got;
        while ((got = demux_next(&d, &p, &len, max, &which, &piece, &n, &err)) > 0) {
            if (which < 0 || which > 3 || !n || n > max || piece < copy || piece + n != p)
                abort();
            r.bytes[which] += n;
            for (size_t i = 0; i < n; i++)
                r.sum[which] = r.sum[which] * 31 + (uint8_t)piece[i];
        }
        r.failed = got < 0;
        if (!r.failed && len)
            abort();
        free(copy);
    }
    r.whole = demux_end(&d, &err) == 0;
    if (r.bytes[0] + r.bytes[1] + r.bytes[2] + r.bytes[3] > size)
        abort();
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const size_t steps[] = {1, 3, 8, 13};

    if (!size)
        return 0;
    struct result all = run(data, size, size, SIZE_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct result one = run(data, size, steps[i], steps[i]);
        if (memcmp(one.bytes, all.bytes, sizeof all.bytes) != 0 ||
            memcmp(one.sum, all.sum, sizeof all.sum) != 0 || one.failed != all.failed ||
            (!one.failed && one.whole != all.whole))
            abort();
    }
    return 0;
}
