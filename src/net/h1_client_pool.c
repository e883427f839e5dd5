/*
 * Keep-alive pool (see h1_client_pool.h).
 *
 * Owns the idle connections: lists per key, newest last. An idle connection is being read, so that
 * its end, or bytes nobody asked for, remove it at once. One timer, armed for the oldest
 * connection, ends those kept for too long. Calls in flight hold references; a freed pool keeps
 * nothing. Loop thread only.
 */
#include "net/h1_client_pool.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/list.h"
#include "base/map.h"
#include "base/str.h"

#define MAX_IDLE_TOTAL 1024

struct idle {
    struct list in_key, in_pool;
    struct h1_pool *pool;
    struct key *key;
    struct sock *sock;
    uint64_t since_ms; /* uv_now */
};

struct key {
    struct list idle;
    unsigned n;
    char *name;
};

struct h1_pool {
    unsigned refs;
    bool is_closed;
    uv_loop_t *loop;
    unsigned idle_max, idle_ms;
    struct map *keys;
    struct list idle; /* all of them, oldest first */
    unsigned n;
    uv_timer_t timer;
};

/* NOLINTBEGIN(clang-analyzer-unix.Malloc): it does not see that list_remove takes entries out of a
 * list */

static void on_expire(uv_timer_t *t);

static void arm(struct h1_pool *p) {
    uint64_t now = uv_now(p->loop);

    if (list_is_empty(&p->idle)) {
        uv_timer_stop(&p->timer);
        return;
    }
    uint64_t due = list_entry(p->idle.next, struct idle, in_pool)->since_ms + p->idle_ms;
    uv_timer_start(&p->timer, on_expire, due > now ? due - now : 0, 0);
}

/* Takes the entry out; the connection is the caller's. */
static struct sock *detach(struct h1_pool *p, struct idle *i) {
    struct sock *s = i->sock;
    struct key *k = i->key;

    list_remove(&i->in_key);
    list_remove(&i->in_pool);
    p->n--;
    if (--k->n == 0) {
        map_remove(p->keys, k->name);
        free(k->name);
        free(k);
    }
    free(i);
    sock_set_ops(s, NULL, NULL);
    return s;
}

static void on_expire(uv_timer_t *t) {
    struct h1_pool *p = container_of(t, struct h1_pool, timer);
    uint64_t now = uv_now(p->loop);

    while (!list_is_empty(&p->idle)) {
        struct idle *i = list_entry(p->idle.next, struct idle, in_pool);
        if (i->since_ms + p->idle_ms > now)
            break;
        sock_close(detach(p, i), 0);
    }
    arm(p);
}

struct h1_pool *h1_pool_new(uv_loop_t *loop, unsigned idle_max, unsigned idle_ms) {
    struct h1_pool *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->keys = map_new();
    if (!p->keys) {
        free(p);
        return NULL;
    }
    p->refs = 1;
    p->loop = loop;
    p->idle_max = idle_max;
    p->idle_ms = idle_ms;
    list_init(&p->idle);
    uv_timer_init(loop, &p->timer);
    return p;
}

struct h1_pool *h1_pool_ref(struct h1_pool *p) {
    p->refs++;
    return p;
}

static void on_timer_closed(uv_handle_t *h) {
    struct h1_pool *p = container_of((uv_timer_t *)h, struct h1_pool, timer);
    map_free(p->keys);
    free(p);
}

void h1_pool_unref(struct h1_pool *p) {
    if (p && --p->refs == 0)
        uv_close((uv_handle_t *)&p->timer, on_timer_closed);
}

void h1_pool_free(struct h1_pool *p) {
    if (!p)
        return;
    p->is_closed = true;
    while (!list_is_empty(&p->idle))
        sock_close(detach(p, list_entry(p->idle.next, struct idle, in_pool)), 0);
    arm(p);
    h1_pool_unref(p);
}

/* The loop may not have told us yet that the peer hung up. */
static bool is_alive(const struct sock *s) {
    char c;
    return recv(sock_fd(s), &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
}

struct sock *h1_pool_take(struct h1_pool *p, const char *key, unsigned max_idle_ms) {
    struct key *k;
    struct sock *s = NULL;

    while (!s && (k = map_get(p->keys, key))) {
        struct idle *i = list_entry(k->idle.prev, struct idle, in_key);
        if (max_idle_ms && uv_now(p->loop) - i->since_ms > max_idle_ms)
            break;
        s = detach(p, i);
        if (!is_alive(s))
            sock_close(TAKE_PTR(s), 0);
    }
    arm(p);
    return s;
}

/* An idle connection has nothing to say: whatever comes, it is of no use any more. */
static void on_idle_read(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct idle *i = ud;
    struct h1_pool *p = i->pool;

    sock_close(detach(p, i), 0);
    arm(p);
}

static int add(struct h1_pool *p, const char *key, struct sock *s) {
    static const struct sock_ops ops = {.on_read = on_idle_read};
    struct key *k = map_get(p->keys, key);
    struct idle *i = malloc(sizeof *i);

    if (!i)
        return -ENOMEM;
    if (!k) {
        k = calloc(1, sizeof *k);
        if (k)
            k->name = strdup(key);
        if (!k || !k->name || map_set(p->keys, key, k, NULL) < 0) {
            if (k)
                free(k->name);
            free(k);
            free(i);
            return -ENOMEM;
        }
        list_init(&k->idle);
    }
    *i = (struct idle){.pool = p, .key = k, .sock = s, .since_ms = uv_now(p->loop)};
    list_append(&k->idle, &i->in_key);
    list_append(&p->idle, &i->in_pool);
    k->n++;
    p->n++;
    sock_set_ops(s, &ops, i);
    sock_read_start(s);
    return 0;
}

void h1_pool_put(struct h1_pool *p, const char *key, struct sock *s) {
    struct key *k = map_get(p->keys, key);

    if (p->is_closed || p->idle_max == 0 || p->idle_ms == 0 || sock_queued(s) > 0) {
        sock_close(s, 0);
        return;
    }
    if (k && k->n >= p->idle_max)
        sock_close(detach(p, list_entry(k->idle.next, struct idle, in_key)), 0);
    if (p->n >= MAX_IDLE_TOTAL)
        sock_close(detach(p, list_entry(p->idle.next, struct idle, in_pool)), 0);
    if (add(p, key, s) < 0)
        sock_close(s, 0);
    arm(p);
}

/* NOLINTEND(clang-analyzer-unix.Malloc) */
