/* What the tests of both implementations of the snapshot repository share. */
#pragma once

#include "base/test.h"
#include "daemon/store/snapdb.h"

#define T0 1780279384000000LL /* 2026-06-01T02:03:04Z */

/* Of the implementation under test: an empty place, any number of servers of it. */
void set_up(void);
void tear_down(void);
struct snapdb *open_db(void);

void add(struct snapdb *db, const char *id, const char *sandbox, const char *name,
         enum snap_state state, int64_t created_us);
/* The ids of a list and its total: "id id id/total" */
void expect_list(struct snapdb *db, struct snap_query q, const char *want);
