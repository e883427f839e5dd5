/* May the daemon run without an API key? Asked before anything touches a sandbox. */
#pragma once

#include "daemon/config/config.h"

/*
 * Docker runtime without a key: OPENSANDBOX_INSECURE_SERVER=YES, else somebody at the terminal
 * answers YES (then c->insecure_ok is set), else -EACCES with what to do. Everything else passes:
 * with the native runtime a daemon without a key serves its Unix socket alone. Blocks for at most
 * 30 s.
 */
int keyless_check(struct config *c, struct err *err);
/* The question itself: `in` is asked about, `out` shows it. True: exactly YES came in time. */
bool keyless_ask(int in, int out, unsigned timeout_ms);
