/* Intrusive doubly linked list. A head and an unlinked node both point to themselves. */
#pragma once

#include "base/macros.h"

struct list {
    struct list *next, *prev;
};

#define LIST_INIT(name) \
    { &(name), &(name) }

static inline void list_init(struct list *l) {
    l->next = l->prev = l;
}
static inline bool list_is_empty(const struct list *l) {
    return l->next == l;
}
static inline void list_append(struct list *head, struct list *node) {
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}
static inline void list_remove(struct list *node) { /* harmless when already unlinked */
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}
#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_foreach(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
/* The body may remove `it`. */
#define list_foreach_safe(it, head)                                           \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
         it = it##_next, it##_next = it->next)
