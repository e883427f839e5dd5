/*
 * Limits: what ends a wait (deadline, silence, cancellation), and the words for it. Owns struct
 * engine_cancel. Called by everything in src/docker that blocks.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "docker/internal.h"

struct engine_cancel {
    int fd; /* eventfd; readable for ever once fired */
    atomic_bool fired;
};

int engine_cancel_new(struct engine_cancel **ret) {
    _cleanup_free_ struct engine_cancel *c = calloc(1, sizeof *c);

    if (!c)
        return -ENOMEM;
    c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->fd < 0)
        return -errno;
    *ret = TAKE_PTR(c);
    return 0;
}

void engine_cancel_fire(struct engine_cancel *c) {
    uint64_t one = 1;

    if (atomic_exchange(&c->fired, true))
        return;
    while (write(c->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

bool engine_cancel_fired(const struct engine_cancel *c) {
    return atomic_load(&c->fired);
}

void engine_cancel_free(struct engine_cancel *c) {
    if (!c)
        return;
    fd_close(c->fd);
    free(c);
}

struct limit limit_call(unsigned timeout_ms, const struct engine_cancel *cancel) {
    return (struct limit){.deadline_ms = clock_mono_ms() + timeout_ms,
                          .silence_ms = -1,
                          .cancel_fd = cancel ? cancel->fd : -1};
}

struct limit limit_stream(int64_t silence_ms, const struct engine_cancel *cancel) {
    return (struct limit){
        .deadline_ms = INT64_MAX, .silence_ms = silence_ms, .cancel_fd = cancel ? cancel->fd : -1};
}

static int64_t end_of_wait(const struct limit *l) {
    int64_t end = l->deadline_ms;

    if (l->silence_ms >= 0)
        end = MIN(end, clock_mono_ms() + l->silence_ms);
    return end;
}

int64_t limit_left_ms(const struct limit *l) {
    int64_t end = end_of_wait(l);

    return end == INT64_MAX ? -1 : MAX(0, end - clock_mono_ms());
}

int limit_wait(const struct limit *l, int fd, short events) {
    int64_t end = end_of_wait(l);

    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = l->cancel_fd, .events = POLLIN}};
        int64_t left = end == INT64_MAX ? -1 : MAX(0, end - clock_mono_ms());
        int n = poll(p, 2, (int)MIN(left, (int64_t)1 << 30));

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0 && p[1].revents)
            return -ECANCELED;
        if (n > 0)
            return p[0].revents;
        if (n == 0 && (left == 0 || (end != INT64_MAX && clock_mono_ms() >= end)))
            return -ETIMEDOUT;
    }
}

int engine_failure(struct err *err, int code, const char *doing) {
    switch (code) {
    case -ECANCELED:
        return err_set(err, code, "%s: cancelled", doing);
    case -ETIMEDOUT:
        return err_set(err, code, "%s: the Docker engine did not answer in time", doing);
    case -EPIPE:
    case -ECONNRESET:
        return err_set(err, -ECONNRESET, "%s: the Docker engine dropped the connection", doing);
    case -ENOMEM:
        return engine_oom(err);
    default:
        return err_sys(err, code, "%s", doing);
    }
}
