/* Sandboxes that change by other hands, that others have made, that a killed daemon left. */
#include "daemon/sandbox/test-kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "daemon/sandbox/ossfs.h"

static void share(void) {
    service_close(svc);
    uv_run(&loop, UV_RUN_DEFAULT);
    fake_share(drv);
    start_service();
}

/* Events travel through the loop: one turn each until nothing is under way. */
static void flush(void) {
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    settle();
}

static size_t total(void) {
    size_t n;
    service_list(svc, &(struct sandbox_filter){0}, 0, 0, NULL, &n);
    return n;
}

TEST(changes_by_other_hands_are_shown) {
    set_up();
    share();
    struct result c = create_ok();
    static const struct {
        enum instance_state now;
        enum sandbox_state want;
    } cases[] = {
        {INST_PAUSED, SB_PAUSED},   {INST_RUNNING, SB_RUNNING}, {INST_PENDING, SB_PENDING},
        {INST_UNKNOWN, SB_UNKNOWN}, {INST_RUNNING, SB_RUNNING},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        wall += 1000000;
        fake_set_state(drv, c.id, cases[i].now);
        fake_report(drv, c.id, cases[i].now);
        flush();
        ASSERT_INT(service_get(svc, c.id)->state, cases[i].want);
        ASSERT(service_get(svc, c.id)->changed_us == wall);
    }
    fake_exit(drv, c.id, 3);
    flush();
    ASSERT_INT(service_get(svc, c.id)->state, SB_FAILED);
    fake_set_state(drv, c.id, INST_RUNNING); /* started again by hand */
    fake_report(drv, c.id, INST_RUNNING);
    flush();
    ASSERT_INT(service_get(svc, c.id)->state, SB_RUNNING);
    ASSERT_INT(service_get(svc, c.id)->exit_code, 0);
    struct result r;
    OP(r, service_pause(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    tear_down();
}

/* The engine tells of a pause when the resume after it has long been answered. */
TEST(late_reports_of_our_own_doing_change_nothing) {
    set_up();
    share();
    struct result c = create_ok(), r;
    fake_report(drv, c.id, INST_RUNNING);
    OP(r, service_pause(svc, c.id, on_op, &r));
    int64_t at = service_get(svc, c.id)->changed_us;
    wall += 1000000;
    fake_report(drv, c.id, INST_PAUSED);
    flush();
    ASSERT_INT(service_get(svc, c.id)->state, SB_PAUSED);
    ASSERT(service_get(svc, c.id)->changed_us == at);
    OP(r, service_resume(svc, c.id, on_op, &r));
    at = service_get(svc, c.id)->changed_us;
    wall += 1000000;
    fake_report(drv, c.id, INST_PAUSED);
    for (int i = 0; i < 20; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ASSERT_INT(service_get(svc, c.id)->state, SB_RUNNING); /* not for a moment */
    }
    flush();
    ASSERT(service_get(svc, c.id)->changed_us == at);
    /* while the pause is under way: it is looked up after it */
    struct result p = {0};
    fake_hold(drv, FAKE_PAUSE);
    service_pause(svc, c.id, on_op, &p);
    fake_wait_held(drv, FAKE_PAUSE, 1);
    fake_report(drv, c.id, INST_PAUSED);
    fake_report(drv, c.id, INST_PAUSED);
    uv_run(&loop, UV_RUN_NOWAIT);
    ASSERT_INT(service_get(svc, c.id)->state, SB_RUNNING);
    fake_release(drv, FAKE_PAUSE);
    wait_for(&p);
    flush();
    ASSERT_INT(service_get(svc, c.id)->state, SB_PAUSED);
    tear_down();
}

TEST(what_was_removed_by_hand_is_gone) {
    set_up();
    share();
    struct create_request rq = request();
    rq.volumes = calloc(1, sizeof *rq.volumes);
    rq.n_volumes = 1;
    rq.volumes[0] = (struct volume_request){.name = strdup("v"),
                                            .mount_path = strdup("/v"),
                                            .host_path = strdup(""),
                                            .claim = strdup("mine"),
                                            .kind = VOLUME_NAMED,
                                            .n_backends = 1,
                                            .create_if_missing = true,
                                            .delete_on_termination = true};
    struct result c = create_with(rq), kept = create_ok(), r;
    ASSERT_INT(c.fault, FAULT_NONE);
    unsigned before = fake_calls(drv, FAKE_REMOVE);
    fake_lose(drv, c.id);
    fake_report(drv, c.id, INST_GONE);
    fake_report(drv, c.id, INST_GONE);
    flush();
    ASSERT(!service_get(svc, c.id) && !fake_has_volume(drv, "mine"));
    ASSERT_INT(fake_calls(drv, FAKE_REMOVE), before + 1); /* its guard goes with it */
    OP(r, service_delete(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NOT_FOUND);
    /* a report that is not true removes nothing */
    fake_report(drv, kept.id, INST_GONE);
    flush();
    ASSERT(service_get(svc, kept.id) && fake_has(drv, kept.id));
    ASSERT(!service_get(svc, kept.id)->removing && service_get(svc, kept.id)->heap_pos);
    restart();
    ASSERT_INT(total(), 1);
    tear_down();
}

TEST(a_lost_sandbox_whose_row_cannot_go_is_tried_again) {
    set_up();
    share();
    struct result c = create_ok();
    fake_lose(drv, c.id);
    fake_fail(drv, FAKE_REMOVE, -EIO, "engine away", 1);
    fake_report(drv, c.id, INST_GONE);
    flush();
    ASSERT(service_get(svc, c.id));
    wall += 31 * 1000000LL;
    expiry_run(svc);
    settle();
    ASSERT(!service_get(svc, c.id));
    tear_down();
}

TEST(an_end_reported_during_the_create_is_not_lost) {
    set_up();
    share();
    fake_exit_in_create(drv, 7);
    struct result c = create_ok();
    flush();
    ASSERT_INT(service_get(svc, c.id)->state, SB_FAILED);
    ASSERT_INT(service_get(svc, c.id)->exit_code, 7);
    tear_down();
}

/* A create that the driver had to start over: the container of the first attempt has ended. */
TEST(reports_of_an_attempt_that_was_taken_back_change_nothing) {
    set_up();
    share();
    static const enum instance_state late[] = {INST_EXITED, INST_GONE};
    for (size_t i = 0; i < ARRAY_SIZE(late); i++) {
        struct result c = create_ok();
        fake_report(drv, c.id, late[i]);
        for (int turn = 0; turn < 20; turn++) {
            uv_run(&loop, UV_RUN_NOWAIT);
            ASSERT_INT(sandbox_state_of(service_get(svc, c.id)), SB_RUNNING); /* not for a moment */
        }
        flush();
        ASSERT_INT(sandbox_state_of(service_get(svc, c.id)), SB_RUNNING);
    }
    tear_down();
}

TEST(sandboxes_of_others_are_taken_over) {
    set_up();
    struct result mine = create_ok();
    _cleanup_free_ char *bucket = str_printf("%s/bucket", oss_root);
    fake_share(drv);
    fake_add_found(drv, "manual",
                   json_pack("{s:{s:s},s:{s:s},s:[s,s]}", "metadata", "team", "x", "extensions",
                             "opensandbox.extensions.a", "b", "ossMounts", "/home", bucket));
    fake_add_found(drv, "timed", json_pack("{s:I}", "expiresUs", (json_int_t)(wall + 60000000)));
    fake_add_found(
        drv, "late",
        json_pack("{s:I,s:[s]}", "expiresUs", (json_int_t)(wall - 1), "ownVolumes", "old"));
    fake_add_found(drv, "paused", json_object());
    fake_add_found(drv, mine.id, json_object()); /* known already */
    fake_set_state(drv, "paused", INST_PAUSED);
    for (int round = 0; round < 2; round++) {
        restart();
        ASSERT_INT(total(), round ? 4 : 5);
        struct sandbox *sb = service_get(svc, "manual");
        ASSERT(sb && sb->state == SB_RUNNING && sb->expires_us == 0 && sb->heap_pos == 0);
        ASSERT_STR(json_str(sb->metadata, "team"), "x");
        ASSERT_STR(json_str(sb->extensions, "opensandbox.extensions.a"), "b");
        ASSERT_STR(sb->spec.image, "found:latest");
        ASSERT_INT(ossfs_users(svc->oss, bucket), 1);
        ASSERT_INT(ossfs_users(svc->oss, "/home"), 0); /* not ours to unmount */
        ASSERT_INT(service_get(svc, "paused")->state, SB_PAUSED);
        ASSERT(service_get(svc, "timed")->expires_us == wall + 60000000);
        ASSERT(service_get(svc, mine.id)->spec.access_token);
        expiry_run(svc);
        settle();
        ASSERT(!service_get(svc, "late") && !fake_has(drv, "late"));
    }
    struct result r;
    OP(r, service_renew(svc, "timed", wall + 90000000, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    OP(r, service_delete(svc, "manual", on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    ASSERT_INT(ossfs_users(svc->oss, bucket), 0);
    tear_down();
}

TEST(what_vanished_while_we_were_away_is_gone) {
    set_up();
    share();
    struct result c = create_ok(), other = create_ok();
    fake_add_volume(drv, "guard", "local", NULL);
    fake_lose(drv, c.id);
    restart();
    ASSERT(!service_get(svc, c.id) && service_get(svc, other.id));
    restart();
    ASSERT_INT(total(), 1);
    tear_down();
}

TEST(unfinished_operations_lose_what_they_made) {
    set_up();
    share();
    struct volume_info info = {0};
    ASSERT_OK(drv->ops->volume_open(drv, "of-half", "half", &info, NULL));
    ASSERT_OK(drv->ops->volume_open(drv, "of-other", "other", &info, NULL));
    ASSERT_OK(drv->ops->volume_open(drv, "of-going", "going", &info, NULL));
    static const struct {
        const char *id;
        enum row_state state;
        const char *volumes;
    } rows[] = {
        {"half", ROW_CREATING, "\"of-half\",\"of-other\""}, /* candidates: the other was there */
        {"going", ROW_DELETING, "\"of-going\""},
        {"damaged", ROW_CREATING, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ char *record =
            rows[i].volumes
                ? str_printf("{\"spec\":{\"id\":\"%s\",\"image\":\"i\",\"ownVolumes\":[%s],"
                             "\"ossMounts\":[\"%s/none\"]}}",
                             rows[i].id, rows[i].volumes, oss_root)
                : strdup("{}");
        struct statedb_row row = {
            .state = rows[i].state, .record = record, .metadata = "{}", .created_us = 1};
        str_copy(row.id, sizeof row.id, rows[i].id);
        ASSERT_OK(statedb_insert(db, &row, NULL));
        fake_add_stray(drv, rows[i].id);
    }
    fake_add_stray(drv, "of-others");
    restart();
    ASSERT_INT(total(), 0);
    ASSERT(!fake_has_volume(drv, "of-half") && !fake_has_volume(drv, "of-going"));
    ASSERT(fake_has_volume(drv, "of-other"));
    ASSERT(fake_has(drv, "of-others"));
    ASSERT_INT(fake_count(drv), 1);
    tear_down();
}

TEST(a_delete_of_something_unknown_cleans_up) {
    set_up();
    struct result r;
    OP(r, service_delete(svc, "no-such", on_op, &r));
    ASSERT_INT(r.fault, FAULT_NOT_FOUND);
    ASSERT_INT(fake_calls(drv, FAKE_REMOVE), 0); /* a runtime of our own holds nothing unknown */
    share();
    OP(r, service_delete(svc, "no-such", on_op, &r));
    ASSERT_INT(r.fault, FAULT_NOT_FOUND);
    ASSERT(strstr(r.text, "no-such"));
    ASSERT_INT(fake_calls(drv, FAKE_REMOVE), 1);
    OP(r, service_delete(svc, "../no-id", on_op, &r));
    ASSERT_INT(r.fault, FAULT_NOT_FOUND);
    ASSERT_INT(fake_calls(drv, FAKE_REMOVE), 1);
    fake_fail(drv, FAKE_REMOVE, -EIO, "engine away", 1);
    OP(r, service_delete(svc, "no-such", on_op, &r));
    ASSERT_INT(r.fault, FAULT_DELETE);
    fake_add_stray(drv, "new-one"); /* another server has made it since */
    OP(r, service_delete(svc, "new-one", on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    ASSERT(!fake_has(drv, "new-one"));
    /* two at once: the driver is asked once */
    struct result a = {0}, b = {0};
    unsigned calls = fake_calls(drv, FAKE_REMOVE);
    fake_hold(drv, FAKE_REMOVE);
    service_delete(svc, "no-such", on_op, &a);
    fake_wait_held(drv, FAKE_REMOVE, 1);
    service_delete(svc, "no-such", on_op, &b);
    ASSERT_INT(b.fault, FAULT_NOT_FOUND);
    fake_release(drv, FAKE_REMOVE);
    wait_for(&a);
    ASSERT_INT(fake_calls(drv, FAKE_REMOVE), calls + 1);
    tear_down();
}

TEST(renewals_are_shown_to_the_runtime) {
    set_up();
    share();
    struct result c = create_ok(), r;
    int64_t to = wall + 5000 * 1000000LL;
    OP(r, service_renew(svc, c.id, to, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    ASSERT(fake_noted_expiry(drv, c.id) == to);
    OP(r, service_renew(svc, c.id, wall - 1, on_op, &r));
    ASSERT_INT(r.fault, FAULT_EXPIRY_PAST);
    ASSERT(fake_noted_expiry(drv, c.id) == to);
    tear_down();
}

TEST(the_time_of_a_pause_survives) {
    set_up();
    struct result c = create_ok(), r;
    wall += 5000000;
    OP(r, service_pause(svc, c.id, on_op, &r));
    int64_t at = wall;
    wall += 5000000;
    restart();
    ASSERT_INT(service_get(svc, c.id)->state, SB_PAUSED);
    ASSERT(service_get(svc, c.id)->changed_us == at);
    tear_down();
}

/* The engine is shut down under us while events are still on their way. */
TEST(reports_after_the_end_are_dropped) {
    set_up();
    share();
    struct result c = create_ok();
    fake_report(drv, c.id, INST_PAUSED);
    fake_report(drv, c.id, INST_GONE);
    restart();
    ASSERT_INT(service_get(svc, c.id)->state, SB_RUNNING);
    tear_down();
}

TEST_MAIN()
