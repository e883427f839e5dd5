/*
 * The SQLite file (see store.h). Owns one connection and its prepared statements under one mutex;
 * every statement is reset before the mutex is released. Only the service calls this.
 */
#include "daemon/store/statedb.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define LAYOUT_VERSION 2
#define BUSY_TIMEOUT_MS 5000

enum stmt {
    ST_INSERT,
    ST_STATE,
    ST_COMMIT,
    ST_METADATA,
    ST_EXPIRES,
    ST_CHANGED,
    ST_DELETE,
    ST_EACH,
    N_STMT
};

static const char *const sql[N_STMT] = {
    [ST_INSERT] = "INSERT INTO sandboxes(id,state,record,metadata,created_us,expires_us)"
                  " VALUES(?1,?2,?3,?4,?5,?6)",
    [ST_STATE] = "UPDATE sandboxes SET state=?2 WHERE id=?1",
    [ST_COMMIT] = "UPDATE sandboxes SET state=?2, record=?3 WHERE id=?1",
    [ST_METADATA] = "UPDATE sandboxes SET metadata=?2 WHERE id=?1",
    [ST_EXPIRES] = "UPDATE sandboxes SET expires_us=?2 WHERE id=?1",
    [ST_CHANGED] = "UPDATE sandboxes SET changed_us=?2 WHERE id=?1",
    [ST_DELETE] = "DELETE FROM sandboxes WHERE id=?1",
    [ST_EACH] = "SELECT id,state,record,metadata,created_us,expires_us,changed_us FROM sandboxes"
                " ORDER BY created_us,id",
};

/* The layout of each version, made from the one before it. */
static const char *const layouts[LAYOUT_VERSION] = {
    "CREATE TABLE IF NOT EXISTS sandboxes("
    "id TEXT PRIMARY KEY, state INTEGER NOT NULL, record TEXT NOT NULL,"
    "metadata TEXT NOT NULL, created_us INTEGER NOT NULL,"
    "expires_us INTEGER NOT NULL) WITHOUT ROWID;",
    "ALTER TABLE sandboxes ADD COLUMN changed_us INTEGER NOT NULL DEFAULT 0;",
};

struct statedb {
    sqlite3 *db;
    sqlite3_stmt *stmt[N_STMT];
    pthread_mutex_t lock;
    bool is_durable; /* commits reach the disk */
};

static int db_error(struct statedb *s, struct err *err, const char *what) {
    int rc = sqlite3_extended_errcode(s->db);
    int code = rc == SQLITE_FULL ? -ENOSPC : rc == SQLITE_CONSTRAINT_PRIMARYKEY ? -EEXIST : -EIO;
    return err_set(err, code, "state database: %s: %s%s", what, sqlite3_errmsg(s->db),
                   code == -ENOSPC ? "; make room in server.state_dir" : "");
}

static int exec(struct statedb *s, const char *text, struct err *err, const char *what) {
    return sqlite3_exec(s->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : db_error(s, err, what);
}

static int layout_version(struct statedb *s, int *ret, struct err *err) {
    sqlite3_stmt *q = NULL;

    if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &q, NULL) != SQLITE_OK ||
        sqlite3_step(q) != SQLITE_ROW) {
        sqlite3_finalize(q);
        return db_error(s, err, "reading the layout version");
    }
    *ret = sqlite3_column_int(q, 0);
    sqlite3_finalize(q);
    return 0;
}

static int bring_up_to_date(struct statedb *s, int version, struct err *err) {
    char mark[64];
    int r = 0;

    for (; version < LAYOUT_VERSION && r == 0; version++) {
        snprintf(mark, sizeof mark, "PRAGMA user_version=%d; COMMIT;", version + 1);
        if ((r = exec(s, "BEGIN IMMEDIATE;", err, "creating tables")) < 0)
            break;
        if ((r = exec(s, layouts[version], err, "creating tables")) < 0 ||
            (r = exec(s, mark, err, "creating tables")) < 0)
            sqlite3_exec(s->db, "ROLLBACK;", NULL, NULL, NULL);
    }
    return r;
}

static int set_up(struct statedb *s, struct err *err) {
    int r, version = 0;

    sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_MS);
    if ((r = exec(s, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-512;",
                  err, "opening")) < 0 ||
        (r = layout_version(s, &version, err)) < 0)
        return r;
    if (version > LAYOUT_VERSION)
        return err_set(
            err, -EPROTO,
            "state database: layout %d was written by a newer daemon (this one knows %d)", version,
            LAYOUT_VERSION);
    if ((r = bring_up_to_date(s, version, err)) < 0)
        return r;
    for (int i = 0; i < N_STMT; i++)
        if (sqlite3_prepare_v3(s->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &s->stmt[i], NULL) !=
            SQLITE_OK)
            return db_error(s, err, "preparing");
    return 0;
}

int statedb_open(const char *path, struct statedb **ret, struct err *err) {
    /* made by us so that SQLite's own files inherit the mode */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, -errno, "state database %s", path);
    fd_close(fd);

    struct statedb *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&s->lock, NULL);
    int rc = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    int r = rc == SQLITE_OK ? set_up(s, err)
                            : err_set(err, -EIO, "state database %s: %s", path, sqlite3_errstr(rc));
    if (r < 0) {
        statedb_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

int statedb_set_durable(struct statedb *s, struct err *err) {
    pthread_mutex_lock(&s->lock);
    int r = exec(s, "PRAGMA synchronous=FULL;", err, "opening");
    s->is_durable = r == 0;
    pthread_mutex_unlock(&s->lock);
    return r;
}

void statedb_close(struct statedb *s) {
    if (!s)
        return;
    for (int i = 0; i < N_STMT; i++)
        sqlite3_finalize(s->stmt[i]);
    sqlite3_close(s->db);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void bind_text(sqlite3_stmt *q, int i, const char *text) {
    sqlite3_bind_text(q, i, text, -1, SQLITE_STATIC); /* the caller's text outlives the step */
}

/* Runs a bound statement that returns no rows. need_row: no change is -ENOENT. */
static int run(struct statedb *s, enum stmt which, const char *id, bool need_row, struct err *err) {
    sqlite3_stmt *q = s->stmt[which];
    int r = sqlite3_step(q) == SQLITE_DONE ? 0 : db_error(s, err, "writing");

    if (r == 0 && need_row && sqlite3_changes(s->db) == 0)
        r = err_set(err, -ENOENT, "state database: no sandbox %s", id);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return r;
}

static int run_and_unlock(struct statedb *s, enum stmt which, const char *id, bool need_row,
                          struct err *err) {
    int r = run(s, which, id, need_row, err);
    pthread_mutex_unlock(&s->lock);
    return r;
}

int statedb_insert(struct statedb *s, const struct statedb_row *row, struct err *err) {
    pthread_mutex_lock(&s->lock);
    sqlite3_stmt *q = s->stmt[ST_INSERT];
    bind_text(q, 1, row->id);
    sqlite3_bind_int(q, 2, (int)row->state);
    bind_text(q, 3, row->record);
    bind_text(q, 4, row->metadata);
    sqlite3_bind_int64(q, 5, row->created_us);
    sqlite3_bind_int64(q, 6, row->expires_us);
    return run_and_unlock(s, ST_INSERT, row->id, false, err);
}

int statedb_set_state(struct statedb *s, const char *id, enum row_state state, struct err *err) {
    pthread_mutex_lock(&s->lock);
    bind_text(s->stmt[ST_STATE], 1, id);
    sqlite3_bind_int(s->stmt[ST_STATE], 2, (int)state);
    return run_and_unlock(s, ST_STATE, id, true, err);
}

int statedb_commit(struct statedb *s, const char *id, const char *record, struct err *err) {
    pthread_mutex_lock(&s->lock);
    bind_text(s->stmt[ST_COMMIT], 1, id);
    sqlite3_bind_int(s->stmt[ST_COMMIT], 2, ROW_ACTIVE);
    bind_text(s->stmt[ST_COMMIT], 3, record);
    return run_and_unlock(s, ST_COMMIT, id, true, err);
}

int statedb_set_metadata(struct statedb *s, const char *id, const char *metadata, struct err *err) {
    pthread_mutex_lock(&s->lock);
    bind_text(s->stmt[ST_METADATA], 1, id);
    bind_text(s->stmt[ST_METADATA], 2, metadata);
    return run_and_unlock(s, ST_METADATA, id, true, err);
}

int statedb_set_expires(struct statedb *s, const char *id, int64_t expires_us, struct err *err) {
    pthread_mutex_lock(&s->lock);
    bind_text(s->stmt[ST_EXPIRES], 1, id);
    sqlite3_bind_int64(s->stmt[ST_EXPIRES], 2, expires_us);
    return run_and_unlock(s, ST_EXPIRES, id, true, err);
}

int statedb_set_changed(struct statedb *s, const char *id, int64_t changed_us, struct err *err) {
    pthread_mutex_lock(&s->lock);
    bind_text(s->stmt[ST_CHANGED], 1, id);
    sqlite3_bind_int64(s->stmt[ST_CHANGED], 2, changed_us);
    return run_and_unlock(s, ST_CHANGED, id, true, err);
}

int statedb_delete(struct statedb *s, const char *id, struct err *err) {
    struct err ignored = {0};

    /* the intent (ROW_DELETING) is on the disk: a row that comes back after a power loss is
     * finished at the next start, so nobody has to wait for the disk a second time */
    pthread_mutex_lock(&s->lock);
    if (s->is_durable)
        exec(s, "PRAGMA synchronous=NORMAL;", &ignored, "deleting");
    bind_text(s->stmt[ST_DELETE], 1, id);
    int r = run(s, ST_DELETE, id, false, err);
    if (s->is_durable)
        exec(s, "PRAGMA synchronous=FULL;", &ignored, "deleting");
    pthread_mutex_unlock(&s->lock);
    return r;
}

static int each_row(sqlite3_stmt *q, int (*cb)(const struct statedb_row *, void *), void *ud) {
    struct statedb_row row = {
        .state = (enum row_state)sqlite3_column_int(q, 1),
        .record = (const char *)sqlite3_column_text(q, 2),
        .metadata = (const char *)sqlite3_column_text(q, 3),
        .created_us = sqlite3_column_int64(q, 4),
        .expires_us = sqlite3_column_int64(q, 5),
        .changed_us = sqlite3_column_int64(q, 6),
    };
    const char *id = (const char *)sqlite3_column_text(q, 0);
    if (!id || !row.record || !row.metadata)
        return -ENOMEM;
    str_copy(row.id, sizeof row.id, id);
    return cb(&row, ud);
}

int statedb_each(struct statedb *s, int (*cb)(const struct statedb_row *row, void *ud), void *ud,
                 struct err *err) {
    int rc, r = 0;

    pthread_mutex_lock(&s->lock);
    sqlite3_stmt *q = s->stmt[ST_EACH];
    while (r >= 0 && (rc = sqlite3_step(q)) == SQLITE_ROW)
        r = each_row(q, cb, ud);
    if (r >= 0 && rc != SQLITE_DONE)
        r = db_error(s, err, "reading");
    sqlite3_reset(q);
    pthread_mutex_unlock(&s->lock);
    return r < 0 ? r : 0;
}
