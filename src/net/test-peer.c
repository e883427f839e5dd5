/* Scripted peers (see test-peer.h). */
#include "net/test-peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/test.h"

#define LIMIT_S 10

static void set_limits(int fd) {
    struct timeval tv = {.tv_sec = LIMIT_S};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
}

static void *run(void *arg) {
    struct peer *p = arg;
    int fd;

    while ((fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        set_limits(fd);
        p->script(p, fd, p->n_conns++);
        close(fd);
    }
    return NULL;
}

void peer_start(struct peer *p, peer_script script, const void *arg) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;

    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->raised, NULL);
    p->script = script;
    p->arg = arg;
    p->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(p->listen_fd >= 0 && bind(p->listen_fd, (struct sockaddr *)&a, sizeof a) == 0 &&
           listen(p->listen_fd, 64) == 0 &&
           getsockname(p->listen_fd, (struct sockaddr *)&a, &len) == 0);
    p->port = ntohs(a.sin_port);
    ASSERT_INT(pthread_create(&p->thread, NULL, run, p), 0);
}

void peer_stop(struct peer *p) {
    shutdown(p->listen_fd, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->listen_fd);
}

void peer_raise(struct peer *p, unsigned flag) {
    pthread_mutex_lock(&p->lock);
    p->flag = flag;
    pthread_cond_broadcast(&p->raised);
    pthread_mutex_unlock(&p->lock);
}

void peer_await(struct peer *p, unsigned flag) {
    pthread_mutex_lock(&p->lock);
    while (p->flag < flag)
        pthread_cond_wait(&p->raised, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

bool peer_read_head(struct peer *p, int fd) {
    size_t n = 0;
    bool whole = false;
    char c;

    while (!whole && n < sizeof p->head - 1 && recv(fd, &c, 1, 0) == 1) {
        pthread_mutex_lock(&p->lock);
        p->head[n++] = c;
        p->head[n] = 0;
        whole = n >= 4 && memcmp(p->head + n - 4, "\r\n\r\n", 4) == 0;
        pthread_mutex_unlock(&p->lock);
    }
    return whole;
}

void peer_copy_head(struct peer *p, char *ret, size_t size) {
    pthread_mutex_lock(&p->lock);
    snprintf(ret, size, "%s", p->head);
    pthread_mutex_unlock(&p->lock);
}

void peer_send_bytes(int fd, const void *data, size_t len) {
    const char *s = data;

    while (len > 0) {
        ssize_t n = send(fd, s, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        s += n;
        len -= (size_t)n;
    }
}

void peer_send(int fd, const char *text) {
    peer_send_bytes(fd, text, strlen(text));
}

size_t peer_read_to_end(int fd, char *ret, size_t size) {
    char drop[4096];
    size_t n = 0;
    ssize_t k;

    while ((k = n < size - 1 ? recv(fd, ret + n, size - 1 - n, 0)
                             : recv(fd, drop, sizeof drop, 0)) > 0)
        if (n < size - 1)
            n += (size_t)k;
    ret[n] = 0;
    return n;
}

bool peer_wait_end(int fd) {
    char drop[4096];
    ssize_t n;

    while ((n = recv(fd, drop, sizeof drop, 0)) > 0)
        ;
    return n == 0 || errno == ECONNRESET;
}

void peer_reset(int fd) {
    struct linger l = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l,
                     sizeof l); /* takes effect when the script returns */
}

int raw_connect(uint16_t port) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    ASSERT(fd >= 0);
    set_limits(fd);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ASSERT(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

/* ---- the loop ---- */

static void on_limit(uv_timer_t *t) {
}

static void on_closed(uv_handle_t *h) {
    free(h);
}

void turn(uv_loop_t *loop, unsigned at_most_ms) {
    uv_timer_t *t;

    while (!(t = malloc(sizeof *t))) /* a test may make one allocation fail */
        ;
    uv_timer_init(loop, t);
    /* repeating: one that is due before the loop waits must bound that wait as well */
    uv_timer_start(t, on_limit, at_most_ms, MAX(at_most_ms, 1u));
    uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)t, on_closed);
    uv_run(
        loop,
        UV_RUN_NOWAIT); /* the timer is gone when this returns: an empty loop is seen to be empty */
}

void turn_for(uv_loop_t *loop, unsigned ms) {
    uint64_t until = uv_hrtime() + ms * 1000000ull;

    while (uv_hrtime() < until)
        turn(loop, 5);
}

static void note_handle(uv_handle_t *h, void *arg) {
    if (!uv_is_closing(h) || h->type != UV_TIMER)
        *(const char **)arg = uv_handle_type_name(h->type);
}

void loop_done(uv_loop_t *loop) {
    uint64_t until = uv_hrtime() + LIMIT_S * 1000000000ull;
    const char *open = "none";

    while (uv_loop_alive(loop) && uv_hrtime() < until)
        turn(loop, 20);
    if (uv_loop_close(loop) == 0) {
        uv_library_shutdown(); /* its signal pipe would count as a leak */
        return;
    }
    uv_walk(loop, note_handle, &open);
    test_fail(__FILE__, __LINE__, "the loop cannot be closed: a %s handle is open", open);
}
