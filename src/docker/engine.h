/*
 * Client of the Docker Engine API. Blocking, for worker threads: a call takes a connection from a
 * small pool, sends one request and reads the answer with bounded memory. Used by the daemon's
 * Docker driver and by the session library.
 *
 * Every call has a time limit (engine_opts.timeout_ms, silence between two reads for streams) and
 * can be cancelled from another thread (struct engine_cancel). Requests that change something are
 * never sent twice; a GET on a kept connection that turns out dead is repeated once on a new one.
 *
 * Errors: negative errno in the return and in err; err->msg has the engine's own words.
 *   404 -ENOENT   409 -EBUSY   304 -EALREADY   400 -EINVAL   other statuses -EREMOTEIO
 *   no connection -EHOSTUNREACH   silence -ETIMEDOUT   dropped -ECONNRESET   not HTTP -EBADMSG
 *   cancelled -ECANCELED   an answer above its limit -EMSGSIZE
 * Which status it was is in engine_status() of the same thread.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "base/json.h"

/* Told of every call when its answer begins or it has failed (result < 0), for who counts them.
 * From any thread; set before the first engine is made. NULL = nobody. */
extern void (*engine_on_call)(const char *method, const char *path, int result, int64_t us);

struct engine;
struct engine_cancel; /* fires once; makes every call that was given it end with -ECANCELED */

int engine_cancel_new(struct engine_cancel **ret);
void engine_cancel_fire(struct engine_cancel *c); /* any thread, any number of times */
bool engine_cancel_fired(const struct engine_cancel *c);
void engine_cancel_free(struct engine_cancel *c);

struct engine_opts {
    const char *host; /* "unix:///run/docker.sock", "tcp://HOST:PORT", "http://…", "https://…";
                         NULL = DOCKER_HOST, else unix:///var/run/docker.sock */
    const char *cert_dir; /* ca.pem, cert.pem, key.pem; NULL = DOCKER_CERT_PATH, else ~/.docker */
    int tls_verify;       /* tcp:// is 1 TLS, 0 plain, -1 = DOCKER_TLS_VERIFY says (non-empty: TLS);
                             https:// is TLS in any case; TLS always checks the peer */
    unsigned timeout_ms;  /* of one call; 0 = 180000 */
    const char *user_agent; /* NULL = "cove/VERSION" */
};

/* Copies the options; no connection is made yet. -EINVAL on a host that is no address, -ENOENT when
 * a certificate cannot be read. */
int engine_new(const struct engine_opts *o, struct engine **ret, struct err *err);
struct engine *engine_free(struct engine *e); /* no call may be under way; returns NULL */
const char *engine_host(const struct engine *e);
bool engine_is_unix(const struct engine *e);

/* HTTP status of this thread's last failed call; 0 = it failed before a status. */
int engine_status(void);

/* ---- the general call: everything below stands on it ---- */

#define ENGINE_MAX_LIST ((size_t)512 << 20) /* some KiB for each of very many */

struct engine_call {
    const char *method;
    const char *path;             /* without version: "/containers/create"; parts already escaped */
    const char *query;            /* "a=b&c=d", escaped; NULL = none */
    const json_t *body;           /* JSON; NULL = none */
    const char *registry_auth;    /* X-Registry-Auth value; NULL = none; secret */
    unsigned timeout_ms;          /* 0 = the engine's */
    size_t max_answer;            /* bytes; 0 = 16 MiB, of a list of containers ENGINE_MAX_LIST */
    struct engine_cancel *cancel; /* NULL = none */
};
/* *ret_json (NULL = not wanted) gets the parsed body, or JSON null when it is empty. A status of
 * 2xx is success. */
int engine_request(struct engine *e, const struct engine_call *c, json_t **ret_json,
                   struct err *err);
/* "k=v" appended with escaping, "&" in between; for queries. */
int engine_query_add(struct buf *query, const char *key, const char *value);
/* Percent-escapes one path segment, appended. Slashes are escaped. */
int engine_escape(struct buf *b, const char *segment);

/* ---- server ---- */
/* Negotiates the API version on the first call of any kind; here explicitly. */
int engine_ping(struct engine *e, char ret_version[16], struct err *err);
int engine_info(struct engine *e, json_t **ret, struct err *err);

/* ---- containers; id may be a name ---- */
/* platform: "linux/arm64" or NULL. -EOPNOTSUPP when the engine is too old for a platform argument.
 */
int engine_container_create(struct engine *e, const char *name, const char *platform,
                            const json_t *body, char **ret_id, struct err *err);
int engine_container_start(struct engine *e, const char *id, struct err *err); /* running: 0 */
/* Stopped: 0. The grace is added to the time limit. */
int engine_container_stop(struct engine *e, const char *id, unsigned grace_s, struct err *err);
int engine_container_kill(struct engine *e, const char *id, const char *signal, struct err *err);
/* force kills; volumes: anonymous ones too. "removal already in progress" waits until it is gone.
 */
int engine_container_remove(struct engine *e, const char *id, bool force, struct err *err);
int engine_container_pause(struct engine *e, const char *id, bool resume, struct err *err);
int engine_container_inspect(struct engine *e, const char *id, json_t **ret, struct err *err);
/* filters: {"label": ["a=b"]}; all: stopped ones too */
int engine_container_list(struct engine *e, bool all, const json_t *filters, json_t **ret,
                          struct err *err);
/* Without a time limit; of one that does not run: its last status at once. */
int engine_container_wait(struct engine *e, const char *id, int *ret_status,
                          struct engine_cancel *cancel, struct err *err);
/* stdout and stderr, demultiplexed, in order, at most max bytes and 32 MiB (the last ones);
 * malloc'd, invalid UTF-8 replaced. since_us 0 = all. */
int engine_container_logs(struct engine *e, const char *id, unsigned tail, bool timestamps,
                          int64_t since_us, size_t max, char **ret, struct err *err);
int engine_container_commit(struct engine *e, const char *id, const char *repo, const char *tag,
                            const json_t *config, const char *const *changes, char **ret_image_id,
                            struct err *err);

/* Streams in fixed pieces; a negative return of the callback ends the call with it. */
typedef ssize_t (*engine_read_cb)(void *buf, size_t size, void *ud); /* 0 = end */
typedef int (*engine_write_cb)(const void *data, size_t len, void *ud);
/* Unpacks a tar stream at path. length -1 = unknown (chunked). */
int engine_archive_put(struct engine *e, const char *id, const char *path, int64_t length,
                       engine_read_cb from, void *ud, struct err *err);
int engine_archive_get(struct engine *e, const char *id, const char *path, engine_write_cb to,
                       void *ud, struct err *err);

/* ---- exec ---- */
struct engine_stream; /* a hijacked connection */
/* body: as of the engine (Cmd, Env, Tty …). */
int engine_exec_create(struct engine *e, const char *id, const json_t *body, char **ret_exec,
                       struct err *err);
int engine_exec_start(struct engine *e, const char *exec_id, bool tty, struct engine_stream **ret,
                      struct err *err);
int engine_exec_inspect(struct engine *e, const char *exec_id, bool *ret_running, int *ret_code,
                        struct err *err);
int engine_exec_resize(struct engine *e, const char *exec_id, unsigned rows, unsigned cols,
                       struct err *err);
/* One piece of stdout (1) or stderr (2); 0 bytes = end. timeout_ms -1 = wait for ever, 0 = -EAGAIN
 * at once. With a terminal everything is 1. */
ssize_t engine_stream_read(struct engine_stream *s, int *ret_which, void *buf, size_t size,
                           int timeout_ms, struct err *err);
/* All of it; -ETIMEDOUT when the program takes nothing for the engine's timeout, -EPIPE when it is
 * over. One thread may write while another reads. */
int engine_stream_write(struct engine_stream *s, const void *data, size_t len, struct err *err);
int engine_stream_end(struct engine_stream *s); /* end of input; reading goes on */
/* From another thread: who reads or writes the stream gets an end or an error at once. */
void engine_stream_abort(struct engine_stream *s);
struct engine_stream *engine_stream_free(struct engine_stream *s);

/* ---- images ---- */
int engine_image_inspect(struct engine *e, const char *ref, json_t **ret, struct err *err);
struct engine_pull {
    const char *ref;                                   /* without tag or digest: "latest" */
    const char *platform;                              /* NULL = the engine's */
    const char *username, *password;                   /* NULL = none; secret */
    void (*on_progress)(const json_t *line, void *ud); /* may be NULL */
    void *ud;
    struct engine_cancel *cancel;
};
/* Ends when the image is there; an error inside the progress stream is an error here. Of a
 * registry's refusals: -ENOENT no such image, -EACCES credentials missing or wrong. The time limit
 * is of silence. */
int engine_image_pull(struct engine *e, const struct engine_pull *p, struct err *err);
int engine_image_remove(struct engine *e, const char *ref, bool force, struct err *err);
/* reference -> repository and tag or digest, with the default tag; *ret_* malloc'd */
int engine_ref_split(const char *ref, char **ret_repo, char **ret_tag);

/* ---- volumes, networks ---- */
int engine_volume_create(struct engine *e, const char *name, const json_t *labels, json_t **ret,
                         struct err *err);
int engine_volume_inspect(struct engine *e, const char *name, json_t **ret, struct err *err);
int engine_volume_list(struct engine *e, const json_t *filters, json_t **ret, struct err *err);
int engine_volume_remove(struct engine *e, const char *name, bool force, struct err *err);
int engine_network_inspect(struct engine *e, const char *name, json_t **ret, struct err *err);

/* ---- events: blocks until cancelled or broken ---- */
/* since_s 0 = from now. on_event's negative return ends it. on_open: the stream is established. */
int engine_events(struct engine *e, const json_t *filters, int64_t since_s,
                  void (*on_open)(void *ud), int (*on_event)(const json_t *event, void *ud),
                  void *ud, struct engine_cancel *cancel, struct err *err);
