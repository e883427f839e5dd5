/*
 * Programs inside a container, and the stream to one: a connection taken over from HTTP, which
 * after its head carries the program's input one way and its output the other. One thread may read
 * a stream while another writes to it.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "docker/demux.h"
#include "docker/internal.h"

struct engine_stream {
    struct exchange x; /* owns the connection */
    struct demux demux;
    bool is_raw;     /* a terminal's: no frames */
    bool is_ended;   /* the engine's side */
    const char *cur; /* of a piece of the body, not given out yet (200 without upgrade) */
    size_t cur_len;
    unsigned write_timeout_ms;
};

int engine_exec_create(struct engine *e, const char *id, const json_t *body, char **ret_exec,
                       struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    _cleanup_json_ json_t *answer = NULL;
    int r = engine_path(&path, "/containers/", id, "/exec", err);

    if (r >= 0)
        r = engine_do(e, "POST", path.data, NULL, body, &answer, err);
    return r < 0 ? r : engine_answer_id(answer, "Id", ret_exec, err);
}

int engine_exec_start(struct engine *e, const char *exec_id, bool tty, struct engine_stream **ret,
                      struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    const char *body = tty ? "{\"Detach\":false,\"Tty\":true}" : "{\"Detach\":false,\"Tty\":false}";
    struct request q = {.method = "POST",
                        .body = body,
                        .body_len = strlen(body),
                        .upgrade = true,
                        .limit = limit_call(e->timeout_ms, NULL)};
    struct engine_stream *s;
    int r = engine_path(&path, "/exec/", exec_id, "/start", err);

    engine_status_set(0);
    if (r < 0)
        return r;
    s = calloc(1, sizeof *s);
    if (!s)
        return engine_oom(err);
    q.path = path.data;
    r = exchange_begin(&s->x, e, &q, err);
    if (r < 0) {
        free(s);
        return r;
    }
    h1_response_drop_head(&s->x.response);
    s->is_raw = tty;
    s->write_timeout_ms = e->timeout_ms;
    *ret = s;
    return 0;
}

int engine_exec_inspect(struct engine *e, const char *exec_id, bool *ret_running, int *ret_code,
                        struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    _cleanup_json_ json_t *answer = NULL;
    int r = engine_path(&path, "/exec/", exec_id, "/json", err);

    if (r >= 0)
        r = engine_do(e, "GET", path.data, NULL, NULL, &answer, err);
    if (r < 0)
        return r;
    if (!json_is_boolean(json_object_get(answer, "Running")))
        return err_set(err, -EBADMSG, "the Docker engine does not say whether the exec runs");
    *ret_running = json_bool(answer, "Running", false);
    *ret_code = (int)json_int(answer, "ExitCode", -1); /* null while it runs */
    return 0;
}

int engine_exec_resize(struct engine *e, const char *exec_id, unsigned rows, unsigned cols,
                       struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192), query = BUF_INIT(64);
    int r = engine_path(&path, "/exec/", exec_id, "/resize", err);

    if (r < 0)
        return r;
    buf_printf(&query, "h=%u&w=%u", rows, cols);
    return engine_do(e, "POST", path.data, &query, NULL, NULL, err);
}

/* ---- the stream ---- */

struct engine_stream *engine_stream_free(struct engine_stream *s) {
    if (!s)
        return NULL;
    exchange_end(&s->x);
    free(s);
    return NULL;
}

/* Bytes that are here already, as they were sent; 1, or 0 = none. */
static int buffered(struct engine_stream *s, struct err *err) {
    struct conn *c = s->x.conn;

    if (s->cur_len)
        return 1;
    if (s->x.is_upgraded) {
        s->cur = c->in + c->in_pos;
        s->cur_len = c->in_len - c->in_pos;
        c->in_pos = c->in_len;
        return s->cur_len > 0;
    }
    while (!s->is_ended) { /* a body that never ends, or one in chunks if something made it so */
        const char *data = c->in + c->in_pos;
        size_t len = c->in_len - c->in_pos;
        int r = h1_response_next(&s->x.response, &data, &len, err);

        c->in_pos = c->in_len - len;
        if (r == H1_RESPONSE_DATA) {
            s->cur = s->x.response.piece;
            s->cur_len = s->x.response.piece_len;
            return 1;
        }
        if (r < 0)
            return r;
        if (r == H1_RESPONSE_MORE)
            return 0;
        s->is_ended = true;
    }
    return 0;
}

/* Gives out of the buffered bytes; 0 = they were only part of a frame's head. */
static ssize_t give(struct engine_stream *s, int *ret_which, void *buf, size_t size,
                    struct err *err) {
    const char *piece = s->cur;
    size_t n = MIN(s->cur_len, size);
    int which = DEMUX_STDOUT, r = 1;

    if (s->is_raw) {
        s->cur += n;
        s->cur_len -= n;
    } else {
        r = demux_next(&s->demux, &s->cur, &s->cur_len, size, &which, &piece, &n, err);
    }
    if (r <= 0)
        return r;
    if (which == DEMUX_SYSTEM)
        return engine_words(err, -EREMOTEIO, piece, n);
    *ret_which = which == DEMUX_STDERR ? 2 : 1;
    memcpy(buf, piece, n);
    return (ssize_t)n;
}

static int stream_ended(struct engine_stream *s, struct err *err) {
    s->is_ended = true;
    if (!s->x.is_upgraded && h1_response_eof(&s->x.response, NULL) < 0)
        return engine_failure(err, -ECONNRESET, "in the middle of a stream");
    return s->is_raw ? 0 : demux_end(&s->demux, err);
}

ssize_t engine_stream_read(struct engine_stream *s, int *ret_which, void *buf, size_t size,
                           int timeout_ms, struct err *err) {
    struct limit l =
        timeout_ms < 0 ? limit_stream(-1, NULL) : limit_call((unsigned)timeout_ms, NULL);
    struct conn *c = s->x.conn;

    if (!size)
        return err_set(err, -EINVAL, "reading a stream needs room");
    for (;;) {
        short events = POLLIN;
        ssize_t n;
        int r = buffered(s, err);

        if (r < 0)
            return r;
        if (r > 0) {
            n = give(s, ret_which, buf, size, err);
            if (n != 0)
                return n;
            continue;
        }
        if (s->is_ended)
            return 0;
        n = conn_try_read(c, c->in, sizeof c->in, &events);
        c->in_pos = 0;
        c->in_len = n > 0 ? (size_t)n : 0;
        if (n == 0)
            return stream_ended(s, err);
        if (n > 0)
            continue;
        if (n != -EAGAIN)
            return engine_failure(err, (int)n, "reading from an exec");
        r = limit_wait(&l, c->fd, events);
        if (r == -ETIMEDOUT)
            return err_set(err, timeout_ms == 0 ? -EAGAIN : -ETIMEDOUT,
                           "nothing came from the exec in time");
        if (r < 0)
            return engine_failure(err, r, "reading from an exec");
    }
}

int engine_stream_write(struct engine_stream *s, const void *data, size_t len, struct err *err) {
    struct limit l = limit_stream(s->write_timeout_ms, NULL);
    int r = conn_write(s->x.conn, data, len, &l, false);

    if (r == -EPIPE)
        return err_set(err, r, "the exec takes no more input");
    return r < 0 ? engine_failure(err, r, "writing to an exec") : 0;
}

int engine_stream_end(struct engine_stream *s) {
    return conn_end_writing(s->x.conn);
}

void engine_stream_abort(struct engine_stream *s) {
    (void)shutdown(s->x.conn->fd, SHUT_RDWR);
}
