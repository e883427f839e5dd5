/* Copying snapshot records (see migrate.h). Called by the command line, without a daemon. */
#include "daemon/store/migrate.h"

#include <errno.h>
#include <stdio.h>

#include "base/str.h"
#include "daemon/store/snapdb_pg.h"
#include "daemon/store/snapdb_priv.h"

#define DEFAULT_FROM "~/.opensandbox/opensandbox.db"
#define CONNECT_TIMEOUT_S 5

struct copy {
    const struct pq *pq;
    PGconn *c;
    bool dry_run, has_table; /* of the target */
    size_t total, copied;
    struct err *err;
};

static int exec(struct copy *m, const char *sql) {
    PGresult *res;
    bool lost;
    int r = pq_query(m->pq, m->c, sql, NULL, 0, &res, &lost, m->err);
    if (r == 0)
        m->pq->PQclear(res);
    return r;
}

static int is_there(struct copy *m, const char *id) {
    PGresult *res;
    bool lost;

    if (!m->has_table)
        return 0;
    int r =
        pq_query(m->pq, m->c, "SELECT 1 FROM snapshots WHERE id=$1", &id, 1, &res, &lost, m->err);
    if (r < 0)
        return r;
    r = m->pq->PQntuples(res) > 0;
    m->pq->PQclear(res);
    return r;
}

static int copy_row(const struct snap_row *row, void *ud) {
    struct copy *m = ud;
    int r;

    if (row->state == SNAP_OTHER || !row->created_us || !row->updated_us)
        return err_set(m->err, -EBADMSG, "snapshot %s has an unknown state or no valid time",
                       row->id);
    m->total++;
    if (m->dry_run)
        r = (r = is_there(m, row->id)) < 0 ? r : !r;
    else
        r = snapdb_pg_copy_row(m->pq, m->c, row, m->err);
    if (r > 0)
        m->copied++;
    return r < 0 ? err_wrap(m->err, "snapshot %s", row->id) : 0;
}

static int copy_all(struct copy *m, const char *from) {
    int r = exec(m, m->dry_run ? "BEGIN READ ONLY" : "BEGIN");

    if (r < 0)
        return r;
    r = m->dry_run ? snapdb_pg_layout(m->pq, m->c, &m->has_table, m->err)
                   : snapdb_pg_make_layout(m->pq, m->c, m->err);
    if (r >= 0)
        r = snapdb_file_each(from, copy_row, m, m->err);
    return r < 0 ? r : exec(m, "COMMIT"); /* closing the connection takes it back */
}

int migrate_snapshots(const char *from, const char *to, bool dry_run, struct err *err) {
    struct err own = {0};
    struct copy m = {.dry_run = dry_run, .err = err ? err : &own};
    int r = pq_load(&m.pq, m.err);

    if (r < 0 || (r = pq_connect(m.pq, to, CONNECT_TIMEOUT_S, &m.c, m.err)) < 0)
        return r;
    r = copy_all(&m, from ? from : DEFAULT_FROM);
    m.pq->PQfinish(m.c);
    if (r < 0)
        return r;
    printf("total: %zu\n%s: %zu\nskipped: %zu\n", m.total,
           dry_run ? "would be migrated" : "migrated", m.copied, m.total - m.copied);
    return fflush(stdout) == 0 ? 0 : err_sys(m.err, -EIO, "standard output");
}
