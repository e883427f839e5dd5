/*
 * Named places where a test may kill the process (kill -9 of ourselves), to prove that recovery
 * leaves either a whole sandbox or nothing. Left out with -Dcrash_points=false. The environment
 * variable COVE_CRASH_AT=<name> picks the place; the first thread that comes by dies
 * with the process.
 */
#pragma once

#ifdef COVE_CRASH_POINTS
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void crash_point(const char *name) {
    const char *at = getenv("COVE_CRASH_AT");
    if (at && strcmp(at, name) == 0)
        kill(getpid(), SIGKILL);
}
#else
static inline void crash_point(const char *name) {
    (void)name;
}
#endif
