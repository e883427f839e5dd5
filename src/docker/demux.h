/*
 * The engine's multiplexed stream: frames of an 8-byte head (which stream, three zeros, length) and
 * their bytes. Incremental and without memory of its own: a frame is given out in the pieces it
 * comes in.
 */
#pragma once

#include "base/err.h"

#define DEMUX_MAX_FRAME ((uint32_t)64 << 20) /* a longer one is taken for garbage */

enum { DEMUX_STDIN, DEMUX_STDOUT, DEMUX_STDERR, DEMUX_SYSTEM /* the engine's own error */ };

struct demux {
    unsigned char head[8];
    unsigned have; /* bytes of the head */
    uint32_t left; /* bytes of the frame that are still to come */
};

/* 1 = a piece of at most max bytes (max > 0) of stream *ret_which, pointing into *data; 0 = all
 * bytes are used, more are needed; -EBADMSG. *data and *len move on. */
int demux_next(struct demux *d, const char **data, size_t *len, size_t max, int *ret_which,
               const char **ret_piece, size_t *ret_len, struct err *err);
/* May the stream end here? -EBADMSG: inside a frame. */
int demux_end(const struct demux *d, struct err *err);
