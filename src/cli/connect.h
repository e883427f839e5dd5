/* How a command finds its daemon and its sandbox. Both print their own errors. */
#pragma once

#include "cli/cli.h"

/* NULL after an error was printed. */
struct cove_client *connect_daemon(const struct args *a);
/* Is the daemon on this machine (its Unix socket)? Then paths here are paths there. */
bool daemon_is_local(const struct args *a);
/* The full id that `word` is or begins; NULL after an error was printed. malloc'd. */
char *resolve_sandbox(const struct args *a, struct cove_client *c, const char *word);

/* The same, for what needs its processes: a sandbox that is paused or has ended is an error. */
char *resolve_running(const struct args *a, struct cove_client *c, const char *word);

/* cove_client_free and friends for _cleanup_ */
static inline void cove_client_freep(struct cove_client **c) {
    cove_client_free(*c);
}
static inline void cove_sandbox_freep(struct cove_sandbox **s) {
    cove_sandbox_free(*s);
}
static inline void cove_sandbox_list_freep(struct cove_sandbox_list **l) {
    cove_sandbox_list_free(*l);
}
static inline void cove_private_daemon_stopp(struct cove_private_daemon **d) {
    cove_private_daemon_stop(*d);
}
