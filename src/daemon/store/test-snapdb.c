/* The snapshot repository in a file: layouts, compare and set, filters, pages while others write.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"
#include "base/test.h"
#include "daemon/store/snapdb.h"

static char dir[64], file[96];

static void set_up(void) {
    str_copy(dir, sizeof dir, "/tmp/cove-test-snapdb-XXXXXX");
    ASSERT(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/sub/dir/snap.db", dir);
}

static void tear_down(void) {
    path_remove_tree_at(AT_FDCWD, dir);
}

static struct snapdb *open_db(void) {
    struct err err = {0};
    struct snapdb *db;
    if (snapdb_open_file(file, &db, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return db;
}

static void sql(const char *text) {
    sqlite3 *s;
    char *why = NULL;
    ASSERT_INT(sqlite3_open(file, &s), SQLITE_OK);
    if (sqlite3_exec(s, text, NULL, NULL, &why) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s", why);
    sqlite3_close(s);
}

/* The first column of the first row; malloc'd, NULL when there is none. */
static char *value(const char *query) {
    sqlite3_stmt *q;
    sqlite3 *s;
    char *text = NULL;
    ASSERT_INT(sqlite3_open(file, &s), SQLITE_OK);
    ASSERT_INT(sqlite3_prepare_v2(s, query, -1, &q, NULL), SQLITE_OK);
    if (sqlite3_step(q) == SQLITE_ROW && sqlite3_column_text(q, 0))
        text = strdup((const char *)sqlite3_column_text(q, 0));
    sqlite3_finalize(q);
    sqlite3_close(s);
    return text;
}

#define VALUE(query, want)                      \
    do {                                        \
        _cleanup_free_ char *v_ = value(query); \
        ASSERT_STR(v_, want);                   \
    } while (0)

static void add(struct snapdb *db, const char *id, const char *sandbox, const char *name,
                enum snap_state state, int64_t created_us) {
    struct snap_row r = {
        .id = (char *)id,
        .sandbox_id = (char *)sandbox,
        .name = (char *)name,
        .state = state,
        .reason = "snapshot_accepted",
        .changed_us = created_us,
        .created_us = created_us,
        .updated_us = created_us,
    };
    ASSERT_OK(snapdb_insert(db, &r, NULL));
}

/* "id id id/total" */
static void expect_list(struct snapdb *db, struct snap_query q, const char *want) {
    struct snap_page p;
    struct buf b = {0};
    q.max = q.max ? q.max : 100;
    ASSERT_OK(snapdb_list(db, &q, &p, NULL));
    for (size_t i = 0; i < p.n; i++)
        buf_printf(&b, "%s%s", i ? " " : "", p.rows[i].id);
    buf_printf(&b, "/%lld", (long long)p.total);
    ASSERT_STR(b.data, want);
    buf_done(&b);
    snap_page_done(&p);
}

#define T0 1780279384000000LL /* 2026-06-01T02:03:04Z */

TEST(rows_have_the_shared_form) {
    set_up();
    struct snapdb *db = open_db();
    struct snap_row r;
    struct stat st;
    add(db, "a", "sb", "n", SNAP_CREATING, T0);
    VALUE("SELECT created_at FROM snapshots", "2026-06-01T02:03:04+00:00");
    VALUE("SELECT restore_config FROM snapshots", "{\"backend\": null, \"image\": null}");
    VALUE("SELECT state FROM snapshots", "Creating");
    VALUE("SELECT count(*) FROM snapshots WHERE namespace IS NULL AND description IS NULL", "1");
    VALUE("SELECT group_concat(name) FROM pragma_table_info('snapshots')",
          "id,source_sandbox_id,namespace,name,description,restore_config,state,reason,message,"
          "last_transition_at,created_at,updated_at");
    VALUE("PRAGMA journal_mode", "wal");
    struct snap_change c = {.state = SNAP_READY,
                            .reason = "snapshot_runtime_ready",
                            .message = "done",
                            .image = "opensandbox-snapshots:a",
                            .now_us = T0 + 120000};
    ASSERT_OK(snapdb_change(db, "a", SNAP_CREATING, &c, NULL));
    VALUE("SELECT restore_config FROM snapshots",
          "{\"backend\": null, \"image\": \"opensandbox-snapshots:a\"}");
    VALUE("SELECT last_transition_at FROM snapshots", "2026-06-01T02:03:04.120000+00:00");
    ASSERT_OK(snapdb_get(db, "a", &r, NULL));
    ASSERT_STR(r.sandbox_id, "sb");
    ASSERT_STR(r.name, "n");
    ASSERT_STR(r.image, "opensandbox-snapshots:a");
    ASSERT_STR(r.message, "done");
    ASSERT(r.state == SNAP_READY && r.created_us == T0 && r.changed_us == T0 + 120000 &&
           r.updated_us == T0 + 120000 && !r.space && !r.backend && !r.description);
    snap_row_done(&r);
    ASSERT_INT(stat(file, &st), 0);
    ASSERT_INT(st.st_mode & 0777, 0600);
    snapdb_close(db);
    db = open_db(); /* it is still there */
    expect_list(db, (struct snap_query){0}, "a/1");
    snapdb_close(db);
    tear_down();
}

TEST(a_change_needs_the_expected_state) {
    set_up();
    struct snapdb *db = open_db();
    struct snap_change c = {.state = SNAP_DELETING, .now_us = T0};
    struct snap_row r = {0};
    struct err err = {0};
    add(db, "a", "sb", NULL, SNAP_READY, T0);
    ASSERT_INT(snapdb_change(db, "a", SNAP_CREATING, &c, &err), -ESTALE);
    ASSERT_INT(snapdb_change(db, "b", SNAP_CREATING, &c, &err), -ENOENT);
    ASSERT_INT(snapdb_remove(db, "a", SNAP_DELETING, &err), -ESTALE);
    ASSERT_OK(snapdb_change(db, "a", SNAP_READY, &c, &err));
    ASSERT_OK(snapdb_remove(db, "a", SNAP_DELETING, &err));
    ASSERT_INT(snapdb_remove(db, "a", SNAP_DELETING, &err), -ENOENT);
    ASSERT_INT(snapdb_get(db, "a", &r, &err), -ENOENT);
    ASSERT_STR(err.msg, "Snapshot a not found.");
    add(db, "a", "sb", NULL, SNAP_READY, T0);
    r = (struct snap_row){.id = "a", .sandbox_id = "x"};
    ASSERT_INT(snapdb_insert(db, &r, &err), -EEXIST);
    snapdb_close(db);
    tear_down();
}

TEST(a_change_without_an_image_keeps_it_and_the_backend) {
    set_up();
    snapdb_close(open_db());
    sql("INSERT INTO snapshots VALUES('a','sb','ns','n','d','{\"x\":1,\"image\":\"i:1\","
        "\"backend\":\"fsb\"}','Ready',NULL,NULL,NULL,'2026-06-01T02:03:04+00:00','2026-06-01')");
    struct snapdb *db = open_db();
    struct snap_row r;
    ASSERT_OK(snapdb_change(db, "a", SNAP_READY,
                            &(struct snap_change){.state = SNAP_DELETING, .now_us = T0}, NULL));
    ASSERT_OK(snapdb_get(db, "a", &r, NULL));
    ASSERT_STR(r.image, "i:1");
    ASSERT_STR(r.backend, "fsb");
    ASSERT_STR(r.space, "ns");
    ASSERT_STR(r.description, "d");
    snap_row_done(&r);
    snapdb_close(db);
    tear_down();
}

TEST(lists_filter_sort_and_page) {
    set_up();
    struct snapdb *db = open_db();
    add(db, "a", "s1", "n1", SNAP_READY, T0);
    add(db, "b", "s1", "N1", SNAP_FAILED, T0 + 1); /* ".000001" sorts after nothing */
    add(db, "d", "s2", NULL, SNAP_CREATING, T0 + 900000);
    add(db, "c", "s2", "", SNAP_DELETING, T0 + 900000);
    add(db, "e", "s3", "n1", SNAP_READY, T0 - 1);
    expect_list(db, (struct snap_query){0}, "d c b a e/5");
    expect_list(db, (struct snap_query){.sandbox_id = "s1"}, "b a/2");
    expect_list(db, (struct snap_query){.name = "n1"}, "a e/2");
    expect_list(db, (struct snap_query){.name = ""}, "c/1");
    expect_list(db, (struct snap_query){.name = "n1", .sandbox_id = "s3"}, "e/1");
    expect_list(db, (struct snap_query){.states = 1u << SNAP_READY | 1u << SNAP_DELETING},
                "c a e/3");
    expect_list(db, (struct snap_query){.states = 1u << SNAP_OTHER}, "/0");
    expect_list(db,
                (struct snap_query){
                    .states = 1u << SNAP_READY, .name = "n1' OR 1=1 --", .sandbox_id = "s1"},
                "/0");
    expect_list(db, (struct snap_query){.skip = 1, .max = 2}, "c b/5");
    expect_list(db, (struct snap_query){.skip = 4, .max = 2}, "e/5");
    expect_list(db, (struct snap_query){.skip = 10, .max = 2}, "/5");
    snapdb_close(db);
    tear_down();
}

#define OLD(column)                                                                       \
    "CREATE TABLE snapshots(id TEXT PRIMARY KEY, source_sandbox_id TEXT NOT NULL," column \
    "name TEXT, description TEXT, restore_config TEXT NOT NULL, state TEXT NOT NULL,"     \
    "reason TEXT, message TEXT, last_transition_at TEXT, created_at TEXT NOT NULL,"       \
    "updated_at TEXT NOT NULL);"
#define OLD_ROW(columns, values)                                                        \
    "INSERT INTO "                                                                      \
    "snapshots(id,source_sandbox_id,restore_config,state,created_at,updated_at" columns \
    ") VALUES('a','s','{\"image\": \"i:1\"}','Ready','2026-06-01T02:03:04+00:00',"      \
    "'2026-06-01T02:03:04+00:00'" values ");"

TEST(older_layouts_are_brought_up_to_date) {
    static const char *const forms[] = {
        OLD("") OLD_ROW("", ""),
        OLD("namespace TEXT NOT NULL,") OLD_ROW(",namespace", ",'ns'"),
        OLD("namespace TEXT NOT NULL DEFAULT 'x',")
            OLD_ROW(",namespace", ",'ns'") "CREATE TABLE templates(id TEXT);"
                                           "INSERT INTO templates VALUES('t')",
    };
    set_up();
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        snprintf(file, sizeof file, "%s/old-%zu.db", dir, i);
        sql(forms[i]);
        struct snapdb *db = open_db();
        struct snap_row r;
        ASSERT_OK(snapdb_get(db, "a", &r, NULL));
        ASSERT_STR(r.image, "i:1");
        if (i == 0)
            ASSERT(!r.space);
        else
            ASSERT_STR(r.space, "ns");
        snap_row_done(&r);
        add(db, "b", "s", NULL, SNAP_READY, T0 + 1); /* without a namespace */
        expect_list(db, (struct snap_query){0}, "b a/2");
        snapdb_close(db);
        VALUE("SELECT count(*) FROM sqlite_master WHERE type='index' AND name LIKE 'idx_%'", "4");
        VALUE("SELECT \"notnull\" FROM pragma_table_info('snapshots') WHERE name='namespace'", "0");
        if (i == 2)
            VALUE("SELECT id FROM templates", "t");
    }
    tear_down();
}

TEST(what_is_no_database_is_refused) {
    struct err err = {0};
    struct snapdb *db;
    set_up();
    snprintf(file, sizeof file, "%s/text", dir);
    char text[200];
    memset(text, 'x', sizeof text);
    ASSERT_OK(path_write_file_at(AT_FDCWD, file, text, sizeof text, 0600, false));
    ASSERT(snapdb_open_file(file, &db, &err) < 0);
    ASSERT(strstr(err.msg, "snapshot database"));
    ASSERT(snapdb_open_file(dir, &db, &err) < 0);
    ASSERT(strstr(err.msg, "store.path"));
    tear_down();
}

TEST(home_is_expanded) {
    struct snapdb *db;
    struct stat st;
    set_up();
    setenv("HOME", dir, 1);
    ASSERT_OK(snapdb_open_file("~/x/y.db", &db, NULL));
    snapdb_close(db);
    snprintf(file, sizeof file, "%s/x/y.db", dir);
    ASSERT_INT(stat(file, &st), 0);
    tear_down();
}

/* ---- several at once ---- */

struct racer {
    pthread_t thread;
    struct snapdb *db;
    unsigned won;
};

static void *race(void *arg) {
    struct racer *r = arg;
    char id[8];
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof id, "r%d", i);
        int c = snapdb_change(r->db, id, SNAP_CREATING,
                              &(struct snap_change){.state = SNAP_READY, .now_us = T0}, NULL);
        if (c != 0 && c != -ESTALE)
            abort();
        r->won += c == 0;
    }
    return NULL;
}

TEST(one_of_many_wins_a_change) {
    struct racer r[4] = {0};
    unsigned won = 0;
    char id[8];
    test_set_timeout(60);
    set_up();
    r[0].db = r[1].db = open_db(); /* two threads of one server, and two other servers */
    r[2].db = open_db();
    r[3].db = open_db();
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof id, "r%d", i);
        add(r[0].db, id, "s", NULL, SNAP_CREATING, T0 + i);
    }
    for (size_t i = 0; i < ARRAY_SIZE(r); i++)
        ASSERT_INT(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
    for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
        pthread_join(r[i].thread, NULL);
        won += r[i].won;
    }
    ASSERT_INT(won, 50);
    for (size_t i = 1; i < ARRAY_SIZE(r); i++)
        snapdb_close(r[i].db);
    tear_down();
}

static void *churn(void *arg) { /* moves rows in and out of the state that is listed */
    struct racer *r = arg;
    char id[8];
    for (int i = 0; i < 200; i++) {
        snprintf(id, sizeof id, "r%d", i % 20);
        enum snap_state from = i / 20 % 2 ? SNAP_READY : SNAP_CREATING;
        struct snap_change c = {.state = from == SNAP_READY ? SNAP_CREATING : SNAP_READY,
                                .now_us = T0};
        if (snapdb_change(r->db, id, from, &c, NULL) < 0)
            abort();
    }
    return NULL;
}

TEST(totals_agree_with_rows_while_others_write) {
    struct racer w = {0};
    char id[8];
    test_set_timeout(60);
    set_up();
    struct snapdb *db = open_db();
    w.db = open_db();
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "r%d", i);
        add(db, id, "s", NULL, SNAP_CREATING, T0 + i);
    }
    ASSERT_INT(pthread_create(&w.thread, NULL, churn, &w), 0);
    for (int i = 0; i < 300; i++) {
        struct snap_query q = {.states = 1u << SNAP_READY, .max = 100};
        struct snap_page p;
        ASSERT_OK(snapdb_list(db, &q, &p, NULL));
        ASSERT_INT(p.n, p.total);
        for (size_t k = 0; k < p.n; k++)
            ASSERT(p.rows[k].state == SNAP_READY);
        snap_page_done(&p);
    }
    pthread_join(w.thread, NULL);
    snapdb_close(w.db);
    snapdb_close(db);
    tear_down();
}

TEST_MAIN()
