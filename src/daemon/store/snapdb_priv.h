/* What the implementations of the snapshot repository share. */
#pragma once

#include "daemon/store/snapdb.h"

struct snapdb_ops {
    int (*insert)(struct snapdb *db, const struct snap_row *row, struct err *err);
    int (*get)(struct snapdb *db, const char *id, struct snap_row *ret, struct err *err);
    int (*change)(struct snapdb *db, const char *id, enum snap_state from,
                  const struct snap_change *c, struct err *err);
    int (*remove)(struct snapdb *db, const char *id, enum snap_state from, struct err *err);
    int (*list)(struct snapdb *db, const struct snap_query *q, struct snap_page *ret,
                struct err *err);
    void (*free)(struct snapdb *db);
};
struct snapdb { /* first member of each implementation's own */
    const struct snapdb_ops *ops;
};

/* All rows of a file, which is only read, whatever form its table has (none: no rows). A negative
 * return of cb stops and is returned. */
int snapdb_file_each(const char *path, int (*cb)(const struct snap_row *row, void *ud), void *ud,
                     struct err *err);

#define SNAP_TIME_SIZE 48
/* ISO 8601 as the column has it: "+00:00", six digits when there are microseconds, else none. Sorts
 * by time. */
void snap_time_format(int64_t us, char ret[SNAP_TIME_SIZE]);
int64_t snap_time_parse(const char *text); /* 0 = NULL or no time */
/* {"backend": …, "image": …} as text; malloc'd, NULL on -ENOMEM. */
char *snap_restore_format(const char *backend, const char *image);
/* Sets backend and image of the row; unknown members are ignored. -EINVAL when it is no object. */
int snap_restore_parse(const char *text, struct snap_row *row);

/*
 * " WHERE …" with the placeholders $1, $2 … in this order (or nothing), and their values (borrowed
 * from q). The text has no value of a client in it.
 */
#define SNAP_MAX_PARAMS (2 + N_SNAP_STATES)
size_t snap_where(const struct snap_query *q, struct buf *out,
                  const char *ret_values[SNAP_MAX_PARAMS]);
#define SNAP_COLUMNS \
    "id,source_sandbox_id,namespace,name,description,restore_config,state,reason,message"
#define SNAP_ORDER " ORDER BY created_at DESC, id DESC"
