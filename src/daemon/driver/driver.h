/*
 * What the sandbox service needs from a place where sandboxes run. One table of functions per
 * driver (native/, docker/, fake/). Unless it says otherwise a function blocks and is called from
 * worker threads, several at once, but never two for the same sandbox: the service serialises by
 * id. A driver never sees HTTP requests of a client and never changes the service's records.
 *
 * Contract of every operation: on failure nothing is left behind (an undo list inside), `err` holds
 * a sentence for the client and `err->code` one of the codes below; kill -9 in the middle is
 * repaired by recover(). Operations on an id that does not exist give -ENOENT.
 *
 *   -ENOENT no such sandbox/image   -EINVAL request cannot be honoured   -EOPNOTSUPP not by this
 * driver -ENOSPC out of ids, addresses or disk   -EALREADY wrong state   -ETIMEDOUT   -EBUSY in
 * use   DRIVER_*: told apart by clients   others: fault
 *
 * Members of struct driver_ops that may be NULL say so; everything else is there in every driver.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "net/sock.h"

#define SANDBOX_ID_MAX 64
#define AGENT_PORT 44772
#define SNAPSHOT_REPOSITORY "opensandbox-snapshots"
#define GUARD_PORT 18080 /* policy API of the network guard */

/* Negative like errno, but outside of its range. */
enum {
    DRIVER_IMAGE_PULL = -20000, /* an image could not be looked up or pulled */
    DRIVER_AGENT_START,         /* the helper container with the agent did not come up */
    DRIVER_AGENT_COPY,          /* the agent's files could not be read or copied */
    DRIVER_BOOTSTRAP,           /* the launcher is missing or could not be copied */
    DRIVER_VOLUME_INSPECT,      /* a named volume could not be looked up or made */
};

enum net_mode { NET_NONE, NET_NAT };

struct mount_spec {
    char *source; /* absolute host path; opened by the driver without following a last symlink out
                     of it */
    char *target; /* absolute path inside */
    bool read_only;
    char *volume; /* the named volume that is mounted whole (source: where its content lies, NULL
                     when the driver cannot tell); NULL = a path */
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
    uint64_t cpu_nanos;     /* the same, exact: 1e9 = one CPU */
    uint64_t pids;          /* 0 = the driver's default */
    uint64_t disk_bytes;    /* 0 = unlimited */
    int64_t gpus;           /* 0 = none, -1 = all */
    enum net_mode net;
    struct mount_spec *mounts;
    size_t n_mounts;
    char *os, *arch;         /* platform that was asked for, normalised; both NULL = none */
    json_t *limits;          /* resourceLimits as asked, text -> text; NULL = none */
    json_t *policy;          /* network policy in wire form; NULL = no guard */
    bool credential_proxy;   /* the guard intercepts TLS and adds credentials */
    bool isolation;          /* extension bootstrap.execd.isolation = enable */
    struct strv guard_env;   /* "K=V" for the guard: OPENSANDBOX_EGRESS_* of the request */
    char *snapshot_id;       /* made from this snapshot (image is the snapshot's); NULL = no */
    char *renew_extend;      /* extension access.renew.extend.seconds, trimmed; NULL = none */
    json_t *extensions;      /* those that are kept and echoed, "opensandbox.extensions.*" */
    json_t *labels;          /* metadata of the create, text -> text */
    int64_t expires_us;      /* wall clock, of the create; 0 = manual clean-up */
    struct strv own_volumes; /* named volumes that end with the sandbox */
    struct strv oss_mounts;  /* host paths of object-storage mounts it uses */
    /* credentials of the image's registry: for the create only, never stored */
    char *registry_user, *registry_password;
};
void sandbox_spec_done(struct sandbox_spec *s);
/* Wire-independent JSON form, with the access token, without registry credentials. Both return NULL
 * / negative on -ENOMEM / bad form. */
json_t *sandbox_spec_to_json(const struct sandbox_spec *s);
int sandbox_spec_from_json(const json_t *j, struct sandbox_spec *ret, struct err *err);

/* INST_PENDING: made, not started. INST_UNKNOWN: the engine reports a state that is none of these.
 */
enum instance_state {
    INST_RUNNING,
    INST_PAUSED,
    INST_EXITED,
    INST_GONE,
    INST_PENDING,
    INST_UNKNOWN
};

struct instance_info {
    char id[SANDBOX_ID_MAX + 1];
    enum instance_state state;
    int exit_code; /* INST_EXITED: of the entrypoint; 128 + signal */
    bool oom_killed;
    int64_t started_us, finished_us; /* wall clock; finished 0 while running */
};

struct driver_events {
    /* The sandbox changed by itself or by another hand: its main process ended, it was paused,
     * resumed, started again, or is gone. info->state is the new state. From any thread; must not
     * block. Changes that the service itself has asked for may be reported too. */
    void (*on_change)(const struct instance_info *info, void *ud);
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

/* What a create may ask for here; never changes after the driver was made. What is false is refused
 * with the field's path. */
struct driver_rules {
    const char *provider; /* "native", "docker": named in refusals */
    bool named_volumes;   /* volume_* below */
    bool oss_volumes;     /* host paths under a mounted object store can be bound */
    bool gpu;
    bool windows;        /* platform.os = windows */
    bool any_arch;       /* platform.arch is the driver's own affair; else only this machine's */
    bool snapshots;      /* snapshot_* below */
    bool image_auth;     /* image.auth is used for the pull */
    bool isolation;      /* extension bootstrap.execd.isolation */
    bool disk_limit;     /* resourceLimits.disk is enforced; else (see ignores_limits) */
    bool net_choice;     /* extension cove.network */
    bool cwd_choice;     /* extension cove.cwd */
    bool no_entrypoint;  /* extension cove.entrypoint = none */
    bool ignores_limits; /* unknown resourceLimits keys and disk are ignored, as the wire has it */
};

struct volume_info {
    char driver[64];
    char *mountpoint; /* where its content lies on this machine; NULL = unknown */
    bool created;     /* by this call */
};

/* How a port is reached from outside without the server's proxy. */
struct published {
    uint16_t host_port; /* on the public host; 0 = not at all, only through the server's proxy */
    bool via_agent;     /* host_port is the agent's, which forwards: path /proxy/PORT */
};

/* Where the daemon itself connects to for a port. Strings and descriptors live as long as the
 * driver and the sandbox. */
struct target {
    struct sock_addr addr;
    const char *path_prefix; /* put before the request's path ("/proxy/8000"); NULL = none */
};

/* A sandbox that exists in the runtime and that no row knows: made by another server of this wire,
 * or the database was lost. */
struct found_sandbox {
    struct sandbox_spec spec;
    json_t *metadata;
    json_t *platform; /* {"os","arch"}; NULL = none */
    int64_t created_us;
    int64_t expires_us; /* 0 = never by itself */
};
void found_sandbox_done(struct found_sandbox *f);

struct driver;

struct driver_ops {
    const char *name; /* "native" */

    /* ---- before a create, in this order ---- */
    /* Can spec->policy (with credential_proxy) be honoured? Does not block; any thread. NULL: no
     * policies here. */
    int (*check_policy)(struct driver *d, const struct sandbox_spec *spec, struct err *err);
    /* Is the configured network there? NULL: nothing to check. */
    int (*check_network)(struct driver *d, struct err *err);
    /* Makes sure that the image is there (it may be pulled, one pull for all who wait): -ENOENT,
     * DRIVER_IMAGE_PULL, -EINVAL. May note in the spec what it found. */
    int (*ensure_image)(struct driver *d, struct sandbox_spec *spec, struct err *err);
    /* What can only be refused late: guard switches that exclude each other, missing devices. NULL:
     * nothing. */
    int (*check_late)(struct driver *d, const struct sandbox_spec *spec, struct err *err);

    /* Makes everything exist that the spec asks for and returns when the agent has answered.
     * *ret_steps may be NULL. */
    int (*create)(struct driver *d, const struct sandbox_spec *spec, struct instance_info *ret,
                  struct step_times *ret_steps, struct err *err);
    /* Ends when no process of it runs and nothing of it can be reached; slow clean-up may go on in
     * the background. -ENOENT when there was nothing; what belonged to it (guard, volumes made by
     * the driver) is removed then as well. Works in every state. */
    int (*remove)(struct driver *d, const char *id, struct err *err);
    int (*pause)(struct driver *d, const char *id, struct err *err);
    int (*resume)(struct driver *d, const char *id, struct err *err);
    int (*inspect)(struct driver *d, const char *id, struct instance_info *ret, struct err *err);
    /* All sandboxes that exist here; *ret is malloc'd. */
    int (*list)(struct driver *d, struct instance_info **ret, size_t *ret_n, struct err *err);
    /* The new expiry, for drivers that show it to other tools (labels). Best effort; may be called
     * beside the sandbox's snapshot_create. NULL: no. */
    void (*note_expiry)(struct driver *d, const char *id, int64_t expires_us);

    /* The daemon ends: whatever waits for something without a bound (a pull) fails now and from now
     * on. Any thread. NULL: nothing does. */
    void (*stop)(struct driver *d);

    /* ---- reaching ports: fast, do not block, loop thread ---- */
    int (*address)(struct driver *d, const char *id, uint16_t port, struct target *ret);
    /* NULL: nothing is published */
    int (*published)(struct driver *d, const char *id, uint16_t port, struct published *ret,
                     struct err *err);
    /* Token of the sandbox's guard, a copy for the caller; NULL when it has none (or the member is
     * NULL). */
    char *(*guard_token)(struct driver *d, const char *id);

    /* ---- looking ---- */
    /* Last `tail` lines of what the entrypoint wrote (timestamps: each with its time in front),
     * since_us 0 = from the start; malloc'd text. */
    int (*logs)(struct driver *d, const char *id, unsigned tail, bool timestamps, int64_t since_us,
                char **ret, struct err *err);
    /* What the runtime knows, for diagnostics; see docker.h for the members. New reference. NULL:
     * nothing beyond the service's own record. */
    int (*describe)(struct driver *d, const char *id, json_t **ret, struct err *err);
    /* {"net": [...], "limits": [...], "pause": true, ...}: what is honoured, refused, or best
     * effort. New reference. */
    json_t *(*capabilities)(struct driver *d);

    /* ---- named volumes; NULL unless rules.named_volumes ---- */
    /* Looks a volume up; create_for (a sandbox id) makes it when it is missing, marked as made by
     * the server for that sandbox. -ENOENT: missing and not to be made. */
    int (*volume_open)(struct driver *d, const char *name, const char *create_for,
                       struct volume_info *ret, struct err *err);
    /* Removes it only if the server made it (for that sandbox, unless created_for is NULL). Missing
     * or not ours: success. */
    int (*volume_remove)(struct driver *d, const char *name, const char *created_for,
                         struct err *err);

    /* ---- snapshots; NULL unless rules.snapshots ---- */
    /* Commits the root file system; *ret_image: the reference to start from (malloc'd), which is
     * SNAPSHOT_REPOSITORY ":" and the snapshot's id, so that it is found without a record too. */
    int (*snapshot_create)(struct driver *d, const char *id, const char *snapshot_id,
                           char **ret_image, struct err *err);
    /* 0 there, -ENOENT not there */
    int (*snapshot_exists)(struct driver *d, const char *image, struct err *err);
    /* -EBUSY while a sandbox stands on it; missing is a success */
    int (*snapshot_remove)(struct driver *d, const char *image, struct err *err);

    /* Names of layers of the image store that existing sandboxes stand on, appended to *ret. NULL:
     * the driver uses none. */
    int (*layers_in_use)(struct driver *d, struct strv *ret);

    /* ---- start-up reconciliation ---- */
    /* known: ids that the store has acknowledged; undone: those whose create or removal did not end
     * (both NULL-terminated). Undone ones are removed, with everything that belongs to them; known
     * ones that live are adopted. A driver whose runtime is its own (native) removes everything
     * else too; others leave it to found(). */
    int (*recover)(struct driver *d, const char *const *known, const char *const *undone,
                   struct err *err);
    /* After recover: calls cb for every sandbox that nobody knows but that is to be taken over. cb
     * takes the content (leaves it zeroed); a negative return stops. NULL: there is no such thing.
     */
    int (*found)(struct driver *d, int (*cb)(struct found_sandbox *f, void *ud), void *ud,
                 struct err *err);
    void (*free)(struct driver *d); /* sandboxes live on */
};

struct driver {
    const struct driver_ops *ops;
    struct driver_rules rules;
    struct driver_events events;
};
