/*
 * The repository of snapshots: one table whose layout is shared with other servers of this wire, so
 * that an existing database opens and can go on being used. Two implementations: an SQLite file and
 * PostgreSQL. Snapshots outlive the machine's restart: a change that was acknowledged is on the
 * disk.
 *
 * All functions block (PostgreSQL: for as long as its time limits allow) and may be called from any
 * thread, several at once; the loop thread only calls open and close.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

struct snapdb;

enum snap_state { SNAP_CREATING, SNAP_READY, SNAP_FAILED, SNAP_DELETING, SNAP_OTHER };
#define N_SNAP_STATES SNAP_OTHER
const char *snap_state_name(enum snap_state s);  /* "Creating" … */
enum snap_state snap_state_of(const char *name); /* exact; SNAP_OTHER = none of them */

struct snap_row { /* texts are owned; those that say so may be NULL */
    char *id, *sandbox_id;
    char *name, *description, *space; /* NULL; space: the tenant's, kept as it is */
    char *image, *backend;            /* NULL; what a restore starts from */
    enum snap_state state;
    char *reason, *message; /* NULL */
    int64_t changed_us;     /* last transition, 0 = none; all times are wall clock */
    int64_t created_us, updated_us;
};
void snap_row_done(struct snap_row *r);

struct snap_change {
    enum snap_state state;
    const char *reason, *message; /* NULL = none */
    const char *image;            /* NULL = what is there stays */
    int64_t now_us;
};

struct snap_query {
    const char *sandbox_id, *name; /* exact; NULL = any */
    unsigned states; /* bits 1 << enum snap_state; 0 = all. SNAP_OTHER matches nothing */
    int64_t skip, max;
};
struct snap_page {
    struct snap_row *rows; /* newest first: creation time, then id */
    size_t n;
    int64_t total; /* of all that match, of the same moment as the rows */
};
void snap_page_done(struct snap_page *p);

/* ---- opening ---- */
/* Creates or opens and brings older layouts up to date; "~/" is the home directory; missing parent
 * directories are made. */
int snapdb_open_file(const char *path, struct snapdb **ret, struct err *err);
struct snapdb_pg_opts {
    const char *dsn; /* secret: never part of a message */
    unsigned min_pool, max_pool, connect_timeout_s;
    double pool_timeout_s;
};
/* Fails when the server cannot be reached or libpq is not installed. */
int snapdb_open_pg(const struct snapdb_pg_opts *o, struct snapdb **ret, struct err *err);
void snapdb_close(struct snapdb *db); /* NULL is fine */

/* ---- use ---- */
int snapdb_insert(struct snapdb *db, const struct snap_row *row, struct err *err); /* -EEXIST */
int snapdb_get(struct snapdb *db, const char *id, struct snap_row *ret,
               struct err *err); /* -ENOENT */
/* Compare and set: -ESTALE when the row is in another state than `from`, -ENOENT without a row. */
int snapdb_change(struct snapdb *db, const char *id, enum snap_state from,
                  const struct snap_change *c, struct err *err);
/* The same for removing. */
int snapdb_remove(struct snapdb *db, const char *id, enum snap_state from, struct err *err);
int snapdb_list(struct snapdb *db, const struct snap_query *q, struct snap_page *ret,
                struct err *err);
