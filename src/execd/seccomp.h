/* The small filter on every process that a native sandbox starts for a client
 * (native-runtime.md 13.2). */
#pragma once

/* no_new_privs + filter on the calling thread. Async-signal-safe. 0 or negative errno. */
int seccomp_confine(void);
