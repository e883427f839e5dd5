/*
 * What the files of libcove share: the client object, errors, one blocking HTTP exchange.
 * Everything here is hidden from users of the library (libcove.map exports cove_* only).
 */
#pragma once

#include <stdatomic.h>
#include <uv.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"
#include "cove/cove.h"
#include "net/h1_client.h"

/* ---- errors: as err_set() and friends, for the public structure; all return `code` ---- */
int cerr_set(struct cove_error *e, int code, const char *fmt, ...) _printf_(3, 4);
int cerr_sys(struct cove_error *e, int code, const char *fmt, ...) _printf_(3, 4);
int cerr_wrap(struct cove_error *e, const char *fmt, ...) _printf_(2, 3);
int cerr_oom(struct cove_error *e);
/* From an error answer: the envelope's code and message, else its `detail`, else the start of the
 * body. */
int cerr_from_response(struct cove_error *e, int status, const char *body, size_t len,
                       const char *doing);

/* How to reach the agent of one sandbox: a path of the server, and the headers that open it. */
struct agent {
    char *sandbox_id;
    char *prefix; /* "/v1/sandboxes/ID/proxy/44772" */
    struct strv names, values;
};
void agent_done(struct agent *a);

struct cove_client {
    uv_loop_t loop;
    uv_async_t wake; /* cove_client_interrupt() */
    atomic_bool interrupted;
    struct h1_pool *pool;
    char *address;          /* as people write it */
    char *unix_path, *host; /* exactly one is set */
    uint16_t port;
    char *api_key;      /* secret; may be NULL */
    struct agent agent; /* of the sandbox that was used last */
};

/* ---- address.c ---- */
struct address {
    char *unix_path, *host;
    uint16_t port;
};
int address_parse(const char *text, struct address *ret, struct cove_error *err);
void address_done(struct address *a);

/* ---- transport.c ---- */

#define RESPONSE_MAX ((size_t)64 << 20)
#define CONTROL_TIMEOUT_MS 120000u

struct transport_req {
    const char *method, *target;
    const struct agent *agent; /* NULL = the server itself; else its headers are added */
    const char *content_type;
    const char *body; /* whole body, or NULL */
    size_t body_len;
    /* Streamed body: fills at most `size` bytes; bytes, 0 = end, or -errno. body_length -1 =
     * unknown. */
    ssize_t (*read_body)(void *buf, size_t size, void *ud);
    int64_t body_length;
    /* A successful response's body goes here in pieces in place of ret->body; a negative return
     * cancels. */
    int (*on_body)(const char *data, size_t len, int64_t total, void *ud);
    void *ud;
    unsigned silence_ms; /* until the response head; 0 = CONTROL_TIMEOUT_MS, UINT_MAX = none */
};
struct transport_resp {
    int status;
    struct buf body;
};
void transport_resp_done(struct transport_resp *r);

/*
 * One exchange, to its end. 0 means that an answer came, whatever its status. -EINTR: interrupted;
 * the server may or may not have acted.
 */
int transport_run(struct cove_client *c, const struct transport_req *rq, struct transport_resp *ret,
                  struct cove_error *err);
/* The same; a status outside 200..299 is an error too, described with "cannot <doing>". */
int transport_ok(struct cove_client *c, const struct transport_req *rq, struct transport_resp *ret,
                 const char *doing, struct cove_error *err);
/* The same, and the answer must be JSON. *ret is a new reference. */
int transport_json(struct cove_client *c, const struct transport_req *rq, json_t **ret,
                   const char *doing, struct cove_error *err);
void transport_addr(const struct cove_client *c, struct sock_addr *ret);
/* Host, key, agent headers; `storage` holds what the array points to. Ended by {NULL, NULL}. */
#define TRANSPORT_HEADERS_MAX 24
int transport_headers(const struct cove_client *c, const struct agent *agent,
                      const char *content_type, struct h1_header ret[TRANSPORT_HEADERS_MAX]);
/* Turns a failure to connect or a broken exchange into a sentence. */
int transport_fail(const struct cove_client *c, int error, const struct err *e,
                   struct cove_error *err);
bool client_take_interrupt(struct cove_client *c);

/* ---- api.c ---- */
/* The agent of a sandbox, asked from the server once and then kept; valid until the next call. */
int agent_get(struct cove_client *c, const char *sandbox_id, const struct agent **ret,
              struct cove_error *err);
/* "<prefix><path>[?path=<encoded value>]"; malloc'd, NULL on -ENOMEM. */
char *agent_target(const struct agent *a, const char *path, const char *query_key,
                   const char *query_value);
/* One path segment, refused when empty or unfit ("." or ".." or control characters). malloc'd or
 * NULL with err. */
char *id_encode(const char *id, struct cove_error *err);
/* ["K=V", ...] -> {"K": "V"}; an entry without '=' is the caller's mistake. NULL with err. */
json_t *pairs_to_json(const char *const *pairs, const char *what, struct cove_error *err);
json_t *strings_to_json(const char *const *v, const char *what, struct cove_error *err);
struct cove_sandbox *sandbox_from_json(json_t *j /* borrowed */, struct cove_error *err);

/* A structure of zeroes instead of its _INIT would ask for user 0 and descriptor 0: refused. */
#define OPTIONS_ARE_BAD(src) ((src) && (src)->size < 2 * sizeof(size_t))

/* Copies the caller's structure into the library's present one: fields it does not know stay zero.
 */
#define OPTIONS_COPY(dst, src)                                      \
    do {                                                            \
        memset((dst), 0, sizeof(*(dst)));                           \
        if (src)                                                    \
            memcpy((dst), (src), MIN((src)->size, sizeof(*(dst)))); \
    } while (0)
