/* Frames of the engine's streams (see demux.h). Pure. */
#include "docker/demux.h"

#include <errno.h>
#include <string.h>

/* The head is complete: is it one? */
static int check_head(struct demux *d, struct err *err) {
    const unsigned char *h = d->head;
    uint32_t n = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];

    if (h[0] > DEMUX_SYSTEM || h[1] || h[2] || h[3])
        return err_set(err, -EBADMSG, "the engine's stream has a frame of an unknown kind");
    if (n > DEMUX_MAX_FRAME)
        return err_set(err, -EBADMSG, "the engine's stream has a frame of %u bytes, at most %u", n,
                       DEMUX_MAX_FRAME);
    d->left = n;
    return 0;
}

int demux_next(struct demux *d, const char **data, size_t *len, size_t max, int *ret_which,
               const char **ret_piece, size_t *ret_len, struct err *err) {
    while (*len) {
        size_t n;

        if (d->have == sizeof d->head && d->left) {
            n = MIN(MIN(*len, (size_t)d->left), max);
            *ret_which = d->head[0];
            *ret_piece = *data;
            *ret_len = n;
            d->left -= (uint32_t)n;
            *data += n;
            *len -= n;
            return 1;
        }
        if (d->have == sizeof d->head) /* the frame is over */
            d->have = 0;
        n = MIN(*len, sizeof d->head - d->have);
        memcpy(d->head + d->have, *data, n);
        d->have += (unsigned)n;
        *data += n;
        *len -= n;
        if (d->have == sizeof d->head) {
            int r = check_head(d, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

int demux_end(const struct demux *d, struct err *err) {
    if (d->left || (d->have && d->have < sizeof d->head))
        return err_set(err, -EBADMSG, "the engine's stream ends inside a frame");
    return 0;
}
