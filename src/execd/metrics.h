/* Processor and memory use of the sandbox (execd.md 7.2): its cgroup where one has limits, else the
 * machine. */
#pragma once

#include "execd/agent.h"

int metrics_new(struct agent *a, struct metrics **ret);
void metrics_free(struct metrics *m);
