/*
 * Network namespaces (see netns.h). A namespace belongs to a thread, so entering one never disturbs
 * other threads; what must not happen is a thread that stays in a sandbox's namespace, hence
 * abort().
 */
#include "daemon/driver/native/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
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

/* ---- the pool ---- */

static int make_one(_unused_ void *ud, void *ret_item) {
    int fd = netns_make();
    *(int *)ret_item = fd;
    return fd < 0 ? fd : 0;
}

static void discard_one(_unused_ void *ud, void *item) {
    fd_close(*(int *)item);
}

int netns_pool_new(size_t size, struct stock **ret) {
    static const struct stock_kind kind = {
        .item_size = sizeof(int), .max = NETNS_POOL_MAX, .make = make_one, .discard = discard_one};
    return stock_new(&kind, size, NULL, ret);
}

int netns_pool_take(struct stock *pool) {
    int fd;
    return stock_take(pool, &fd) ? fd : netns_make();
}
