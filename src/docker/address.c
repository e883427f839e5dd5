/*
 * Where the engine listens: reading the address, connecting to it. No state beyond struct
 * engine_address, which does not change after engine_address_parse().
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

void engine_address_done(struct engine_address *a) {
    free(TAKE_PTR(a->host_text));
    free(TAKE_PTR(a->path));
    free(TAKE_PTR(a->name));
    free(TAKE_PTR(a->port));
}

static int parse_unix(const char *path, struct engine_address *a, struct err *err) {
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

static int bad_host(const struct engine_address *a, const char *what, struct err *err) {
    /* what is no address may have a password in it */
    if (strchr(a->host_text, '@'))
        return err_set(err, -EINVAL, "the Docker host %s", what);
    return err_set(err, -EINVAL, "the Docker host \"%s\" %s", a->host_text, what);
}

/* HOST, HOST:PORT, [V6], [V6]:PORT; a single slash may follow */
static int parse_tcp(const char *s, struct engine_address *a, struct err *err) {
    size_t len = strlen(s), name_len;
    const char *colon, *port = a->tls ? "2376" : "2375", *name = s;
    uint64_t n;

    if (len && s[len - 1] == '/')
        len--;
    if (!len || memchr(s, '/', len) || memchr(s, '@', len) || strcspn(s, " \t\r\n") < len)
        return bad_host(a, "is not HOST:PORT", err);
    if (*s == '[') {
        const char *end = memchr(s, ']', len);
        if (!end || (end + 1 < s + len && end[1] != ':'))
            return bad_host(a, "is not [ADDRESS]:PORT", err);
        name = s + 1;
        name_len = (size_t)(end - name);
        colon = end + 1 < s + len ? end + 1 : NULL;
    } else {
        colon = memchr(s, ':', len);
        name_len = colon ? (size_t)(colon - s) : len;
    }
    if (!name_len)
        return bad_host(a, "has no name", err);
    if (colon) {
        port = colon + 1;
        if (str_to_u64n(port, (size_t)(s + len - port), &n) < 0 || n < 1 || n > 65535)
            return bad_host(a, "needs a port from 1 to 65535", err);
        a->port = str_ndup(port, (size_t)(s + len - port));
    } else {
        a->port = strdup(port);
    }
    a->name = str_ndup(name, name_len);
    return a->port && a->name ? 0 : engine_oom(err);
}

static int parse_any(const char *text, bool verify, struct engine_address *a, struct err *err) {
    if (str_starts(text, "unix://"))
        return parse_unix(text + strlen("unix://"), a, err);
    if (str_starts(text, "https://") || str_starts(text, "tcp://")) {
        a->tls = verify || *text == 'h';
        return parse_tcp(strstr(text, "//") + 2, a, err);
    }
    if (!str_starts(text, "http://"))
        return bad_host(a,
                        "is none of unix:///PATH, tcp://HOST:PORT, http://HOST:PORT, "
                        "https://HOST:PORT",
                        err);
    if (verify)
        return bad_host(a, "is plain HTTP, but TLS is asked for: use https:// or tcp://", err);
    return parse_tcp(text + strlen("http://"), a, err);
}

int engine_address_parse(const char *text, bool verify, struct engine_address *ret,
                         struct err *err) {
    struct engine_address a = {.host_text = strdup(text)};
    int r;

    if (!a.host_text)
        return engine_oom(err);
    r = parse_any(text, verify, &a, err);
    if (r < 0) {
        engine_address_done(&a);
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
    int on = 1, idle_s = 30, every_s = 10, times = 3, failure = 0, r;
    socklen_t size = sizeof failure;

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* streams without a time limit (events) notice a host that is gone */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
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

static int connect_tcp(const struct engine_address *a, const struct limit *l, int *ret_fd,
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

int engine_address_connect(const struct engine_address *a, const struct limit *l, int *ret_fd,
                           struct err *err) {
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
