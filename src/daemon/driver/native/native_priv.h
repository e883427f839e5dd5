/* Inside the native driver: what its files share. Not for others. */
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include "base/list.h"
#include "base/map.h"
#include "daemon/driver/native/cgroups.h"
#include "daemon/driver/native/launcher.h"
#include "daemon/driver/native/native.h"
#include "daemon/driver/native/netns.h"
#include "daemon/driver/native/slots.h"
#include "oci/seccomp.h"
#include "oci/store.h"

#define ID_RANGE 65536u
#define AGENT_TARGET "/opt/cove/execd"

enum box_state { BOX_CREATING, BOX_RUNNING, BOX_EXITED, BOX_REMOVING };

/*
 * One sandbox. `key` names its directory, cgroups and runtime state; `id` is what the service
 * knows. Fields are written by the one thread that works on the sandbox, under the driver's lock
 * where another one may read.
 */
struct box {
    char id[SANDBOX_ID_MAX + 1], key[SANDBOX_ID_MAX + 1];
    enum box_state state;
    bool has_slot, paused, oom_killed;
    unsigned slot;
    enum net_mode net;
    int netns_fd, pidfd;
    pid_t pid;
    uint64_t start_ticks; /* field 22 of /proc/<pid>/stat: tells a reused pid from the real one */
    int exit_code;
    int64_t started_us, finished_us;
    struct strv volumes; /* names of our volumes it has mounted */
    struct strv layers;  /* directory names in the store that the root file system stands on */
};

struct trash; /* trash.c */
struct watch; /* watch.c */
struct warm;  /* warm.c */
struct nat;   /* nat.h */

struct native {
    struct driver driver;
    struct native_config config; /* strings below are the owned copies */
    char *state_dir, *run_dir, *agent_path, *runtime, *subnet, *warm_image;
    struct strv dns;
    char instance[9];
    char boot_id[40];
    int state_lock;    /* flock of the state directory */
    int sandboxes_fd;  /* <state_dir>/sandboxes */
    int volumes_fd;    /* <state_dir>/volumes */
    char *volumes_dir; /* its real path */
    int runtime_fd;    /* <run_dir>/<instance>/rt */
    int agent_fd;      /* O_PATH of cove-execd */
    char *runtime_root;
    char *mount_point;    /* empty directory: a launcher child mounts the root there, in its own
                             namespace */
    pthread_mutex_t lock; /* boxes, and fields of a box that others read */
    struct map *boxes;    /* id -> struct box */
    struct store *store;
    struct seccomp_filter seccomp;
    struct cgroups *cgroups;
    struct slots *slots;
    struct stock *netns_pool;
    struct launcher *launcher;
    struct stock *parked; /* park.c; NULL when off */
    struct trash *trash;
    struct watch *watch;
    struct warm *warm; /* NULL when off */
    struct nat *nat;   /* made by the first outbound sandbox, under nat_lock */
    pthread_mutex_t nat_lock;
    sem_t launching; /* runtimes that may start at once: more only take turns on the processors, and
                        a burst would run into the time limit of a launch */
};

static inline struct native *native_of(struct driver *d) {
    return container_of(d, struct native, driver);
}
static inline uint32_t box_uid_base(const struct native *n, const struct box *b) {
    return n->config.userns ? n->config.uid_base + b->slot * ID_RANGE : 0;
}

struct box *box_new(const char *id, const char *key);
struct box *box_free(struct box *b); /* closes its descriptors; returns NULL */
DEFINE_CLEANUP(struct box, box_free)
void box_info(const struct box *b, struct instance_info *ret);
/* Under the lock: the box, or NULL. */
struct box *native_find(struct native *n, const char *id);

/* open.c: eight hex digits that differ between state directories; names of everything global hold
 * them. */
void instance_name(const char *state_dir, char ret[9]);

/* create.c */
int native_create(struct driver *d, const struct sandbox_spec *spec, struct instance_info *ret,
                  struct step_times *ret_steps, struct err *err);

/* image.c: what a sandbox's root is made of. */
struct root_plan {
    json_t *overlays; /* as in launch_proto.h, with "dir" relative to the sandbox's directory */
    struct strv env;  /* of the image */
    char *cwd;
    struct strv layers;
    struct strv dirs; /* "dir" of each overlay */
};
void root_plan_done(struct root_plan *p);
int root_plan_make(struct native *n, const char *image, struct root_plan *ret, struct err *err);
int native_ensure_image(struct driver *d, struct sandbox_spec *spec, struct err *err);

/* files.c: what is written into a sandbox's directory. */
#define HOSTNAME_SIZE 65
const char *box_hostname(const struct box *b, const struct sandbox_spec *spec,
                         char ret[HOSTNAME_SIZE]);
int box_write_etc(struct native *n, const struct box *b, const struct sandbox_spec *spec,
                  int dir_fd, struct err *err);
int box_write_config(struct native *n, const struct box *b, const struct sandbox_spec *spec,
                     const char *boot_token, int dir_fd, struct err *err);

/* record.c */
int box_record_write(struct native *n, const struct box *b);
/* -ENOENT/-EBADMSG when there is none that can be read. ret_same_boot: written since the machine
 * started. */
int box_record_read(struct native *n, const char *key, struct box **ret, bool *ret_same_boot);
int process_start_ticks(pid_t pid, uint64_t *ret);
/* Fills exit_code, finished_us and oom_killed from what the agent left behind. */
void box_read_exit(struct native *n, struct box *b);

/* remove.c */
int native_remove(struct driver *d, const char *id, struct err *err);
/* Kills and takes apart whatever exists under b's key; each part may be gone already. Ends when
 * nothing runs; 0, or -ETIMEDOUT when processes could not be killed (everything is kept then, for
 * the next try). Frees slot and netns. */
int box_teardown(struct native *n, struct box *b, struct err *err);

/* trash.c */
int trash_new(struct native *n, struct trash **ret);
struct trash *trash_free(struct trash *t); /* waits for the deletion under way; returns NULL */
void trash_put(struct trash *t, const char *key);
void trash_put_from(struct trash *t, int dir_fd, const char *name); /* not of a sandbox */
void trash_close_later(struct trash *t, int fd);

/* volume.c */
int native_volumes_open(struct native *n, struct err *err);
int native_volume_open(struct driver *d, const char *name, const char *create_for,
                       struct volume_info *ret, struct err *err);
int native_volume_remove(struct driver *d, const char *name, const char *created_for,
                         struct err *err);
/* Which volumes the sandbox has; before it is in the table. */
int box_note_volumes(struct native *n, struct box *b, const struct sandbox_spec *spec);

/* watch.c */
int watch_new(struct native *n, struct watch **ret);
struct watch *watch_free(struct watch *w); /* returns NULL */
int watch_add(struct watch *w, const struct box *b);
void watch_remove(struct watch *w, const struct box *b);

/* park.c */
int parked_new(struct native *n, struct stock **ret);
/* A slot whose cgroups exist under *ret_key and in which a launcher child waits; false when none is
 * ready. */
bool parked_take(struct stock *pool, unsigned *ret_slot, char *ret_key, size_t size,
                 int64_t *ret_parked);

/* warm.c */
int warm_new(struct native *n, const char *image, unsigned size, struct warm **ret);
struct warm *warm_free(struct warm *w); /* removes what waits; returns NULL */
void warm_refill(struct warm *w);       /* see stock_refill(); w may be NULL */

/* recover.c */
int native_recover(struct driver *d, const char *const *known, const char *const *undone,
                   struct err *err);
