/*
 * A thread that keeps `size` items ready and sleeps on a condition otherwise (see stock.h). The
 * lock guards the items and is not held while one is made. When making fails, the next
 * stock_refill() is the next try.
 */
#include "daemon/driver/native/stock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

void thread_is_background(void) {
    struct sched_param p = {0};
    (void)sched_setscheduler(0, SCHED_BATCH, &p); /* 0: the calling thread */
}

struct stock {
    const struct stock_kind *kind;
    void *ud;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    size_t size, n;
    bool stop;
    /* n of them, and room behind for the one that is being made */
    _Alignas(max_align_t) char items[];
};

static char *item(struct stock *s, size_t i) {
    return s->items + i * s->kind->item_size;
}

static void *fill(void *arg) {
    struct stock *s = arg;

    thread_is_background();
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        bool full = s->n >= s->size;
        int r = 0;
        if (!full) {
            char *made = item(s, s->size);
            pthread_mutex_unlock(&s->lock);
            r = s->kind->make(s->ud, made);
            pthread_mutex_lock(&s->lock);
            if (r >= 0)
                memcpy(item(s, s->n++), made, s->kind->item_size);
        }
        if ((full || r < 0) && !s->stop)
            pthread_cond_wait(&s->wake, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int stock_new(const struct stock_kind *kind, size_t size, void *ud, struct stock **ret) {
    size = MIN(size, kind->max);
    struct stock *s = calloc(1, sizeof *s + (size + 1) * kind->item_size);

    if (!s)
        return -ENOMEM;
    s->kind = kind;
    s->ud = ud;
    s->size = size;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    int r = pthread_create(&s->thread, NULL, fill, s);
    if (r) {
        free(s);
        return -r;
    }
    *ret = s;
    return 0;
}

struct stock *stock_free(struct stock *s) {
    if (!s)
        return NULL;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    while (s->n)
        s->kind->discard(s->ud, item(s, --s->n));
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return NULL;
}

bool stock_take(struct stock *s, void *ret_item) {
    bool found = false;

    if (!s)
        return false;
    pthread_mutex_lock(&s->lock);
    if (s->n) {
        memcpy(ret_item, item(s, 0), s->kind->item_size);
        memmove(item(s, 0), item(s, 1), --s->n * s->kind->item_size);
        found = true;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

void stock_refill(struct stock *s) {
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}
