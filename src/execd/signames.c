/* Names of signals and texts of exit states, as clients know them. Pure functions. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"
#include "execd/process.h"

static const struct {
    int sig;
    const char *name, *text;
} signals[] = {
    {SIGHUP, "SIGHUP", "hangup"},
    {SIGINT, "SIGINT", "interrupt"},
    {SIGQUIT, "SIGQUIT", "quit"},
    {SIGILL, "SIGILL", "illegal instruction"},
    {SIGTRAP, "SIGTRAP", "trace/breakpoint trap"},
    {SIGABRT, "SIGABRT", "aborted"},
    {SIGBUS, "SIGBUS", "bus error"},
    {SIGFPE, "SIGFPE", "floating point exception"},
    {SIGKILL, "SIGKILL", "killed"},
    {SIGUSR1, "SIGUSR1", "user defined signal 1"},
    {SIGSEGV, "SIGSEGV", "segmentation fault"},
    {SIGUSR2, "SIGUSR2", "user defined signal 2"},
    {SIGPIPE, "SIGPIPE", "broken pipe"},
    {SIGALRM, "SIGALRM", "alarm clock"},
    {SIGTERM, "SIGTERM", "terminated"},
    {SIGSTKFLT, "SIGSTKFLT", "stack fault"},
    {SIGCHLD, "SIGCHLD", "child exited"},
    {SIGCONT, "SIGCONT", "continued"},
    {SIGSTOP, "SIGSTOP", "stopped (signal)"},
    {SIGTSTP, "SIGTSTP", "stopped"},
    {SIGTTIN, "SIGTTIN", "stopped (tty input)"},
    {SIGTTOU, "SIGTTOU", "stopped (tty output)"},
    {SIGURG, "SIGURG", "urgent I/O condition"},
    {SIGXCPU, "SIGXCPU", "CPU time limit exceeded"},
    {SIGXFSZ, "SIGXFSZ", "file size limit exceeded"},
    {SIGVTALRM, "SIGVTALRM", "virtual timer expired"},
    {SIGPROF, "SIGPROF", "profiling timer expired"},
    {SIGWINCH, "SIGWINCH", "window changed"},
    {SIGIO, "SIGIO", "I/O possible"},
    {SIGPWR, "SIGPWR", "power failure"},
    {SIGSYS, "SIGSYS", "bad system call"},
};

const char *signal_name(int sig) {
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (signals[i].sig == sig)
            return signals[i].name;
    return NULL;
}

int signal_from_name(const char *name) {
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (strcmp(signals[i].name, name) == 0 || strcmp(signals[i].name + 3, name) == 0)
            return signals[i].sig;
    return -EINVAL;
}

static const char *signal_text(int sig) {
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (signals[i].sig == sig)
            return signals[i].text;
    return NULL;
}

void process_status_text(int wstatus, char *ret, size_t size) {
    const char *dump = WIFSIGNALED(wstatus) && WCOREDUMP(wstatus) ? " (core dumped)" : "";

    if (!WIFSIGNALED(wstatus))
        snprintf(ret, size, WEXITSTATUS(wstatus) ? "exit status %d" : "%.0d", WEXITSTATUS(wstatus));
    else if (signal_text(WTERMSIG(wstatus)))
        snprintf(ret, size, "signal: %s%s", signal_text(WTERMSIG(wstatus)), dump);
    else
        snprintf(ret, size, "signal: signal %d%s", WTERMSIG(wstatus), dump);
}

int process_exit_code(int wstatus) {
    return WIFSIGNALED(wstatus) ? -1 : WEXITSTATUS(wstatus);
}
