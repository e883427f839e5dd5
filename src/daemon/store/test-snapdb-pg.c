/*
 * The snapshot repository in PostgreSQL, against a real server: tests/with-postgres starts one and
 * says where in COVE_TEST_PG ("host=… user=… port=…"). Every test has a database of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "daemon/store/migrate.h"
#include "daemon/store/pq.h"
#include "daemon/store/test-snapdb.h"

static char dsn[300];

/* Runs SQL in the test's database (admin: in the server's first one); the first value or NULL. */
static char *run_sql(bool admin, const char *sql) {
    const struct pq *pq;
    struct err err = {0};
    PGresult *res;
    PGconn *c;
    bool lost;
    const char *server = getenv("COVE_TEST_PG");

    if (!server)
        test_skip("COVE_TEST_PG is not set: run by tests/with-postgres");
    _cleanup_free_ char *first = str_printf("%s dbname=postgres", server);
    if (pq_load(&pq, &err) < 0 || pq_connect(pq, admin ? first : dsn, 5, &c, &err) < 0 ||
        pq_query(pq, c, sql, NULL, 0, &res, &lost, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, err.msg);
    char *value = pq->PQntuples(res) > 0 && !pq->PQgetisnull(res, 0, 0)
                      ? strdup(pq->PQgetvalue(res, 0, 0))
                      : NULL;
    pq->PQclear(res);
    pq->PQfinish(c);
    return value;
}

static void sql(const char *text) {
    free(run_sql(false, text));
}

#define VALUE(query, want)                                 \
    do {                                                   \
        _cleanup_free_ char *v_ = run_sql(false, (query)); \
        ASSERT_STR(v_, want);                              \
    } while (0)

void set_up(void) {
    char text[100];
    snprintf(text, sizeof text, "CREATE DATABASE t%d", (int)getpid());
    free(run_sql(true, text));
    snprintf(dsn, sizeof dsn, "%s dbname=t%d", getenv("COVE_TEST_PG"), (int)getpid());
}

void tear_down(void) {
    char text[100];
    snprintf(text, sizeof text, "DROP DATABASE t%d WITH (FORCE)", (int)getpid());
    free(run_sql(true, text));
}

static struct snapdb *open_with(const char *where, unsigned max, double wait_s) {
    struct snapdb_pg_opts o = {.dsn = where,
                               .min_pool = 1,
                               .max_pool = max,
                               .connect_timeout_s = 5,
                               .pool_timeout_s = wait_s};
    struct err err = {0};
    struct snapdb *db;
    if (snapdb_open_pg(&o, &db, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return db;
}

struct snapdb *open_db(void) {
    return open_with(dsn, 3, 30);
}

TEST(rows_have_the_shared_form) {
    set_up();
    struct snapdb *db = open_db();
    struct snap_row r;
    add(db, "a", "sb", "n", SNAP_CREATING, T0 + 123456);
    VALUE("SELECT extract(epoch FROM created_at)::text FROM snapshots", "1780279384.123456");
    VALUE("SELECT restore_config::text FROM snapshots", "{\"image\": null, \"backend\": null}");
    VALUE("SELECT count(*) FROM snapshots WHERE namespace IS NULL AND message IS NULL", "1");
    VALUE("SELECT string_agg(attname||' '||atttypid::regtype||' '||attnotnull,',' ORDER BY attnum)"
          " FROM pg_attribute WHERE attrelid='snapshots'::regclass AND attnum>0",
          "id text true,source_sandbox_id text true,namespace text false,name text false,"
          "description text false,restore_config jsonb true,state text true,reason text false,"
          "message text false,last_transition_at timestamp with time zone false,"
          "created_at timestamp with time zone true,updated_at timestamp with time zone true");
    VALUE("SELECT count(*) FROM pg_indexes WHERE tablename='snapshots'", "5");
    struct snap_change c = {.state = SNAP_READY,
                            .reason = "snapshot_runtime_ready",
                            .message = "bad \xff byte",
                            .image = "i:a",
                            .now_us = T0 + 1};
    ASSERT_OK(snapdb_change(db, "a", SNAP_CREATING, &c, NULL));
    ASSERT_OK(snapdb_get(db, "a", &r, NULL));
    ASSERT_STR(r.image, "i:a");
    ASSERT_STR(r.name, "n");
    ASSERT_STR(r.message, "(a text that is not UTF-8)");
    ASSERT(r.created_us == T0 + 123456 && r.changed_us == T0 + 1 && r.updated_us == T0 + 1);
    snap_row_done(&r);
    snapdb_close(db);
    db = open_db();
    expect_list(db, (struct snap_query){0}, "a/1");
    snapdb_close(db);
    tear_down();
}

TEST(a_role_without_the_right_to_make_tables) {
    char other[400];
    set_up();
    snapdb_close(open_db());
    sql("DO $$BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname='guest') THEN CREATE ROLE "
        "guest LOGIN; END IF; END$$; GRANT ALL ON snapshots TO guest");
    snprintf(other, sizeof other, "%s user=guest", dsn);
    struct snapdb *db = open_with(other, 1, 5);
    add(db, "a", "s", NULL, SNAP_READY, T0);
    expect_list(db, (struct snap_query){0}, "a/1");
    snapdb_close(db);
    tear_down();
}

TEST(broken_connections_are_replaced) {
    set_up();
    struct snapdb *db = open_db();
    add(db, "a", "s", NULL, SNAP_CREATING, T0);
    for (int i = 0; i < 3; i++) {
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname=current_database() AND pid<>pg_backend_pid()");
        if (i == 0)
            expect_list(db, (struct snap_query){0}, "a/1");
        else if (i == 1)
            ASSERT_OK(snapdb_change(db, "a", SNAP_CREATING,
                                    &(struct snap_change){.state = SNAP_READY, .now_us = T0},
                                    NULL));
        else
            ASSERT_OK(snapdb_remove(db, "a", SNAP_READY, NULL));
    }
    expect_list(db, (struct snap_query){0}, "/0");
    snapdb_close(db);
    tear_down();
}

/* ---- the pool ---- */

static void *use(void *arg) {
    for (int i = 0; i < 20; i++)
        expect_list(arg, (struct snap_query){0}, "a/1");
    return NULL;
}

TEST(the_pool_is_bounded) {
    pthread_t t[8];
    set_up();
    struct snapdb *db = open_db();
    add(db, "a", "s", NULL, SNAP_CREATING, T0);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        ASSERT_INT(pthread_create(&t[i], NULL, use, db), 0);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        pthread_join(t[i], NULL);
    _cleanup_free_ char *n = run_sql(false, "SELECT count(*) FROM pg_stat_activity WHERE datname="
                                            "current_database() AND pid<>pg_backend_pid()");
    ASSERT(n && strlen(n) == 1 && *n >= '1' && *n <= '3');
    snapdb_close(db);
    tear_down();
}

static void *wait_for_row(void *arg) {
    struct snap_change c = {.state = SNAP_READY, .now_us = T0};
    ASSERT_OK(snapdb_change(arg, "a", SNAP_CREATING, &c, NULL));
    return NULL;
}

TEST(a_busy_pool_has_a_time_limit) {
    const struct pq *pq;
    struct err err = {0};
    struct snap_row r;
    pthread_t t;
    PGresult *res;
    PGconn *c;
    bool lost;
    set_up();
    struct snapdb *db = open_with(dsn, 1, 0.2);
    add(db, "a", "s", NULL, SNAP_CREATING, T0);
    ASSERT_OK(pq_load(&pq, &err));
    ASSERT_OK(pq_connect(pq, dsn, 5, &c, &err));
    ASSERT_OK(pq_query(pq, c, "BEGIN", NULL, 0, &res, &lost, &err));
    pq->PQclear(res);
    ASSERT_OK(pq_query(pq, c, "SELECT 1 FROM snapshots FOR UPDATE", NULL, 0, &res, &lost, &err));
    pq->PQclear(res);
    ASSERT_INT(pthread_create(&t, NULL, wait_for_row, db), 0);
    for (;;) { /* until the only connection waits for the row */
        _cleanup_free_ char *n = run_sql(false, "SELECT count(*) FROM pg_locks WHERE NOT granted");
        if (strcmp(n, "1") == 0)
            break;
    }
    ASSERT_INT(snapdb_get(db, "a", &r, &err), -ETIMEDOUT);
    ASSERT(strstr(err.msg, "max_pool_size"));
    pq->PQfinish(c);
    pthread_join(t, NULL);
    ASSERT_OK(snapdb_get(db, "a", &r, &err));
    ASSERT(r.state == SNAP_READY);
    snap_row_done(&r);
    snapdb_close(db);
    tear_down();
}

static void *open_one(void *arg) {
    return open_db();
}

TEST(servers_that_start_together_make_one_table) {
    pthread_t t[6];
    void *db[6];
    set_up();
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        ASSERT_INT(pthread_create(&t[i], NULL, open_one, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        pthread_join(t[i], &db[i]);
    add(db[0], "a", "s", NULL, SNAP_READY, T0);
    expect_list(db[5], (struct snap_query){0}, "a/1");
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        snapdb_close(db[i]);
    tear_down();
}

TEST(a_password_is_in_no_message) {
    static const char *const bad[] = {"hunter2",
                                      "host=127.0.0.1 port=1 password=hunter2 dbname=x",
                                      "postgresql://u:hunter2@127.0.0.1:1/x",
                                      "postgresql://u:hunter2@[::1/x",
                                      "host=/nonexistent password=hunter2",
                                      "password=hunter2 hunter2=1"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct snapdb_pg_opts o = {.dsn = bad[i], .max_pool = 1, .connect_timeout_s = 2};
        struct err err = {0};
        struct snapdb *db;
        ASSERT(snapdb_open_pg(&o, &db, &err) < 0);
        ASSERT(err.msg[0] && !strstr(err.msg, "hunter2"));
    }
}

/* ---- migration ---- */

static char *migrate(const char *from, bool dry_run, int want) {
    char name[] = "/tmp/cove-test-out-XXXXXX", text[200] = "";
    struct err err = {0};
    int fd = mkstemp(name), saved = dup(1);
    fflush(stdout);
    dup2(fd, 1);
    int r = migrate_snapshots(from, dsn, dry_run, &err);
    fflush(stdout);
    dup2(saved, 1);
    if ((r < 0) != (want < 0))
        test_fail(__FILE__, __LINE__, "%d: %s", r, err.msg);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    ASSERT(n >= 0);
    close(fd);
    close(saved);
    unlink(name);
    return strdup(r < 0 ? err.msg : text);
}

#define MIGRATE(from, dry, want)                             \
    do {                                                     \
        _cleanup_free_ char *t_ = migrate((from), (dry), 0); \
        ASSERT_STR(t_, want);                                \
    } while (0)

TEST(records_are_migrated) {
    char dir[] = "/tmp/cove-test-migrate-XXXXXX", from[100];
    struct snapdb *file;
    struct snap_row r;
    set_up();
    ASSERT(mkdtemp(dir));
    snprintf(from, sizeof from, "%s/old.db", dir);
    ASSERT_OK(snapdb_open_file(from, &file, NULL));
    add(file, "a", "s1", "n", SNAP_READY, T0 + 7);
    add(file, "b", "s2", NULL, SNAP_FAILED, T0);
    MIGRATE(from, true, "total: 2\nwould be migrated: 2\nskipped: 0\n");
    VALUE("SELECT coalesce(to_regclass('snapshots')::text,'none')", "none");
    MIGRATE(from, false, "total: 2\nmigrated: 2\nskipped: 0\n");
    MIGRATE(from, false, "total: 2\nmigrated: 0\nskipped: 2\n");
    add(file, "c", "s3", NULL, SNAP_CREATING, T0 + 9);
    MIGRATE(from, true, "total: 3\nwould be migrated: 1\nskipped: 2\n");
    VALUE("SELECT count(*) FROM snapshots", "2");
    MIGRATE(from, false, "total: 3\nmigrated: 1\nskipped: 2\n");
    struct snapdb *db = open_db();
    expect_list(db, (struct snap_query){0}, "c a b/3");
    ASSERT_OK(snapdb_get(db, "a", &r, NULL));
    ASSERT(r.created_us == T0 + 7 && r.state == SNAP_READY);
    ASSERT_STR(r.name, "n");
    snap_row_done(&r);
    snapdb_close(db);
    snapdb_close(file);
    path_remove_tree_at(AT_FDCWD, dir);
    tear_down();
}

TEST(a_migration_is_whole_or_nothing) {
    char dir[] = "/tmp/cove-test-migrate-XXXXXX", from[100];
    sqlite3 *s;
    set_up();
    ASSERT(mkdtemp(dir));
    snprintf(from, sizeof from, "%s/old.db", dir);
    ASSERT_INT(sqlite3_open(from, &s), SQLITE_OK); /* an older form, with a row that is no use */
    ASSERT_INT(
        sqlite3_exec(
            s,
            "CREATE TABLE snapshots(id TEXT PRIMARY KEY, source_sandbox_id TEXT NOT NULL,"
            "name TEXT, description TEXT, restore_config TEXT NOT NULL, state TEXT NOT NULL,"
            "reason TEXT, message TEXT, last_transition_at TEXT, created_at TEXT NOT NULL,"
            "updated_at TEXT NOT NULL);"
            "INSERT INTO snapshots VALUES('a','s',NULL,NULL,'{\"image\": \"i:1\"}','Ready',NULL,"
            "NULL,NULL,'2026-06-01T02:03:04+00:00','2026-06-01T02:03:04+00:00');"
            "INSERT INTO snapshots VALUES('b','s',NULL,NULL,'{}','Nonsense',NULL,"
            "NULL,NULL,'2026-06-01T02:03:04+00:00','2026-06-01T02:03:04+00:00');",
            NULL, NULL, NULL),
        SQLITE_OK);
    _cleanup_free_ char *why = migrate(from, false, -1);
    ASSERT(strstr(why, "snapshot b"));
    VALUE("SELECT coalesce(to_regclass('snapshots')::text,'none')", "none");
    ASSERT_INT(sqlite3_exec(s, "DELETE FROM snapshots WHERE id='b'", NULL, NULL, NULL), 0);
    sqlite3_close(s);
    MIGRATE(from, false, "total: 1\nmigrated: 1\nskipped: 0\n");
    VALUE("SELECT restore_config->>'image' FROM snapshots", "i:1");
    _cleanup_free_ char *none = migrate("/nonexistent/x.db", false, -1);
    ASSERT(strstr(none, "/nonexistent/x.db"));
    path_remove_tree_at(AT_FDCWD, dir);
    tear_down();
}

TEST_MAIN()
