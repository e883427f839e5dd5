/* Blocking file work on a worker thread, one step at a time, with its end told on the loop. */
#pragma once

#include <uv.h>

struct work {
    uv_work_t uv;
    void (*run)(void *ud);  /* worker thread: may block, touches nothing but what ud owns */
    void (*done)(void *ud); /* loop thread */
    void *ud;
};
/* w and ud must live until `done`. 0 or a negative errno (then done does not come). */
int work_start(uv_loop_t *loop, struct work *w, void (*run)(void *ud), void (*done)(void *ud),
               void *ud);
