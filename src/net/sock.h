/*
 * A connected byte stream (TCP or Unix) on a libuv loop. Owned by exactly one layer at a time: the
 * HTTP server or client hands it over whole on an upgrade (sock_set_ops), together with bytes
 * already read. All functions belong to the loop thread.
 */
#pragma once

#include <uv.h>

#include "base/err.h"

struct sock;

struct sock_ops {
    /* len > 0: bytes (valid during the call); len == 0: the peer ended its side; len < 0: -errno,
     * the stream is broken. After 0 no more data follows; after < 0 nothing works: close it. */
    void (*on_read)(struct sock *s, const char *data, ssize_t len, void *ud);
    /* queued output fell below SOCK_LOW_WATER after having been above SOCK_HIGH_WATER */
    void (*on_drain)(struct sock *s, void *ud);
    /* optional: everything that had to be queued has been handed to the kernel */
    void (*on_flush)(struct sock *s, void *ud);
};

#define SOCK_HIGH_WATER ((size_t)256 << 10)
#define SOCK_LOW_WATER ((size_t)64 << 10)

/* Takes a connected, or connecting, socket (owned also on failure: closed); it is made
 * non-blocking. */
int sock_open(uv_loop_t *loop, int fd, struct sock **ret);
void sock_set_ops(struct sock *s, const struct sock_ops *ops, void *ud);
void sock_read_start(struct sock *s);
void sock_read_stop(struct sock *s); /* back-pressure: the kernel's window closes */
/* Gives bytes back, to be delivered first by the next read start (upgrade hand-over). */
int sock_unread(struct sock *s, const char *data, size_t len);
/* Copies and queues; tries to write at once. Bytes queued afterwards, or -errno: output is over
 * then, while reading, if it is on, delivers what came and reports the end. Past SOCK_HIGH_WATER
 * the caller must stop producing until on_drain; a hard limit of 64 MiB gives -ENOBUFS. */
ssize_t sock_write(struct sock *s, const void *data, size_t len);
ssize_t sock_writev(struct sock *s, const uv_buf_t *bufs, unsigned n);
size_t sock_queued(const struct sock *s);
uint64_t sock_sent(const struct sock *s); /* bytes handed to the kernel so far */
void sock_shutdown(struct sock *s);       /* half-close once everything queued is out */
/*
 * Closes. linger_ms 0: at once, queued output is dropped. Else for at most so long: queued output
 * is sent, then our side is ended and what the peer still sends is thrown away, so that it can read
 * our last bytes before the kernel would answer its own with a reset. Frees; no callback comes
 * after.
 */
void sock_close(struct sock *s, unsigned linger_ms);
/* Closes at once with a TCP reset: the peer cannot take it for a clean end. */
void sock_reset(struct sock *s);
int sock_fd(const struct sock *s);
uv_loop_t *sock_loop(const struct sock *s);
/* "127.0.0.1" or "::1" or "unix"; port 0 for Unix sockets. */
void sock_peer(const struct sock *s, char *ret_addr, size_t size, int *ret_port);
/* uid of the peer of a Unix socket, or -1 */
long sock_peer_uid(const struct sock *s);

/* Where to connect. Exactly one of path, fd-in-a-namespace or host is used. */
struct sock_addr {
    const char *unix_path; /* Unix socket */
    const char *host;      /* numeric IPv4/IPv6 address or name (resolved without blocking the loop;
                              -ENOTSUP in the agent) */
    uint16_t port;
    int netns_fd; /* > 0: make the TCP socket inside this network namespace; else 0 */
};
struct sock_dial;
/* Connects; cb is called exactly once unless cancelled: s (owned by the callee) or NULL with error
 * < 0. */
typedef void (*sock_dial_cb)(struct sock *s, int error, void *ud);
int sock_dial(uv_loop_t *loop, const struct sock_addr *addr, unsigned timeout_ms, sock_dial_cb cb,
              void *ud, struct sock_dial **ret);
void sock_dial_cancel(struct sock_dial *d); /* no callback comes after */

/* A socket born in the network namespace; the calling thread is back in its own afterwards (abort()
 * if that fails). */
int netns_socket(int netns_fd, int family, int type);
