/*
 * Hash map with insertion order (see map.h): a dense array of entries plus an open-addressing index
 * of positions. Removed entries leave a hole (key NULL) until the next rebuild.
 */
#include "base/map.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/id.h"

struct entry {
    char *key; /* NULL = removed */
    void *value;
    uint64_t hash;
};

struct map {
    struct entry *e;
    size_t n, cap, live; /* n: used slots of e, holes included */
    uint32_t *index;     /* position + 1, 0 = free; size is a power of two, more than twice cap */
    size_t mask;
};

static uint64_t sip_key[2];
static pthread_once_t sip_once = PTHREAD_ONCE_INIT;

static void sip_init(void) {
    random_bytes(sip_key, sizeof sip_key);
}

#define ROTL(x, b) ((x) << (b) | (x) >> (64 - (b)))
#define SIPROUND                                                  \
    do {                                                          \
        v0 += v1, v1 = ROTL(v1, 13), v1 ^= v0, v0 = ROTL(v0, 32); \
        v2 += v3, v3 = ROTL(v3, 16), v3 ^= v2;                    \
        v0 += v3, v3 = ROTL(v3, 21), v3 ^= v0;                    \
        v2 += v1, v1 = ROTL(v1, 17), v1 ^= v2, v2 = ROTL(v2, 32); \
    } while (0)

/* SipHash-1-3 */
static uint64_t hash_key(const char *s, size_t len) {
    uint64_t v0 = sip_key[0] ^ 0x736f6d6570736575ULL, v1 = sip_key[1] ^ 0x646f72616e646f6dULL;
    uint64_t v2 = sip_key[0] ^ 0x6c7967656e657261ULL, v3 = sip_key[1] ^ 0x7465646279746573ULL, m;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        memcpy(&m, s + i, 8);
        v3 ^= m;
        SIPROUND;
        v0 ^= m;
    }
    m = 0;
    memcpy(&m, s + i, len - i);
    m |= (uint64_t)len << 56;
    v3 ^= m;
    SIPROUND;
    v0 ^= m;
    v2 ^= 0xff;
    SIPROUND;
    SIPROUND;
    SIPROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

struct map *map_new(void) {
    pthread_once(&sip_once, sip_init);
    return calloc(1, sizeof(struct map));
}

struct map *map_free(struct map *m) {
    if (!m)
        return NULL;
    for (size_t i = 0; i < m->n; i++)
        free(m->e[i].key);
    free(m->e);
    free(m->index);
    free(m);
    return NULL;
}

static size_t *find_slot(const struct map *m, const char *key, uint64_t h, size_t *ret_slot) {
    size_t i = h & m->mask;
    for (;; i = (i + 1) & m->mask) {
        uint32_t pos = m->index[i];
        if (pos == 0) {
            *ret_slot = i;
            return NULL;
        }
        struct entry *e = &m->e[pos - 1];
        if (e->key && e->hash == h && strcmp(e->key, key) == 0) {
            *ret_slot = i;
            return ret_slot;
        }
    }
}

/* Drops holes and makes room for at least one more entry. */
static int rebuild(struct map *m) {
    size_t cap = m->live < 4 ? 8 : m->live * 2, size = 8;
    struct entry *e;
    uint32_t *index;

    while (size <= cap * 2)
        size *= 2;
    if (cap >= UINT32_MAX)
        return -ENOMEM;
    e = calloc(cap, sizeof *e);
    index = calloc(size, sizeof *index);
    if (!e || !index) {
        free(e);
        free(index);
        return -ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (!m->e[i].key)
            continue;
        size_t s = m->e[i].hash & (size - 1);
        while (index[s])
            s = (s + 1) & (size - 1);
        e[n] = m->e[i];
        index[s] = (uint32_t)++n;
    }
    free(m->e);
    free(m->index);
    m->e = e;
    m->index = index;
    m->n = n;
    m->cap = cap;
    m->mask = size - 1;
    return 0;
}

static struct entry *lookup(const struct map *m, const char *key) {
    size_t slot;
    if (!m || !m->index || !find_slot(m, key, hash_key(key, strlen(key)), &slot))
        return NULL;
    return &m->e[m->index[slot] - 1];
}

void *map_get(const struct map *m, const char *key) {
    struct entry *e = lookup(m, key);
    return e ? e->value : NULL;
}

bool map_has(const struct map *m, const char *key) {
    return lookup(m, key) != NULL;
}

int map_set(struct map *m, const char *key, void *value, void **ret_old) {
    struct entry *e = lookup(m, key);
    size_t slot;
    char *copy;

    if (ret_old)
        *ret_old = e ? e->value : NULL;
    if (e) {
        e->value = value;
        return 0;
    }
    copy = strdup(key);
    if (!copy)
        return -ENOMEM;
    if (m->n == m->cap && rebuild(m) < 0) {
        free(copy);
        return -ENOMEM;
    }
    uint64_t h = hash_key(key, strlen(key));
    find_slot(m, key, h, &slot);
    m->e[m->n] = (struct entry){copy, value, h};
    m->index[slot] = (uint32_t)++m->n;
    m->live++;
    return 0;
}

void *map_remove(struct map *m, const char *key) {
    struct entry *e = lookup(m, key);
    void *value;

    if (!e)
        return NULL;
    value = e->value;
    free(e->key);
    e->key = NULL; /* the index keeps pointing at the hole, so probe chains stay whole */
    e->value = NULL;
    m->live--;
    return value;
}

size_t map_size(const struct map *m) {
    return m ? m->live : 0;
}

bool map_next(const struct map *m, size_t *cursor, const char **ret_key, void **ret_value) {
    while (m && *cursor < m->n) {
        struct entry *e = &m->e[(*cursor)++];
        if (!e->key)
            continue;
        if (ret_key)
            *ret_key = e->key;
        if (ret_value)
            *ret_value = e->value;
        return true;
    }
    return false;
}
