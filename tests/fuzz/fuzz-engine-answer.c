/*
 * An engine that answers anything. The input's first byte says which call is made, its second how
 * the answer is cut; the rest is what the engine sends, after which it ends its side. The whole
 * client runs on it (the linker puts our conn_open under it): no crash, no leak, no success with
 * less than an answer, no error without a sentence.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/str.h"
#include "docker/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_conn_open(const struct engine *e, const struct limit *l, struct conn **ret,
                     struct err *err);

#define MAX_MESSAGES 100 /* what a socket's buffer surely takes */

static const uint8_t *answer;
static size_t answer_len, step;
static int peers[64];
static size_t n_peers;

/* A connection in which the answer waits already, in messages of `step` bytes. */
int __wrap_conn_open(const struct engine *e, const struct limit *l, struct conn **ret,
                     struct err *err) {
    struct conn *c = malloc(sizeof *c);
    int fds[2];

    if (!c || n_peers == ARRAY_SIZE(peers) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
        abort();
    memset(c, 0, offsetof(struct conn, in));
    c->fd = fds[0];
    pthread_mutex_init(&c->tls_lock, NULL);
    for (size_t at = 0; at < answer_len; at += step) {
        size_t n = MIN(step, answer_len - at);
        if (send(fds[1], answer + at, n, MSG_NOSIGNAL) != (ssize_t)n)
            abort();
    }
    shutdown(fds[1], SHUT_WR);
    peers[n_peers++] = fds[1];
    *ret = c;
    return 0;
}

static size_t given;

static int to_nowhere(const void *data, size_t len, void *ud) {
    given += len;
    return 0;
}

static ssize_t from_nowhere(void *buf, size_t size, void *ud) {
    unsigned *left = ud;

    memset(buf, 0, MIN(size, (size_t)100));
    return (*left)-- ? (ssize_t)MIN(size, (size_t)100) : 0;
}

static int on_event(const json_t *event, void *ud) {
    return json_is_null(event) ? -EINTR : 0;
}

static void on_progress(const json_t *line, void *ud) {
    if (!line)
        abort();
}

static int run_stream(struct engine *e, bool tty, struct err *err) {
    struct engine_stream *s;
    char piece[7];
    size_t total = 0;
    ssize_t n;
    int which = 0, r = engine_exec_start(e, "x", tty, &s, err);

    if (r < 0)
        return r;
    while ((n = engine_stream_read(s, &which, piece, sizeof piece, 100, err)) > 0) {
        if ((which != 1 && which != 2) || (size_t)n > sizeof piece)
            abort();
        total += (size_t)n;
    }
    if (total > answer_len)
        abort();
    if (n == 0 && engine_stream_read(s, &which, piece, sizeof piece, 100, err) != 0)
        abort();
    engine_stream_free(s);
    return (int)n;
}

static int take_json(int r, json_t *j) {
    if (r >= 0 && !j)
        abort();
    json_decref(j);
    return r;
}

static int take_text(int r, char *text, size_t max) {
    if (r >= 0 && (!text || !utf8_is_valid(text, strlen(text)) || strlen(text) > max))
        abort();
    free(text);
    return r;
}

static int run_call(struct engine *e, unsigned which, struct err *err) {
    struct engine_call get = {.method = "GET", .path = "/x", .max_answer = 5000};
    struct engine_pull pull = {.ref = "x", .on_progress = on_progress};
    unsigned pieces = 3;
    json_t *j = NULL;
    char *text = NULL, version[16];
    bool running;
    int code, r;

    switch (which % 16) {
    case 0:
        r = engine_request(e, &get, &j, err);
        return take_json(r, j);
    case 1:
        r = engine_container_list(e, true, NULL, &j, err);
        return take_json(r, j);
    case 2:
        return engine_image_pull(e, &pull, err);
    case 3: /* never ends well */
        r = engine_events(e, NULL, 0, NULL, on_event, NULL, NULL, err);
        return r < 0 ? r : (abort(), 0);
    case 4:
        r = engine_container_logs(e, "x", 0, false, 0, 50, &text, err);
        return take_text(r, text, 50);
    case 5:
        return run_stream(e, false, err);
    case 6:
        return run_stream(e, true, err);
    case 7:
        given = 0;
        r = engine_archive_get(e, "x", "/", to_nowhere, NULL, err);
        return given > answer_len ? (abort(), 0) : r;
    case 8:
        return engine_archive_put(e, "x", "/", -1, from_nowhere, &pieces, err);
    case 9:
        e->version = 0;
        return engine_ping(e, version, err);
    case 10:
        return engine_container_wait(e, "x", &code, NULL, err);
    case 11:
        return engine_container_remove(e, "x", true, err);
    case 12:
        return engine_exec_inspect(e, "x", &running, &code, err);
    case 13:
        r = engine_container_create(e, "x", NULL, NULL, &text, err);
        return take_text(r, text, SIZE_MAX);
    case 14:
        r = engine_container_commit(e, "x", "r", "t", NULL, NULL, &text, err);
        return take_text(r, text, SIZE_MAX);
    default:
        r = engine_volume_list(e, NULL, &j, err);
        return take_json(r, j);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct engine_opts o = {.host = "unix:///nonexistent/socket", .timeout_ms = 2000};
    struct err err = {0};
    struct engine *e;

    if (size < 2)
        return 0;
    answer = data + 2;
    answer_len = MIN(size - 2, (size_t)64 << 10);
    step = MIN(MAX((size_t)data[1] + 1, answer_len / MAX_MESSAGES + 1), ENGINE_IN_SIZE);
    if (engine_new(&o, &e, NULL) < 0)
        abort();
    e->version = 41;
    int r = run_call(e, data[0], &err);
    if (r < 0 && (err.code != r || !err.msg[0] || !utf8_is_valid(err.msg, strlen(err.msg))))
        abort();
    if (r >= 0 && engine_status() != 0)
        abort();
    engine_free(e);
    while (n_peers)
        fd_close(peers[--n_peers]);
    return 0;
}
