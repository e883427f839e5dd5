/*
 * Host ports of sandboxes (lifecycle.md 4.6): random ones of the configured range that nothing else
 * uses, each reserved from here until its create has ended, so that creates at the same time never
 * get the same. What another program takes between probe and start shows as the engine's refusal,
 * and the create asks for fresh ones.
 *
 * A table of bits per protocol under a lock of its own. TCP ports are probed with TCP, UDP ports
 * with UDP.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/id.h"

#define TRIES 50

struct ports {
    pthread_mutex_t lock;
    unsigned min, max;
    struct sockaddr_storage host; /* where ports are published, port 0 */
    socklen_t host_size;
    uint8_t taken[2][65536 / 8]; /* TCP, UDP */
};

static socklen_t any_address(struct sockaddr_storage *ret) {
    struct sockaddr_in *a = (struct sockaddr_in *)ret;

    *a = (struct sockaddr_in){.sin_family = AF_INET};
    return sizeof *a;
}

static socklen_t parse_address(const char *text, struct sockaddr_storage *ret) {
    struct sockaddr_in *a = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *b = (struct sockaddr_in6 *)ret;

    memset(ret, 0, sizeof *ret);
    if (text && inet_pton(AF_INET, text, &a->sin_addr) == 1) {
        a->sin_family = AF_INET;
        return sizeof *a;
    }
    if (text && inet_pton(AF_INET6, text, &b->sin6_addr) == 1) {
        b->sin6_family = AF_INET6;
        return sizeof *b;
    }
    return any_address(ret);
}

/* 0 or -errno of the bind. */
static int try_bind(const struct sockaddr_storage *host, socklen_t size, bool udp, uint16_t port) {
    struct sockaddr_storage a = *host;
    int on = 1;

    if (a.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&a)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&a)->sin_port = htons(port);
    _cleanup_close_ int s = socket(a.ss_family, (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
    if (s < 0)
        return -errno;
    if (!udp) /* connections that are only waiting to be forgotten do not count */
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(s, (struct sockaddr *)&a, size) < 0 ? -errno : 0;
}

static bool is_free(const struct ports *p, bool udp, uint16_t port) {
    int r = try_bind(&p->host, p->host_size, udp, port);

    if (r == -EADDRNOTAVAIL || r == -EAFNOSUPPORT) { /* the engine's address, not ours */
        struct sockaddr_storage any;
        const socklen_t any_len = any_address(&any);
        r = try_bind(&any, any_len, udp, port);
    }
    return r == 0;
}

int ports_new(struct docker *k, struct ports **ret) {
    struct ports *p = calloc(1, sizeof *p);

    if (!p)
        return -ENOMEM;
    pthread_mutex_init(&p->lock, NULL);
    p->min = k->config.port_min ? k->config.port_min : 40000;
    p->max = k->config.port_max ? k->config.port_max : 60000;
    p->min = MIN(p->min, 65535);
    p->max = MIN(MAX(p->max, p->min), 65535);
    p->host_size = parse_address(k->config.publish_host, &p->host);
    *ret = p;
    return 0;
}

struct ports *ports_free(struct ports *p) {
    if (p)
        pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

static bool is_udp(const char *key) {
    return str_ends(key, "/udp");
}

/* Without "/tcp", which is what a plain number means. */
static void normalise(const char *key, char *ret, size_t size) {
    str_copy(ret, size, key);
    if (str_ends(ret, "/tcp"))
        ret[strlen(ret) - strlen("/tcp")] = 0;
}

/* Marks a port as taken; false when it was so already. */
static bool mark(struct ports *p, bool udp, uint16_t port) {
    uint8_t *byte = &p->taken[udp][port / 8], bit = (uint8_t)(1u << (port % 8));
    bool is_new;

    pthread_mutex_lock(&p->lock);
    is_new = !(*byte & bit);
    *byte |= bit;
    pthread_mutex_unlock(&p->lock);
    return is_new;
}

static void unmark(struct ports *p, bool udp, uint16_t port) {
    pthread_mutex_lock(&p->lock);
    p->taken[udp][port / 8] &= (uint8_t) ~(1u << (port % 8));
    pthread_mutex_unlock(&p->lock);
}

static uint16_t pick(const struct ports *p) {
    uint32_t n;

    random_bytes(&n, sizeof n);
    return (uint16_t)(p->min + n % (p->max - p->min + 1));
}

static bool is_among(const struct port_binding *b, size_t n, uint16_t port) {
    for (size_t i = 0; i < n; i++)
        if (b[i].host_port == port)
            return true;
    return false;
}

static int reserve_one(struct ports *p, const char *key, const struct port_binding *others,
                       size_t n, struct port_binding *ret, struct err *err) {
    bool udp = is_udp(key);

    for (unsigned i = 0; i < TRIES; i++) {
        uint16_t port = pick(p);
        if (is_among(others, n, port) || !mark(p, udp, port))
            continue;
        if (is_free(p, udp, port)) {
            normalise(key, ret->key, sizeof ret->key);
            ret->host_port = port;
            return 0;
        }
        unmark(p, udp, port);
    }
    return err_set(err, -ENOSPC, "no free host port for %s in %u to %u after %d tries", key, p->min,
                   p->max, TRIES);
}

int ports_reserve(struct ports *p, const char *const *keys, struct port_binding *ret, size_t n,
                  struct err *err) {
    for (size_t i = 0; i < n; i++) {
        int r = reserve_one(p, keys[i], ret, i, &ret[i], err);
        if (r < 0) {
            ports_release(p, ret, i);
            return r;
        }
    }
    return 0;
}

void ports_release(struct ports *p, const struct port_binding *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        unmark(p, is_udp(b[i].key), b[i].host_port);
}

bool ports_is_conflict(const char *text) {
    static const char *const signs[] = {"port is already allocated", "ports are not available",
                                        "address already in use"};

    if (!text)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(signs); i++)
        if (strcasestr(text, signs[i]))
            return true;
    return strcasestr(text, "bind:") &&
           (strcasestr(text, "forbidden") || strcasestr(text, "permission denied"));
}
