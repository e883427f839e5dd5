/*
 * The snapshot repository in an SQLite file (see snapdb.h). Owns one connection under one mutex;
 * statements are reset before the mutex is released. Other processes may use the file: nothing is
 * remembered between calls. Every commit reaches the disk (synchronous=FULL).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "base/str.h"
#include "daemon/store/snapdb_priv.h"

#define BUSY_TIMEOUT_MS 5000
#define OLD_COLUMNS "id,source_sandbox_id,NULL,name,description,restore_config,state,reason,message"
#define TIMES ",last_transition_at,created_at,updated_at"

enum stmt { ST_INSERT, ST_GET, ST_CHANGE, ST_REMOVE, ST_EXISTS, N_STMT };

static const char *const sql[N_STMT] = {
    [ST_INSERT] = "INSERT INTO snapshots(" SNAP_COLUMNS TIMES ")"
                  " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)",
    [ST_GET] = "SELECT " SNAP_COLUMNS TIMES " FROM snapshots WHERE id=?1",
    [ST_CHANGE] = "UPDATE snapshots SET state=?3,reason=?4,message=?5,"
                  "restore_config=coalesce(?6,restore_config),last_transition_at=?7,updated_at=?7"
                  " WHERE id=?1 AND state=?2",
    [ST_REMOVE] = "DELETE FROM snapshots WHERE id=?1 AND state=?2",
    [ST_EXISTS] = "SELECT 1 FROM snapshots WHERE id=?1",
};

#define TABLE(name)                                                                 \
    "CREATE TABLE " name "(id TEXT PRIMARY KEY, source_sandbox_id TEXT NOT NULL,"   \
    "namespace TEXT DEFAULT NULL, name TEXT, description TEXT,"                     \
    "restore_config TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, message TEXT," \
    "last_transition_at TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL);"
static const char indexes[] =
    "CREATE INDEX IF NOT EXISTS idx_snapshots_source_sandbox_id ON snapshots(source_sandbox_id);"
    "CREATE INDEX IF NOT EXISTS idx_snapshots_state ON snapshots(state);"
    "CREATE INDEX IF NOT EXISTS idx_snapshots_created_at ON snapshots(created_at DESC);"
    "CREATE INDEX IF NOT EXISTS idx_snapshots_name_namespace ON snapshots(name, namespace);";
/* An older form had the column with NOT NULL, which SQLite cannot take away in place. */
static const char rebuild[] =
    TABLE("snapshots_rebuilt") "INSERT INTO snapshots_rebuilt(" SNAP_COLUMNS TIMES
                               ") SELECT " SNAP_COLUMNS TIMES " FROM snapshots;"
                               "DROP TABLE snapshots;"
                               "ALTER TABLE snapshots_rebuilt RENAME TO snapshots;";

struct file_db {
    struct snapdb base;
    sqlite3 *db;
    sqlite3_stmt *stmt[N_STMT];
    pthread_mutex_t lock;
};

static struct file_db *of(struct snapdb *db) {
    return container_of(db, struct file_db, base);
}

static int db_error(struct file_db *f, struct err *err, const char *what) {
    int rc = sqlite3_extended_errcode(f->db);
    int code = rc == SQLITE_FULL                    ? -ENOSPC
               : rc == SQLITE_CONSTRAINT_PRIMARYKEY ? -EEXIST
               : (rc & 0xff) == SQLITE_BUSY         ? -EBUSY
                                                    : -EIO;
    return err_set(err, code, "snapshot database: %s: %s", what, sqlite3_errmsg(f->db));
}

static int exec(struct file_db *f, const char *text, const char *what, struct err *err) {
    return sqlite3_exec(f->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : db_error(f, err, what);
}

/* ---- layout ---- */

struct layout {
    bool has_table, has_space, space_not_null;
};

static int read_layout(struct file_db *f, struct layout *ret, struct err *err) {
    sqlite3_stmt *q = NULL;
    int rc;

    *ret = (struct layout){0};
    if (sqlite3_prepare_v2(f->db, "SELECT name,\"notnull\" FROM pragma_table_info('snapshots')", -1,
                           &q, NULL) != SQLITE_OK)
        return db_error(f, err, "reading the layout");
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        ret->has_table = true;
        if (str_eq((const char *)sqlite3_column_text(q, 0), "namespace")) {
            ret->has_space = true;
            ret->space_not_null = sqlite3_column_int(q, 1) != 0;
        }
    }
    sqlite3_finalize(q);
    return rc == SQLITE_DONE ? 0 : db_error(f, err, "reading the layout");
}

static int update_layout(struct file_db *f, struct err *err) {
    struct layout l;
    int r = read_layout(f, &l, err);

    if (r < 0)
        return r;
    if (!l.has_table)
        r = exec(f, TABLE("snapshots"), "creating the table", err);
    else if (!l.has_space)
        r = exec(f, "ALTER TABLE snapshots ADD COLUMN namespace TEXT DEFAULT NULL",
                 "adding a column", err);
    else if (l.space_not_null)
        r = exec(f, rebuild, "rebuilding the table", err);
    return r < 0 ? r : exec(f, indexes, "creating indexes", err);
}

static int set_up(struct file_db *f, struct err *err) {
    struct err ignored = {0};
    int r;

    sqlite3_busy_timeout(f->db, BUSY_TIMEOUT_MS);
    if ((r = exec(f, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-256;",
                  "opening", err)) < 0 ||
        (r = exec(f, "BEGIN IMMEDIATE", "opening", err)) < 0)
        return r;
    r = update_layout(f, err);
    if (r >= 0)
        r = exec(f, "COMMIT", "opening", err);
    if (r < 0) {
        exec(f, "ROLLBACK", "opening", &ignored);
        return r;
    }
    for (int i = 0; i < N_STMT; i++)
        if (sqlite3_prepare_v3(f->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &f->stmt[i], NULL) !=
            SQLITE_OK)
            return db_error(f, err, "preparing");
    return 0;
}

/* ---- rows ---- */

static void bind(sqlite3_stmt *q, int i, const char *text) {
    sqlite3_bind_text(q, i, text, -1, SQLITE_STATIC); /* the caller's text outlives the step */
}

static int take_text(sqlite3_stmt *q, int i, char **ret) {
    const char *s = (const char *)sqlite3_column_text(q, i);
    if (s && !(*ret = strdup(s)))
        return -ENOMEM;
    return 0;
}

static int read_row(sqlite3_stmt *q, struct snap_row *ret, struct err *err) {
    char **const texts[] = {&ret->id,   &ret->sandbox_id,  &ret->space,
                            &ret->name, &ret->description, NULL,
                            NULL,       &ret->reason,      &ret->message};
    int r = 0;

    *ret = (struct snap_row){0};
    for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++)
        if (texts[i])
            r = take_text(q, (int)i, texts[i]);
    const char *restore = (const char *)sqlite3_column_text(q, 5);
    if (r == 0 && restore && snap_restore_parse(restore, ret) == -ENOMEM)
        r = -ENOMEM;
    ret->state = snap_state_of((const char *)sqlite3_column_text(q, 6));
    ret->changed_us = snap_time_parse((const char *)sqlite3_column_text(q, 9));
    ret->created_us = snap_time_parse((const char *)sqlite3_column_text(q, 10));
    ret->updated_us = snap_time_parse((const char *)sqlite3_column_text(q, 11));
    if (r == 0 && (!ret->id || !ret->sandbox_id))
        r = -EBADMSG;
    if (r < 0) {
        snap_row_done(ret);
        return err_sys(err, r, "snapshot database: reading a row");
    }
    return 0;
}

/* Runs a bound statement without rows; the number of changed rows. Unlocks nothing. */
static int step_write(struct file_db *f, enum stmt which, struct err *err) {
    sqlite3_stmt *q = f->stmt[which];
    int r = sqlite3_step(q) == SQLITE_DONE ? sqlite3_changes(f->db) : db_error(f, err, "writing");

    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return r;
}

/* Why nothing matched id and state. */
static int why_not(struct file_db *f, const char *id, struct err *err) {
    sqlite3_stmt *q = f->stmt[ST_EXISTS];

    bind(q, 1, id);
    int rc = sqlite3_step(q);
    int r = rc == SQLITE_ROW    ? err_set(err, -ESTALE, "Snapshot %s has changed.", id)
            : rc == SQLITE_DONE ? err_set(err, -ENOENT, "Snapshot %s not found.", id)
                                : db_error(f, err, "reading");
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return r;
}

static int file_insert(struct snapdb *db, const struct snap_row *row, struct err *err) {
    struct file_db *f = of(db);
    char changed[SNAP_TIME_SIZE], created[SNAP_TIME_SIZE], updated[SNAP_TIME_SIZE];
    _cleanup_free_ char *restore = snap_restore_format(row->backend, row->image);

    if (!restore)
        return err_set(err, -ENOMEM, "out of memory");
    snap_time_format(row->changed_us, changed);
    snap_time_format(row->created_us, created);
    snap_time_format(row->updated_us, updated);
    const char *const values[] = {row->id,
                                  row->sandbox_id,
                                  row->space,
                                  row->name,
                                  row->description,
                                  restore,
                                  snap_state_name(row->state),
                                  row->reason,
                                  row->message,
                                  row->changed_us ? changed : NULL,
                                  created,
                                  updated};
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        bind(f->stmt[ST_INSERT], (int)i + 1, values[i]);
    int r = step_write(f, ST_INSERT, err);
    pthread_mutex_unlock(&f->lock);
    return r < 0 ? r : 0;
}

static int file_get(struct snapdb *db, const char *id, struct snap_row *ret, struct err *err) {
    struct file_db *f = of(db);

    pthread_mutex_lock(&f->lock);
    sqlite3_stmt *q = f->stmt[ST_GET];
    bind(q, 1, id);
    int rc = sqlite3_step(q);
    int r = rc == SQLITE_ROW    ? read_row(q, ret, err)
            : rc == SQLITE_DONE ? err_set(err, -ENOENT, "Snapshot %s not found.", id)
                                : db_error(f, err, "reading");
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    pthread_mutex_unlock(&f->lock);
    return r;
}

static int file_change(struct snapdb *db, const char *id, enum snap_state from,
                       const struct snap_change *c, struct err *err) {
    struct file_db *f = of(db);
    char now[SNAP_TIME_SIZE];
    _cleanup_free_ char *restore = c->image ? snap_restore_format(NULL, c->image) : NULL;

    if (c->image && !restore)
        return err_set(err, -ENOMEM, "out of memory");
    snap_time_format(c->now_us, now);
    const char *const values[] = {
        id, snap_state_name(from), snap_state_name(c->state), c->reason, c->message, restore, now};
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        bind(f->stmt[ST_CHANGE], (int)i + 1, values[i]);
    int r = step_write(f, ST_CHANGE, err);
    if (r == 0)
        r = why_not(f, id, err);
    pthread_mutex_unlock(&f->lock);
    return r < 0 ? r : 0;
}

static int file_remove(struct snapdb *db, const char *id, enum snap_state from, struct err *err) {
    struct file_db *f = of(db);

    pthread_mutex_lock(&f->lock);
    bind(f->stmt[ST_REMOVE], 1, id);
    bind(f->stmt[ST_REMOVE], 2, snap_state_name(from));
    int r = step_write(f, ST_REMOVE, err);
    if (r == 0)
        r = why_not(f, id, err);
    pthread_mutex_unlock(&f->lock);
    return r < 0 ? r : 0;
}

/* ---- list ---- */

static int prepare(struct file_db *f, const struct buf *text, const char *const *values, size_t n,
                   sqlite3_stmt **ret, struct err *err) {
    if (text->failed)
        return err_set(err, -ENOMEM, "out of memory");
    if (sqlite3_prepare_v2(f->db, text->data, (int)text->len, ret, NULL) != SQLITE_OK)
        return db_error(f, err, "preparing a list");
    for (size_t i = 0; i < n; i++)
        bind(*ret, (int)i + 1, values[i]);
    return 0;
}

static int count(struct file_db *f, const struct snap_query *q, int64_t *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(4096);
    const char *values[SNAP_MAX_PARAMS];
    sqlite3_stmt *st = NULL;

    buf_str(&text, "SELECT count(*) FROM snapshots");
    size_t n = snap_where(q, &text, values);
    int r = prepare(f, &text, values, n, &st, err);
    if (r == 0 && sqlite3_step(st) != SQLITE_ROW)
        r = db_error(f, err, "counting");
    if (r == 0)
        *ret = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return r;
}

static int fetch(struct file_db *f, const struct snap_query *q, struct snap_page *ret,
                 struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(4096);
    const char *values[SNAP_MAX_PARAMS];
    sqlite3_stmt *st = NULL;
    int rc;

    buf_str(&text, "SELECT " SNAP_COLUMNS TIMES " FROM snapshots");
    size_t n = snap_where(q, &text, values);
    buf_printf(&text, SNAP_ORDER " LIMIT %lld OFFSET %lld", (long long)q->max, (long long)q->skip);
    int r = prepare(f, &text, values, n, &st, err);
    while (r == 0 && (rc = sqlite3_step(st)) != SQLITE_DONE) {
        if (rc != SQLITE_ROW)
            r = db_error(f, err, "reading");
        else if (ret->n < (size_t)q->max && (r = read_row(st, &ret->rows[ret->n], err)) == 0)
            ret->n++;
    }
    sqlite3_finalize(st);
    return r;
}

static int file_list(struct snapdb *db, const struct snap_query *q, struct snap_page *ret,
                     struct err *err) {
    struct file_db *f = of(db);
    struct err ignored = {0};

    *ret = (struct snap_page){0};
    if (!(ret->rows = calloc((size_t)q->max + 1, sizeof *ret->rows)))
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_lock(&f->lock);
    /* one transaction: rows and total are of the same moment, whatever others write */
    int r = exec(f, "BEGIN", "reading", err);
    if (r == 0) {
        r = count(f, q, &ret->total, err);
        if (r == 0 && q->max > 0)
            r = fetch(f, q, ret, err);
        exec(f, "COMMIT", "reading", &ignored);
    }
    pthread_mutex_unlock(&f->lock);
    if (r < 0)
        snap_page_done(ret);
    return r;
}

/* ---- opening ---- */

static void file_free(struct snapdb *db) {
    struct file_db *f = of(db);

    for (int i = 0; i < N_STMT; i++)
        sqlite3_finalize(f->stmt[i]);
    sqlite3_close(f->db);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static const struct snapdb_ops ops = {
    .insert = file_insert,
    .get = file_get,
    .change = file_change,
    .remove = file_remove,
    .list = file_list,
    .free = file_free,
};

/* "~" and "~/…" are the home directory; malloc'd. */
static char *snapdb_expand(const char *path) {
    if (strcmp(path, "~") != 0 && !str_starts(path, "~/"))
        return strdup(path);
    const char *home = getenv("HOME");
    if (str_is_empty(home)) {
        const struct passwd *pw = getpwuid(getuid()); /* at start, before there are threads */
        home = pw ? pw->pw_dir : "/";
    }
    return str_printf("%s%s", home, path + 1);
}

/* The file exists before SQLite opens it, so that its own files inherit the mode. */
static int make_file(const char *path, struct err *err) {
    const char *slash = strrchr(path, '/');

    if (slash && slash != path) {
        _cleanup_free_ char *dir = str_ndup(path, (size_t)(slash - path));
        int r = dir ? path_mkdirs_at(AT_FDCWD, dir, 0700) : -ENOMEM;
        if (r < 0)
            return err_sys(err, r, "store.path: directory of %s", path);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, -errno, "store.path: %s", path);
    fd_close(fd);
    return 0;
}

static int each(struct file_db *f, int (*cb)(const struct snap_row *row, void *ud), void *ud,
                struct err *err) {
    struct layout l;
    sqlite3_stmt *q = NULL;
    struct snap_row row;
    int rc, r = read_layout(f, &l, err);

    if (r < 0 || !l.has_table)
        return r;
    const char *text = l.has_space ? "SELECT " SNAP_COLUMNS TIMES " FROM snapshots"
                                   : "SELECT " OLD_COLUMNS TIMES " FROM snapshots";
    if (sqlite3_prepare_v2(f->db, text, -1, &q, NULL) != SQLITE_OK)
        return db_error(f, err, "preparing");
    while (r >= 0 && (rc = sqlite3_step(q)) != SQLITE_DONE) {
        if (rc != SQLITE_ROW) {
            r = db_error(f, err, "reading");
        } else if ((r = read_row(q, &row, err)) == 0) {
            r = cb(&row, ud);
            snap_row_done(&row);
        }
    }
    sqlite3_finalize(q);
    return r < 0 ? r : 0;
}

int snapdb_file_each(const char *path, int (*cb)(const struct snap_row *row, void *ud), void *ud,
                     struct err *err) {
    _cleanup_free_ char *file = snapdb_expand(path);
    struct file_db f = {0};

    if (!file)
        return err_set(err, -ENOMEM, "out of memory");
    int rc = sqlite3_open_v2(file, &f.db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        sqlite3_busy_timeout(f.db, BUSY_TIMEOUT_MS);
    int r = rc == SQLITE_OK ? each(&f, cb, ud, err)
                            : err_set(err, -ENOENT, "%s: %s", file, sqlite3_errstr(rc));
    sqlite3_close(f.db);
    return r;
}

int snapdb_open_file(const char *path, struct snapdb **ret, struct err *err) {
    _cleanup_free_ char *file = snapdb_expand(path);
    int r = file ? make_file(file, err) : err_set(err, -ENOMEM, "out of memory");

    if (r < 0)
        return r;
    struct file_db *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(err, -ENOMEM, "out of memory");
    f->base.ops = &ops;
    pthread_mutex_init(&f->lock, NULL);
    int rc = sqlite3_open_v2(file, &f->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    r = rc == SQLITE_OK ? set_up(f, err)
                        : err_set(err, -EIO, "store.path: %s: %s", file, sqlite3_errstr(rc));
    if (r < 0) {
        file_free(&f->base);
        return r;
    }
    *ret = &f->base;
    return 0;
}
