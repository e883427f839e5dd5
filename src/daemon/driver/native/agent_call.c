/*
 * A small blocking HTTP/1.1 client for the two calls the driver itself makes (see agent_call.h). It
 * trusts the agent only so far: sizes are bounded, and the whole exchange has one deadline.
 */
#include "daemon/driver/native/agent_call.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "daemon/driver/native/netns.h"

#define ANSWER_MAX (64 << 10)

static int wait_for(const struct agent_call *c, int fd, short events, int64_t deadline_ms) {
    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = c->pidfd, .events = POLLIN}};
        int64_t left = deadline_ms - clock_mono_ms();
        int n = left <= 0 ? 0 : poll(p, 2, (int)left);
        if (n == 0)
            return -ETIMEDOUT;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0 && p[0].revents)
            return 0; /* also errors: the next call names them */
        if (n > 0 && p[1].revents)
            return -ESRCH;
    }
}

static int dial(const struct agent_call *c, int64_t deadline_ms) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(c->port)};
    _cleanup_close_ int s = netns_tcp(c->netns_fd);
    int failed = 0, r;
    socklen_t size = sizeof failed;

    if (s < 0)
        return s;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_set_nonblock(s, true);
    if (connect(s, (struct sockaddr *)&a, sizeof a) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        r = wait_for(c, s, POLLOUT, deadline_ms);
        if (r < 0)
            return r;
        if (getsockopt(s, SOL_SOCKET, SO_ERROR, &failed, &size) < 0 || failed)
            return failed ? -failed : -errno;
    }
    return TAKE_FD(s);
}

static int send_all(const struct agent_call *c, int s, const struct buf *b, int64_t deadline_ms) {
    for (size_t at = 0; at < b->len;) {
        ssize_t n = send(s, b->data + at, b->len - at, MSG_NOSIGNAL);
        if (n >= 0) {
            at += (size_t)n;
            continue;
        }
        int r = errno == EAGAIN ? wait_for(c, s, POLLOUT, deadline_ms) : -errno;
        if (r < 0)
            return r;
    }
    return 0;
}

/* Value of Content-Length in a complete head, or -1. */
static long content_length(const char *head, const char *end) {
    for (const char *p = head; p && p < end; p = strstr(p, "\r\n"), p = p ? p + 2 : NULL)
        if (strncasecmp(p, "content-length:", 15) == 0)
            return strtol(p + 15, NULL, 10);
    return -1;
}

int agent_answer_parse(const char *data, size_t len, bool at_end, size_t *ret_body) {
    const char *end = len ? strstr(data, "\r\n\r\n") : NULL;
    unsigned status;

    if (!end)
        return at_end ? -ECONNRESET : 0;
    size_t body = (size_t)(end + 4 - data);
    long want = content_length(data, end);
    if (!at_end && (want < 0 || len - body < (size_t)want))
        return 0;
    if (sscanf(data, "HTTP/1.%*1[0-9] %3u", &status) != 1 || status < 100)
        return -EPROTO;
    *ret_body = body;
    return (int)status;
}

/* Reads one answer: its status, and where the body begins in the buffer. */
static int read_answer(const struct agent_call *c, int s, int64_t deadline_ms, struct buf *in,
                       size_t *ret_body) {
    char chunk[8192];

    for (;;) {
        ssize_t n = recv(s, chunk, sizeof chunk, 0);
        int r = n > 0             ? buf_append(in, chunk, (size_t)n)
                : n == 0          ? 0
                : errno == EAGAIN ? wait_for(c, s, POLLIN, deadline_ms)
                                  : -errno;
        if (r == 0 && n >= 0)
            r = agent_answer_parse(in->data, in->len, n == 0, ret_body);
        if (r != 0)
            return r;
    }
}

static int exchange(const struct agent_call *c, const struct buf *request, struct buf *in,
                    size_t *ret_body) {
    int64_t deadline = clock_mono_ms() + c->timeout_ms;
    _cleanup_close_ int s = dial(c, deadline);
    int r;

    if (s < 0)
        return s;
    r = send_all(c, s, request, deadline);
    return r < 0 ? r : read_answer(c, s, deadline, in, ret_body);
}

static int failed(const struct agent_call *c, int r, struct err *err) {
    if (r == -ESRCH || r == -ECONNRESET || r == -EPIPE || r == -ECONNREFUSED)
        return err_set(err, -ESRCH, "the agent ended before it answered");
    if (r == -ETIMEDOUT)
        return err_set(err, r, "the agent did not answer within %d ms", c->timeout_ms);
    return err_sys(err, -EIO, "talking to the agent (%s)", strerror(-r));
}

int agent_claim(const struct agent_call *c, const json_t *body, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT((size_t)8 << 20), req = BUF_INIT((size_t)9 << 20),
                             in = BUF_INIT(ANSWER_MAX);
    size_t at = 0;
    int r;

    buf_json(&text, body);
    buf_printf(&req,
               "POST /claim HTTP/1.1\r\nHost: agent\r\nContent-Type: "
               "application/json\r\nContent-Length: %zu\r\n",
               text.len);
    if (c->token)
        buf_printf(&req, "X-EXECD-ACCESS-TOKEN: %s\r\n", c->token);
    buf_str(&req, "Connection: close\r\n\r\n");
    buf_append(&req, text.data, text.len);
    if (!buf_ok(&text) || !buf_ok(&req))
        return err_set(err, -EINVAL, "environment and entrypoint exceed 8 MiB");
    r = exchange(c, &req, &in, &at);
    explicit_bzero(req.data, req.len);
    explicit_bzero(text.data, text.len);
    if (r < 0)
        return failed(c, r, err);
    if (r == 200)
        return 0;
    _cleanup_json_ json_t *answer = json_parse(in.data + at, in.len - at, NULL);
    const char *why = json_str(answer, "message");
    return err_set(err, r == 400 ? -EINVAL : -EIO, "%s", why ? why : "the agent refused the claim");
}
