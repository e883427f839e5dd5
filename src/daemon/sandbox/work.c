/*
 * Worker threads (see work.h). One mutex guards both queues and the thread count; the loop side is
 * entered through one uv_async handle. Threads are detached from nobody: stop waits until the last
 * has left. Only the service uses this.
 */
#include "daemon/sandbox/work.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define IDLE_SECONDS 10
#define STACK_BYTES (256u << 10)

struct work_pool {
    uv_async_t async;
    pthread_mutex_t lock;
    pthread_cond_t more, changed;
    struct list todo, finished;
    unsigned threads, idle, max;
    size_t n_todo, pending;
    bool stopping;
};

static void finish(struct work_pool *p, struct job *j) {
    list_append(&p->finished, &j->link);
    uv_async_send(&p->async);
}

/* Waits for a job; NULL = this thread should end. Called and returns with the lock held. */
static struct job *next_job(struct work_pool *p) {
    struct timespec until;

    while (list_is_empty(&p->todo)) {
        if (p->stopping)
            return NULL;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += IDLE_SECONDS;
        p->idle++;
        int r = pthread_cond_timedwait(&p->more, &p->lock, &until);
        p->idle--;
        if (r == ETIMEDOUT && list_is_empty(&p->todo))
            return NULL;
    }
    struct job *j = list_entry(p->todo.next, struct job, link);
    list_remove(&j->link);
    p->n_todo--;
    return j;
}

static void *worker(void *arg) {
    struct work_pool *p = arg;
    struct job *j;

    pthread_mutex_lock(&p->lock);
    while ((j = next_job(p))) {
        pthread_mutex_unlock(&p->lock);
        j->run(j);
        pthread_mutex_lock(&p->lock);
        finish(p, j);
    }
    p->threads--;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals stay with the loop thread. */
static int start_thread(struct work_pool *p) {
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_t t;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(&t, &attr, worker, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (r == 0)
        p->threads++;
    return -r;
}

static void on_async(uv_async_t *h) {
    struct work_pool *p = h->data;
    struct list batch;

    list_init(&batch);
    pthread_mutex_lock(&p->lock);
    while (!list_is_empty(&p->finished)) {
        struct list *l = p->finished.next;
        list_remove(l);
        list_append(&batch, l);
    }
    pthread_mutex_unlock(&p->lock);
    while (!list_is_empty(&batch)) {
        struct job *j = list_entry(batch.next, struct job, link);
        list_remove(&j->link);
        pthread_mutex_lock(&p->lock);
        p->pending--;
        pthread_mutex_unlock(&p->lock);
        j->done(j);
    }
}

int work_pool_new(uv_loop_t *loop, unsigned max_threads, struct work_pool **ret) {
    struct work_pool *p = calloc(1, sizeof *p);
    pthread_condattr_t attr;

    if (!p)
        return -ENOMEM;
    int r = uv_async_init(loop, &p->async, on_async);
    if (r < 0) {
        free(p);
        return r;
    }
    p->async.data = p;
    p->max = MAX(max_threads, 1u);
    list_init(&p->todo);
    list_init(&p->finished);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->more, &attr);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    *ret = p;
    return 0;
}

void work_submit(struct work_pool *p, struct job *j) {
    list_init(&j->link);
    pthread_mutex_lock(&p->lock);
    p->pending++;
    list_append(&p->todo, &j->link);
    p->n_todo++;
    if (!p->stopping &&
        (p->n_todo <= p->idle || p->threads == p->max || start_thread(p) == 0 || p->threads > 0)) {
        pthread_cond_signal(&p->more);
        pthread_mutex_unlock(&p->lock);
        return;
    }
    /* no thread at all can be had: the loop does it itself rather than never */
    list_remove(&j->link);
    p->n_todo--;
    pthread_mutex_unlock(&p->lock);
    j->run(j);
    pthread_mutex_lock(&p->lock);
    finish(p, j);
    pthread_mutex_unlock(&p->lock);
}

void work_post(struct work_pool *p, struct job *j) {
    list_init(&j->link);
    pthread_mutex_lock(&p->lock);
    p->pending++;
    finish(p, j);
    pthread_mutex_unlock(&p->lock);
}

void work_load(struct work_pool *p, struct work_load *ret) {
    pthread_mutex_lock(&p->lock);
    *ret = (struct work_load){p->threads, p->idle, p->max, p->n_todo};
    pthread_mutex_unlock(&p->lock);
}

/* Submitted or posted, not done; loop thread. */
static size_t work_pending(const struct work_pool *p) {
    struct work_pool *m = (struct work_pool *)p;
    pthread_mutex_lock(&m->lock);
    size_t n = m->pending;
    pthread_mutex_unlock(&m->lock);
    return n;
}

static void on_closed(uv_handle_t *h) {
    struct work_pool *p = h->data;
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->more);
    pthread_cond_destroy(&p->changed);
    free(p);
}

void work_pool_drain(struct work_pool *p) {
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->more);
    while (p->threads > 0)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    while (work_pending(p) > 0)
        on_async(&p->async); /* a done may submit again: then the loop thread runs it (no threads
                                are left) */
}

void work_pool_stop(struct work_pool *p) {
    work_pool_drain(p);
    uv_close((uv_handle_t *)&p->async, on_closed);
}
