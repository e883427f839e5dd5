/* An allocator that fails once, on request (see test-nomem.h). */
#include "net/test-nomem.h"

#include <stdlib.h>

#include "base/test.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t m);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t m);
char *__wrap_strdup(const char *s);

static long left = -1; /* allocations that still succeed; -1 = all */

static bool refuses(void) {
    return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t n) {
    return refuses() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m) {
    return refuses() ? NULL : __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n) {
    return refuses() ? NULL : __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t n, size_t m) {
    return refuses() ? NULL : __real_reallocarray(p, n, m);
}

char *__wrap_strdup(const char *s) {
    return refuses() ? NULL : __real_strdup(s);
}

void nomem_arm(long n) {
    left = n;
}

bool nomem_disarm(void) {
    bool hit = left < 0;
    left = -1;
    return hit;
}

void nomem_exhaust(int (*fn)(void), bool may_do_without) {
    for (long n = 0; n < 1000; n++) {
        nomem_arm(n);
        int r = fn();
        bool hit = nomem_disarm();
        if (r == 0 && !hit) {
            ASSERT(n > 0); /* it does allocate */
            return;
        }
        ASSERT(r < 0 || !hit || may_do_without);
    }
    test_fail(__FILE__, __LINE__, "never succeeds");
}
