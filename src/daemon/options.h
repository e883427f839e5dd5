/* The command line of coved. */
#pragma once

#include "base/err.h"

enum options_mode {
    MODE_SERVE,
    MODE_HELP,
    MODE_VERSION,
    MODE_CHECK_CONFIG,
    MODE_CONFIG_DOC,
    MODE_INIT_CONFIG,
    MODE_PROBE,
    MODE_CRASH_POINTS,
    MODE_MIGRATE,
};

struct options {
    enum options_mode mode;
    const char *config;    /* NULL = the usual places */
    const char *socket;    /* overrides server.socket */
    const char *state_dir; /* overrides server.state_dir */
    const char *log_level;
    bool is_private; /* for one client: no TCP, own state, everything removed at the end */
    bool json, force, reload;
    int life_fd;      /* the daemon ends when this reaches its end; -1 = none */
    int ready_fd;     /* gets one line, the address, when the daemon serves; -1 = none */
    const char *from; /* migrate-snapshots; NULL = the usual file */
    char *to;         /* migrate-snapshots: secret, points into argv; NULL = from the environment */
    bool dry_run;
    const char *init_path, *example; /* init-config; NULL = the usual ones */
};

/* argv strings are borrowed. -EINVAL with a sentence on bad ones. */
int options_parse(int argc, char **argv, struct options *ret, struct err *err);
extern const char options_help[];
