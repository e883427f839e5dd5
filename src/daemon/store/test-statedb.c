/* The state database: what was written is there after a kill, layouts are checked. */
#include "daemon/store/statedb.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/path.h"
#include "base/test.h"

static char dir[] = "/tmp/cove-test-statedb-XXXXXX", file[64];

static void set_up(void) {
    ASSERT(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/state.db", dir);
}

static void clean(void) {
    path_remove_tree_at(AT_FDCWD, dir);
}

static struct statedb *open_it(void) {
    struct statedb *s = NULL;
    struct err err = {0};
    if (statedb_open(file, &s, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return s;
}

static struct statedb_row row(const char *id, int64_t created) {
    struct statedb_row r = {
        .state = ROW_CREATING, .record = "{\"a\":1}", .metadata = "{}", .created_us = created};
    str_copy(r.id, sizeof r.id, id);
    return r;
}

struct seen {
    char text[512];
    int stop_after;
};

static int note(const struct statedb_row *r, void *ud) {
    struct seen *s = ud;
    size_t n = strlen(s->text);
    snprintf(s->text + n, sizeof s->text - n, "%s/%d/%s/%s/%lld;", r->id, (int)r->state, r->record,
             r->metadata, (long long)r->expires_us);
    return s->stop_after && --s->stop_after == 0 ? -ECANCELED : 0;
}

TEST(rows_survive_a_killed_process) {
    set_up();
    pid_t pid = fork();
    if (pid == 0) {
        struct statedb *s = open_it();
        struct statedb_row a = row("b", 2), b = row("a", 1);
        statedb_insert(s, &a, NULL);
        statedb_insert(s, &b, NULL);
        statedb_set_state(s, "b", ROW_ACTIVE, NULL);
        statedb_set_metadata(s, "b", "{\"k\":\"v\"}", NULL);
        statedb_set_expires(s, "b", 77, NULL);
        raise(SIGKILL);
    }
    ASSERT(waitpid(pid, NULL, 0) == pid);
    struct statedb *s = open_it();
    struct seen seen = {0};
    ASSERT_OK(statedb_each(s, note, &seen, NULL));
    ASSERT_STR(seen.text, "a/0/{\"a\":1}/{}/0;b/1/{\"a\":1}/{\"k\":\"v\"}/77;");
    statedb_close(s);
    clean();
}

TEST(missing_and_double_rows) {
    set_up();
    struct statedb *s = open_it();
    struct err err = {0};
    struct statedb_row a = row("x", 1);
    ASSERT_OK(statedb_insert(s, &a, &err));
    ASSERT_INT(statedb_insert(s, &a, &err), -EEXIST);
    ASSERT_INT(statedb_set_state(s, "y", ROW_ACTIVE, &err), -ENOENT);
    ASSERT_INT(statedb_set_metadata(s, "y", "{}", &err), -ENOENT);
    ASSERT_INT(statedb_set_expires(s, "y", 1, &err), -ENOENT);
    ASSERT_OK(statedb_delete(s, "y", &err));
    ASSERT_OK(statedb_delete(s, "x", &err));
    struct seen seen = {0};
    ASSERT_OK(statedb_each(s, note, &seen, NULL));
    ASSERT_STR(seen.text, "");
    statedb_close(s);
    clean();
}

TEST(a_callback_can_stop_the_walk) {
    set_up();
    struct statedb *s = open_it();
    for (int i = 0; i < 3; i++) {
        struct statedb_row r = row((char[]){(char)('a' + i), 0}, i);
        ASSERT_OK(statedb_insert(s, &r, NULL));
    }
    struct seen seen = {.stop_after = 2};
    ASSERT_INT(statedb_each(s, note, &seen, NULL), -ECANCELED);
    ASSERT(strstr(seen.text, "b/") && !strstr(seen.text, "c/"));
    ASSERT_OK(statedb_delete(s, "a", NULL)); /* the walk's statement was released */
    statedb_close(s);
    clean();
}

TEST(the_file_is_private_and_newer_layouts_are_refused) {
    set_up();
    struct statedb *s = open_it();
    struct stat st;
    struct err err = {0};
    ASSERT(stat(file, &st) == 0);
    ASSERT_INT(st.st_mode & 0777, 0600);
    statedb_close(s);
    sqlite3 *db;
    ASSERT_INT(sqlite3_open(file, &db), SQLITE_OK);
    ASSERT_INT(sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    ASSERT_INT(statedb_open(file, &s, &err), -EPROTO);
    ASSERT(strstr(err.msg, "newer"));
    clean();
}

static int first(const struct statedb_row *r, void *ud) {
    struct statedb_row *to = ud;
    *to = *r;
    to->record = strcmp(r->record, "new") == 0 ? "new" : "old";
    to->metadata = NULL;
    return 0;
}

TEST(a_database_of_the_first_layout_is_brought_up_to_date) {
    set_up();
    sqlite3 *db;
    ASSERT_INT(sqlite3_open(file, &db), SQLITE_OK);
    ASSERT_INT(sqlite3_exec(db,
                            "CREATE TABLE sandboxes(id TEXT PRIMARY KEY, state INTEGER NOT NULL,"
                            "record TEXT NOT NULL, metadata TEXT NOT NULL,"
                            "created_us INTEGER NOT NULL, expires_us INTEGER NOT NULL)"
                            " WITHOUT ROWID; PRAGMA user_version=1;"
                            "INSERT INTO sandboxes VALUES('a',0,'old','{}',7,9)",
                            NULL, NULL, NULL),
               SQLITE_OK);
    sqlite3_close(db);
    for (int round = 0; round < 2; round++) {
        struct statedb *s = open_it();
        struct statedb_row r = {0};
        ASSERT_OK(statedb_set_durable(s, NULL));
        ASSERT_OK(statedb_each(s, first, &r, NULL));
        ASSERT_STR(r.id, "a");
        ASSERT_INT(r.expires_us, 9);
        ASSERT_INT(r.changed_us, round ? 11 : 0);
        ASSERT_INT(r.state, round ? ROW_ACTIVE : ROW_CREATING);
        ASSERT_STR(r.record, round ? "new" : "old");
        ASSERT_OK(statedb_set_changed(s, "a", 11, NULL));
        ASSERT_OK(statedb_commit(s, "a", "new", NULL));
        ASSERT_INT(statedb_commit(s, "b", "new", NULL), -ENOENT);
        statedb_close(s);
    }
    clean();
}

TEST(garbage_is_not_taken_for_a_database) {
    set_up();
    struct statedb *s;
    struct err err = {0};
    ASSERT_OK(path_write_file_at(AT_FDCWD, file,
                                 "not a database, just some text of more than a page header", 50,
                                 0600, false));
    ASSERT_INT(statedb_open(file, &s, &err), -EIO);
    clean();
}

TEST_MAIN()
