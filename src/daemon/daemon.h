/*
 * A running coved: listeners, signals, the order of start and end. One per process, on the thread
 * that calls daemon_run.
 */
#pragma once

#include "daemon/config/config.h"
#include "daemon/options.h"

/* Serves until it is told to end. 0 = ended as asked. The configuration is taken over (and reloaded
 * on SIGHUP). */
int daemon_run(struct config *c, const struct options *o, struct err *err);
