/* Attaching a WebSocket to a terminal session (execd.md 4.3, 4.4). */
#pragma once

#include "execd/pty.h"
#include "net/h1_server.h"

struct attach_opts {
    uint64_t since;
    bool pipe_mode, takeover;
};
/* Answers the request: upgrade, or an error before it. */
void pty_attach(struct pty *p, struct h1_req *r, const struct attach_opts *o);
