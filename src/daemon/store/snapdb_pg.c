/*
 * The snapshot repository in PostgreSQL (see snapdb.h). Owns a pool of connections under one mutex:
 * a call takes one, or makes one, or waits for one, each with a time limit. A statement whose
 * connection broke is repeated once on a new one; writes are made so that a repetition can tell
 * whether the first try had its effect. Called on workers only: everything here blocks.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/str.h"
#include "daemon/store/pq.h"
#include "daemon/store/snapdb_pg.h"
#include "daemon/store/snapdb_priv.h"

#define TIMES ",last_transition_at,created_at,updated_at"
#define TIME_OUT(c) "to_char(" c " AT TIME ZONE 'UTC','YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
#define COLUMNS_OUT                                                                      \
    "id,source_sandbox_id,namespace,name,description,restore_config::text,state,reason," \
    "message," TIME_OUT("last_transition_at") " AS changed," TIME_OUT(                   \
        "created_at") " AS created," TIME_OUT("updated_at") " AS updated"
#define N_COLUMNS 12

static const char insert_sql[] =
    "INSERT INTO snapshots(" SNAP_COLUMNS TIMES ") VALUES($1,$2,$3,$4,$5,$6::jsonb,$7,$8,$9,"
    "$10::timestamptz,$11::timestamptz,$12::timestamptz)";
static const char get_sql[] = "SELECT " COLUMNS_OUT " FROM snapshots WHERE id=$1";
static const char change_sql[] =
    "UPDATE snapshots SET state=$3,reason=$4,message=$5,"
    "restore_config=coalesce($6::jsonb,restore_config),last_transition_at=$7::timestamptz,"
    "updated_at=$7::timestamptz WHERE id=$1 AND state=$2";
static const char remove_sql[] = "DELETE FROM snapshots WHERE id=$1 AND state=$2";

/* The lock keeps servers that start together from making the table twice. Several statements of one
 * query are one transaction. */
static const char schema_sql[] =
    "SELECT pg_advisory_xact_lock(7310595159046677351);"
    "CREATE TABLE IF NOT EXISTS snapshots(id TEXT PRIMARY KEY, source_sandbox_id TEXT NOT NULL,"
    "namespace TEXT, name TEXT, description TEXT, restore_config JSONB NOT NULL,"
    "state TEXT NOT NULL, reason TEXT, message TEXT, last_transition_at TIMESTAMPTZ,"
    "created_at TIMESTAMPTZ NOT NULL, updated_at TIMESTAMPTZ NOT NULL);"
    "ALTER TABLE snapshots ADD COLUMN IF NOT EXISTS namespace TEXT;"
    "CREATE INDEX IF NOT EXISTS idx_snapshots_source_sandbox_id ON snapshots(source_sandbox_id);"
    "CREATE INDEX IF NOT EXISTS idx_snapshots_state ON snapshots(state);"
    "CREATE INDEX IF NOT EXISTS idx_snapshots_created_at ON snapshots(created_at DESC);"
    "CREATE INDEX IF NOT EXISTS idx_snapshots_name_namespace ON snapshots(name,namespace);";
/* A role that may use the table need not be one that may make it. */
static const char layout_sql[] =
    "SELECT count(*) FROM pg_attribute WHERE attrelid=to_regclass('snapshots')"
    " AND attname='namespace' AND NOT attisdropped";

struct pg_db {
    struct snapdb base;
    const struct pq *pq;
    char *dsn; /* secret */
    unsigned max, connect_timeout_s;
    int64_t wait_ms;
    pthread_mutex_t lock;
    pthread_cond_t freed;
    PGconn **idle; /* max entries */
    unsigned n_idle, n_open;
};

static struct pg_db *of(struct snapdb *db) {
    return container_of(db, struct pg_db, base);
}

/* ---- the pool ---- */

static struct timespec deadline(int64_t ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static void count_closed(struct pg_db *p, unsigned n) {
    p->n_open -= n;
    pthread_cond_broadcast(&p->freed);
}

static int take(struct pg_db *p, PGconn **ret, struct err *err) {
    struct timespec until = deadline(p->wait_ms);
    int r = 0;

    pthread_mutex_lock(&p->lock);
    while (p->n_idle == 0 && p->n_open >= p->max && r == 0)
        r = pthread_cond_timedwait(&p->freed, &p->lock, &until);
    if (p->n_idle > 0) {
        *ret = p->idle[--p->n_idle];
        pthread_mutex_unlock(&p->lock);
        return 0;
    }
    bool may = p->n_open < p->max;
    p->n_open += may;
    pthread_mutex_unlock(&p->lock);
    if (!may)
        return err_set(err, -ETIMEDOUT,
                       "snapshot database: all %u connections were busy for too long "
                       "(store.postgresql.max_pool_size)",
                       p->max);
    r = pq_connect(p->pq, p->dsn, p->connect_timeout_s, ret, err);
    if (r < 0) {
        pthread_mutex_lock(&p->lock);
        count_closed(p, 1);
        pthread_mutex_unlock(&p->lock);
    }
    return r;
}

static void give(struct pg_db *p, PGconn *c) {
    pthread_mutex_lock(&p->lock);
    p->idle[p->n_idle++] = c;
    pthread_cond_signal(&p->freed);
    pthread_mutex_unlock(&p->lock);
}

/* One connection broke: those that lie idle are no better. */
static void discard(struct pg_db *p, PGconn *c) {
    p->pq->PQfinish(c);
    pthread_mutex_lock(&p->lock);
    unsigned n = p->n_idle;
    for (unsigned i = 0; i < n; i++)
        p->pq->PQfinish(p->idle[i]);
    p->n_idle = 0;
    count_closed(p, n + 1);
    pthread_mutex_unlock(&p->lock);
}

/* *ret_again: the statement ran on a second connection, the first try may have had its effect. */
static int query(struct pg_db *p, const char *sql, const char *const *values, int n, PGresult **ret,
                 bool *ret_again, struct err *err) {
    PGconn *c;
    bool lost;

    *ret_again = false;
    for (;;) {
        int r = take(p, &c, err);
        if (r < 0)
            return r;
        r = pq_query(p->pq, c, sql, values, n, ret, &lost, err);
        if (lost)
            discard(p, c);
        else
            give(p, c);
        if (!lost || *ret_again)
            return r;
        *ret_again = true;
    }
}

/* ---- rows ---- */

static const char *text_at(const struct pq *pq, const PGresult *res, int row, int column) {
    return pq->PQgetisnull(res, row, column) ? NULL : pq->PQgetvalue(res, row, column);
}

static int read_row(const struct pq *pq, const PGresult *res, int at, int first,
                    struct snap_row *ret, struct err *err) {
    char **const texts[] = {&ret->id,   &ret->sandbox_id,  &ret->space,
                            &ret->name, &ret->description, NULL,
                            NULL,       &ret->reason,      &ret->message};
    int r = 0;

    *ret = (struct snap_row){0};
    for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++) {
        const char *s = text_at(pq, res, at, first + (int)i);
        if (texts[i] && s && !(*texts[i] = strdup(s)))
            r = -ENOMEM;
    }
    const char *restore = text_at(pq, res, at, first + 5);
    if (r == 0 && restore && snap_restore_parse(restore, ret) == -ENOMEM)
        r = -ENOMEM;
    ret->state = snap_state_of(text_at(pq, res, at, first + 6));
    ret->changed_us = snap_time_parse(text_at(pq, res, at, first + 9));
    ret->created_us = snap_time_parse(text_at(pq, res, at, first + 10));
    ret->updated_us = snap_time_parse(text_at(pq, res, at, first + 11));
    if (r < 0) {
        snap_row_done(ret);
        return err_set(err, r, "out of memory");
    }
    return 0;
}

/* The server refuses a text that is no UTF-8; messages come from elsewhere. */
static const char *sound(const char *s) {
    return s && !utf8_is_valid(s, strlen(s)) ? "(a text that is not UTF-8)" : s;
}

struct row_values {
    const char *v[N_COLUMNS];
    char changed[SNAP_TIME_SIZE], created[SNAP_TIME_SIZE], updated[SNAP_TIME_SIZE];
    char *restore;
};

static int row_values(const struct snap_row *row, struct row_values *ret, struct err *err) {
    ret->restore = snap_restore_format(row->backend, row->image);
    if (!ret->restore)
        return err_set(err, -ENOMEM, "out of memory");
    snap_time_format(row->changed_us, ret->changed);
    snap_time_format(row->created_us, ret->created);
    snap_time_format(row->updated_us, ret->updated);
    const char *const v[] = {row->id,
                             row->sandbox_id,
                             row->space,
                             row->name,
                             row->description,
                             ret->restore,
                             snap_state_name(row->state),
                             row->reason,
                             sound(row->message),
                             row->changed_us ? ret->changed : NULL,
                             ret->created,
                             ret->updated};
    memcpy(ret->v, v, sizeof v);
    return 0;
}

static int pg_insert(struct snapdb *db, const struct snap_row *row, struct err *err) {
    struct pg_db *p = of(db);
    struct row_values v;
    PGresult *res;
    bool again;
    int r = row_values(row, &v, err);

    if (r < 0)
        return r;
    r = query(p, insert_sql, v.v, N_COLUMNS, &res, &again, err);
    free(v.restore);
    if (r == -EEXIST && again)
        return 0; /* ids are random: the first try did it */
    if (r == 0)
        p->pq->PQclear(res);
    return r;
}

static int pg_get(struct snapdb *db, const char *id, struct snap_row *ret, struct err *err) {
    struct pg_db *p = of(db);
    PGresult *res;
    bool again;
    int r = query(p, get_sql, &id, 1, &res, &again, err);

    if (r < 0)
        return r;
    r = p->pq->PQntuples(res) == 0 ? err_set(err, -ENOENT, "Snapshot %s not found.", id)
                                   : read_row(p->pq, res, 0, 0, ret, err);
    p->pq->PQclear(res);
    return r;
}

/* Runs a write; the number of rows it changed. */
static int write_rows(struct pg_db *p, const char *sql, const char *const *values, int n,
                      bool *ret_again, struct err *err) {
    PGresult *res;
    uint64_t rows = 0;
    int r = query(p, sql, values, n, &res, ret_again, err);

    if (r < 0)
        return r;
    str_to_u64(p->pq->PQcmdTuples(res), &rows);
    p->pq->PQclear(res);
    return rows > 0;
}

/* Nothing matched id and state. */
static int why_not(struct snapdb *db, const char *id, bool again, const struct snap_change *c,
                   struct err *err) {
    struct snap_row now;
    int r = pg_get(db, id, &now, err);

    if (r < 0)
        return r;
    bool ours = again && c && now.state == c->state && now.updated_us == c->now_us;
    snap_row_done(&now);
    return ours ? 0 : err_set(err, -ESTALE, "Snapshot %s has changed.", id);
}

static int pg_change(struct snapdb *db, const char *id, enum snap_state from,
                     const struct snap_change *c, struct err *err) {
    char now[SNAP_TIME_SIZE];
    _cleanup_free_ char *restore = c->image ? snap_restore_format(NULL, c->image) : NULL;
    bool again;

    if (c->image && !restore)
        return err_set(err, -ENOMEM, "out of memory");
    snap_time_format(c->now_us, now);
    const char *const values[] = {id,        snap_state_name(from), snap_state_name(c->state),
                                  c->reason, sound(c->message),     restore,
                                  now};
    int r = write_rows(of(db), change_sql, values, ARRAY_SIZE(values), &again, err);
    return r < 0 ? r : r > 0 ? 0 : why_not(db, id, again, c, err);
}

static int pg_remove(struct snapdb *db, const char *id, enum snap_state from, struct err *err) {
    const char *const values[] = {id, snap_state_name(from)};
    bool again;
    int r = write_rows(of(db), remove_sql, values, ARRAY_SIZE(values), &again, err);

    if (r != 0)
        return r < 0 ? r : 0;
    r = why_not(db, id, again, NULL, err);
    return r == -ENOENT && again ? 0 : r;
}

static int pg_list(struct snapdb *db, const struct snap_query *q, struct snap_page *ret,
                   struct err *err) {
    _cleanup_buf_ struct buf sql = BUF_INIT(8192), where = BUF_INIT(2048);
    const char *values[SNAP_MAX_PARAMS];
    struct pg_db *p = of(db);
    PGresult *res;
    bool again;

    *ret = (struct snap_page){0};
    if (!(ret->rows = calloc((size_t)q->max + 1, sizeof *ret->rows)))
        return err_set(err, -ENOMEM, "out of memory");
    size_t n = snap_where(q, &where, values);
    const char *filter = where.data ? where.data : "";
    /* one statement: rows and total are of the same moment */
    buf_printf(&sql,
               "SELECT t.total,p.* FROM (SELECT count(*) AS total FROM snapshots%s) t LEFT JOIN "
               "(SELECT " COLUMNS_OUT " FROM snapshots%s ORDER BY created_at DESC,id COLLATE \"C\" "
               "DESC LIMIT %lld OFFSET %lld) p ON true "
               "ORDER BY p.created COLLATE \"C\" DESC,p.id COLLATE \"C\" DESC",
               filter, filter, (long long)q->max, (long long)q->skip);
    int r = buf_ok(&sql) && buf_ok(&where) ? query(p, sql.data, values, (int)n, &res, &again, err)
                                           : err_set(err, -ENOMEM, "out of memory");
    if (r == 0) {
        int rows = p->pq->PQntuples(res);
        if (rows > 0)
            str_to_i64(p->pq->PQgetvalue(res, 0, 0), &ret->total);
        for (int i = 0; i < rows && r == 0 && text_at(p->pq, res, i, 1); i++)
            if ((r = read_row(p->pq, res, i, 1, &ret->rows[ret->n], err)) == 0)
                ret->n++;
        p->pq->PQclear(res);
    }
    if (r < 0)
        snap_page_done(ret);
    return r;
}

/* ---- opening ---- */

static void pg_free(struct snapdb *db) {
    struct pg_db *p = of(db);

    for (unsigned i = 0; p->idle && i < p->n_idle; i++)
        p->pq->PQfinish(p->idle[i]);
    if (p->dsn)
        explicit_bzero(p->dsn, strlen(p->dsn));
    free(p->dsn);
    free(p->idle);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static const struct snapdb_ops ops = {
    .insert = pg_insert,
    .get = pg_get,
    .change = pg_change,
    .remove = pg_remove,
    .list = pg_list,
    .free = pg_free,
};

int snapdb_pg_layout(const struct pq *pq, PGconn *c, bool *ret_is_there, struct err *err) {
    PGresult *res;
    bool lost;
    int r = pq_query(pq, c, layout_sql, NULL, 0, &res, &lost, err);

    if (r < 0)
        return r;
    *ret_is_there = strcmp(pq->PQgetvalue(res, 0, 0), "0") != 0;
    pq->PQclear(res);
    return 0;
}

int snapdb_pg_make_layout(const struct pq *pq, PGconn *c, struct err *err) {
    PGresult *res;
    bool there, lost;
    int r = snapdb_pg_layout(pq, c, &there, err);

    if (r < 0 || there)
        return r;
    if ((r = pq_query(pq, c, schema_sql, NULL, 0, &res, &lost, err)) == 0)
        pq->PQclear(res);
    return r;
}

int snapdb_pg_copy_row(const struct pq *pq, PGconn *c, const struct snap_row *row,
                       struct err *err) {
    _cleanup_free_ char *sql = str_printf("%s ON CONFLICT(id) DO NOTHING", insert_sql);
    struct row_values v;
    PGresult *res;
    uint64_t rows = 0;
    bool lost;
    int r = sql ? row_values(row, &v, err) : err_set(err, -ENOMEM, "out of memory");

    if (r < 0)
        return r;
    r = pq_query(pq, c, sql, v.v, N_COLUMNS, &res, &lost, err);
    free(v.restore);
    if (r < 0)
        return r;
    str_to_u64(pq->PQcmdTuples(res), &rows);
    pq->PQclear(res);
    return rows > 0;
}

/* The first connections of the pool, and the table. */
static int fill_pool(struct pg_db *p, unsigned min, struct err *err) {
    PGconn *c;
    int r;

    for (unsigned i = 0; i < MAX(min, 1); i++) {
        if ((r = pq_connect(p->pq, p->dsn, p->connect_timeout_s, &c, err)) < 0)
            return r;
        p->idle[p->n_idle++] = c;
        p->n_open++;
        if (i == 0 && (r = snapdb_pg_make_layout(p->pq, c, err)) < 0)
            return r;
    }
    return 0;
}

int snapdb_open_pg(const struct snapdb_pg_opts *o, struct snapdb **ret, struct err *err) {
    pthread_condattr_t attr;
    const struct pq *pq;
    int r = pq_load(&pq, err);

    if (r < 0)
        return r;
    struct pg_db *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    p->base.ops = &ops;
    p->pq = pq;
    p->max = MAX(o->max_pool, 1);
    p->connect_timeout_s = o->connect_timeout_s;
    p->wait_ms = (int64_t)(o->pool_timeout_s * 1000);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->freed, &attr);
    pthread_condattr_destroy(&attr);
    p->dsn = strdup(o->dsn);
    p->idle = calloc(p->max, sizeof(PGconn *));
    if (!p->dsn || !p->idle)
        r = err_set(err, -ENOMEM, "out of memory");
    else
        r = fill_pool(p, MIN(o->min_pool, p->max), err);
    if (r < 0) {
        pg_free(&p->base);
        return r;
    }
    *ret = &p->base;
    return 0;
}
