/* Replay ring (see ring.h). Invariant: bytes max(0, end - cap) .. end are valid. */
#include "execd/ring.h"

#include <string.h>

#define FIRST ((size_t)4 << 10)

uint64_t ring_start(const struct ring *r) {
    return r->end > r->cap ? r->end - r->cap : 0;
}

static void put(struct ring *r, uint64_t at, const char *data, size_t len) {
    size_t pos = (size_t)(at & (r->cap - 1)), first = MIN(len, r->cap - pos);

    memcpy(r->data + pos, data, first);
    memcpy(r->data, data + first, len - first);
}

static void get(const struct ring *r, uint64_t at, char *ret, size_t len) {
    size_t pos = (size_t)(at & (r->cap - 1)), first = MIN(len, r->cap - pos);

    memcpy(ret, r->data + pos, first);
    memcpy(ret + first, r->data, len - first);
}

/* Enough room for `need` bytes in all, or as much as there may be. */
static bool grow(struct ring *r, size_t need) {
    size_t cap = r->cap ? r->cap : FIRST, had = (size_t)(r->end - ring_start(r));
    uint64_t start = ring_start(r);

    while (cap < need && cap < RING_MAX)
        cap *= 2;
    if (cap == r->cap)
        return true;
    struct ring bigger = {.data = malloc(cap), .cap = cap, .end = r->end};
    if (!bigger.data)
        return r->cap > 0;
    if (had > 0) {
        size_t pos = (size_t)(start & (cap - 1)), first = MIN(had, cap - pos);
        get(r, start, bigger.data + pos, first);
        get(r, start + first, bigger.data, had - first);
    }
    free(r->data);
    *r = bigger;
    return true;
}

void ring_append(struct ring *r, const char *data, size_t len) {
    if (len > RING_MAX) {
        r->end += len - RING_MAX;
        data += len - RING_MAX;
        len = RING_MAX;
    }
    uint64_t want = MIN(r->end - ring_start(r) + len, (uint64_t)RING_MAX);
    if (grow(r, (size_t)want)) {
        size_t skip = len > r->cap ? len - r->cap : 0;
        put(r, r->end + skip, data + skip, len - skip);
    }
    r->end += len;
}

char *ring_copy(const struct ring *r, uint64_t *from, size_t head, size_t *ret_len) {
    *from = MIN(MAX(*from, ring_start(r)), r->end);
    size_t len = (size_t)(r->end - *from);
    char *p = malloc(head + len + 1);

    if (!p)
        return NULL;
    if (len > 0 && r->cap > 0)
        get(r, *from, p + head, len);
    *ret_len = len;
    return p;
}

void ring_done(struct ring *r) {
    free(r->data);
    *r = (struct ring){0};
}
