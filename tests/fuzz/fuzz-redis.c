/*
 * The queue of renewal intents: replies of a Redis server with the intents in them, and (first byte
 * 1) its address. Besides memory: a reply is understood alike however its bytes arrive, no part of
 * an address is in a message.
 */
#include <string.h>

#include "daemon/sandbox/access_priv.h"
#include "daemon/sandbox/redis.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void address(const char *text) {
    struct redis_dsn d;
    struct err err = {0};

    if (redis_dsn_parse(text, &d, &err) == 0) {
        if (!d.host == !d.path)
            __builtin_trap();
        redis_dsn_done(&d);
    } else if (!err.msg[0] || (strlen(text) > 40 && strstr(err.msg, text))) {
        __builtin_trap();
    }
}

static void replies(const char *data, size_t size) {
    struct redis_reply r, again;
    struct access_intent in;
    ssize_t used;

    for (size_t at = 0; (used = redis_reply_parse(data + at, size - at, &r)) > 0;
         at += (size_t)used) {
        if ((size_t)used > size - at || r.n_items > REDIS_MAX_ITEMS)
            __builtin_trap();
        for (size_t n = 0; n < (size_t)used; n += (size_t)used / 16 + 1)
            if (redis_reply_parse(data + at, n, &again) != 0)
                __builtin_trap();
        for (size_t i = 0; i < r.n_items; i++)
            if (r.items[i].data)
                access_intent_parse(r.items[i].data, r.items[i].len, &in);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size + 1);

    memcpy(copy, data, size);
    copy[size] = '\0';
    if (size > 0 && data[0] == 1)
        address(copy + 1);
    else
        replies(copy, size);
    free(copy);
    return 0;
}
