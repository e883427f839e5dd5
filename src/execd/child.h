/* The part of a start that runs in the new process, between fork and exec. */
#pragma once

#include "execd/process.h"

enum child_stage {
    CHILD_FDS,
    CHILD_SESSION,
    CHILD_CGROUP,
    CHILD_IDS,
    CHILD_CWD,
    CHILD_FILTER,
    CHILD_EXEC,
};

/* What a failed child writes into its report pipe. */
struct child_report {
    int32_t stage; /* enum child_stage */
    int32_t error; /* negative errno */
};

struct child_setup {
    const struct process_opts *o;
    int report_fd;
    int cgroup_procs_fd; /* to move into, when clone3 could not start us there; or -1 */
    bool confine;
};
/* Never returns. Uses system calls only: the memory is a copy taken while other threads may hold
 * locks. */
_noreturn_ void child_run(const struct child_setup *s);
/* Text of a report. */
int child_report_text(const struct child_report *r, const struct process_opts *o, struct err *err);
