/* See test-engine.h. One thread per connection; a request is read whole before it is answered. */
#include "daemon/driver/docker/test-engine.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/path.h"
#include "base/test.h"

#define CONNS_MAX 128

struct conn {
    struct fake_engine *f;
    int fd;
    pthread_t thread;
};
struct conn_list {
    struct conn c[CONNS_MAX];
    size_t n;
};

static void read_target(const char *target, struct fake_request *q) {
    const char *mark = strchr(target, '?');

    if (str_starts(target, "/v1.") && strchr(target + 1, '/'))
        target = strchr(target + 1, '/');
    snprintf(q->path, sizeof q->path, "%.*s", mark ? (int)(mark - target) : (int)strlen(target),
             target);
    snprintf(q->query, sizeof q->query, "%s", mark ? mark + 1 : "");
}

static const char *header_of(const char *head, const char *name) {
    size_t n = strlen(name);
    for (const char *p = strstr(head, "\r\n"); p; p = strstr(p + 2, "\r\n"))
        if (strncasecmp(p + 2, name, n) == 0 && p[2 + n] == ':')
            return p + 2 + n + 1 + strspn(p + 2 + n + 1, " ");
    return NULL;
}

/* true: a whole request was read */
static bool read_request(int fd, struct buf *in, struct fake_request *q) {
    char chunk[65536], target[1024];
    const char *end;

    buf_clear(in);
    while (!in->len || !strstr(in->data, "\r\n\r\n")) {
        ssize_t n = recv(fd, chunk, sizeof chunk, 0);
        if (n <= 0 || buf_append(in, chunk, (size_t)n) < 0)
            return false;
    }
    end = strstr(in->data, "\r\n\r\n") + 4;
    size_t head = (size_t)(end - in->data);
    const char *length = header_of(in->data, "Content-Length"),
               *auth = header_of(in->data, "X-Registry-Auth");
    size_t want = head + (length ? (size_t)atoll(length) : 0);
    if (sscanf(in->data, "%11s %1023s", q->method, target) != 2)
        return false;
    read_target(target, q);
    snprintf(q->auth, sizeof q->auth, "%.*s", auth ? (int)strcspn(auth, "\r") : 0,
             auth ? auth : "");
    while (in->len < want) {
        ssize_t n = recv(fd, chunk, MIN(sizeof chunk, want - in->len), 0);
        if (n <= 0 || buf_append(in, chunk, (size_t)n) < 0)
            return false;
    }
    q->body = in->data + head;
    q->body_len = in->len - head;
    return true;
}

static void respond(struct fake_engine *f, int fd, const struct fake_request *q) {
    struct fake_answer a = {.body = BUF_INIT((size_t)64 << 20)};
    _cleanup_buf_ struct buf out = BUF_INIT((size_t)64 << 20);

    pthread_mutex_lock(&f->lock);
    if (str_eq(q->path, "/_ping")) {
        a.status = 200;
    } else {
        strv_addf(&f->log, "%s %s%s%s", q->method, q->path, *q->query ? "?" : "", q->query);
        f->answer(f, q, &a);
    }
    pthread_mutex_unlock(&f->lock);
    if (a.status == 0) {
        a.status = 404;
        buf_printf(&a.body, "{\"message\":\"nothing at %s\"}", q->path);
    }
    buf_printf(&out,
               "HTTP/1.1 %d X\r\nApi-Version: %s\r\nContent-Type: %s\r\nContent-Length: "
               "%zu\r\n\r\n",
               a.status, f->api_version, a.type ? a.type : "application/json", a.body.len);
    if (a.body.len)
        buf_append(&out, a.body.data, a.body.len);
    buf_done(&a.body);
    (void)fd_write_full(fd, out.data, out.len);
}

static void *serve(void *arg) {
    struct conn *c = arg;
    _cleanup_buf_ struct buf in = BUF_INIT((size_t)64 << 20);
    struct fake_request q;

    while (read_request(c->fd, &in, &q))
        respond(c->f, c->fd, &q);
    return NULL;
}

static void *accept_all(void *arg) {
    struct fake_engine *f = arg;

    for (;;) {
        int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        ASSERT(f->conns->n < CONNS_MAX);
        struct conn *c = &f->conns->c[f->conns->n++];
        *c = (struct conn){.f = f, .fd = fd};
        ASSERT(pthread_create(&c->thread, NULL, serve, c) == 0);
    }
}

void fake_engine_start(struct fake_engine *f) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    pthread_mutex_init(&f->lock, NULL);
    snprintf(f->path, sizeof f->path, "/tmp/cove-test-engine-%d", getpid());
    unlink(f->path);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", f->path);
    f->conns = calloc(1, sizeof *f->conns);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!f->api_version)
        f->api_version = "1.41";
    ASSERT(f->conns && bind(f->listener, (struct sockaddr *)&a, sizeof a) == 0);
    ASSERT(listen(f->listener, 64) == 0);
    ASSERT(pthread_create(&f->thread, NULL, accept_all, f) == 0);
}

void fake_engine_stop(struct fake_engine *f) {
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    fd_close(f->listener);
    for (size_t i = 0; i < f->conns->n; i++) {
        shutdown(f->conns->c[i].fd, SHUT_RDWR);
        pthread_join(f->conns->c[i].thread, NULL);
        fd_close(f->conns->c[i].fd);
    }
    free(f->conns);
    strv_done(&f->log);
    unlink(f->path);
    pthread_mutex_destroy(&f->lock);
}

unsigned fake_engine_count(struct fake_engine *f, const char *text) {
    unsigned n = 0;

    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->log.n; i++)
        n += strstr(f->log.v[i], text) != NULL;
    pthread_mutex_unlock(&f->lock);
    return n;
}

struct docker *fake_docker_new(const struct fake_engine *f, const struct docker_config *c) {
    struct docker *k = calloc(1, sizeof *k);
    _cleanup_free_ char *host = str_printf("unix://%s", f->path);
    struct engine_opts o = {.host = host, .tls_verify = 0, .timeout_ms = 10000};
    struct err err = {0};

    ASSERT(k && host);
    if (c)
        k->config = *c;
    if (!k->config.state_dir)
        k->config.state_dir = "/tmp";
    if (!k->config.network_mode)
        k->config.network_mode = "bridge";
    str_copy(k->instance, sizeof k->instance, "0123456789abcdef");
    pthread_mutex_init(&k->lock, NULL);
    k->boxes = map_new();
    k->interned = map_new();
    k->proxy_host = strdup("127.0.0.1");
    ASSERT_OK(engine_new(&o, &k->engine, &err));
    ASSERT_OK(ports_new(k, &k->ports));
    ASSERT_OK(pulls_new(k, &k->pulls));
    ASSERT_OK(docker_agent_new(k, &k->agent, &err));
    return k;
}

void fake_docker_free(struct docker *k) {
    size_t at = 0;
    void *value;

    docker_agent_free(k->agent);
    pulls_free(k->pulls);
    ports_free(k->ports);
    engine_free(k->engine);
    while (map_next(k->boxes, &at, NULL, &value))
        docker_box_free(value);
    map_free(k->boxes);
    at = 0;
    while (map_next(k->interned, &at, NULL, &value))
        free(value);
    map_free(k->interned);
    free(k->proxy_host);
    pthread_mutex_destroy(&k->lock);
    free(k);
}
