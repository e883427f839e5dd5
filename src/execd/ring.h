/* The last bytes of a terminal's output, addressed by their offset since its start. Grows up to
 * RING_MAX. */
#pragma once

#include "base/macros.h"

#define RING_MAX ((size_t)1 << 20)

struct ring {
    char *data;
    size_t cap;   /* power of two, or 0 */
    uint64_t end; /* bytes ever appended; byte n is at n % cap */
};

void ring_append(struct ring *r, const char *data,
                 size_t len); /* without memory the bytes are only counted */
uint64_t ring_start(const struct ring *r);
/* Copies [from, end) into a fresh allocation after `head` spare bytes; from is moved into the
 * range. NULL on -ENOMEM. */
char *ring_copy(const struct ring *r, uint64_t *from, size_t head, size_t *ret_len);
void ring_done(struct ring *r);
