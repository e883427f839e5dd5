/*
 * String-keyed hash map. Keys are copied; values are borrowed pointers. Hashed with SipHash under a
 * per-process random key, since keys often come from outside. Iteration order is insertion order.
 */
#pragma once

#include "base/macros.h"

struct map;

struct map *map_new(void);           /* NULL on -ENOMEM */
struct map *map_free(struct map *m); /* values are not touched; returns NULL */
DEFINE_CLEANUP(struct map, map_free)

void *map_get(const struct map *m, const char *key);
bool map_has(const struct map *m, const char *key);
/* Adds or replaces; *ret_old (may be NULL) gets the replaced value or NULL. 0 or -ENOMEM. */
int map_set(struct map *m, const char *key, void *value, void **ret_old);
void *map_remove(struct map *m, const char *key); /* the removed value or NULL */
size_t map_size(const struct map *m);
/* for (size_t i = 0; map_next(m, &i, &key, &value);) ; removing the current entry inside is
 * allowed. */
bool map_next(const struct map *m, size_t *cursor, const char **ret_key, void **ret_value);
