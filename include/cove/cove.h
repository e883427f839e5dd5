/*
 * libcove: a client of Cove's sandbox API.
 *
 * Rules of this interface
 *   - Every function returns 0 or a negative errno; results come in `ret_` parameters, which are
 * set only on success. `err` may be NULL; otherwise it gets a sentence that a person can act on.
 *   - A client belongs to one thread at a time. Calls block; cove_client_interrupt() ends them
 * early and is the only function that may be called from another thread or from a signal handler.
 *   - Option structures begin with `size`, set by their _INIT macro: fields are only ever added at
 * the end, so that programs built against an older header keep working.
 *   - Strings that the library returns as `char *` are freed with cove_free(); `const char *`
 * belongs to the object it was asked from.
 */
#ifndef COVE_COVE_H
#define COVE_COVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COVE_API __attribute__((visibility("default")))

#define COVE_API_VERSION_MAJOR 0
#define COVE_API_VERSION_MINOR 1
#define COVE_API_VERSION_PATCH 0
#define COVE_API_VERSION \
    (COVE_API_VERSION_MAJOR * 10000 + COVE_API_VERSION_MINOR * 100 + COVE_API_VERSION_PATCH)

/* "0.1.0": of the library that runs, which may be newer than the header. */
COVE_API const char *cove_version(void);
COVE_API void cove_free(void *p);

struct cove_error {
    int code;           /* negative errno, 0 = none */
    int http_status;    /* of the answer that caused it, 0 = none */
    char kind[64];      /* the server's code, such as "DOCKER::SANDBOX_NOT_FOUND"; "" = none */
    char message[1024]; /* one or more sentences, always terminated */
};

/* ---- connection ---- */

#define COVE_DEFAULT_ADDRESS "unix:/run/cove/api.sock"

struct cove_client;
/*
 * address: "unix:/path/to.sock", "/path/to.sock" or "http://host:port". NULL: the environment
 * variable COVE_HOST, else COVE_DEFAULT_ADDRESS. api_key: NULL = the environment variable
 * OPEN_SANDBOX_API_KEY, else none. Nothing is sent yet. -EINVAL: the address cannot be understood.
 */
COVE_API int cove_client_new(const char *address, const char *api_key, struct cove_client **ret,
                             struct cove_error *err);
COVE_API struct cove_client *
cove_client_free(struct cove_client *c); /* NULL is fine; returns NULL */
COVE_API const char *cove_client_address(const struct cove_client *c);
/*
 * The call that blocks now, or else the next one, returns -EINTR. cove_exec_wait() may then be
 * called again: the command goes on. Async-signal-safe.
 */
COVE_API void cove_client_interrupt(struct cove_client *c);
/* Forgets an interrupt that nobody has seen yet. */
COVE_API void cove_client_interrupt_clear(struct cove_client *c);
/* Is a server there? *ret_version (may be NULL): its version. -ECONNREFUSED, -ENOENT: nobody
 * listens. */
COVE_API int cove_client_ping(struct cove_client *c, char **ret_version, struct cove_error *err);
/* What the daemon's driver is, and what of a sandbox's options it honours: an object, as JSON text.
 * -ENOENT: the server is another one of this API and does not tell. */
COVE_API int cove_client_capabilities(struct cove_client *c, char **ret_json,
                                      struct cove_error *err);

/*
 * A daemon of one's own, for programs that want a sandbox where no daemon runs. It ends, with all
 * of its sandboxes, when this process ends in whatever way. program: NULL = found beside this
 * program, else in PATH.
 */
struct cove_private_daemon;
COVE_API int cove_private_daemon_start(const char *program, struct cove_private_daemon **ret,
                                       struct cove_error *err);
COVE_API const char *cove_private_daemon_address(const struct cove_private_daemon *d);
/* Ends it, waits until everything of it is gone, and frees. NULL is fine; returns NULL. */
COVE_API struct cove_private_daemon *cove_private_daemon_stop(struct cove_private_daemon *d);

/* ---- sandboxes ---- */

struct cove_mount {
    const char *source; /* absolute path on the server's machine */
    const char *target; /* absolute path in the sandbox */
    bool read_only;
};

struct cove_sandbox_options {
    size_t size;
    const char *image;             /* "host", "local/NAME" or an image reference; NULL = "host" */
    const char *const *entrypoint; /* NULL-terminated; NULL = none: it lives until it is deleted */
    const char *const *env;        /* "KEY=VALUE", NULL-terminated; NULL = none */
    const char *const *metadata;   /* "key=value", NULL-terminated; NULL = none */
    const char *cwd;               /* NULL = the image's */
    const char *network;           /* "none" or "nat"; NULL = the server's default */
    uint64_t cpu_millis;           /* 1000 = one CPU; 0 = no limit */
    uint64_t memory_bytes;         /* 0 = no limit */
    uint64_t pids;                 /* 0 = the server's default */
    uint64_t disk_bytes;           /* 0 = no limit */
    uint32_t timeout_s;            /* it is removed after so many seconds, at least 60; 0 = never */
    const struct cove_mount *mounts;
    size_t n_mounts;
};
#define COVE_SANDBOX_OPTIONS_INIT \
    { .size = sizeof(struct cove_sandbox_options) }

struct cove_sandbox;
struct cove_sandbox_list;

/* Returns when the sandbox runs. */
COVE_API int cove_sandbox_create(struct cove_client *c, const struct cove_sandbox_options *o,
                                 struct cove_sandbox **ret, struct cove_error *err);
/* -ENOENT: no such sandbox. */
COVE_API int cove_sandbox_get(struct cove_client *c, const char *id, struct cove_sandbox **ret,
                              struct cove_error *err);
/* Same, where `id` may be the beginning of exactly one id. -ENOTUNIQ: of several (named in the
 * message). */
COVE_API int cove_sandbox_find(struct cove_client *c, const char *id, struct cove_sandbox **ret,
                               struct cove_error *err);
/* states: only those in one of these states (NULL-terminated; NULL = all). */
COVE_API int cove_sandbox_list(struct cove_client *c, const char *const *states,
                               struct cove_sandbox_list **ret, struct cove_error *err);
/* Returns when nothing of it runs any more. -ENOENT: no such sandbox. */
COVE_API int cove_sandbox_delete(struct cove_client *c, const char *id, struct cove_error *err);
/* It will be removed `seconds` from now. *ret_expires_us may be NULL. */
COVE_API int cove_sandbox_renew(struct cove_client *c, const char *id, uint32_t seconds,
                                int64_t *ret_expires_us, struct cove_error *err);
/* The last `tail` lines (1..10000; 0 = 100) of what its entrypoint wrote. */
COVE_API int cove_sandbox_logs(struct cove_client *c, const char *id, unsigned tail, char **ret,
                               struct cove_error *err);
/* The address of a port of the sandbox, through the server: "http://host:port/path" or
 * "unix:/socket:/path". */
COVE_API int cove_sandbox_endpoint(struct cove_client *c, const char *id, uint16_t port, char **ret,
                                   struct cove_error *err);

COVE_API const char *cove_sandbox_id(const struct cove_sandbox *s);
COVE_API const char *cove_sandbox_state(const struct cove_sandbox *s); /* "Running", "Paused" ... */
COVE_API const char *
cove_sandbox_message(const struct cove_sandbox *s); /* why it is in that state; "" = unsaid */
COVE_API const char *cove_sandbox_image(const struct cove_sandbox *s);
COVE_API const char *const *
cove_sandbox_entrypoint(const struct cove_sandbox *s); /* NULL-terminated */
COVE_API int64_t
cove_sandbox_created_us(const struct cove_sandbox *s); /* since 1970; 0 = unknown */
COVE_API int64_t cove_sandbox_expires_us(const struct cove_sandbox *s); /* 0 = never */
COVE_API const char *cove_sandbox_json(const struct cove_sandbox *s);   /* as the server told it */
COVE_API struct cove_sandbox *cove_sandbox_free(struct cove_sandbox *s);

COVE_API size_t cove_sandbox_list_size(const struct cove_sandbox_list *l);
COVE_API const struct cove_sandbox *cove_sandbox_list_at(const struct cove_sandbox_list *l,
                                                         size_t i);
COVE_API struct cove_sandbox_list *cove_sandbox_list_free(struct cove_sandbox_list *l);

/* ---- commands ---- */

enum cove_stream { COVE_STDOUT = 1, COVE_STDERR = 2 };

struct cove_exec_options {
    size_t size;
    const char *const *argv;   /* NULL-terminated, at least one */
    const char *const *env;    /* "KEY=VALUE", above the sandbox's own; NULL = none */
    const char *cwd;           /* NULL = the sandbox's */
    int64_t uid, gid;          /* -1 = the sandbox's */
    bool tty;                  /* a real terminal: one output stream, job control, resize */
    unsigned short cols, rows; /* of the terminal; 0 = 80 and 24 */
    /* Where bytes come from and go to. Descriptors are borrowed and never made non-blocking; -1 =
     * no input (the command reads end-of-file at once) or output thrown away. A terminal's output
     * is all COVE_STDOUT. */
    int stdin_fd, stdout_fd, stderr_fd;
    /* When set it gets the output in place of the descriptors; a negative return ends the wait with
     * it. */
    int (*on_output)(enum cove_stream stream, const void *data, size_t len, void *ud);
    void *ud;
    /* While waiting, keep the sandbox from expiring: it always lives for so many seconds more. 0 =
     * off. */
    uint32_t renew_s;
};
#define COVE_EXEC_OPTIONS_INIT                                                          \
    {                                                                                   \
        .size = sizeof(struct cove_exec_options), .uid = -1, .gid = -1, .stdin_fd = -1, \
        .stdout_fd = -1, .stderr_fd = -1                                                \
    }

struct cove_exit {
    int code;        /* exit code, or 128 + number of the signal */
    char signal[16]; /* "SIGKILL", or "" when it exited */
};

struct cove_exec;
/*
 * Starts a command in a running sandbox. -ENOENT with kind "START_FAILED": there is no such
 * program; -EACCES with kind "START_FAILED": it cannot be executed. All other failures are not the
 * command's.
 */
COVE_API int cove_exec_start(struct cove_client *c, const char *sandbox_id,
                             const struct cove_exec_options *o, struct cove_exec **ret,
                             struct cove_error *err);
/*
 * Moves bytes until the command has ended and everything it wrote has been delivered. -EINTR after
 * cove_client_interrupt(), -ETIMEDOUT after timeout_ms (0 = none): the command goes on, call again
 * or signal it. -EPIPE: nobody reads stdout_fd or stderr_fd any more.
 */
COVE_API int cove_exec_wait(struct cove_exec *x, unsigned timeout_ms, struct cove_exit *ret,
                            struct cove_error *err);
/* SIGINT, SIGTERM, SIGKILL, SIGQUIT, SIGHUP. Sent by the next cove_exec_wait() at the latest. */
COVE_API int cove_exec_signal(struct cove_exec *x, const char *signal_name);
COVE_API int cove_exec_resize(struct cove_exec *x, unsigned short cols, unsigned short rows);
/* Lets go of it; a command that still runs is killed with its children. NULL is fine; returns NULL.
 */
COVE_API struct cove_exec *cove_exec_free(struct cove_exec *x);

/* ---- files ---- */

struct cove_copy_options {
    size_t size;
    /* bytes moved so far; total 0 = unknown */
    void (*on_progress)(uint64_t done, uint64_t total, void *ud);
    /* something that could not be copied and was left out (a socket, a device ...) */
    void (*on_skip)(const char *path, const char *why, void *ud);
    void *ud;
};
#define COVE_COPY_OPTIONS_INIT \
    { .size = sizeof(struct cove_copy_options) }

/* Writes everything that can be read from fd into the file; mode 0 = 0644. */
COVE_API int cove_file_upload(struct cove_client *c, const char *sandbox_id, int fd,
                              const char *path, unsigned mode, const struct cove_copy_options *o,
                              struct cove_error *err);
/* Writes the file's bytes to fd. -ENOENT: no such file. */
COVE_API int cove_file_download(struct cove_client *c, const char *sandbox_id, const char *path,
                                int fd, const struct cove_copy_options *o, struct cove_error *err);
/*
 * Files and whole directories, as cp -r does: into an existing directory under their own name, else
 * under the name given. Permission bits are kept; links are copied as links. Nothing has to be
 * installed in the sandbox except for links (`ln`, `readlink`); what cannot be copied is told to
 * on_skip. copy_out never writes outside `local`, whatever the sandbox answers.
 */
COVE_API int cove_copy_in(struct cove_client *c, const char *sandbox_id, const char *local,
                          const char *path, const struct cove_copy_options *o,
                          struct cove_error *err);
COVE_API int cove_copy_out(struct cove_client *c, const char *sandbox_id, const char *path,
                           const char *local, const struct cove_copy_options *o,
                           struct cove_error *err);

/* ---- images ---- */

/* A JSON array as the server tells it. */
COVE_API int cove_image_list(struct cove_client *c, char **ret_json, struct cove_error *err);
/* Stores a file-system archive (tar, may be compressed) read from fd as local/NAME; *ret_json
 * describes it. */
COVE_API int cove_image_import(struct cove_client *c, const char *name, int fd,
                               const struct cove_copy_options *o, char **ret_json,
                               struct cove_error *err);
COVE_API int cove_image_remove(struct cove_client *c, const char *name, struct cove_error *err);

#ifdef __cplusplus
}
#endif
#endif
