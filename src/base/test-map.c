#include "base/map.h"

#include <stdio.h>

#include "base/test.h"

TEST(many_sets_gets_removes) {
    _cleanup_(map_freep) struct map *m = map_new();
    char key[32];
    void *old;
    for (intptr_t i = 1; i <= 5000; i++) {
        snprintf(key, sizeof key, "key-%ld", (long)i);
        ASSERT_OK(map_set(m, key, (void *)i, &old));
        ASSERT(old == NULL);
    }
    ASSERT_INT(map_size(m), 5000);
    for (intptr_t i = 1; i <= 5000; i += 2) {
        snprintf(key, sizeof key, "key-%ld", (long)i);
        ASSERT(map_remove(m, key) == (void *)i);
        ASSERT(map_remove(m, key) == NULL);
    }
    ASSERT_INT(map_size(m), 2500);
    for (intptr_t i = 1; i <= 5000; i++) {
        snprintf(key, sizeof key, "key-%ld", (long)i);
        ASSERT(map_get(m, key) == (i % 2 ? NULL : (void *)i));
    }
    size_t cur = 0, n = 0;
    const char *k;
    void *v;
    intptr_t prev = 0;
    while (map_next(m, &cur, &k, &v)) {
        ASSERT((intptr_t)v > prev);
        prev = (intptr_t)v;
        n++;
    }
    ASSERT_INT(n, 2500);
}

TEST(set_and_remove_over_and_over_stays_small) {
    _cleanup_(map_freep) struct map *m = map_new();
    for (int i = 0; i < 100000; i++) {
        ASSERT_OK(map_set(m, "a", m, NULL));
        ASSERT(map_remove(m, "a") == m);
    }
    ASSERT_INT(map_size(m), 0);
    ASSERT(map_get(m, "a") == NULL && !map_has(m, "a"));
}

TEST(empty_map) {
    _cleanup_(map_freep) struct map *m = map_new();
    size_t cur = 0;
    ASSERT(map_get(m, "x") == NULL && map_remove(m, "x") == NULL && !map_next(m, &cur, NULL, NULL));
}
TEST_MAIN()
