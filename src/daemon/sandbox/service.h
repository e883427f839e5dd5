/*
 * The sandbox service: what every API dialect calls, and nothing of HTTP in it. It owns the table
 * of sandboxes, writes the state database, runs the driver's blocking calls on workers and keeps
 * the expiry timer.
 *
 * Everything here belongs to the loop thread, so the table needs no lock and a lookup never waits.
 * Slow operations end in a callback, on the loop thread, exactly once; it may be called before the
 * starting function returns (a refusal that needs no work). Operations on one sandbox run one after
 * the other in the order of their start; operations on different ones in parallel.
 */
#pragma once

#include <uv.h>

#include "base/list.h"
#include "daemon/driver/driver.h"
#include "daemon/store/statedb.h"

/* Why something was refused or failed; a dialect puts it into its wire's words. The text is in a
 * struct err. */
enum fault {
    FAULT_NONE,
    FAULT_NOT_FOUND,
    FAULT_NOT_RUNNING,
    FAULT_NOT_PAUSED,
    FAULT_EXPIRY_PAST, /* asked for a time that is over */
    FAULT_NO_EXPIRY,   /* renew of a sandbox without expiry */
    FAULT_INVALID,     /* a parameter cannot be honoured */
    FAULT_LABEL,       /* metadata syntax at create or patch */
    FAULT_LABEL_RESERVED,
    FAULT_ENTRYPOINT,
    FAULT_POOL_REF,
    FAULT_TEMPLATE,
    FAULT_SNAPSHOT,
    FAULT_PORT,
    FAULT_VOLUME_NAME,
    FAULT_VOLUME_DUPLICATE,
    FAULT_VOLUME_BACKEND,
    FAULT_VOLUME_MOUNT_PATH,
    FAULT_VOLUME_SUB_PATH,
    FAULT_VOLUME_HOST_PATH,
    FAULT_VOLUME_NOT_ALLOWED,
    FAULT_VOLUME_CREATE,
    FAULT_VOLUME_UNSUPPORTED,
    FAULT_VOLUME_NAMED,          /* claimName syntax */
    FAULT_VOLUME_MISSING,        /* a named volume that is not there and not to be made */
    FAULT_VOLUME_INSPECT,        /* it could not be looked up or made */
    FAULT_VOLUME_SUBPATH_DRIVER, /* subPath in a volume whose content cannot be reached */
    FAULT_OSS_VERSION,
    FAULT_OSS_ENDPOINT,
    FAULT_OSS_BUCKET,
    FAULT_OSS_OPTION,
    FAULT_OSS_CREDENTIALS,
    FAULT_OSS_ROOT,  /* storage.ossfs_mount_root is not usable */
    FAULT_OSS_MOUNT, /* the mount helper failed */
    FAULT_IMAGE,     /* not in the store and cannot be had */
    FAULT_PULL,      /* lookup or pull failed */
    FAULT_AGENT_START,
    FAULT_AGENT_COPY,
    FAULT_BOOTSTRAP,
    FAULT_NETWORK, /* the engine could not tell about the configured network */
    FAULT_SNAPSHOT_MISSING,
    FAULT_SNAPSHOT_SOURCE, /* the sandbox is not running */
    FAULT_SNAPSHOT_STATE,  /* not in this state of the snapshot */
    FAULT_SNAPSHOT_BUSY,   /* in use */
    FAULT_SNAPSHOT_NOT_READY,
    FAULT_SNAPSHOT_RESTORE, /* nothing to restore from */
    FAULT_SNAPSHOT_REMOVE,
    FAULT_ADDRESS,     /* no host port is known, or the container has no address */
    FAULT_NO_GUARD,    /* network policy of a sandbox without a guard */
    FAULT_UNSUPPORTED, /* not by this driver */
    FAULT_FULL,        /* out of ids, addresses, disk */
    FAULT_CREATE,
    FAULT_DELETE,
    FAULT_PAUSE,
    FAULT_RESUME,
    FAULT_QUERY,
    FAULT_STOPPING, /* the daemon is shutting down */
    N_FAULTS
};

enum sandbox_state {
    SB_RUNNING,
    SB_PAUSED,
    SB_STOPPING,
    SB_TERMINATED,
    SB_FAILED,
    SB_LOST,
    SB_PENDING,
    SB_UNKNOWN
};

/* Read-only for dialects; valid until control returns to the loop. */
struct sandbox {
    struct sandbox_spec spec; /* as run: id, image, entrypoint, access_token … */
    json_t *metadata;         /* object text -> text */
    json_t *extensions;       /* object: those that are echoed; NULL = none */
    json_t *platform;         /* {"os","arch"} when asked for, else NULL */
    struct strv oss_tags;     /* of spec.oss_mounts, one each (ossfs.h) */
    int64_t created_us, changed_us, expires_us; /* wall clock; expires 0 = never by itself */
    enum sandbox_state state;
    int exit_code; /* TERMINATED, FAILED */
    bool oom_killed;
    int64_t started_us, finished_us;

    /* a slot for the dialect that renders sandboxes: cleared by the service on every change */
    char *cache;
    size_t cache_len;

    /* the service's own */
    struct list by_age; /* in service.by_age, newest first */
    struct list ops;    /* struct op; the first is the running one */
    size_t heap_pos;    /* position + 1 in the expiry heap; 0 = not in it */
    int64_t fire_us;    /* when the heap wakes for it */
    bool removing, gone;
    bool lost;       /* the runtime has reported that it is gone; its removal is under way */
    bool released;   /* what belonged to it was removed; a repeated removal must not do it again */
    bool sync_waits; /* its state is going to be looked up */
    uint64_t n_reports;
};

/* What clients are shown: a removal under way comes before everything else. */
static inline enum sandbox_state sandbox_state_of(const struct sandbox *sb) {
    return sb->removing ? SB_STOPPING : sb->state;
}

/* For logs and messages: "running", "paused" … */
const char *sandbox_state_name(enum sandbox_state state);

struct service;
struct snapdb;

struct renew_opts { /* renewal by use (access.h); texts are borrowed */
    bool enabled;
    unsigned min_interval_s;
    const char *redis_dsn; /* NULL = no queue; secret */
    const char *redis_queue;
    unsigned redis_readers;
};

struct service_opts {
    uv_loop_t *loop;
    struct driver
        *driver; /* owned from a successful open on: freed by close, once nobody uses it */
    struct statedb *store;    /* borrowed */
    struct snapdb *snapshots; /* borrowed; NULL = no snapshots here */
    unsigned max_workers;
    int64_t max_timeout_s; /* ceiling of a create's timeout; 0 = none */
    const char *const
        *allowed_host_paths; /* NULL-terminated; borrowed. Empty refuses every host mount */
    const char *oss_root;    /* where object storage is mounted; NULL = /mnt/ossfs */
    bool
        no_access_token; /* agents are started without one (clients that ignore endpoint headers) */
    enum net_mode default_net; /* of creates that do not choose */
    struct renew_opts renew;
    int64_t (*wall_us)(void); /* NULL = clock_wall_us; for tests */
};

/*
 * Opens the service: reconciles database and runtime (blocking), fills the table, arms the expiry
 * timer. Fails when the runtime cannot be reconciled: serving on a wrong picture would lose
 * sandboxes.
 */
int service_open(const struct service_opts *opts, struct service **ret, struct err *err);
/* Ends running operations (blocking, callbacks included), frees the driver and itself; sandboxes
 * live on. The loop must run once more. */
void service_close(struct service *s);
/* Creates are refused with FAULT_STOPPING from now on, and nothing expires any more. */
void service_refuse(struct service *s);
/* Calls cb once, as soon as no operation runs or waits (perhaps at once). cb must not close the
 * service. */
void service_when_idle(struct service *s, void (*cb)(void *ud), void *ud);
size_t service_pending(const struct service *s); /* operations that run or wait */
struct service_load {
    size_t by_state[SB_UNKNOWN + 1]; /* sandboxes, as clients are shown them */
    unsigned workers, workers_idle, workers_max;
    size_t waiting; /* operations without a worker */
};
void service_load(struct service *s, struct service_load *ret);
const char *service_driver_name(const struct service *s);
json_t *service_capabilities(struct service *s); /* the driver's; new reference */
/* Layers of the image store that sandboxes stand on, appended. Any thread. */
int service_layers_in_use(struct service *s, struct strv *ret);

/* ---- lookups: no waiting, no copies ---- */
struct sandbox *service_get(struct service *s, const char *id); /* NULL when there is none */
struct sandbox_filter {
    unsigned states;        /* bits 1 << enum sandbox_state; 0 = all */
    const json_t *metadata; /* object; every pair must be equal; NULL = all */
};
/* Newest first. Fills at most max entries from `skip` on; *ret_total counts all that match. */
size_t service_list(struct service *s, const struct sandbox_filter *f, size_t skip, size_t max,
                    struct sandbox **ret, size_t *ret_total);
/* Where to connect for a port (driver.h: valid while the sandbox exists). */
enum fault service_address(struct service *s, const char *id, int64_t port, struct target *ret,
                           struct err *err);
/* The same for clients outside (driver.h); *ret is zero when only the server's proxy leads there.
 */
enum fault service_published(struct service *s, const char *id, int64_t port, struct published *ret,
                             struct err *err);
char *service_guard_token(struct service *s, const char *id); /* malloc'd; NULL = none */
const struct driver_rules *service_rules(const struct service *s);
/* Would a create with a network policy be honoured, as this server is configured? */
bool service_takes_policy(struct service *s, bool with_credentials);
bool service_renews_by_use(const struct service *s); /* see access.h */

/* ---- create ---- */
enum volume_kind { VOLUME_HOST, VOLUME_NAMED, VOLUME_OSS };
struct oss_request {
    char *bucket, *endpoint, *version, *key_id, *key_secret; /* key_*: secret, never stored */
    struct strv options;
};
struct volume_request {
    char *name, *mount_path, *sub_path; /* sub_path may be NULL */
    char *host_path;            /* VOLUME_HOST; of VOLUME_OSS the service's: where it is mounted */
    char *claim;                /* VOLUME_NAMED */
    bool create_if_missing;     /* VOLUME_NAMED; default true */
    bool delete_on_termination; /* VOLUME_NAMED */
    struct oss_request oss;     /* VOLUME_OSS */
    enum volume_kind kind;
    unsigned n_backends; /* how many were given: exactly one is right */
    bool read_only;
};
struct create_request {
    char *image;
    struct strv entrypoint, env; /* env "K=V" */
    bool no_entrypoint; /* an empty entrypoint is meant: the sandbox lives until it is deleted */
    int64_t timeout_s;  /* 0 = no expiry */
    json_t *metadata, *extensions, *limits;  /* objects text -> text, or NULL */
    char *os, *arch;                         /* platform, both or none */
    char *snapshot_id;                       /* not blank; NULL = none (then image is set) */
    char *registry_user, *registry_password; /* image.auth; the password is secret */
    json_t *policy;                          /* wire form without nulls; NULL = none */
    bool credential_proxy;
    bool has_template, has_lifecycle, secure_access;
    struct volume_request *volumes;
    size_t n_volumes;
    bool is_operator; /* may mount any host path */
};
void create_request_done(struct create_request *rq);
typedef void (*create_cb)(enum fault f, const struct err *err, struct sandbox *sb,
                          const struct step_times *steps, void *ud);
/* Takes the content of rq over (it is empty afterwards). */
void service_create(struct service *s, struct create_request *rq, create_cb cb, void *ud);

/* ---- operations on one sandbox; FAULT_NOT_FOUND when there is none ---- */
typedef void (*op_cb)(enum fault f, const struct err *err, struct sandbox *sb,
                      void *ud); /* sb NULL on a fault or when gone */
void service_delete(struct service *s, const char *id, op_cb cb,
                    void *ud); /* a removal under way is joined */
void service_pause(struct service *s, const char *id, op_cb cb, void *ud);
void service_resume(struct service *s, const char *id, op_cb cb, void *ud);
void service_renew(struct service *s, const char *id, int64_t expires_us, op_cb cb, void *ud);
/* patch: object text -> text or null (null removes); borrowed during the call only. */
void service_patch_metadata(struct service *s, const char *id, const json_t *patch, op_cb cb,
                            void *ud);
typedef void (*text_cb)(enum fault f, const struct err *err, const char *text, void *ud);
struct log_query {
    unsigned tail; /* lines */
    bool timestamps;
    int64_t since_us; /* wall clock; 0 = from the start */
};
void service_logs(struct service *s, const char *id, const struct log_query *q, text_cb cb,
                  void *ud);
/* What the runtime knows of it (driver.h, describe); details is borrowed, NULL when it has nothing
 * to add. */
typedef void (*details_cb)(enum fault f, const struct err *err, const json_t *details, void *ud);
void service_describe(struct service *s, const char *id, details_cb cb, void *ud);

/*
 * Blocking work that belongs to no sandbox (image imports): run on a worker, then done on the loop.
 * post brings a job from any thread to the loop (only `done` is called).
 */
struct job;
void service_submit(struct service *s, struct job *j);
void service_post(struct service *s, struct job *j);
