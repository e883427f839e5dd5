/* A timer on the loop that can be freed at any moment, also from its own callback. */
#pragma once

#include <uv.h>

struct timer;
typedef void (*timer_cb)(void *ud);

struct timer *timer_new(uv_loop_t *loop, timer_cb cb, void *ud); /* NULL on -ENOMEM */
/* Once after ms, or every repeat_ms from then on. Restarts a running one. NULL is fine (nothing
 * happens). */
void timer_start(struct timer *t, uint64_t ms, uint64_t repeat_ms);
void timer_stop(struct timer *t);
uint64_t timer_due_in(const struct timer *t); /* UINT64_MAX when it does not run */
void timer_free(struct timer *t);             /* NULL is fine */
