/* Worker steps (see work.h): a thin cover of libuv's pool. */
#include "execd/work.h"

#include "base/macros.h"

static void on_run(uv_work_t *uv) {
    struct work *w = container_of(uv, struct work, uv);
    w->run(w->ud);
}

static void on_done(uv_work_t *uv, int status) {
    struct work *w = container_of(uv, struct work, uv);
    w->done(w->ud);
}

int work_start(uv_loop_t *loop, struct work *w, void (*run)(void *ud), void (*done)(void *ud),
               void *ud) {
    w->run = run;
    w->done = done;
    w->ud = ud;
    return uv_queue_work(loop, &w->uv, on_run, on_done);
}
