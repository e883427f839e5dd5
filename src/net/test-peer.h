/*
 * Peers for the tests of the HTTP client, the proxy and WebSocket: scripted raw servers on a thread
 * of their own (blocking sockets, every wait bounded), raw clients, and turning the loop until
 * something holds.
 */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "net/sock.h"

struct peer;
/* Plays one connection (the nth, from 0); the descriptor is closed afterwards. */
typedef void (*peer_script)(struct peer *p, int fd, unsigned nth);

struct peer {
    int listen_fd;
    uint16_t port;
    pthread_t thread;
    peer_script script;
    const void *arg;
    _Atomic unsigned n_conns, flag; /* flag: free for the script; grows only */
    pthread_mutex_t lock;
    pthread_cond_t raised;
    char head[16384]; /* the last request head read by peer_read_head; see peer_copy_head */
};

void peer_start(struct peer *p, peer_script script, const void *arg);
void peer_stop(struct peer *p);                 /* waits for the script */
void peer_raise(struct peer *p, unsigned flag); /* sets the flag, for those who wait for it */
void peer_await(struct peer *p, unsigned flag); /* waits until it is at least that */
/* Reads up to the blank line into p->head. Returns false at the end of the stream. */
bool peer_read_head(struct peer *p, int fd);
/* The head, while the script may already read the next one. */
void peer_copy_head(struct peer *p, char *ret, size_t size);
void peer_send(int fd, const char *text);
void peer_send_bytes(int fd, const void *data, size_t len);
size_t peer_read_to_end(int fd, char *ret,
                        size_t size); /* NUL-terminated; the rest is read and dropped */
bool peer_wait_end(int fd);           /* until the other side ended; false when not within 10 s */
void peer_reset(int fd);              /* close with RST */

int raw_connect(uint16_t port); /* blocking socket with time limits */

/* Turns the loop until *flag; fails the test after 10 s. */
#define TURN_UNTIL(loop, cond)                                                               \
    do {                                                                                     \
        uint64_t until_ = uv_hrtime() + 10000000000u;                                        \
        while (!(cond)) {                                                                    \
            turn(loop, 20);                                                                  \
            if (uv_hrtime() > until_)                                                        \
                test_fail(__FILE__, __LINE__, "did not become true within 10 s: %s", #cond); \
        }                                                                                    \
    } while (0)
void turn(uv_loop_t *loop, unsigned at_most_ms); /* one wait for events, bounded */
void turn_for(uv_loop_t *loop, unsigned ms);     /* keeps turning: for what must not happen */
void loop_done(uv_loop_t *loop);                 /* everything must close by itself within 10 s */
