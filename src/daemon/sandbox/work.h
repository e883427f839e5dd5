/*
 * Worker threads for blocking work of the loop: `run` is called on a worker, then `done` on the
 * loop thread. Threads start when needed, up to a maximum, and end after being idle for a while.
 * Jobs start in the order of submission. `post` brings a job that needs no worker to the loop from
 * any thread.
 */
#pragma once

#include <uv.h>

#include "base/list.h"
#include "base/macros.h"

struct work_pool;

struct job { /* embedded by the caller; stays valid until done was called */
    struct list link;
    void (*run)(struct job *j);
    void (*done)(struct job *j); /* may free the job */
};

int work_pool_new(uv_loop_t *loop, unsigned max_threads, struct work_pool **ret);
void work_submit(struct work_pool *p, struct job *j); /* loop thread */
void work_post(struct work_pool *p, struct job *j);   /* any thread; only `done` is called */
struct work_load {
    unsigned threads, idle, max;
    size_t waiting; /* submitted, no thread has taken them yet */
};
void work_load(struct work_pool *p, struct work_load *ret);
/*
 * Ends in two steps, on the loop thread. drain: runs what was submitted to its end, `done`
 * included, and stops the threads; what is submitted later runs at once on the loop. stop: flushes
 * what was posted since, closes the loop handle, and frees when the loop has run once more; nothing
 * may come afterwards.
 */
void work_pool_drain(struct work_pool *p);
void work_pool_stop(struct work_pool *p);
