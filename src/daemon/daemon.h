/*
 * A running coved: listeners, signals, the order of start and end. One per process, on the thread
 * that calls daemon_run.
 */
#pragma once

#include "daemon/config/config.h"
#include "daemon/options.h"

/*
 * Serves until it is told to end. 0 = ended as asked. The configuration is taken over (and reloaded
 * on SIGHUP). start_lock (-1 = none) is closed once the driver has locked the state directory, or
 * the start has failed.
 */
int daemon_run(struct config *c, const struct options *o, int start_lock, struct err *err);
