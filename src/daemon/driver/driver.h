/*
 * What the sandbox service needs from a place where sandboxes run. One table of functions per
 * driver (native/, docker/, fake/). All of them block and are called from worker threads, several
 * at once, but never two for the same sandbox: the service serialises by id. A driver never sees
 * HTTP requests of a client and never changes the service's records.
 *
 * Contract of every operation: on failure nothing is left behind (an undo list inside), `err` holds
 * a sentence for the client and `err->code` one of the codes of the table below; kill -9 in the
 * middle is repaired by recover(). Operations on an id that does not exist give -ENOENT.
 *
 *   -ENOENT no such sandbox/image   -EINVAL request cannot be honoured   -EOPNOTSUPP not by this
 * driver -ENOSPC out of ids, addresses or disk   -EALREADY wrong state   -ETIMEDOUT   others: fault
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "net/sock.h"

#define SANDBOX_ID_MAX 64
#define AGENT_PORT 44772

enum net_mode { NET_NONE, NET_NAT };

struct mount_spec {
    char *source; /* absolute host path; opened by the driver without following a last symlink out
                     of it */
    char *target; /* absolute path inside */
    bool read_only;
};

/* What was asked, after validation and defaults. The same in every driver; stored as JSON by the
 * service. */
struct sandbox_spec {
    char id[SANDBOX_ID_MAX + 1];
    char *image;            /* "host", "local/NAME" or an image reference */
    struct strv entrypoint; /* may be empty: the sandbox lives until it is deleted */
    struct strv env;        /* "K=V" */
    char *cwd;              /* working directory of entrypoint and commands; NULL = the image's */
    char *hostname;         /* NULL = first 12 characters of the id */
    char *access_token;     /* of the agent; secret */
    uint64_t memory_bytes;  /* 0 = unlimited */
    uint64_t cpu_millis;    /* 1000 = one CPU; 0 = unlimited */
    uint64_t pids;          /* 0 = the driver's default */
    uint64_t disk_bytes;    /* 0 = unlimited */
    enum net_mode net;
    struct mount_spec *mounts;
    size_t n_mounts;
    json_t *labels; /* object string -> string: for drivers that can store them (Docker) */
};
void sandbox_spec_done(struct sandbox_spec *s);
/* Wire-independent JSON form, with the access token. Both return NULL / negative on -ENOMEM / bad
 * form. */
json_t *sandbox_spec_to_json(const struct sandbox_spec *s);
int sandbox_spec_from_json(const json_t *j, struct sandbox_spec *ret, struct err *err);

enum instance_state { INST_RUNNING, INST_PAUSED, INST_EXITED, INST_GONE };

struct instance_info {
    char id[SANDBOX_ID_MAX + 1];
    enum instance_state state;
    int exit_code; /* INST_EXITED: of the entrypoint; 128 + signal */
    bool oom_killed;
    int64_t started_us, finished_us; /* wall clock; finished 0 while running */
};

struct driver_events {
    /* The sandbox's main process ended by itself. From any thread; must not block. */
    void (*on_exit)(const struct instance_info *info, void *ud);
    void *ud;
};

/* Step times of the last create, for `make bench` and the create response header: name,
 * microseconds. */
struct step_time {
    const char *name;
    int64_t us;
};
struct step_times {
    struct step_time t[24];
    size_t n;
};

struct driver;

struct driver_ops {
    const char *name; /* "native" */
    /* Makes everything exist that the spec asks for and returns when the agent has answered.
     * *ret_steps may be NULL. */
    int (*create)(struct driver *d, const struct sandbox_spec *spec, struct instance_info *ret,
                  struct step_times *ret_steps, struct err *err);
    /* Ends when no process of it runs and nothing of it can be reached; slow clean-up may go on in
     * the background. -ENOENT when there was nothing. Works in every state. */
    int (*remove)(struct driver *d, const char *id, struct err *err);
    int (*pause)(struct driver *d, const char *id, struct err *err);
    int (*resume)(struct driver *d, const char *id, struct err *err);
    int (*inspect)(struct driver *d, const char *id, struct instance_info *ret, struct err *err);
    /* All sandboxes that exist here; *ret is malloc'd. */
    int (*list)(struct driver *d, struct instance_info **ret, size_t *ret_n, struct err *err);
    /* Where the loop thread connects to for a port of the sandbox. Fast, does not block. The
     * descriptor in it stays valid as long as the sandbox exists (the driver's, not the caller's);
     * strings are valid as long as the driver is. */
    int (*address)(struct driver *d, const char *id, uint16_t port, struct sock_addr *ret);
    /* Last `tail` lines of what the entrypoint wrote; malloc'd text. */
    int (*logs)(struct driver *d, const char *id, unsigned tail, char **ret, struct err *err);
    /* {"net": [...], "limits": [...], "pause": true, ...}: what is honoured, refused, or best
     * effort. New reference. */
    json_t *(*capabilities)(struct driver *d);
    /* Is the image there, or can it be had? Before create, to give a 4xx early. */
    int (*check_image)(struct driver *d, const char *image, struct err *err);
    /* Names of layers of the image store that existing sandboxes stand on, appended to *ret. NULL:
     * the driver uses none. */
    int (*layers_in_use)(struct driver *d, struct strv *ret);
    /* Start-up reconciliation: `known` = ids that the store has acknowledged (NULL-terminated).
     * Everything else of this driver is removed, half-made ones included; known ones that live are
     * adopted. */
    int (*recover)(struct driver *d, const char *const *known, struct err *err);
    void (*free)(struct driver *d); /* sandboxes live on */
};

struct driver {
    const struct driver_ops *ops;
    struct driver_events events;
};
