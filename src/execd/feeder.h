/* Writes queued bytes into a pipe or terminal without ever blocking (the stdin of a terminal
 * session). */
#pragma once

#include <uv.h>

#include "base/macros.h"

struct feeder;

struct feeder_ops {
    void (*on_drain)(struct feeder *f, void *ud);            /* the queue is low again */
    void (*on_error)(struct feeder *f, int error, void *ud); /* once; everything later is dropped */
};

#define FEEDER_HIGH ((size_t)256 << 10)

int feeder_new(uv_loop_t *loop, int fd, const struct feeder_ops *ops, void *ud,
               struct feeder **ret); /* takes fd */
/* Bytes queued afterwards (stop producing above FEEDER_HIGH until on_drain), or -errno. At most 32
 * MiB queue. */
ssize_t feeder_write(struct feeder *f, const void *data, size_t len);
void feeder_end(struct feeder *f);  /* closes the descriptor once the queue is out */
void feeder_free(struct feeder *f); /* NULL is fine */
