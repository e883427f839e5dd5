/*
 * What both implementations of the snapshot repository must do: compare and set, filters, pages
 * while others write. Linked into test-snapdb (file) and test-snapdb-pg (PostgreSQL).
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "daemon/store/test-snapdb.h"

void add(struct snapdb *db, const char *id, const char *sandbox, const char *name,
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
void expect_list(struct snapdb *db, struct snap_query q, const char *want) {
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
