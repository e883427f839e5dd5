/*
 * One connection to the engine, plain or TLS, behind the same few functions. The descriptor is
 * non-blocking; waiting is done with a limit. A connection belongs to one call at a time; of a
 * hijacked one, one thread may read while another writes.
 */
#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "docker/internal.h"

struct conn *conn_free(struct conn *c) {
    if (!c)
        return NULL;
    if (c->ssl) {
        /* says goodbye when that needs no waiting, so that the peer's log stays quiet */
        if (SSL_is_init_finished(c->ssl))
            (void)SSL_shutdown(c->ssl);
        ERR_clear_error();
        SSL_free(c->ssl);
    }
    fd_close(c->fd);
    pthread_mutex_destroy(&c->tls_lock);
    free(c);
    return NULL;
}

/* ---- one attempt ---- */

/* What a failed SSL call means; the lock is held. */
static ssize_t tls_result(struct conn *c, int r, short *ret_events) {
    int saved = errno;

    switch (SSL_get_error(c->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        *ret_events = POLLIN;
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *ret_events = POLLOUT;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        return saved ? -saved : -ECONNRESET;
    default:
        if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
            ERR_clear_error(); /* no end was announced: not a clean one */
            return -ECONNRESET;
        }
        if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
            str_copy(c->why, sizeof c->why,
                     X509_verify_cert_error_string(SSL_get_verify_result(c->ssl)));
            ERR_clear_error();
            return -EPROTO;
        }
        tls_why(c->why, sizeof c->why);
        return -EPROTO;
    }
}

ssize_t conn_try_read(struct conn *c, void *buf, size_t size, short *ret_events) {
    ssize_t n;

    if (!c->ssl) {
        do
            n = recv(c->fd, buf, size, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        *ret_events = POLLIN;
        return n < 0 ? -errno : n;
    }
    pthread_mutex_lock(&c->tls_lock);
    ERR_clear_error();
    errno = 0;
    n = SSL_read(c->ssl, buf, (int)MIN(size, (size_t)1 << 30));
    if (n <= 0)
        n = tls_result(c, (int)n, ret_events);
    pthread_mutex_unlock(&c->tls_lock);
    return n;
}

static ssize_t conn_try_write(struct conn *c, const void *data, size_t len, short *ret_events) {
    ssize_t n;

    if (!c->ssl) {
        do
            n = send(c->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        *ret_events = POLLOUT;
        return n < 0 ? -errno : n;
    }
    pthread_mutex_lock(&c->tls_lock);
    ERR_clear_error();
    errno = 0;
    n = SSL_write(c->ssl, data, (int)MIN(len, (size_t)1 << 30));
    if (n <= 0) {
        n = tls_result(c, (int)n, ret_events);
        n = n == 0 ? -EPIPE : n;
    }
    pthread_mutex_unlock(&c->tls_lock);
    return n;
}

/* ---- with waiting ---- */

static ssize_t conn_read(struct conn *c, void *buf, size_t size, const struct limit *l) {
    for (;;) {
        short events = POLLIN;
        ssize_t n = conn_try_read(c, buf, size, &events);
        int r;

        if (n != -EAGAIN)
            return n;
        r = limit_wait(l, c->fd, events);
        if (r < 0)
            return r;
    }
}

int conn_fill(struct conn *c, const struct limit *l) {
    ssize_t n = conn_read(c, c->in, sizeof c->in, l);

    c->in_pos = 0;
    c->in_len = n > 0 ? (size_t)n : 0;
    return (int)n;
}

/* Is there something of the other protocol's to read? Takes it into in[], so that nothing is lost
 * (TLS has records of its own, which are not it). An end counts: the rest need not be sent. */
static bool said_something(struct conn *c) {
    short events;
    ssize_t n;

    if (c->in_pos < c->in_len)
        return true;
    n = conn_try_read(c, c->in, sizeof c->in, &events);
    if (n == -EAGAIN)
        return false;
    c->in_pos = 0;
    c->in_len = n > 0 ? (size_t)n : 0;
    return true;
}

int conn_write(struct conn *c, const void *data, size_t len, const struct limit *l, bool early) {
    const char *p = data;

    while (len) {
        short events = POLLOUT;
        ssize_t n = conn_try_write(c, p, len, &events);
        int r;

        if (n >= 0) {
            p += n;
            len -= (size_t)n;
            continue;
        }
        if (n != -EAGAIN)
            return (int)n;
        r = limit_wait(l, c->fd, (short)(events | (early ? POLLIN : 0)));
        if (r < 0)
            return r;
        if (early && (r & POLLIN) && said_something(c))
            return 1;
    }
    return 0;
}

bool conn_is_quiet(const struct conn *c) {
    struct pollfd p = {.fd = c->fd, .events = POLLIN | POLLRDHUP};

    return c->in_pos == c->in_len && !(c->ssl && SSL_has_pending(c->ssl)) && poll(&p, 1, 0) == 0;
}

int conn_end_writing(struct conn *c) {
    if (!c->ssl)
        return shutdown(c->fd, SHUT_WR) < 0 ? -errno : 0;
    pthread_mutex_lock(&c->tls_lock);
    ERR_clear_error();
    (void)SSL_shutdown(c->ssl);
    ERR_clear_error();
    pthread_mutex_unlock(&c->tls_lock);
    return 0;
}

/* ---- opening ---- */

static int handshake(struct conn *c, const struct limit *l) {
    for (;;) {
        short events = POLLIN;
        ssize_t n;
        int r;

        ERR_clear_error();
        errno = 0;
        r = SSL_connect(c->ssl);
        if (r == 1)
            return 0;
        n = tls_result(c, r, &events);
        if (n != -EAGAIN)
            return n == 0 ? -ECONNRESET : (int)n;
        r = limit_wait(l, c->fd, events);
        if (r < 0)
            return r;
    }
}

int conn_open(const struct engine *e, const struct limit *l, struct conn **ret, struct err *err) {
    _cleanup_(conn_freep) struct conn *c = malloc(sizeof *c);
    int r;

    if (!c)
        return engine_oom(err);
    memset(c, 0, offsetof(struct conn, in)); /* in[] costs nothing until it is read into */
    c->fd = -1;
    pthread_mutex_init(&c->tls_lock, NULL);
    r = engine_address_connect(&e->address, l, &c->fd, err);
    if (r < 0)
        return r;
    if (e->tls) {
        r = tls_session_new(e->tls, c->fd, e->address.name, &c->ssl, err);
        if (r < 0)
            return r;
        r = handshake(c, l);
        if (r == -EPROTO)
            return err_set(err, -EHOSTUNREACH, "no TLS with the Docker engine at %s: %s",
                           e->address.host_text, c->why);
        if (r == -ECONNRESET || r == -EPIPE)
            return err_set(err, -EHOSTUNREACH, "the Docker engine at %s ended the TLS handshake",
                           e->address.host_text);
        if (r < 0)
            return engine_failure(err, r, "the TLS handshake with the Docker engine");
    }
    *ret = TAKE_PTR(c);
    return 0;
}
