/*
 * What survives the daemon: one SQLite file in the state directory. Rows are written before and
 * after an action on the runtime (intent, act, result), so that start-up can finish or undo what a
 * killed daemon left half-done. A commit reaches the kernel, not the disk: rows describe running
 * things, which do not outlive the machine either (where they do: statedb_set_durable).
 *
 * All functions block for the length of one small transaction and may be called from any thread.
 */
#pragma once

#include "base/err.h"
#include "daemon/driver/driver.h"

struct statedb;

enum row_state {
    ROW_CREATING, /* intent: the runtime may or may not have (parts of) it; never acknowledged */
    ROW_ACTIVE,   /* acknowledged */
    ROW_DELETING, /* intent: to be removed; the runtime may still have it */
};

struct statedb_row {
    char id[SANDBOX_ID_MAX + 1];
    enum row_state state;
    const char *record;   /* JSON text of what does not change after the create (specification,
                             extensions …) */
    const char *metadata; /* JSON object text */
    int64_t created_us;   /* wall clock */
    int64_t expires_us;   /* wall clock; 0 = never by itself */
    int64_t changed_us;   /* of the last pause or resume; 0 = none. Not written by insert. */
};

/* Creates or opens; the file is made 0600 (records hold access tokens). An unknown newer layout is
 * refused. */
int statedb_open(const char *path, struct statedb **ret, struct err *err);
void statedb_close(struct statedb *s); /* NULL is fine */

/* From now on a commit is on the disk: for runtimes whose sandboxes are there after a power cut. */
int statedb_set_durable(struct statedb *s, struct err *err);

/* -EEXIST when the id is there already. */
int statedb_insert(struct statedb *s, const struct statedb_row *row, struct err *err);
/* These give -ENOENT when there is no such row. */
int statedb_set_state(struct statedb *s, const char *id, enum row_state state, struct err *err);
/* The create has succeeded: ROW_ACTIVE, with the record as it is now. */
int statedb_commit(struct statedb *s, const char *id, const char *record, struct err *err);
int statedb_set_metadata(struct statedb *s, const char *id, const char *metadata, struct err *err);
int statedb_set_expires(struct statedb *s, const char *id, int64_t expires_us, struct err *err);
int statedb_set_changed(struct statedb *s, const char *id, int64_t changed_us, struct err *err);
/* Deleting a row that is not there is a success. */
int statedb_delete(struct statedb *s, const char *id, struct err *err);
/* All rows, oldest first. The row is valid during the call; a negative return of cb stops and is
 * returned. cb must not call the store. */
int statedb_each(struct statedb *s, int (*cb)(const struct statedb_row *row, void *ud), void *ud,
                 struct err *err);
