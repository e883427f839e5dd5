/* The tests' HTTP server (see test-fake.h): an accepting thread and one thread per connection. */
#include "docker/test-fake.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/str.h"
#include "base/test.h"

#define MAX_CONNS 256

struct fake {
    char dir[64], host[128];
    int listener;
    fake_handler handler;
    void *ud;
    atomic_bool own_ping, raw_bodies, stopping;
    atomic_uint n_requests;
    atomic_uint n_conns;
    pthread_t acceptor, threads[MAX_CONNS];
    int fds[MAX_CONNS];
};

struct served {
    struct fake *f;
    unsigned conn;
    int fd;
};

void fake_bytes(int fd, const void *data, size_t len) {
    const char *p = data;

    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n < 0)
            return;
        p += n;
        len -= (size_t)n;
    }
}

void fake_say(int fd, const char *text) {
    fake_bytes(fd, text, strlen(text));
}

void fake_json(int fd, int status, const char *json) {
    char head[160];

    snprintf(
        head, sizeof head,
        "HTTP/1.1 %d Whatever\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
        status, strlen(json));
    fake_say(fd, head);
    fake_say(fd, json);
}

void fake_hang(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    while (poll(&p, 1, 15000) < 0 && errno == EINTR)
        ;
}

/* ---- requests ---- */

static bool more(int fd, struct buf *in) {
    char piece[4096];
    ssize_t n = read(fd, piece, sizeof piece);

    return n > 0 && buf_append(in, piece, (size_t)n) == 0;
}

/* The chunks from `at` on into body; where the request ends, or 0 = the client went away. */
static size_t read_chunks(int fd, struct buf *in, size_t at, struct buf *body) {
    for (;;) {
        char *line;
        while (!(line = memmem(in->data + at, in->len - at, "\r\n", 2)))
            if (!more(fd, in))
                return 0;
        size_t n = strtoul(in->data + at, NULL, 16), start = (size_t)(line + 2 - in->data);
        while (in->len < start + n + 2)
            if (!more(fd, in))
                return 0;
        buf_append(body, in->data + start, n);
        at = start + n + 2;
        if (n == 0)
            return at;
    }
}

/* Where the body that begins at `at` ends, or 0. */
static size_t read_body(struct fake *f, int fd, struct buf *in, size_t at, const char *head,
                        struct buf *body) {
    const char *length = strcasestr(head, "Content-Length:");

    if (f->raw_bodies)
        return at;
    if (strcasestr(head, "Transfer-Encoding: chunked"))
        return read_chunks(fd, in, at, body);
    size_t n = length ? strtoul(length + strlen("Content-Length:"), NULL, 10) : 0;
    while (in->len < at + n)
        if (!more(fd, in))
            return 0;
    buf_append(body, in->data + at, n);
    return at + n;
}

/* One request; false = the connection is over. */
static bool serve_one(struct served *s, struct buf *in, unsigned nth) {
    _cleanup_buf_ struct buf body = BUF_INIT((size_t)64 << 20);
    _cleanup_free_ char *head = NULL, *line = NULL;
    struct fake_request q = {.conn = s->conn, .nth = nth, .ud = s->f->ud};
    char *end, *save = NULL;
    size_t at;

    while (!in->len || !(end = memmem(in->data, in->len, "\r\n\r\n", 4)))
        if (!more(s->fd, in))
            return false;
    at = (size_t)(end + 4 - in->data);
    head = str_ndup(in->data, at);
    line = str_ndup(in->data, strcspn(in->data, "\r"));
    at = read_body(s->f, s->fd, in, at, head, &body);
    if (!at)
        return false;
    q.method = strtok_r(line, " ", &save);
    q.target = strtok_r(NULL, " ", &save);
    q.head = head;
    q.body = body.data ? body.data : "";
    q.body_len = body.len;
    buf_consume(in, at);
    if (str_eq(q.target, "/_ping") && !s->f->own_ping) {
        fake_say(s->fd, "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK");
        return true;
    }
    q.total = atomic_fetch_add(&s->f->n_requests, 1);
    return s->f->handler(s->fd, &q);
}

static void *serve(void *arg) {
    struct served s = *(struct served *)arg;
    _cleanup_buf_ struct buf in = BUF_INIT((size_t)64 << 20);

    free(arg);
    for (unsigned nth = 0; serve_one(&s, &in, nth); nth++)
        ;
    shutdown(s.fd, SHUT_RDWR);
    return NULL;
}

static void *accept_all(void *arg) {
    struct fake *f = arg;

    for (;;) {
        int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || f->stopping) {
            fd_close(fd);
            return NULL;
        }
        unsigned n = f->n_conns;
        ASSERT(n < MAX_CONNS);
        struct served *s = malloc(sizeof *s);
        *s = (struct served){.f = f, .conn = n, .fd = fd};
        f->fds[n] = fd;
        f->n_conns = n + 1; /* before it can answer: tests count */
        ASSERT(pthread_create(&f->threads[n], NULL, serve, s) == 0);
    }
}

/* ---- life ---- */

struct fake *fake_start(fake_handler handler, void *ud) {
    struct fake *f = calloc(1, sizeof *f);
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    f->handler = handler;
    f->ud = ud;
    snprintf(f->dir, sizeof f->dir, "/tmp/cove-engine-XXXXXX");
    ASSERT(mkdtemp(f->dir));
    snprintf(un.sun_path, sizeof un.sun_path, "%s/s", f->dir);
    snprintf(f->host, sizeof f->host, "unix://%s", un.sun_path);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(bind(f->listener, (struct sockaddr *)&un, sizeof un) == 0);
    ASSERT(listen(f->listener, 64) == 0);
    ASSERT(pthread_create(&f->acceptor, NULL, accept_all, f) == 0);
    return f;
}

void fake_stop(struct fake *f) {
    f->stopping = true;
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->acceptor, NULL);
    for (unsigned i = 0; i < f->n_conns; i++) {
        shutdown(f->fds[i], SHUT_RDWR);
        pthread_join(f->threads[i], NULL);
        fd_close(f->fds[i]);
    }
    fd_close(f->listener);
    unlink(f->host + strlen("unix://"));
    rmdir(f->dir);
    free(f);
}

void fake_own_ping(struct fake *f) {
    f->own_ping = true;
}

void fake_raw_bodies(struct fake *f) {
    f->raw_bodies = true;
}

unsigned fake_requests(struct fake *f) {
    return f->n_requests;
}

unsigned fake_connections(struct fake *f) {
    return f->n_conns;
}

const char *fake_host(const struct fake *f) {
    return f->host;
}

struct engine *fake_engine(const struct fake *f, unsigned timeout_ms) {
    struct engine_opts o = {.host = f->host, .timeout_ms = timeout_ms};
    struct engine *e;

    ASSERT_OK(engine_new(&o, &e, NULL));
    return e;
}
