/* The snapshot repository in a file: its form, and older ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"
#include "daemon/store/test-snapdb.h"

static char dir[64], file[96];

void set_up(void) {
    str_copy(dir, sizeof dir, "/tmp/cove-test-snapdb-XXXXXX");
    ASSERT(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/sub/dir/snap.db", dir);
}

void tear_down(void) {
    path_remove_tree_at(AT_FDCWD, dir);
}

struct snapdb *open_db(void) {
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

TEST_MAIN()
