/* SIGKILL to a process tree where no cgroup holds it together. */
#pragma once

#include <sys/types.h>

/*
 * Kills the group of `leader` (a child of ours that is not reaped) and every descendant that /proc
 * shows, whatever group or session it moved to. Processes that were orphaned earlier cannot be
 * found this way.
 */
void killtree(pid_t leader);
