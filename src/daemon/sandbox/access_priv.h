/* What the files of renewal by use share. */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "daemon/sandbox/access.h"

#define RENEW_EXTEND_MAX_S 86400

struct access {
    struct service *svc;
    int64_t interval_us;
    struct map *table;  /* id -> struct entry */
    struct list by_use; /* longest unused first */
};
