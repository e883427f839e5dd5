/* Command line and environment of the agent (execd.md 8.1). */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum run_mode {
    MODE_PLAIN,     /* serve the API */
    MODE_INIT,      /* supervise argv as well */
    MODE_BOOTSTRAP, /* container entrypoint: make the surroundings, then supervise */
};

struct config {
    enum run_mode mode;
    uint16_t port;
    char *token;   /* NULL = none */
    int log_level; /* 0..7, as on the command line */
    bool strip_line_ends;
    bool native;                                /* COVE_FDS was given */
    int listen_fd, cgroup_fd, log_fd, state_fd; /* inherited, or -1 */
    char **argv; /* entrypoint, NULL-terminated, borrowed from main's argv; may be empty */
};

/* 0; -EINVAL = unusable (message in err); 1 = help or version was printed. */
int config_parse(int argc, char **argv, struct config *ret, struct err *err);
void config_done(struct config *c);
/* "listen:3,cgroup:4": sets the descriptors of c and makes them close-on-exec. */
int config_parse_fds(const char *text, struct config *c, struct err *err);
