/*
 * One blocking GET to something that is just coming up, with a hard time limit: is the answer a
 * 2xx? For worker threads. Anything else (refused, reset, silence, not HTTP) is simply "not yet".
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/path.h"

/* Remaining time for poll(), at least 0. */
static int left_ms(int64_t deadline_ms) {
    int64_t left = deadline_ms - clock_mono_ms();
    return left < 0 ? 0 : (int)left;
}

static int wait_for(int fd, short events, int64_t deadline_ms) {
    struct pollfd p = {.fd = fd, .events = events};
    int r = poll(&p, 1, left_ms(deadline_ms));
    return r < 0 ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

static int dial(const struct addrinfo *ai, int64_t deadline_ms) {
    _cleanup_close_ int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t len = sizeof(int);
    int e = 0, r;

    if (fd < 0)
        return -errno;
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        r = wait_for(fd, POLLOUT, deadline_ms);
        if (r < 0)
            return r;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0 || e)
            return -(e ? e : EIO);
    }
    return TAKE_FD(fd);
}

static int send_all(int fd, const char *data, size_t len, int64_t deadline_ms) {
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n < 0 && wait_for(fd, POLLOUT, deadline_ms) < 0)
            return -ETIMEDOUT;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* "HTTP/1.x NNN": the status, or -EBADMSG. */
static int read_status(int fd, int64_t deadline_ms) {
    char head[16];
    size_t have = 0;
    int minor, status;

    while (have < 12) {
        ssize_t n = recv(fd, head + have, 12 - have, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return n == 0 ? -ECONNRESET : -errno;
        if (n < 0 && wait_for(fd, POLLIN, deadline_ms) < 0)
            return -ETIMEDOUT;
        if (n > 0)
            have += (size_t)n;
    }
    head[have] = 0;
    return sscanf(head, "HTTP/1.%1d %3d", &minor, &status) == 2 ? status : -EBADMSG;
}

int docker_probe_http(const char *host, uint16_t port, const char *path, const char *header,
                      unsigned timeout_ms) {
    int64_t deadline_ms = clock_mono_ms() + timeout_ms;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *ai;
    char service[8], request[512];
    int r = -EHOSTUNREACH;

    snprintf(service, sizeof service, "%u", port);
    int len = snprintf(request, sizeof request,
                       "GET %s HTTP/1.1\r\nHost: %s:%u\r\n%s%sConnection: close\r\n\r\n", path,
                       host, port, header ?: "", header ? "\r\n" : "");
    if (len < 0 || (size_t)len >= sizeof request)
        return -EINVAL;
    if (getaddrinfo(host, service, &hints, &ai) != 0)
        return -EHOSTUNREACH;
    for (const struct addrinfo *a = ai; a && r < 0; a = a->ai_next) {
        _cleanup_close_ int fd = dial(a, deadline_ms);
        r = fd < 0 ? fd : send_all(fd, request, (size_t)len, deadline_ms);
        if (r == 0)
            r = read_status(fd, deadline_ms);
    }
    freeaddrinfo(ai);
    explicit_bzero(request, sizeof request);
    return r < 0 ? r : r / 100 == 2 ? 0 : -EAGAIN;
}
