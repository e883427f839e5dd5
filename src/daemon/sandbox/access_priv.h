/* What the files of renewal by use share. */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "daemon/sandbox/access.h"

#define RENEW_EXTEND_MAX_S 86400

struct access {
    struct service *svc;
    int64_t interval_us;
    struct map *table;          /* id -> struct entry */
    struct list by_use;         /* longest unused first */
    struct access_queue *queue; /* NULL = none */
};

/* access_queue.c */
int access_queue_open(struct access *a, struct err *err);
void access_queue_close(struct access *a); /* its memory goes when the loop has run once more */
struct access_intent {
    char id[SANDBOX_ID_MAX + 1];
    int64_t observed_us;
};
/* One element of the queue; -EINVAL when it is not valid. Pure. */
int access_intent_parse(const char *data, size_t len, struct access_intent *ret);
