/*
 * The three streams of a command on our side: a source that is read when the connection can take
 * more, and sinks that hold back what their reader does not take yet.
 */
#pragma once

#include "client/internal.h"
#include "client/watch.h"

#define SINK_MAX ((size_t)64 << 20) /* held back at most; the connection is stopped long before */

struct sink {
    int fd; /* borrowed; -1 = throw away */
    struct watch *watch;
    struct buf held;
    bool watching;
    int error;                   /* first failure of write(2): -EPIPE when nobody reads */
    void (*on_change)(void *ud); /* it became empty, or failed */
    void *ud;
};
int sink_open(struct sink *s, uv_loop_t *loop, int fd, void (*on_change)(void *ud), void *ud);
/* Writes what can be written without waiting and keeps the rest, in order. -ENOBUFS past SINK_MAX.
 */
int sink_write(struct sink *s, const char *data, size_t len);
static inline bool sink_is_empty(const struct sink *s) {
    return s->held.len == 0;
}
void sink_close(struct sink *s);

struct source {
    int fd; /* borrowed; -1 = no input */
    struct watch *watch;
    bool ended;              /* end-of-file was seen and told */
    const atomic_bool *hold; /* while true nothing is read: what came before it goes first */
    void (*on_data)(const char *data, size_t len, void *ud); /* len 0 = end */
    void *ud;
};
int source_open(struct source *s, uv_loop_t *loop, int fd, const atomic_bool *hold,
                void (*on_data)(const char *, size_t, void *), void *ud);
void source_start(struct source *s); /* harmless after the end */
void source_stop(struct source *s);
void source_close(struct source *s);
