/*
 * When sandboxes end by themselves. Owns a binary heap ordered by fire_us and one timerfd on the
 * wall clock, armed for the first entry; setting the clock wakes it too (TFD_TIMER_CANCEL_ON_SET),
 * so an expiry is neither missed nor early when the clock jumps. Whether something that fired
 * really ends is decided later, when the removal has its turn (delete.c): a renewal that was faster
 * wins. Loop thread only.
 */
#include <errno.h>
#include <sys/timerfd.h>

#include "base/log.h"
#include "daemon/sandbox/internal.h"

struct expiry {
    struct service *svc;
    uv_poll_t poll;
    int fd;
    struct sandbox **heap;
    size_t n, cap;
    int64_t armed_us; /* what the timer was last set to; 0 = off */
};

static void place(struct expiry *e, size_t i, struct sandbox *sb) {
    e->heap[i] = sb;
    sb->heap_pos = i + 1;
}

static void sift_up(struct expiry *e, size_t i) {
    struct sandbox *sb = e->heap[i];
    while (i > 0 && e->heap[(i - 1) / 2]->fire_us > sb->fire_us) {
        place(e, i, e->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(e, i, sb);
}

static void sift_down(struct expiry *e, size_t i) {
    struct sandbox *sb = e->heap[i];
    for (;;) {
        size_t c = 2 * i + 1;
        if (c + 1 < e->n && e->heap[c + 1]->fire_us < e->heap[c]->fire_us)
            c++;
        if (c >= e->n || e->heap[c]->fire_us >= sb->fire_us)
            break;
        place(e, i, e->heap[c]);
        i = c;
    }
    place(e, i, sb);
}

static void take_out(struct expiry *e, struct sandbox *sb) {
    size_t i = sb->heap_pos - 1;
    struct sandbox *last = e->heap[--e->n];

    sb->heap_pos = 0;
    if (last == sb)
        return;
    place(e, i, last);
    sift_up(e, i);
    sift_down(e, last->heap_pos - 1);
}

static void arm(struct expiry *e) {
    struct itimerspec t = {0};

    e->armed_us = e->n > 0 ? MAX(e->heap[0]->fire_us, 1) : 0;
    t.it_value.tv_sec = e->armed_us / 1000000;
    t.it_value.tv_nsec = e->armed_us % 1000000 * 1000;
    timerfd_settime(e->fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &t, NULL);
}

static int make_room(struct expiry *e) {
    if (e->n < e->cap)
        return 0;
    size_t cap = e->cap ? e->cap * 2 : 64;
    struct sandbox **h = reallocarray(e->heap, cap, sizeof *h);
    if (!h)
        return -ENOMEM;
    e->heap = h;
    e->cap = cap;
    return 0;
}

void expiry_schedule(struct service *s, struct sandbox *sb) {
    struct expiry *e = s->expiry;

    if (sb->heap_pos)
        take_out(e, sb);
    if (sb->fire_us) {
        if (make_room(e) < 0) {
            /* better early than never: it is looked at again when the first entry fires */
            log_error("no memory for the expiry timer", LOG_STR("sandbox", sb->spec.id));
            return;
        }
        place(e, e->n, sb);
        sift_up(e, e->n++);
    }
    if (e->armed_us != (e->n ? MAX(e->heap[0]->fire_us, 1) : 0))
        arm(e);
}

void expiry_run(struct service *s) {
    struct expiry *e = s->expiry;
    int64_t now = service_now(s);

    while (e->n > 0 && e->heap[0]->fire_us <= now) {
        struct sandbox *sb = e->heap[0];
        sb->fire_us = 0; /* out of the heap while its removal waits; delete.c puts it back */
        take_out(e, sb);
        delete_expired(s, sb);
    }
    arm(e);
}

static void on_timer(uv_poll_t *h, int status, int events) {
    struct expiry *e = h->data;
    uint64_t n;

    if (read(e->fd, &n, sizeof n) < 0 && errno == EAGAIN)
        return;
    expiry_run(e->svc); /* also after ECANCELED: the clock was set */
}

int expiry_new(struct service *s, struct expiry **ret, struct err *err) {
    struct expiry *e = calloc(1, sizeof *e);

    if (!e)
        return err_set(err, -ENOMEM, "out of memory");
    e->svc = s;
    e->fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (e->fd < 0) {
        free(e);
        return err_sys(err, -errno, "expiry timer");
    }
    int r = uv_poll_init(s->o.loop, &e->poll, e->fd);
    if (r < 0) {
        fd_close(e->fd);
        free(e);
        return err_sys(err, r, "expiry timer");
    }
    e->poll.data = e;
    uv_poll_start(&e->poll, UV_READABLE, on_timer);
    *ret = e;
    return 0;
}

static void on_closed(uv_handle_t *h) {
    struct expiry *e = h->data;
    fd_close(e->fd);
    free(e->heap);
    free(e);
}

void expiry_free(struct expiry *e) {
    if (!e)
        return;
    e->n = 0;
    uv_poll_stop(&e->poll);
    uv_close((uv_handle_t *)&e->poll, on_closed);
}
