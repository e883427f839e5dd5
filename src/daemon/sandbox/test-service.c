/* The service over the test driver: order, rollback, joins, exits, expiry, start-up. */
#include "daemon/sandbox/test-kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"

TEST(a_sandbox_lives_and_goes) {
    set_up();
    struct result c = create_ok(), r;
    ASSERT_INT(strlen(c.id), 36);
    ASSERT(c.n_steps >= 3);
    ASSERT(fake_has(drv, c.id));
    struct sandbox *sb = service_get(svc, c.id);
    ASSERT_INT(sb->state, SB_RUNNING);
    ASSERT(sb->expires_us == wall + 600 * 1000000LL);
    ASSERT_INT(strlen(sb->spec.access_token), 32);
    ASSERT_STR(env_get(&sb->spec.env, "OPENSANDBOX_ID"), c.id);
    OP(r, service_delete(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    ASSERT(!service_get(svc, c.id) && fake_count(drv) == 0);
    OP(r, service_delete(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NOT_FOUND);
    tear_down();
}

TEST(a_failed_create_leaves_nothing) {
    set_up();
    fake_fail(drv, FAKE_CREATE, -EIO, "the runtime said no", 1);
    struct result c = create_with(request());
    ASSERT_INT(c.fault, FAULT_CREATE);
    ASSERT(strstr(c.text, "the runtime said no"));
    fake_fail(drv, FAKE_CREATE, -ENOSPC, "out of addresses", 1);
    ASSERT_INT(create_with(request()).fault, FAULT_FULL);
    restart(); /* no row is left that recovery would have to undo or adopt */
    ASSERT_INT(fake_count(drv), 0);
    size_t total;
    ASSERT_INT(service_list(svc, &(struct sandbox_filter){0}, 0, 0, NULL, &total), 0);
    ASSERT_INT(total, 0);
    tear_down();
}

TEST(an_unknown_image_is_refused_early) {
    set_up();
    struct create_request rq = request();
    free(rq.image);
    rq.image = strdup("local/missing");
    struct result c = create_with(rq);
    ASSERT_INT(c.fault, FAULT_IMAGE);
    ASSERT_INT(fake_calls(drv, FAKE_CREATE), 0);
    tear_down();
}

TEST(creates_run_in_parallel_and_gets_do_not_wait) {
    set_up();
    struct result first = create_ok(), r[10];
    fake_hold(drv, FAKE_CREATE);
    for (int i = 0; i < 10; i++)
        begin_create(request(), &r[i]);
    fake_wait_held(drv, FAKE_CREATE, 10);
    ASSERT(service_get(svc, first.id));
    fake_release(drv, FAKE_CREATE);
    for (int i = 0; i < 10; i++) {
        wait_for(&r[i]);
        ASSERT_INT(r[i].fault, FAULT_NONE);
    }
    ASSERT_INT(fake_peak(drv, FAKE_CREATE), 10);
    ASSERT_INT(fake_count(drv), 11);
    tear_down();
}

TEST(two_deletes_share_one_removal) {
    set_up();
    struct result c = create_ok(), a = {0}, b = {0};
    fake_hold(drv, FAKE_REMOVE);
    service_delete(svc, c.id, on_op, &a);
    fake_wait_held(drv, FAKE_REMOVE, 1);
    ASSERT_INT(service_get(svc, c.id)->state, SB_RUNNING);
    ASSERT(service_get(svc, c.id)->removing);
    service_delete(svc, c.id, on_op, &b);
    fake_release(drv, FAKE_REMOVE);
    wait_for(&a);
    wait_for(&b);
    ASSERT_INT(a.fault, FAULT_NONE);
    ASSERT_INT(b.fault, FAULT_NONE);
    ASSERT_INT(fake_calls(drv, FAKE_REMOVE), 1);
    tear_down();
}

TEST(what_waits_behind_a_delete_finds_nothing) {
    set_up();
    struct result c = create_ok(), d = {0}, p = {0}, n = {0};
    fake_hold(drv, FAKE_REMOVE);
    service_delete(svc, c.id, on_op, &d);
    service_pause(svc, c.id, on_op, &p);
    service_renew(svc, c.id, wall + 5000000, on_op, &n);
    fake_release(drv, FAKE_REMOVE);
    wait_for(&n);
    ASSERT_INT(d.fault, FAULT_NONE);
    ASSERT_INT(p.fault, FAULT_NOT_FOUND);
    ASSERT_INT(n.fault, FAULT_NOT_FOUND);
    tear_down();
}

TEST(a_failed_delete_can_be_repeated) {
    set_up();
    struct result c = create_ok(), r;
    fake_fail(drv, FAKE_REMOVE, -EIO, "busy", 1);
    OP(r, service_delete(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_DELETE);
    ASSERT(service_get(svc, c.id) && !service_get(svc, c.id)->removing);
    restart();
    ASSERT(service_get(svc, c.id)); /* still known */
    OP(r, service_delete(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    tear_down();
}

TEST(pause_and_resume) {
    set_up();
    struct result c = create_ok(), r;
    OP(r, service_resume(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NOT_PAUSED);
    OP(r, service_pause(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    ASSERT_INT(service_get(svc, c.id)->state, SB_PAUSED);
    OP(r, service_pause(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NOT_RUNNING);
    fake_fail(drv, FAKE_RESUME, -EIO, "stuck", 1);
    OP(r, service_resume(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_RESUME);
    ASSERT_INT(service_get(svc, c.id)->state, SB_PAUSED);
    restart();
    ASSERT_INT(service_get(svc, c.id)->state, SB_PAUSED);
    OP(r, service_resume(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    tear_down();
}

TEST(an_exit_shows_its_code) {
    set_up();
    struct result c = create_ok(), d = create_ok();
    fake_exit(drv, c.id, 3);
    fake_exit(drv, d.id, 0);
    while (service_get(svc, d.id)->state == SB_RUNNING)
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT_INT(service_get(svc, c.id)->state, SB_FAILED);
    ASSERT_INT(service_get(svc, c.id)->exit_code, 3);
    ASSERT_INT(service_get(svc, d.id)->state, SB_TERMINATED);
    struct result r;
    OP(r, service_pause(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NOT_RUNNING);
    tear_down();
}

TEST(an_exit_before_the_create_is_answered_is_not_lost) {
    set_up();
    fake_exit_in_create(drv, 7);
    struct result c = create_ok();
    ASSERT_INT(service_get(svc, c.id)->state, SB_FAILED);
    ASSERT_INT(service_get(svc, c.id)->exit_code, 7);
    tear_down();
}

TEST(metadata_patches_do_not_lose_each_other) {
    set_up();
    struct result c = create_ok(), r;
    _cleanup_json_ json_t *a = json_pack("{s:s,s:s}", "a", "1", "b", "2");
    _cleanup_json_ json_t *b = json_pack("{s:n,s:s}", "a", "c", "3");
    _cleanup_json_ json_t *bad = json_pack("{s:s}", "a b", "x");
    _cleanup_json_ json_t *reserved = json_pack("{s:n}", "opensandbox.io/id");
    struct result r1 = {0}, r2 = {0};
    service_patch_metadata(svc, c.id, a, on_op, &r1);
    service_patch_metadata(svc, c.id, b, on_op, &r2);
    wait_for(&r2);
    ASSERT_INT(r1.fault | r2.fault, 0);
    restart();
    struct sandbox *sb = service_get(svc, c.id);
    ASSERT_INT(json_object_size(sb->metadata), 2);
    ASSERT_STR(json_str(sb->metadata, "b"), "2");
    ASSERT_STR(json_str(sb->metadata, "c"), "3");
    OP(r, service_patch_metadata(svc, c.id, bad, on_op, &r));
    ASSERT_INT(r.fault, FAULT_LABEL);
    OP(r, service_patch_metadata(svc, c.id, reserved, on_op, &r));
    ASSERT_INT(r.fault, FAULT_LABEL_RESERVED);
    tear_down();
}

TEST(expiry_removes_and_retries) {
    set_up();
    struct result c = create_ok();
    fake_fail(drv, FAKE_REMOVE, -EIO, "busy", 1);
    wall += 601 * 1000000LL;
    expiry_run(svc);
    while (service_pending(svc))
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT(service_get(svc, c.id)); /* failed: kept, tried again in 30 s */
    wall += 29 * 1000000LL;
    expiry_run(svc);
    ASSERT_INT(service_pending(svc), 0);
    wall += 2 * 1000000LL;
    expiry_run(svc);
    while (service_pending(svc))
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT(!service_get(svc, c.id) && fake_count(drv) == 0);
    tear_down();
}

TEST(the_timer_fires_by_itself) {
    set_up();
    struct create_request rq = request();
    rq.timeout_s = 60;
    wall = clock_wall_us() - 60 * 1000000LL + 50000; /* ends 50 ms from now on the real clock */
    struct result c = create_with(rq);
    wall += 61 * 1000000LL;
    while (service_get(svc, c.id))
        uv_run(&loop, UV_RUN_ONCE);
    tear_down();
}

TEST(a_shorter_renewal_fires_by_itself) {
    set_up();
    wall = clock_wall_us();
    struct result c = create_ok(), r; /* ends in ten minutes */
    OP(r, service_renew(svc, c.id, clock_wall_us() + 50000, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    wall += 1000000;
    while (service_get(svc, c.id))
        uv_run(&loop, UV_RUN_ONCE);
    tear_down();
}

TEST(renewal_counts_and_survives) {
    set_up();
    struct result c = create_ok(), r;
    OP(r, service_renew(svc, c.id, wall - 1, on_op, &r));
    ASSERT_INT(r.fault, FAULT_EXPIRY_PAST);
    int64_t later = wall + 9000 * 1000000LL;
    OP(r, service_renew(svc, c.id, later, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    wall += 700 * 1000000LL;
    expiry_run(svc);
    ASSERT_INT(service_pending(svc), 0);
    restart();
    ASSERT(service_get(svc, c.id)->expires_us == later);
    struct create_request rq = request();
    rq.timeout_s = 0;
    struct result m = create_with(rq);
    OP(r, service_renew(svc, m.id, later, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NO_EXPIRY);
    ASSERT(strstr(r.text, "does not have automatic expiration"));
    tear_down();
}

/*
 * Renewal against expiry under random order and time: a sandbox whose renewal was granted is never
 * removed before the granted time, and one whose time is over is removed in the end.
 */
TEST(renewal_against_expiry) {
    set_up();
    test_set_timeout(60);
    unsigned seed = (unsigned)clock_mono_us();
    printf("# seed %u\n", seed);
    for (int round = 0; round < 300; round++) {
        struct result c = create_ok(), n = {0};
        int64_t base = service_get(svc, c.id)->expires_us;
        int64_t to = base + (rand_r(&seed) % 3 - 1) * 1000000LL;
        wall = base - 2000000 + rand_r(&seed) % 3000000;
        bool renew_first = rand_r(&seed) % 2;
        if (!renew_first)
            expiry_run(svc);
        service_renew(svc, c.id, to, on_op, &n);
        if (renew_first)
            expiry_run(svc);
        if (rand_r(&seed) % 2)
            wall += rand_r(&seed) % 1000000;
        expiry_run(svc);
        while (service_pending(svc)) {
            uv_run(&loop, UV_RUN_ONCE);
            expiry_run(svc);
        }
        ASSERT(n.done);
        struct sandbox *sb = service_get(svc, c.id);
        if (n.fault == FAULT_NONE && wall < to)
            ASSERT(sb && sb->expires_us == to && fake_has(drv, c.id));
        if (!sb)
            ASSERT(!fake_has(drv, c.id) && wall >= MIN(to, base));
        else
            ASSERT(sb->expires_us > wall);
        wall = MAX(to, base) + 1;
        expiry_run(svc);
        while (service_pending(svc))
            uv_run(&loop, UV_RUN_ONCE);
        ASSERT(!service_get(svc, c.id));
    }
    ASSERT_INT(fake_count(drv), 0);
    tear_down();
}

TEST(start_up_finishes_what_a_kill_left) {
    set_up();
    struct result kept = create_ok(), lost = create_ok(), ended = create_ok();
    struct statedb_row half = {.state = ROW_CREATING, .record = "{}", .metadata = "{}"};
    str_copy(half.id, sizeof half.id, "half-made");
    ASSERT_OK(statedb_insert(db, &half, NULL));
    fake_add_stray(drv, "half-made");
    struct result going = create_ok();
    ASSERT_OK(statedb_set_state(db, going.id, ROW_DELETING, NULL));
    fake_add_stray(drv, "nobody-knows");
    fake_lose(drv, lost.id);
    fake_exit(drv, ended.id, 9);
    restart();
    ASSERT_INT(service_get(svc, kept.id)->state, SB_RUNNING);
    ASSERT_INT(service_get(svc, lost.id)->state, SB_LOST);
    ASSERT_INT(service_get(svc, ended.id)->state, SB_FAILED);
    ASSERT_INT(service_get(svc, ended.id)->exit_code, 9);
    ASSERT(!service_get(svc, going.id) && !fake_has(drv, going.id));
    ASSERT(!fake_has(drv, "half-made") && !fake_has(drv, "nobody-knows"));
    ASSERT_INT(fake_count(drv), 2);
    struct result r;
    OP(r, service_delete(svc, lost.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    restart();
    ASSERT(service_get(svc, kept.id) && !service_get(svc, lost.id));
    tear_down();
}

TEST(start_up_fails_when_the_runtime_cannot_be_asked) {
    set_up();
    struct result c = create_ok();
    service_close(svc);
    uv_run(&loop, UV_RUN_DEFAULT);
    fake_fail(drv, FAKE_RECOVER, -EIO, "no runtime", 1);
    struct err err = {0};
    struct service_opts o = {.loop = &loop, .driver = drv, .store = db, .max_workers = 2};
    ASSERT_INT(service_open(&o, &svc, &err), -EIO);
    ASSERT(strstr(err.msg, "no runtime"));
    uv_run(&loop, UV_RUN_DEFAULT);
    ASSERT(fake_has(drv, c.id));
    start_service();
    tear_down();
}

TEST(lists_are_newest_first_and_filtered) {
    set_up();
    char ids[5][37];
    for (int i = 0; i < 5; i++) {
        struct create_request rq = request();
        rq.metadata = json_pack("{s:s,s:s}", "n", (char[]){(char)('0' + i), 0}, "all", "yes");
        wall += i == 3 ? -2500000 : 1000000; /* the clock went back once */
        struct result c = create_with(rq);
        str_copy(ids[i], sizeof ids[i], c.id);
    }
    struct sandbox *out[5];
    size_t total;
    ASSERT_INT(service_list(svc, &(struct sandbox_filter){0}, 0, 5, out, &total), 5);
    ASSERT_INT(total, 5);
    for (int i = 1; i < 5; i++)
        ASSERT(out[i - 1]->created_us >= out[i]->created_us);
    ASSERT_INT(service_list(svc, &(struct sandbox_filter){0}, 3, 5, out, &total), 2);
    ASSERT_INT(service_list(svc, &(struct sandbox_filter){0}, 9, 5, out, &total), 0);
    ASSERT_INT(total, 5);
    _cleanup_json_ json_t *want = json_pack("{s:s,s:s}", "n", "2", "all", "yes");
    ASSERT_INT(service_list(svc, &(struct sandbox_filter){.metadata = want}, 0, 5, out, &total), 1);
    ASSERT_STR(out[0]->spec.id, ids[2]);
    ASSERT_INT(total, 1);
    ASSERT_INT(
        service_list(svc, &(struct sandbox_filter){.states = 1u << SB_PAUSED}, 0, 5, out, &total),
        0);
    tear_down();
}

TEST(host_volumes_are_resolved_and_bounded) {
    set_up();
    _cleanup_free_ char *ok = str_printf("%s/ok", dir), *outside = str_printf("%s/ok/link", dir);
    ASSERT_OK(path_mkdirs_at(AT_FDCWD, ok, 0755));
    _cleanup_free_ char *dangling = str_printf("%s/ok/dangling", dir),
                        *target = str_printf("%s/not-there", dir);
    ASSERT(symlink("/etc", outside) == 0);
    ASSERT(symlink(target, dangling) == 0);
    allowed[0] = ok;
    const struct {
        const char *path, *sub;
        bool operator_;
        enum fault want;
    } cases[] = {
        {ok, NULL, false, FAULT_NONE},
        {ok, "new/deep", false, FAULT_NONE},
        {ok, "../x", false, FAULT_VOLUME_SUB_PATH},
        {outside, NULL, false, FAULT_VOLUME_NOT_ALLOWED},
        {ok, "link/new", false, FAULT_VOLUME_NOT_ALLOWED},
        {ok, "dangling/new", false, FAULT_VOLUME_CREATE},
        {"/etc", NULL, false, FAULT_VOLUME_NOT_ALLOWED},
        {"/etc", NULL, true, FAULT_NONE},
        {"etc", NULL, true, FAULT_VOLUME_HOST_PATH},
        {"/etc/../etc", NULL, true, FAULT_VOLUME_HOST_PATH},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct create_request rq = request();
        rq.is_operator = cases[i].operator_;
        rq.volumes = calloc(1, sizeof *rq.volumes);
        rq.n_volumes = 1;
        rq.volumes[0] = (struct volume_request){
            .name = strdup("data"),
            .mount_path = strdup("/mnt//d/"),
            .host_path = strdup(cases[i].path),
            .sub_path = cases[i].sub ? strdup(cases[i].sub) : NULL,
            .n_backends = 1,
            .read_only = true,
        };
        struct result c = create_with(rq);
        if (c.fault != cases[i].want)
            test_fail(__FILE__, __LINE__, "case %zu: %d (%s), expected %d", i, c.fault, c.text,
                      cases[i].want);
        if (c.fault)
            continue;
        ASSERT_STR(c.sb->spec.mounts[0].target, "/mnt/d");
        ASSERT(c.sb->spec.mounts[0].read_only);
        ASSERT(!strstr(c.sb->spec.mounts[0].source, "link"));
    }
    allowed[0] = NULL;
    ASSERT(access("/etc/new", F_OK) < 0 && access(target, F_OK) < 0);
    tear_down();
}

static void on_idle(void *ud) {
    ++*(int *)ud;
}

TEST(idle_is_told_once_when_everything_has_ended) {
    set_up();
    int idle = 0;
    service_when_idle(svc, on_idle, &idle);
    ASSERT_INT(idle, 1);
    struct result c, d;
    fake_hold(drv, FAKE_CREATE);
    begin_create(request(), &c);
    begin_create(request(), &d);
    service_when_idle(svc, on_idle, &idle);
    ASSERT_INT(idle, 1);
    fake_release(drv, FAKE_CREATE);
    wait_for(&c);
    wait_for(&d);
    while (service_pending(svc))
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT_INT(idle, 2);
    create_ok();
    ASSERT_INT(idle, 2);
    tear_down();
}

TEST(removals_still_work_when_creates_are_refused) {
    set_up();
    struct result c = create_ok(), r;
    service_refuse(svc);
    OP(r, service_delete(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    tear_down();
}

TEST(work_in_flight_is_finished_at_the_end) {
    set_up();
    struct result r;
    begin_create(request(), &r);
    service_refuse(svc);
    struct result refused = {0};
    struct create_request rq = request();
    service_create(svc, &rq, on_create, &refused);
    ASSERT_INT(refused.fault, FAULT_STOPPING);
    service_close(svc);
    ASSERT(r.done && r.fault == FAULT_NONE);
    uv_run(&loop, UV_RUN_DEFAULT);
    start_service();
    ASSERT(service_get(svc, r.id));
    tear_down();
}

TEST_MAIN()
