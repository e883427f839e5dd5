/* Timers (see timer.h). Owns the libuv handle, which outlives timer_free until the loop lets go of
 * it. */
#include "execd/timer.h"

#include "base/macros.h"

struct timer {
    uv_timer_t uv;
    timer_cb cb;
    void *ud;
};

static void on_timer(uv_timer_t *h) {
    struct timer *t = container_of(h, struct timer, uv);
    t->cb(t->ud);
}

static void on_closed(uv_handle_t *h) {
    free(container_of((uv_timer_t *)h, struct timer, uv));
}

struct timer *timer_new(uv_loop_t *loop, timer_cb cb, void *ud) {
    struct timer *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    uv_timer_init(loop, &t->uv);
    t->cb = cb;
    t->ud = ud;
    return t;
}

void timer_start(struct timer *t, uint64_t ms, uint64_t repeat_ms) {
    if (!t)
        return;
    uv_update_time(t->uv.loop); /* the loop's clock stands still during callbacks */
    uv_timer_start(&t->uv, on_timer, ms, repeat_ms);
}

void timer_stop(struct timer *t) {
    if (t)
        uv_timer_stop(&t->uv);
}

uint64_t timer_due_in(const struct timer *t) {
    return t && uv_is_active((const uv_handle_t *)&t->uv) ? uv_timer_get_due_in(&t->uv)
                                                          : UINT64_MAX;
}

void timer_free(struct timer *t) {
    if (t)
        uv_close((uv_handle_t *)&t->uv, on_closed);
}
