/* Things made ahead of time by a thread of its own, and handed out oldest first. */
#pragma once

#include "base/err.h"

struct stock_kind {
    size_t item_size; /* items are moved as bytes */
    size_t max;       /* a stock never holds more, whatever its size */
    int (*make)(void *ud, void *ret_item);
    void (*discard)(void *ud, void *item);
};

/* For threads that work in the background: as much processor time as others, but waking them does
 * not take it away from whoever woke them. */
void thread_is_background(void);

struct stock;
/* kind is borrowed. The thread begins at once. */
int stock_new(const struct stock_kind *kind, size_t size, void *ud, struct stock **ret);
/* Ends the thread and discards what is left; returns NULL. */
struct stock *stock_free(struct stock *s);
/* The oldest item; false when none is ready. Never waits. s may be NULL: nothing is ready. */
bool stock_take(struct stock *s, void *ret_item);
/* Wakes the thread. Callers do so when what they took something for is done, so as not to compete
 * with it. s may be NULL. */
void stock_refill(struct stock *s);
