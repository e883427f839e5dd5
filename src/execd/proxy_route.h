/* /proxy/{port}/…: services in the sandbox, reached through the agent's own port (execd.md 1.7). */
#pragma once

#include "execd/agent.h"

/* rest: the raw path after "/proxy/". Answers or takes over the exchange. */
void proxy_route(struct agent *a, struct h1_req *r, const char *rest);
