/*
 * Child processes for the daemon and the tools (the agent has its own, src/execd). Signals are set
 * to default and unblocked in the child, descriptors above 2 are closed unless kept.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct spawn_opts {
    const char *const *argv;            /* argv[0] is looked up in PATH when it has no '/' */
    const char *const *envp;            /* NULL = inherit */
    const char *cwd;                    /* NULL = inherit */
    int stdin_fd, stdout_fd, stderr_fd; /* -1 = /dev/null; borrowed. Use SPAWN_OPTS_INIT. */
    const int *keep_fds; /* n_keep descriptors kept open, at 3, 4, ... in the child */
    size_t n_keep;
    bool new_session; /* setsid(): signals of our terminal do not reach it */
};
#define SPAWN_OPTS_INIT \
    { .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1 }

/* Starts it. *ret_pid and *ret_pidfd (CLOEXEC, caller closes) are set. A failed exec is reported
 * here, as its errno. */
int spawn_start(const struct spawn_opts *o, pid_t *ret_pid, int *ret_pidfd, struct err *err);

struct spawn_result {
    int status; /* exit code, or 128 + signal */
    char *out;  /* stdout, NUL-terminated, at most max_out bytes (the rest is dropped) */
    size_t out_len;
    char *errs; /* last 4 KiB of stderr, NUL-terminated */
};
/*
 * Runs to the end with stdin from /dev/null (or `input`), both outputs collected. Kills and returns
 * -ETIMEDOUT after timeout_ms (0 = none). A non-zero exit status is not an error here.
 */
int spawn_run(const char *const *argv, const char *input, size_t max_out, int timeout_ms,
              struct spawn_result *ret, struct err *err);
void spawn_result_done(struct spawn_result *r);

/* For a forked child before exec: every signal at its default and unblocked. Async-signal-safe. */
void spawn_reset_signals(void);
