/*
 * Network namespaces (see netns.h). A namespace belongs to a thread, so entering one never disturbs
 * other threads; what must not happen is a thread that stays in a sandbox's namespace, hence
 * abort(). The pool thread keeps `size` namespaces ready and sleeps on a condition otherwise.
 */
#include "daemon/driver/native/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define NETNS_POOL_MAX 256

static int open_own(void) {
    int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static void go_back(int own) {
    if (setns(own, CLONE_NEWNET) < 0)
        abort();
}

int netns_run(int netns_fd, int (*fn)(void *arg), void *arg) {
    _cleanup_close_ int own = open_own();
    int r;

    if (own < 0)
        return own;
    if (setns(netns_fd, CLONE_NEWNET) < 0)
        return -errno;
    r = fn(arg);
    go_back(own);
    return r;
}

static int lo_up(void) {
    _cleanup_close_ int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};

    if (s < 0)
        return -errno;
    return ioctl(s, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
}

int netns_make(void) {
    _cleanup_close_ int own = open_own(), made = -1;
    int r;

    if (own < 0)
        return own;
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    made = open_own();
    r = made < 0 ? made : lo_up();
    go_back(own);
    return r < 0 ? r : TAKE_FD(made);
}

static int tcp_socket(void *arg) {
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return s < 0 ? -errno : s;
}

int netns_tcp(int netns_fd) {
    return netns_run(netns_fd, tcp_socket, NULL);
}

int netns_listen(int netns_fd, uint16_t port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    _cleanup_close_ int s = netns_tcp(netns_fd);
    int one = 1;

    if (s < 0)
        return s;
    if (setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(s, (struct sockaddr *)&a, sizeof a) < 0 || listen(s, SOMAXCONN) < 0)
        return -errno;
    return TAKE_FD(s);
}

void thread_is_background(void) {
    struct sched_param p = {0};
    (void)sched_setscheduler(0, SCHED_BATCH, &p); /* 0: the calling thread */
}

struct netns_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    size_t size, n;
    int fds[NETNS_POOL_MAX];
    bool stop;
};

static void *fill(void *arg) {
    struct netns_pool *p = arg;

    thread_is_background();
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (p->n >= p->size) {
            pthread_cond_wait(&p->wake, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        int fd = netns_make();
        pthread_mutex_lock(&p->lock);
        if (fd >= 0)
            p->fds[p->n++] = fd;
        else /* out of descriptors or memory: the next taker wakes us for another try */
            pthread_cond_wait(&p->wake, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int netns_pool_new(size_t size, struct netns_pool **ret) {
    struct netns_pool *p = calloc(1, sizeof *p);

    if (!p)
        return -ENOMEM;
    p->size = MIN(size, (size_t)NETNS_POOL_MAX);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    int r = pthread_create(&p->thread, NULL, fill, p);
    if (r) {
        free(p);
        return -r;
    }
    *ret = p;
    return 0;
}

struct netns_pool *netns_pool_free(struct netns_pool *p) {
    if (!p)
        return NULL;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    while (p->n)
        fd_close(p->fds[--p->n]);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

int netns_pool_take(struct netns_pool *p) {
    int fd = -1;

    pthread_mutex_lock(&p->lock);
    if (p->n)
        fd = p->fds[--p->n];
    pthread_mutex_unlock(&p->lock);
    return fd >= 0 ? fd : netns_make();
}

void netns_pool_refill(struct netns_pool *p) {
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}
