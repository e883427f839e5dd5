/*
 * Reads one pipe on the loop. A command's output ends for its reader when the leader is gone and
 * what was in the pipe then has been delivered (pump_finish), although survivors may still hold the
 * other end: their later output is read and thrown away (pump_discard), so they neither block nor
 * get SIGPIPE.
 */
#pragma once

#include <uv.h>

#include "base/macros.h"

struct pump;

struct pump_ops {
    void (*on_data)(struct pump *p, const char *data, size_t len,
                    void *ud); /* valid during the call */
    /* once: everything was delivered. The pump stays until pump_free or pump_discard. */
    void (*on_end)(struct pump *p, void *ud);
};

/* Takes fd (made non-blocking; closed on failure too). Starts reading at once. */
int pump_new(uv_loop_t *loop, int fd, const struct pump_ops *ops, void *ud, struct pump **ret);
void pump_pause(struct pump *p);
void pump_resume(struct pump *p);
/* The writer that counts is gone: deliver what the pipe holds now, then on_end (perhaps before this
 * returns). */
void pump_finish(struct pump *p);
/* No callback any more; reads until the end of the stream and frees itself then. NULL is fine. */
void pump_discard(struct pump *p);
void pump_free(struct pump *p); /* closes at once; NULL is fine */
