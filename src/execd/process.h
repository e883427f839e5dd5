/*
 * Child processes of the agent and the only place that reaps: one signal descriptor for SIGCHLD,
 * every dead child is looked at while it is still a zombie, so no signal ever goes to a group whose
 * leader is gone. Unknown children (orphans that fell to us) are reaped silently. Loop thread only.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "base/list.h"
#include "base/str.h"

struct process;

struct process_ops {
    /*
     * The leader ended, once; it is a zombie until the callback returns. wstatus as from waitpid.
     * When the program could not be started `start` has the reason and wstatus means nothing. p is
     * dead afterwards.
     */
    void (*on_exit)(struct process *p, int wstatus, const struct err *start, void *ud);
    /* optional: the program runs (exec was successful); not called when it could not be started */
    void (*on_exec)(struct process *p, void *ud);
};

enum process_mode {
    PROCESS_GROUP,   /* own process group */
    PROCESS_SESSION, /* own session */
    PROCESS_TTY,     /* own session, stdin is its controlling terminal */
};

struct process_opts {
    const char *exe; /* file to execute, absolute */
    const char *const *argv, *const *envp;
    const char *cwd;                    /* absolute; NULL = the agent's */
    int stdin_fd, stdout_fd, stderr_fd; /* borrowed */
    enum process_mode mode;
    bool set_ids; /* switch to uid, gid, groups */
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
};

struct processes; /* the table of all children */

struct processes_opts {
    uv_loop_t *loop;
    int cgroup_fd; /* cgroup2 directory for one child cgroup per process, or -1; owned */
    bool confine;  /* native sandboxes: no_new_privs and the small seccomp filter */
    /* signals other than SIGCHLD that the table's descriptor reports; ended by 0 */
    const int *signals;
    void (*on_signal)(int sig, void *ud);
    void *ud;
};
int processes_new(const struct processes_opts *o, struct processes **ret, struct err *err);
/* Kills what is left and forgets it. */
void processes_free(struct processes *ps);
size_t processes_count(const struct processes *ps);
/* A descriptor of /dev/null, or of something that acts like it for reading. Never closed. */
int processes_null_fd(const struct processes *ps);
/* Sends sig to every group. */
void processes_signal_all(struct processes *ps, int sig);

/* 0, or a failure before there was a child (err set). Failures in the child come through on_exit.
 */
int process_start(struct processes *ps, const struct process_opts *o, const struct process_ops *ops,
                  void *ud, struct process **ret, struct err *err);
pid_t process_pid(const struct process *p);
/* Signals the leader's group. */
int process_signal(struct process *p, int sig);
/* SIGKILL to everything below it: its cgroup, else its group and its descendants. */
void process_kill_tree(struct process *p);
/* Nobody listens any more: callbacks will not be called, reaping goes on. */
void process_forget(struct process *p);

/* "exit status 3", "signal: killed", "signal: aborted (core dumped)"; "" for exit 0. */
void process_status_text(int wstatus, char *ret, size_t size);
/* Exit code as the API reports it: -1 for a signal. */
int process_exit_code(int wstatus);
const char *signal_name(int sig);       /* "SIGKILL" or NULL */
int signal_from_name(const char *name); /* "SIGKILL" or "KILL"; -EINVAL */
