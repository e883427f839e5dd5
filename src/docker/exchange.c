/*
 * One request and its answer. Chooses the connection, writes the request, reads the answer piece by
 * piece, and gives the connection back to the pool when it is whole.
 *
 * Invariants: a request that changes something is written to one connection only, whatever happens;
 * a GET is written a second time only when a kept connection turned out dead before a byte of an
 * answer came. The registry credentials stay in the head's buffer, which is wiped.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "docker/internal.h"

#define PIECE ((size_t)32 << 10) /* of a streamed body */

static _Thread_local int last_status;
void (*engine_on_call)(const char *method, const char *path, int result, int64_t us);

int engine_status(void) {
    return last_status;
}

void engine_status_set(int status) {
    last_status = status;
}

/* ---- the head of the request ---- */

static bool is_clean(const char *s) {
    for (; s && *s; s++) {
        if ((unsigned char)*s <= ' ' || *s == 0x7f)
            return false;
    }
    return true;
}

static void put_host(struct buf *b, const struct engine_address *a) {
    if (a->path)
        buf_str(b, "Host: localhost\r\n");
    else if (strchr(a->name, ':'))
        buf_printf(b, "Host: [%s]:%s\r\n", a->name, a->port);
    else
        buf_printf(b, "Host: %s:%s\r\n", a->name, a->port);
}

static int write_head(struct buf *b, const struct engine *e, const struct request *q,
                      unsigned version, struct err *err) {
    bool is_get = str_eq(q->method, "GET");

    /* no growing later: that would leave a copy of the credentials behind */
    if (buf_reserve(b, 1024 + strlen(q->path) + (q->query ? strlen(q->query) : 0) +
                           (q->registry_auth ? strlen(q->registry_auth) : 0) +
                           strlen(e->user_agent)) < 0)
        return engine_oom(err);
    if (!is_clean(q->path) || !is_clean(q->query) || !is_clean(q->registry_auth))
        return err_set(err, -EINVAL, "a request to the Docker engine has a blank in its address");
    buf_printf(b, "%s ", q->method);
    if (!q->without_version)
        buf_printf(b, "/v1.%u", version);
    buf_str(b, q->path);
    if (!str_is_empty(q->query))
        buf_printf(b, "?%s", q->query);
    buf_str(b, " HTTP/1.1\r\n");
    put_host(b, &e->address);
    buf_printf(b, "User-Agent: %s\r\n", e->user_agent);
    if (q->registry_auth)
        buf_printf(b, "X-Registry-Auth: %s\r\n", q->registry_auth);
    if (q->upgrade)
        buf_str(b, "Connection: Upgrade\r\nUpgrade: tcp\r\n");
    if (q->body || q->from)
        buf_printf(b, "Content-Type: %s\r\n",
                   q->content_type ? q->content_type : "application/json");
    if (q->from && q->length < 0)
        buf_str(b, "Transfer-Encoding: chunked\r\n");
    else if (q->from)
        buf_printf(b, "Content-Length: %lld\r\n", (long long)q->length);
    else if (q->body || !is_get)
        buf_printf(b, "Content-Length: %zu\r\n", q->body ? q->body_len : 0);
    buf_str(b, "\r\n");
    return buf_ok(b) ? 0 : engine_oom(err);
}

static void head_done(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

/* ---- sending ---- */

/* A piece of the streamed body, framed when its length is not known beforehand. */
static int send_piece(struct exchange *x, const struct request *q, char *piece, size_t n) {
    char frame[24];
    int r, len;

    if (q->length >= 0)
        return conn_write(x->conn, piece, n, &x->limit, true);
    len = snprintf(frame, sizeof frame, "%zx\r\n", n);
    r = conn_write(x->conn, frame, (size_t)len, &x->limit, true);
    if (r == 0 && n)
        r = conn_write(x->conn, piece, n, &x->limit, true);
    return r == 0 ? conn_write(x->conn, "\r\n", 2, &x->limit, true) : r;
}

/* 0 = all is sent, 1 = the engine answered before that. A failure of the source is final. */
static int send_stream(struct exchange *x, const struct request *q, bool *ret_is_source,
                       struct err *err) {
    _cleanup_free_ char *piece = malloc(PIECE);
    int64_t left = q->length;
    int r = 0;

    *ret_is_source = true;
    if (!piece)
        return engine_oom(err);
    while (r == 0) {
        ssize_t n =
            left == 0 ? 0 : q->from(piece, left < 0 ? PIECE : MIN(PIECE, (size_t)left), q->ud);
        if (n < 0)
            return err_sys(err, (int)n, "reading what is to be sent to the Docker engine");
        if (n == 0 && left > 0)
            return err_set(err, -EPROTO,
                           "what is to be sent to the Docker engine is shorter than announced");
        if (n == 0 && left == 0)
            break;
        r = send_piece(x, q, piece, (size_t)n);
        if (n == 0)
            break;
        if (left > 0)
            left -= n;
    }
    *ret_is_source = r == 0;
    return r;
}

/* ---- the answer ---- */

static int read_failed(struct exchange *x, int r, struct err *err) {
    if (r == -EPROTO)
        return err_set(err, -EHOSTUNREACH, "TLS with the Docker engine at %s failed: %s",
                       x->engine->address.host_text, x->conn->why);
    return engine_failure(err, r, "waiting for the Docker engine");
}

static int not_http(int r, struct err *err) {
    if (r == -EBADMSG && err)
        err_wrap(err, "the Docker engine's answer");
    return r;
}

/* Next event of the parser, reading as needed: > 0, 0 = complete with the connection's end, < 0.
 * *ret_dead: nothing at all came before the connection ended. */
static int next_event(struct exchange *x, bool *ret_dead, struct err *err) {
    struct conn *c = x->conn;

    for (;;) {
        const char *data = c->in + c->in_pos;
        size_t len = c->in_len - c->in_pos;
        int r = h1_response_next(&x->response, &data, &len, err);

        c->in_pos = c->in_len - len;
        if (r != H1_RESPONSE_MORE)
            return r < 0 ? not_http(r, err) : r;
        r = conn_fill(c, &x->limit);
        if (r > 0)
            continue;
        if (ret_dead)
            *ret_dead = x->response.head_bytes == 0 && (r == 0 || r == -ECONNRESET || r == -EPIPE);
        if (r < 0)
            return read_failed(x, r, err);
        if (h1_response_eof(&x->response, NULL) == 0)
            return 0;
        return engine_failure(err, -ECONNRESET, "in the middle of an answer");
    }
}

int exchange_next(struct exchange *x, const char **ret_piece, size_t *ret_len, struct err *err) {
    int r = next_event(x, NULL, err);

    if (r == H1_RESPONSE_DATA) {
        *ret_piece = x->response.piece;
        *ret_len = x->response.piece_len;
        return 1;
    }
    return r < 0 ? r : 0;
}

int exchange_collect(struct exchange *x, struct buf *b, struct err *err) {
    const char *piece;
    size_t len;
    int r;

    while ((r = exchange_next(x, &piece, &len, err)) > 0) {
        r = buf_append(b, piece, len);
        if (r == -ENOBUFS)
            return err_set(err, -EMSGSIZE, "the Docker engine's answer is larger than %zu bytes",
                           b->max);
        if (r < 0)
            return engine_oom(err);
    }
    return r;
}

const char *exchange_header(const struct exchange *x, const char *name) {
    for (size_t i = 0; i < x->response.n_headers; i++) {
        if (str_ieq(x->response.headers[i].name, name))
            return x->response.headers[i].value;
    }
    return NULL;
}

/* ---- statuses ---- */

static int code_of(int status) {
    switch (status) {
    case 304:
        return -EALREADY;
    case 400:
        return -EINVAL;
    case 404:
        return -ENOENT;
    case 409:
        return -EBUSY;
    default:
        return -EREMOTEIO;
    }
}

/* Text that is no JSON: its first line, without what a terminal would act on. */
int engine_words(struct err *err, int code, const char *data, size_t len) {
    char text[301];
    size_t n = 0;

    for (size_t i = 0; i < len && n < sizeof text - 1; i++) {
        char c = data[i];
        if (c == '\r' || c == '\n')
            break;
        text[n++] = (char)((unsigned char)c < ' ' || c == 0x7f ? ' ' : c);
    }
    while (n && !utf8_is_valid(text, n))
        n--;
    text[n] = 0;
    return err_set(err, code, "%s", n ? text : "the Docker engine gives no reason");
}

static int status_error(struct exchange *x, struct err *err) {
    int status = x->response.status, code = code_of(status);
    _cleanup_buf_ struct buf body = BUF_INIT(ENGINE_MAX_ERROR);
    _cleanup_json_ json_t *j = NULL;
    int r = exchange_collect(x, &body, err);
    const char *message;

    if (r == -ECANCELED || r == -ENOMEM)
        return r;
    last_status = status;
    j = body.len && r >= 0 ? json_parse(body.data, body.len, NULL) : NULL;
    message = json_str(j, "message");
    if (str_is_empty(message) && body.len)
        return engine_words(err, code, body.data, body.len);
    if (str_is_empty(message))
        return err_set(err, code, "the Docker engine answered with status %d", status);
    if (status == 400 && str_starts(message, "client version "))
        engine_version_forget(x->engine); /* another engine than the one that was asked */
    return err_set(err, code, "%s", message);
}

/* ---- the whole ---- */

static int attempt(struct exchange *x, const struct request *q, const struct buf *head,
                   bool *ret_dead, struct err *err) {
    bool is_source = false;
    struct err sending;
    int r = conn_write(x->conn, head->data, head->len, &x->limit, false);

    *ret_dead = false;
    if (r == 0 && q->body)
        r = conn_write(x->conn, q->body, q->body_len, &x->limit, true);
    if (r == 0 && q->from)
        r = send_stream(x, q, &is_source, err);
    if (r < 0 && is_source)
        return r;
    if (r == -EPROTO || r == -ETIMEDOUT || r == -ECANCELED || r == -ENOMEM)
        return r == -EPROTO ? read_failed(x, r, err)
                            : engine_failure(err, r, "sending to the Docker engine");
    if (r < 0 && r != -EPIPE && r != -ECONNRESET)
        return engine_failure(err, r, "sending to the Docker engine");
    x->is_sent = r == 0;
    /* also when sending broke off: the engine may have said why */
    r = next_event(x, ret_dead, err ? err : &sending);
    if (r == H1_RESPONSE_UPGRADE)
        x->is_upgraded = true;
    return r < 0 ? r : 0;
}

static int open_conn(struct exchange *x, bool changes, bool fresh, struct err *err) {
    x->conn = fresh ? NULL : pool_take(x->engine, changes);
    if (x->conn)
        return 0;
    return conn_open(x->engine, &x->limit, &x->conn, err);
}

static int run(struct exchange *x, const struct request *q, const struct buf *head,
               struct err *err) {
    bool changes = !str_eq(q->method, "GET"), fresh = false;

    for (;;) {
        bool dead = false;
        int r = open_conn(x, changes, fresh, err);

        if (r < 0) {
            if (r == -EHOSTUNREACH)
                engine_version_forget(x->engine); /* it may come back as another one */
            return r;
        }
        h1_response_init(&x->response, false, q->upgrade);
        x->is_open = true;
        r = attempt(x, q, head, &dead, err);
        if (r >= 0)
            return 0;
        if (changes || fresh || !dead || !x->conn->was_kept)
            return r;
        exchange_end(x); /* the kept connection was stale; once more, on a new one */
        fresh = true;
    }
}

static int begin(struct exchange *x, struct engine *e, const struct request *q, struct err *err) {
    _cleanup_(head_done) struct buf head = BUF_INIT((size_t)2 << 20);
    unsigned version = 0;
    int r;

    last_status = 0;
    *x = (struct exchange){.engine = e, .limit = q->limit};
    if (!q->without_version) {
        r = engine_version(e, &q->limit, &version, err);
        if (r < 0)
            return r;
    }
    r = write_head(&head, e, q, version, err);
    if (r >= 0)
        r = run(x, q, &head, err);
    if (r >= 0 && !x->is_upgraded && x->response.status / 100 != 2)
        r = status_error(x, err);
    if (r < 0)
        exchange_end(x);
    return r;
}

int exchange_begin(struct exchange *x, struct engine *e, const struct request *q, struct err *err) {
    int64_t since = clock_mono_us();
    int r = begin(x, e, q, err);

    if (engine_on_call)
        engine_on_call(q->method, q->path, r, clock_mono_us() - since);
    return r;
}

void exchange_end(struct exchange *x) {
    struct conn *c = TAKE_PTR(x->conn);

    if (c) {
        bool whole = x->is_open && x->is_sent && !x->is_upgraded &&
                     x->response.phase == RESPONSE_DONE && x->response.ended &&
                     x->response.keep_alive && c->in_pos == c->in_len;
        if (whole)
            pool_give(x->engine, c);
        else
            conn_free(c);
    }
    if (x->is_open)
        h1_response_done(&x->response);
    x->is_open = false;
}
