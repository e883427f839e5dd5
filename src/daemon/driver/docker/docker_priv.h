/*
 * What the files of the Docker driver share. `struct docker` owns the engine client, the index of
 * our containers (fed by the engine's events) and the port reservations (with a lock of their own);
 * the lock of the index is never held across an engine call.
 */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "daemon/driver/docker/docker.h"
#include "docker/engine.h"

#define LABEL_ID "opensandbox.io/id"
#define LABEL_EXPIRES_AT "opensandbox.io/expires-at"
#define LABEL_MANUAL_CLEANUP "opensandbox.io/manual-cleanup"
#define LABEL_OS "opensandbox.io/platform-os"
#define LABEL_ARCH "opensandbox.io/platform-arch"
#define LABEL_SNAPSHOT_ID "opensandbox.io/snapshot-id"
#define LABEL_RENEW_EXTEND "opensandbox.io/access-renew-extend-seconds"
#define LABEL_EXTENSION_PREFIX "opensandbox.io/extensions."
#define LABEL_MANAGED_BY "opensandbox.io/volume-managed-by"
#define LABEL_OSS_MOUNTS "opensandbox.io/ossfs-mounts"
#define LABEL_AGENT_PORT "opensandbox.io/embedding-proxy-port"
#define LABEL_HTTP_PORT "opensandbox.io/http-port"
#define LABEL_GUARD_TOKEN "opensandbox.io/egress-auth-token"
#define LABEL_GUARD_FOR "opensandbox.io/egress-sidecar-for"
/* Ours, under the reserved prefix so that no metadata can be one and no other server shows them
 * as metadata: which daemon made it (of containers and volumes), for which sandbox a volume was
 * made, what a helper container is for. */
#define LABEL_INSTANCE "opensandbox.io/cove.instance"
#define LABEL_CREATED_FOR "opensandbox.io/cove.created-for"
#define LABEL_HELPER "opensandbox.io/cove.helper"
#define LABEL_METADATA \
    "opensandbox.io/cove.metadata" /* keys of the user's metadata, as a JSON list */

#define RUNTIME_DIR "/opt/opensandbox"
#define RUNTIME_VOLUME_FORMAT "opensandbox-runtime-%s" /* sandbox id */
#define OEM_VOLUME_FORMAT "opensandbox-win-oem-%s"
#define SANDBOX_NAME_FORMAT "sandbox-%s"
#define GUARD_NAME_FORMAT "sandbox-egress-%s"
#define HTTP_PORT 8080

/* One of our containers, as last seen. Guarded by docker.lock; entries are freed only with the
 * driver or by the service's remove, so that address() may lend their strings (interned). */
struct box {
    char id[SANDBOX_ID_MAX + 1]; /* sandbox id: key of the index */
    char *container;             /* engine id */
    struct instance_info info;
    const char *address;            /* of the container, interned; NULL = none */
    uint16_t agent_port, http_port; /* host ports of the labels; 0 = none */
    char *guard_token;              /* NULL = no guard; set once, never changed */
    bool has_guard;
    bool is_host_net; /* shares the engine's network: its ports are the machine's */
    bool is_leaving;  /* our own removal is under way: its events are no news */
};

struct docker {
    struct driver driver;
    struct docker_config config; /* owned copies */
    char instance[17];           /* of the state directory: value of LABEL_INSTANCE */
    struct engine *engine;
    pthread_mutex_t lock;
    struct map *boxes;          /* sandbox id -> struct box */
    struct map *interned;       /* text -> itself; strings that live as long as the driver */
    struct ports *ports;        /* ports.c */
    struct pulls *pulls;        /* image.c: single-flight pulls, the engine's platform */
    struct docker_agent *agent; /* agent.c: archives of the agent by platform */
    struct docker_watch *watch; /* watch.c: the thread that reads the engine's events */
    /* what config points into */
    struct strv copies, drop, binds;
    /* values of LABEL_INSTANCE from before the state directory was moved; set by recover alone */
    struct strv former;
    json_t *sandbox_env;
    char *proxy_host; /* where published ports are reached from here */
};

static inline struct docker *docker_of(struct driver *d) {
    return (struct docker *)((char *)d - offsetof(struct docker, driver));
}

/* ---- index.c ---- */
const char *docker_intern(struct docker *k, const char *text); /* lock held; NULL on -ENOMEM */
struct box *docker_find(struct docker *k, const char *id);     /* lock held; NULL = none */
/* Enters or refreshes a box from an inspect answer; takes the lock. *ret_info may be NULL. A create
 * enters its box before the start (INST_PENDING): from then on events of it are followed, and an
 * exit is reported. An answer that is older than an exit already seen changes nothing. */
int docker_index_update(struct docker *k, const json_t *inspect, struct instance_info *ret_info,
                        struct err *err);
/* The same for a box that must be there already, with the state before; false = no such box, or of
 * another container. */
bool docker_index_refresh(struct docker *k, const json_t *inspect, enum instance_state *ret_old,
                          struct instance_info *ret_info);
void docker_box_free(struct box *b);
void docker_index_drop(struct docker *k, const char *id);
/* State, exit code and times of an inspect answer (lifecycle.md §5.1, first match wins). */
void docker_read_state(const json_t *inspect, struct instance_info *ret);
/* A label of an inspect answer; NULL when it is missing or empty (blanked). */
const char *docker_label(const json_t *inspect, const char *key);
/* Containers and volumes of another daemon of ours are never touched nor shown; unmarked ones are
 * another server's, and taken over. labels: object or NULL. */
bool docker_is_mine(const struct docker *k, const json_t *labels);
/* Address by which the container is reached inside of its networks; NULL = none (pure). */
const char *docker_read_address(const char *network_mode, const json_t *inspect);
/* Container of a sandbox: the indexed one, else by name with the id label checked, else by label.
 * -ENOENT. *ret: inspect answer. */
int docker_lookup(struct docker *k, const char *id, json_t **ret, struct err *err);

/* ---- labels.c: pure ---- */
struct label_extras {
    uint16_t agent_port, http_port; /* 0 = none */
    const char *guard_token;        /* NULL = none */
    bool has_runtime_volume;        /* it is one of the managed volumes */
};
json_t *docker_labels(const struct docker *k, const struct sandbox_spec *spec,
                      const struct label_extras *x);
/* Reserved keys of the image's own labels that `labels` does not set are set to "". */
int docker_labels_shadow(json_t *labels, const json_t *image_labels);
/* Has the container no reserved label but ours? Its image may have been another than the one that
 * was looked at. */
bool docker_labels_hold(const json_t *labels, const json_t *container_labels);
/* Labels of a container that no row knows -> what a create would have stored. */
int docker_found(const struct docker *k, const json_t *inspect, struct found_sandbox *ret,
                 struct err *err);

struct port_binding {
    char key[16]; /* "44772", "3389/udp": normalised */
    uint16_t host_port;
};

/* ---- container.c: pure ---- */
struct container_extras {
    const char *guard_container; /* engine id of the sidecar whose network is shared; NULL = none */
    const struct port_binding *ports;
    size_t n_ports;
    bool has_runtime_volume;
    const char *const *agent_binds; /* "src:dst:ro" of the agent's files; NULL = injected later */
};
/* Body of POST /containers/create. */
json_t *docker_container_body(const struct docker *k, const struct sandbox_spec *spec,
                              json_t *labels, const struct container_extras *x);
/* Of these ports, as the engine's API has them ("44772/tcp"); NULL on -ENOMEM. */
json_t *docker_port_bindings(const struct docker *k, const struct port_binding *b, size_t n);
json_t *docker_exposed_ports(const struct port_binding *b, size_t n);
/* Environment of the sandbox: docker.sandbox_env, the request's, EXECD_INIT, tokens, OPENSANDBOX_ID
 */
int docker_environment(const struct docker *k, const struct sandbox_spec *spec, struct strv *ret);

/* ---- ports.c ---- */
int ports_new(struct docker *k, struct ports **ret);
struct ports *ports_free(struct ports *p);
/* One host port for each key, reserved until ports_release. -ENOSPC after 50 tries. */
int ports_reserve(struct ports *p, const char *const *keys, struct port_binding *ret, size_t n,
                  struct err *err);
void ports_release(struct ports *p, const struct port_binding *b, size_t n);
/* Is this the engine's way of saying that a host port is taken? */
bool ports_is_conflict(const char *text);

/* ---- image.c ---- */
int pulls_new(struct docker *k, struct pulls **ret);
struct pulls *pulls_free(struct pulls *im);
void docker_stop(struct driver *d); /* pulls end with an error, now and from now on */
/* lifecycle.md §4.2; user, password may be NULL; never_pull: a snapshot's image. */
struct image_wish {
    const char *ref, *os, *arch, *user, *password;
    bool never_pull;
};
int pulls_ensure(struct docker *k, const struct image_wish *w, struct err *err);
/* "linux/amd64" of the engine; "" = unknown. Cached after the first success. */
const char *pulls_engine_platform(struct docker *k);
/* "os/arch", normalised (x86_64 -> amd64 …); "" when one is missing. */
void platform_normalise(const char *os, const char *arch, char *ret, size_t size);
void platform_of_image(const json_t *image_inspect, char *ret, size_t size);

/* ---- agent.c ---- */
int docker_agent_new(struct docker *k, struct docker_agent **ret, struct err *err);
struct docker_agent *docker_agent_free(struct docker_agent *a);
/* How the agent gets into one container. */
struct agent_way {
    struct archive *archive;
    const char *const *binds; /* "src:dst:ro", NULL-terminated; NULL = agent_inject is needed */
};
/* Binds when the engine sees our files: the first call finds that out, with a helper container of
 * that image. platform: of the image, normalised, "" = unknown. DRIVER_AGENT_*, DRIVER_BOOTSTRAP.
 */
int agent_way(struct docker *k, const char *image, const char *platform, struct agent_way *ret,
              struct err *err);
void agent_way_done(struct docker *k, struct agent_way *w);
/* A container that was bound did not start: is that the reason? Then binds are given up for good,
 * and the create can be tried again with agent_inject. */
bool agent_way_failed(struct docker *k, struct agent_way *w, const char *why);
/* Copies launcher and agent into a container that is made and not started, unless they are bound.
 */
int agent_inject(struct docker *k, const char *container, const char *platform, struct agent_way *w,
                 struct err *err);
int agent_inject_windows(struct docker *k, const char *container, struct err *err);
/* ready.c: returns when the agent has answered, the container has ended, or start_timeout_ms have
 * passed (which is logged only). */
void agent_wait(struct docker *k, const struct sandbox_spec *spec, const char *container);
/* Removes helper containers that a killed daemon left. At start only, before any create. */
void agent_collect(struct docker *k);

/* ---- guard.c: the egress sidecar ---- */
struct guard {
    char container[80]; /* engine id */
    char token[40];
};
int guard_check_policy(struct driver *d, const struct sandbox_spec *spec, struct err *err);
int guard_check_switches(const struct docker *k, const struct sandbox_spec *spec, struct err *err);
/* Volume, sidecar, readiness. Undoes itself on failure. `ret->token` is set by the caller. */
int guard_start(struct docker *k, const struct sandbox_spec *spec, const struct port_binding *ports,
                size_t n_ports, struct guard *ret, struct err *err);
void guard_make_token(char ret[40]);
/* Stop with grace, remove with force, then the runtime volume if the server made it. Missing is
 * fine; errors are logged. */
void guard_remove(struct docker *k, const char *sandbox_id);
/* The engine's list entries of a sandbox's sidecars; new reference. */
int guard_find(struct docker *k, const char *sandbox_id, json_t **ret, struct err *err);
/* All of the list are paused / resumed, or, on failure, none (what was changed is undone). */
int guard_pause(struct docker *k, json_t *guards, struct err *err);
int guard_resume(struct docker *k, json_t *guards, struct err *err);
/* Undoes a guard_resume of the same list; failures are added to the message. */
void guard_pause_again(struct docker *k, json_t *guards, struct err *err);
/* Pure, for tests: what the sidecar is made of; labels is taken over. */
json_t *guard_environment(const struct docker *k, const struct sandbox_spec *spec,
                          const char *token);
json_t *guard_body(const struct docker *k, const struct sandbox_spec *spec, const char *token,
                   json_t *labels, const struct port_binding *ports, size_t n, bool with_sysctls);
bool guard_is_sysctl_error(const char *text);
/* Sidecars of this instance (and unmarked ones) whose sandbox is gone. */
void guard_collect_orphans(struct docker *k);

/* ---- windows.c ---- */
extern const char *const windows_devices[]; /* NULL-terminated */
uint64_t windows_gigabytes(const char *text);
unsigned windows_cpus(const char *text);
int windows_check_devices(const struct sandbox_spec *spec, struct err *err);
int windows_environment(const struct sandbox_spec *spec, struct strv *env);
void windows_remove_volume(struct docker *k, const char *sandbox_id); /* the OEM volume */
static inline bool is_windows(const struct sandbox_spec *s) {
    return str_eq(s->os, "windows");
}

/* ---- create.c, life.c, ports' addresses (reach.c), look.c, volume.c, snapshot.c, recover.c ----
 */
int docker_create(struct driver *d, const struct sandbox_spec *spec, struct instance_info *ret,
                  struct step_times *ret_steps, struct err *err);
int docker_ensure_image(struct driver *d, struct sandbox_spec *spec, struct err *err);
int docker_check_network(struct driver *d, struct err *err);
int docker_check_late(struct driver *d, const struct sandbox_spec *spec, struct err *err);
int docker_remove(struct driver *d, const char *id, struct err *err);
int docker_pause(struct driver *d, const char *id, struct err *err);
int docker_resume(struct driver *d, const char *id, struct err *err);
int docker_inspect(struct driver *d, const char *id, struct instance_info *ret, struct err *err);
int docker_list(struct driver *d, struct instance_info **ret, size_t *ret_n, struct err *err);
int docker_address(struct driver *d, const char *id, uint16_t port, struct target *ret);
int docker_published(struct driver *d, const char *id, uint16_t port, struct published *ret,
                     struct err *err);
char *docker_guard_token(struct driver *d, const char *id);
int docker_logs(struct driver *d, const char *id, unsigned tail, bool timestamps, int64_t since_us,
                char **ret, struct err *err);
int docker_describe(struct driver *d, const char *id, json_t **ret, struct err *err);
json_t *docker_capabilities(struct driver *d);
int docker_volume_open(struct driver *d, const char *name, const char *create_for,
                       struct volume_info *ret, struct err *err);
int docker_volume_remove(struct driver *d, const char *name, const char *created_for,
                         struct err *err);
int docker_snapshot_create(struct driver *d, const char *id, const char *snapshot_id,
                           char **ret_image, struct err *err);
int docker_snapshot_exists(struct driver *d, const char *image, struct err *err);
int docker_snapshot_remove(struct driver *d, const char *image, struct err *err);
int docker_recover(struct driver *d, const char *const *known, const char *const *undone,
                   struct err *err);
int docker_found_each(struct driver *d, int (*cb)(struct found_sandbox *f, void *ud), void *ud,
                      struct err *err);

/* life.c: "(undoing it failed …)" */
void docker_add_undo_failure(struct err *err, const char *what, const struct err *failure);

/* ---- pure parts, for tests ---- */
json_t *docker_describe_inspect(const json_t *inspect);                             /* look.c */
json_t *docker_snapshot_config(const json_t *inspect);                              /* snapshot.c */
int docker_check_runtime(const json_t *info, const char *runtime, struct err *err); /* docker.c */
bool docker_volume_is_ours(const struct docker *k, const json_t *labels, const char *created_for);
int docker_decode_found(const struct docker *k, const json_t *inspect, struct found_sandbox *ret,
                        struct err *err); /* recover.c: docker_found and the records beside */

/* ---- probe.c ---- */
/* One GET with a time limit: 0 when the answer is a 2xx, negative for anything else. header: one
 * line without its end, or NULL. Blocks. */
int docker_probe_http(const char *host, uint16_t port, const char *path, const char *header,
                      unsigned timeout_ms);

/* ---- reach.c: where published ports are reached from this process; pure ---- */
bool docker_in_container(void);
const char *docker_pick_proxy_host(const struct docker_config *c, bool in_container);

/* ---- legacy.c: records beside the engine, in the form of an opensandbox-server ---- */
/* Expiry override and metadata of a sandbox; 0 / NULL = none. Unreadable ones count as missing. */
void legacy_read(const struct docker *k, const char *id, int64_t *ret_expires_us,
                 json_t **ret_metadata);
void docker_note_expiry(struct driver *d, const char *id, int64_t expires_us);
void legacy_forget(const struct docker *k, const char *id);

/* ---- watch.c ---- */
int docker_watch_new(struct docker *k, struct docker_watch **ret, struct err *err);
struct docker_watch *docker_watch_free(struct docker_watch *w); /* ends the thread; returns NULL */
