/*
 * Where the engine listens: reading the address, connecting to it. No state beyond struct address,
 * which does not change after address_parse().
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/str.h"
#include "docker/internal.h"

#define UNIX_SLICE_MS 200 /* of a wait in the kernel that no descriptor can end */

void address_done(struct address *a) {
    free(TAKE_PTR(a->host_text));
    free(TAKE_PTR(a->path));
    free(TAKE_PTR(a->name));
    free(TAKE_PTR(a->port));
}

static int parse_unix(const char *path, struct address *a, struct err *err) {
    struct sockaddr_un un;

    if (!*path)
        path = "/var/run/docker.sock";
    if (*path != '/')
        return err_set(err, -EINVAL, "the Docker host \"unix://%s\" needs an absolute path", path);
    if (strlen(path) >= sizeof un.sun_path)
        return err_set(err, -EINVAL, "the path of the Docker host is longer than %zu bytes",
                       sizeof un.sun_path - 1);
    a->path = strdup(path);
    return a->path ? 0 : engine_oom(err);
}

/* HOST, HOST:PORT, [V6], [V6]:PORT; a single slash may follow */
static int parse_tcp(const char *s, struct address *a, struct err *err) {
    size_t len = strlen(s);
    const char *colon, *port = a->tls ? "2376" : "2375", *name = s;
    size_t name_len;
    uint64_t n;

    if (len && s[len - 1] == '/')
        len--;
    if (!len || memchr(s, '/', len) || memchr(s, '@', len) || strcspn(s, " \t\r\n") < len)
        return err_set(err, -EINVAL, "the Docker host \"%s\" is not HOST:PORT", a->host_text);
    if (*s == '[') {
        const char *end = memchr(s, ']', len);
        if (!end || (end + 1 < s + len && end[1] != ':'))
            return err_set(err, -EINVAL, "the Docker host \"%s\" is not [ADDRESS]:PORT",
                           a->host_text);
        name = s + 1;
        name_len = (size_t)(end - name);
        colon = end + 1 < s + len ? end + 1 : NULL;
    } else {
        colon = memchr(s, ':', len);
        name_len = colon ? (size_t)(colon - s) : len;
    }
    if (colon) {
        port = colon + 1;
        if (str_to_u64n(port, (size_t)(s + len - port), &n) < 0 || n < 1 || n > 65535)
            return err_set(err, -EINVAL, "the Docker host \"%s\" needs a port from 1 to 65535",
                           a->host_text);
        a->port = str_ndup(port, (size_t)(s + len - port));
    } else {
        a->port = strdup(port);
    }
    if (!name_len)
        return err_set(err, -EINVAL, "the Docker host \"%s\" has no name", a->host_text);
    a->name = str_ndup(name, name_len);
    return a->port && a->name ? 0 : engine_oom(err);
}

int address_parse(const char *text, bool verify, struct address *ret, struct err *err) {
    struct address a = {.host_text = strdup(text)};
    int r;

    if (!a.host_text)
        return engine_oom(err);
    if (str_starts(text, "unix://")) {
        r = parse_unix(text + strlen("unix://"), &a, err);
    } else if (str_starts(text, "https://")) {
        a.tls = true;
        r = parse_tcp(text + strlen("https://"), &a, err);
    } else if (str_starts(text, "http://")) {
        r = parse_tcp(text + strlen("http://"), &a, err);
    } else if (str_starts(text, "tcp://")) {
        a.tls = verify;
        r = parse_tcp(text + strlen("tcp://"), &a, err);
    } else {
        r = err_set(err, -EINVAL,
                    "the Docker host \"%s\" is none of unix:///PATH, tcp://HOST:PORT, "
                    "http://HOST:PORT, https://HOST:PORT",
                    text);
    }
    if (r < 0) {
        address_done(&a);
        return r;
    }
    *ret = a;
    return 0;
}

/*
 * A Unix socket whose queue is full makes connect() wait in the kernel, and nothing to poll tells
 * when there is room: it waits there in slices, between which cancellation is looked at.
 */
static int connect_unix(const char *path, const struct limit *l, int *ret_fd) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int64_t left = limit_left_ms(l);
    int64_t end = left < 0 ? INT64_MAX : clock_mono_ms() + left;
    struct limit now = {.deadline_ms = 0, .silence_ms = -1, .cancel_fd = l->cancel_fd};
    struct timeval slice = {
        .tv_usec = (int)MIN(left < 0 ? UNIX_SLICE_MS : MAX(left, 1), UNIX_SLICE_MS) * 1000};

    if (fd < 0)
        return -errno;
    memcpy(un.sun_path, path, strlen(path));
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof slice) < 0)
        return -errno;
    while (connect(fd, (struct sockaddr *)&un, sizeof un) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        if (limit_wait(&now, -1, 0) == -ECANCELED)
            return -ECANCELED;
        if (clock_mono_ms() >= end)
            return -ETIMEDOUT;
    }
    if (fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int connect_one(const struct addrinfo *ai, const struct limit *l, int *ret_fd) {
    _cleanup_close_ int fd =
        socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
    int on = 1, failure = 0, r;
    socklen_t size = sizeof failure;

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* streams without a time limit (events) notice a host that is gone */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        if (errno != EINPROGRESS && errno != EINTR)
            return -errno;
        r = limit_wait(l, fd, POLLOUT);
        if (r < 0)
            return r;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) < 0)
            return -errno;
        if (failure)
            return -failure;
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int connect_tcp(const struct address *a, const struct limit *l, int *ret_fd,
                       struct err *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    int r = getaddrinfo(a->name, a->port, &hints, &list);

    if (r != 0)
        return err_set(err, -EHOSTUNREACH, "cannot resolve the Docker host %s: %s", a->name,
                       gai_strerror(r));
    r = -EHOSTUNREACH;
    for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        r = connect_one(ai, l, ret_fd);
        if (r == 0 || r == -ETIMEDOUT || r == -ECANCELED)
            break;
    }
    freeaddrinfo(list);
    return r;
}

int address_connect(const struct address *a, const struct limit *l, int *ret_fd, struct err *err) {
    struct err why = {0};
    int r = a->path ? connect_unix(a->path, l, ret_fd) : connect_tcp(a, l, ret_fd, &why);

    if (r == 0)
        return 0;
    if (r == -ETIMEDOUT || r == -ECANCELED || r == -ENOMEM)
        return engine_failure(err, r, "connecting to the Docker engine");
    if (why.code)
        return err_set(err, -EHOSTUNREACH, "%s", why.msg);
    return err_set(err, -EHOSTUNREACH, "cannot connect to the Docker engine at %s: %s",
                   a->host_text, strerror(-r));
}
