/*
 * What the files of the Engine client share, lowest first: limits and cancellation (limit.c), the
 * address (address.c), connections (conn.c, tls.c), their pool (engine.c), one request and its
 * answer (exchange.c), JSON calls (call.c). Nobody outside src/docker includes this.
 */
#pragma once

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "docker/engine.h"
#include "net/h1_client_parser.h"

#define ENGINE_IN_SIZE ((size_t)16 << 10) /* bytes read at once; a TLS record's worth */
#define ENGINE_MAX_ANSWER ((size_t)16 << 20)
#define ENGINE_MAX_ERROR ((size_t)64 << 10)
#define ENGINE_MAX_LINE ((size_t)1 << 20)
#define ENGINE_MAX_IDLE 8
#define ENGINE_IDLE_MS 30000      /* a kept connection older than this is closed */
#define ENGINE_IDLE_CHANGE_MS 500 /* and this for requests that change something */
#define ENGINE_API_MIN 40         /* 1.40 */
#define ENGINE_API_MAX 47

/* ---- limit.c: how long a call may block ---- */
struct limit {
    int64_t deadline_ms; /* clock_mono_ms(); INT64_MAX = none */
    int64_t silence_ms;  /* of one wait; -1 = any */
    int cancel_fd;       /* -1 = none */
};
struct limit limit_call(unsigned timeout_ms, const struct engine_cancel *cancel);
struct limit limit_stream(int64_t silence_ms, const struct engine_cancel *cancel);
/* Waits for events of fd. The events that came, or -ETIMEDOUT, -ECANCELED, -errno. */
int limit_wait(const struct limit *l, int fd, short events);
int64_t limit_left_ms(const struct limit *l); /* -1 = no limit */
/* The sentence for -ETIMEDOUT, -ECANCELED, -ECONNRESET and so on, while `doing`. */
int engine_failure(struct err *err, int code, const char *doing);

/* ---- address.c ---- */
struct engine_address {
    char *host_text; /* as given */
    char *path;      /* of the Unix socket; NULL = TCP */
    char *name, *port;
    bool tls;
};
int engine_address_parse(const char *text, bool verify, struct engine_address *ret,
                         struct err *err);
void engine_address_done(struct engine_address *a);
/* Connects within the limit; the descriptor is non-blocking. */
int engine_address_connect(const struct engine_address *a, const struct limit *l, int *ret_fd,
                           struct err *err);

/* ---- tls.c ---- */
/* dir NULL = the system's authorities and no certificate of ours */
int tls_context_new(const char *dir, SSL_CTX **ret, struct err *err);
int tls_session_new(SSL_CTX *ctx, int fd, const char *host, SSL **ret, struct err *err);
void tls_why(char *ret, size_t size); /* this thread's last TLS failure in words; clears it */

/* ---- conn.c ---- */
struct conn {
    int fd;
    SSL *ssl;                 /* NULL = plain */
    pthread_mutex_t tls_lock; /* one thread may read while another writes */
    bool was_kept;            /* has served a request before */
    int64_t idle_since_ms;
    struct conn *next;     /* in the pool */
    size_t in_pos, in_len; /* bytes read and not used yet: in[in_pos .. in_len) */
    char why[120];         /* of -EPROTO: TLS's words */
    char in[ENGINE_IN_SIZE];
};
int conn_open(const struct engine *e, const struct limit *l, struct conn **ret, struct err *err);
struct conn *conn_free(struct conn *c);
DEFINE_CLEANUP(struct conn, conn_free)
/* Bytes, 0 = the peer ended, -EAGAIN with *ret_events to wait for, -errno; -EPROTO: see why. */
ssize_t conn_try_read(struct conn *c, void *buf, size_t size, short *ret_events);
/* Writes all: 0. With early: 1 as soon as the peer says something before that. */
int conn_write(struct conn *c, const void *data, size_t len, const struct limit *l, bool early);
int conn_fill(struct conn *c, const struct limit *l); /* in[] is empty: reads; 0 = end */
bool conn_is_quiet(const struct conn *c); /* nothing to read, not ended: may serve a request */
int conn_end_writing(struct conn *c);

/* ---- engine.c: the engine and its pool ---- */
struct engine {
    struct engine_address address;
    SSL_CTX *tls;
    char *user_agent;
    unsigned timeout_ms;
    bool version_is_fixed; /* DOCKER_API_VERSION */
    pthread_mutex_t lock;  /* below */
    unsigned version;      /* minor of the API; 0 = not negotiated */
    struct conn *idle;     /* newest first */
    unsigned n_idle;
};
/* A kept connection that may serve the request, or NULL. */
struct conn *pool_take(struct engine *e, bool changes);
void pool_give(struct engine *e, struct conn *c);
/* Minor version to speak, negotiated when it is not known. */
int engine_version(struct engine *e, const struct limit *l, unsigned *ret, struct err *err);
void engine_version_forget(struct engine *e);

/* ---- exchange.c: one request and its answer ---- */
struct request {
    const char *method, *path, *query;
    const char *body; /* NULL = none */
    size_t body_len;
    engine_read_cb from; /* body streamed; length -1 = chunked */
    void *ud;
    int64_t length;
    const char *content_type; /* NULL = JSON */
    const char *registry_auth;
    bool upgrade; /* ask for a raw stream */
    bool without_version;
    struct limit limit;
};
struct exchange {
    struct engine *engine;
    struct conn *conn;
    struct h1_response response;
    struct limit limit;
    bool is_open, is_sent, is_upgraded;
};
/* Sends and reads the answer's head. A status other than 2xx (and 101 when asked for) is an error
 * with the engine's message. On success exchange_end() must follow. */
int exchange_begin(struct exchange *x, struct engine *e, const struct request *q, struct err *err);
/* 1 = a piece of the body (valid until the next call), 0 = the end, negative = error. */
int exchange_next(struct exchange *x, const char **ret_piece, size_t *ret_len, struct err *err);
/* The rest of the body into b, at most b->max bytes. */
int exchange_collect(struct exchange *x, struct buf *b, struct err *err);
const char *exchange_header(const struct exchange *x, const char *name);
/* Keeps the connection when it can serve again, else closes it. Safe on a zeroed struct. */
void exchange_end(struct exchange *x);
#define _cleanup_exchange_ _cleanup_(exchange_end)

void engine_status_set(int status);
int engine_words(struct err *err, int code, const char *data, size_t len);

/* ---- call.c ---- */
/* "/containers/" id "/start": ids are escaped; ones that would leave their place are refused. */
int engine_path(struct buf *b, const char *prefix, const char *id, const char *suffix,
                struct err *err);
int engine_image_path(struct buf *b, const char *ref, const char *suffix, struct err *err);
/* Method on a path with an optional body and answer. */
int engine_do(struct engine *e, const char *method, const char *path, const struct buf *query,
              const json_t *body, json_t **ret, struct err *err);
int engine_query_json(struct buf *query, const char *key, const json_t *value);
int engine_oom(struct err *err);
int engine_answer_id(const json_t *answer, const char *key, char **ret, struct err *err);

/* ---- ref.c ---- */
int engine_auth_header(const char *ref, const char *user, const char *password, char **ret);
void engine_wipe(char *secret);
static inline void engine_wipep(char **s) {
    engine_wipe(*s);
}
