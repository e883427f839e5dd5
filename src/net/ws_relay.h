/*
 * One direction of a WebSocket connection that is passed on as it comes: frames are followed by
 * their headers only, payloads are never touched. What is changed are close frames whose code must
 * not travel, and an end without a close frame, which becomes one. No I/O.
 */
#pragma once

#include "base/macros.h"
#include "net/ws_frame.h"

struct ws_relay {
    bool to_client; /* direction: codes are mapped for a client, frames are unmasked */
    bool is_raw;    /* not frames as we know them: passed on, the receiver is the judge */
    unsigned char head[WS_MAX_HEADER];
    size_t n_head, need_head;
    uint64_t left; /* payload bytes of the present frame to come */
    bool in_close; /* the present frame is a close frame: held back until it is whole */
    char control[WS_MAX_CONTROL];
    size_t n_control;
    int closed; /* code of the close frame that was passed on; 0 = none yet */
};

void ws_relay_init(struct ws_relay *r, bool to_client);
/*
 * Passes data on through `forward` (several calls, in order; a negative return ends it and is
 * given back). The close frame comes out whole and last.
 */
ssize_t ws_relay_feed(struct ws_relay *r, const char *data, size_t len,
                      ssize_t (*forward)(void *ud, const char *data, size_t len), void *ud);
/*
 * The sender has gone. Writes the close frame that stands for it: 0 bytes when it said goodbye
 * itself or is in the middle of a frame. other: the opposite direction, whose close frame is
 * answered with its own code.
 */
size_t ws_relay_end(const struct ws_relay *r, const struct ws_relay *other,
                    char ret[WS_MAX_HEADER + 2]);
