/* One blocking HTTP exchange with the agent of a sandbox, for the driver's own threads. */
#pragma once

#include "base/err.h"
#include "base/json.h"

struct agent_call {
    int netns_fd;
    int pidfd; /* its end makes the call fail at once; -1 = not watched */
    uint16_t port;
    const char *token; /* access token; NULL = none */
    int timeout_ms;
};

/* POST /claim (see the agent's contract). 0; -EIO with the agent's reason; -ESRCH when the agent
 * has ended; -ETIMEDOUT. The body is borrowed. */
int agent_claim(const struct agent_call *c, const json_t *body, struct err *err);
/* Status of an answer, 0 = not complete yet, or -errno. data is NUL-terminated at len; at_end:
 * nothing more comes. Public for the fuzzer. */
int agent_answer_parse(const char *data, size_t len, bool at_end, size_t *ret_body);
