/* The HTTP surface of the agent: one route table, the token, the gate before a claim. */
#pragma once

#include "execd/agent.h"

/* Makes a->server; listening is the caller's business. */
int api_new(struct agent *a, struct err *err);
void api_free(struct agent *a);
