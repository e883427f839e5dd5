/* Snapshots over the test driver: order, races between outcome and removal, retries, start-up. */
#include "daemon/sandbox/snapshots.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/test.h"
#include "daemon/driver/fake/fake.h"
#include "daemon/sandbox/internal.h"
#include "daemon/store/snapdb_priv.h"

static char dir[64];
static uv_loop_t loop;
static struct driver *drv;
static struct statedb *db;
static struct snapdb *snaps;
static struct service *svc;

static void start_service(void) {
    _cleanup_free_ char *file = path_join(dir, "state.db");
    _cleanup_free_ char *snap_file = path_join(dir, "snap.db");
    struct err err = {0};
    ASSERT_OK(statedb_open(file, &db, NULL));
    ASSERT_OK(snapdb_open_file(snap_file, &snaps, NULL));
    struct service_opts o = {
        .loop = &loop,
        .driver = drv,
        .store = db,
        .snapshots = snaps,
        .max_workers = 16,
    };
    if (service_open(&o, &svc, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
}

static void stop_service(void) {
    service_close(svc);
    uv_run(&loop, UV_RUN_DEFAULT);
    statedb_close(db);
    snapdb_close(snaps);
}

static void set_up(void) {
    log_setup(LOG_ERROR, false, "test");
    str_copy(dir, sizeof dir, "/tmp/cove-test-snaps-XXXXXX");
    ASSERT(mkdtemp(dir));
    uv_loop_init(&loop);
    drv = fake_new();
    drv->rules.snapshots = true;
    start_service();
}

static void restart(void) {
    stop_service();
    start_service();
}

static void tear_down(void) {
    stop_service();
    ASSERT_INT(uv_loop_close(&loop), 0);
    fake_destroy(drv);
    uv_library_shutdown();
    path_remove_tree_at(AT_FDCWD, dir);
}

struct result {
    bool done;
    enum fault fault;
    char text[300], id[64], state[16], reason[64], name[32];
    int64_t total;
    size_t n;
};

static void on_snapshot(enum fault f, const struct err *err, const struct snap_row *row, void *ud) {
    struct result *r = ud;
    *r = (struct result){.done = true, .fault = f};
    str_copy(r->text, sizeof r->text, err->msg);
    if (!row)
        return;
    str_copy(r->id, sizeof r->id, row->id);
    str_copy(r->state, sizeof r->state, snap_state_name(row->state));
    str_copy(r->reason, sizeof r->reason, row->reason ? row->reason : "");
    str_copy(r->name, sizeof r->name, row->name ? row->name : "");
}

static void on_list(enum fault f, const struct err *err, const struct snap_page *p, void *ud) {
    struct result *r = ud;
    *r = (struct result){.done = true, .fault = f, .total = p ? p->total : 0, .n = p ? p->n : 0};
}

static void on_create(enum fault f, const struct err *err, struct sandbox *sb,
                      const struct step_times *steps, void *ud) {
    struct result *r = ud;
    *r = (struct result){.done = true, .fault = f};
    str_copy(r->text, sizeof r->text, err->msg);
    if (sb)
        str_copy(r->id, sizeof r->id, sb->spec.id);
}

static void on_op(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    on_create(f, err, sb, NULL, ud);
}

static void wait_for(const struct result *r) {
    while (!r->done)
        uv_run(&loop, UV_RUN_ONCE);
}

#define OP(r, call)             \
    do {                        \
        r = (struct result){0}; \
        call;                   \
        wait_for(&r);           \
    } while (0)

static struct result sandbox(void) {
    struct create_request rq = {.image = strdup("host"), .timeout_s = 600};
    struct result r = {0};
    strv_add(&rq.entrypoint, "true");
    service_create(svc, &rq, on_create, &r);
    wait_for(&r);
    ASSERT_INT(r.fault, FAULT_NONE);
    return r;
}

static struct result get(const char *id) {
    struct result r;
    OP(r, service_snapshot_get(svc, id, on_snapshot, &r));
    return r;
}

static struct result create(const char *sandbox_id) {
    struct result r;
    OP(r, service_snapshot_create(svc, sandbox_id, "n", on_snapshot, &r));
    return r;
}

static struct result remove_one(const char *id) {
    struct result r;
    OP(r, service_snapshot_delete(svc, id, on_snapshot, &r));
    return r;
}

/* Looks until it is so, or it is gone. */
static struct result wait_state(const char *id, const char *state) {
    struct result r = get(id);
    while (!str_eq(r.state, state) && !r.fault) {
        poll(NULL, 0, 2);
        r = get(id);
    }
    return r;
}

static const char *image_of(const char *id) {
    static char image[128];
    snprintf(image, sizeof image, "%s:%s", SNAPSHOT_REPOSITORY, id);
    return image;
}

static struct result ready(void) {
    struct result s = create(sandbox().id);
    ASSERT_INT(s.fault, FAULT_NONE);
    struct result r = wait_state(s.id, "Ready");
    ASSERT_INT(r.fault, FAULT_NONE);
    return s;
}

TEST(a_snapshot_is_made_and_removed) {
    set_up();
    struct result sb = sandbox();
    struct result s = create(sb.id);
    ASSERT_INT(s.fault, FAULT_NONE);
    ASSERT_INT(strlen(s.id), 36);
    ASSERT_STR(s.state, "Creating");
    ASSERT_STR(s.reason, "snapshot_accepted");
    ASSERT_STR(s.name, "n");
    struct result r = wait_state(s.id, "Ready");
    ASSERT_STR(r.reason, "snapshot_runtime_ready");
    ASSERT(fake_has_image(drv, image_of(s.id)));
    OP(r, service_delete(svc, sb.id, on_op, &r)); /* it outlives its sandbox */
    ASSERT_STR(get(s.id).state, "Ready");
    char *image = NULL;
    struct err err = {0};
    ASSERT_INT(snapshots_resolve(svc, s.id, &image, &err), FAULT_NONE);
    ASSERT_STR(image, image_of(s.id));
    free(image);
    ASSERT_INT(remove_one(s.id).fault, FAULT_NONE);
    ASSERT(!fake_has_image(drv, image_of(s.id)));
    ASSERT_INT(get(s.id).fault, FAULT_SNAPSHOT_MISSING);
    ASSERT_INT(remove_one(s.id).fault, FAULT_SNAPSHOT_MISSING);
    ASSERT_INT(snapshots_resolve(svc, s.id, &image, &err), FAULT_SNAPSHOT_MISSING);
    tear_down();
}

TEST(only_a_running_sandbox_has_one_made) {
    set_up();
    ASSERT_INT(create("none").fault, FAULT_NOT_FOUND);
    struct result sb = sandbox(), r;
    OP(r, service_pause(svc, sb.id, on_op, &r));
    ASSERT_INT(create(sb.id).fault, FAULT_SNAPSHOT_SOURCE);
    OP(r, service_resume(svc, sb.id, on_op, &r));
    struct result second;
    fake_hold(drv, FAKE_SNAPSHOT);
    r = create(sb.id);
    ASSERT_INT(r.fault, FAULT_NONE);
    fake_wait_held(drv, FAKE_SNAPSHOT, 1);
    second = create(sb.id); /* while one is made */
    ASSERT_INT(second.fault, FAULT_SNAPSHOT_SOURCE);
    fake_release(drv, FAKE_SNAPSHOT);
    wait_state(r.id, "Ready");
    while (service_pending(svc) > 0)
        uv_run(&loop, UV_RUN_ONCE);
    second = create(sb.id);
    ASSERT_INT(second.fault, FAULT_NONE);
    wait_state(second.id, "Ready");
    drv->rules.snapshots = false;
    ASSERT_INT(create(sb.id).fault, FAULT_SNAPSHOT);
    ASSERT_INT(get("x").fault, FAULT_SNAPSHOT);
    drv->rules.snapshots = true;
    tear_down();
}

TEST(a_pause_that_was_asked_for_first_wins) {
    set_up();
    struct result sb = sandbox(), p = {0}, s = {0};
    fake_hold(drv, FAKE_PAUSE);
    service_pause(svc, sb.id, on_op, &p);
    service_snapshot_create(svc, sb.id, NULL, on_snapshot, &s);
    fake_release(drv, FAKE_PAUSE);
    wait_for(&s);
    ASSERT_INT(p.fault, FAULT_NONE);
    ASSERT_INT(s.fault, FAULT_SNAPSHOT_SOURCE);
    ASSERT_INT(fake_calls(drv, FAKE_SNAPSHOT), 0);
    tear_down();
}

TEST(the_sandbox_stays_while_it_is_committed) {
    set_up();
    struct result sb = sandbox(), d = {0};
    fake_hold(drv, FAKE_SNAPSHOT);
    struct result s = create(sb.id);
    service_delete(svc, sb.id, on_op, &d);
    fake_wait_held(drv, FAKE_SNAPSHOT, 1);
    ASSERT(!d.done && fake_has(drv, sb.id));
    fake_release(drv, FAKE_SNAPSHOT);
    wait_for(&d);
    ASSERT_INT(d.fault, FAULT_NONE);
    ASSERT_STR(wait_state(s.id, "Ready").state, "Ready");
    tear_down();
}

/* What only writes the database does not wait for a commit, unless something else waits before it.
 */
TEST(renewals_and_patches_go_by_a_commit) {
    set_up();
    struct result sb = sandbox(), r = {0}, m = {0}, d = {0}, late = {0};
    const struct sandbox *box = service_get(svc, sb.id);
    _cleanup_json_ json_t *patch = json_pack("{s:s}", "k", "v");
    fake_hold(drv, FAKE_SNAPSHOT);
    struct result s = create(sb.id);
    fake_wait_held(drv, FAKE_SNAPSHOT, 1);
    int64_t until = clock_wall_us() + 7200LL * 1000000;
    service_renew(svc, sb.id, until, on_op, &r);
    service_patch_metadata(svc, sb.id, patch, on_op, &m);
    wait_for(&r);
    wait_for(&m);
    ASSERT_INT(r.fault, FAULT_NONE);
    ASSERT_INT(m.fault, FAULT_NONE);
    ASSERT(box->expires_us == until && json_object_size(box->metadata) == 1);
    service_pause(svc, sb.id, on_op, &d);
    service_renew(svc, sb.id, until + 1, on_op, &late);
    uv_run(&loop, UV_RUN_NOWAIT);
    ASSERT(!d.done && !late.done);
    ASSERT_STR(get(s.id).state, "Creating");
    fake_release(drv, FAKE_SNAPSHOT);
    wait_for(&late);
    ASSERT_INT(late.fault, FAULT_NONE);
    ASSERT(d.done && d.fault == FAULT_NONE && box->state == SB_PAUSED);
    ASSERT_STR(wait_state(s.id, "Ready").state, "Ready");
    tear_down();
}

TEST(two_commits_at_a_time) {
    set_up();
    struct result s[5];
    fake_hold(drv, FAKE_SNAPSHOT);
    for (int i = 0; i < 5; i++) {
        s[i] = create(sandbox().id);
        ASSERT_INT(s[i].fault, FAULT_NONE); /* accepted without waiting for a turn */
    }
    fake_wait_held(drv, FAKE_SNAPSHOT, 2);
    ASSERT_INT(fake_calls(drv, FAKE_SNAPSHOT), 2);
    fake_release(drv, FAKE_SNAPSHOT);
    for (int i = 0; i < 5; i++)
        ASSERT_STR(wait_state(s[i].id, "Ready").state, "Ready");
    ASSERT_INT(fake_peak(drv, FAKE_SNAPSHOT), 2);
    tear_down();
}

TEST(a_failed_commit_is_told) {
    set_up();
    struct result sb = sandbox();
    fake_fail(drv, FAKE_SNAPSHOT, -EIO, "no space left in the engine", 1);
    struct result s = create(sb.id);
    struct result r = wait_state(s.id, "Failed");
    ASSERT_STR(r.reason, "snapshot_runtime_failed");
    while (service_pending(svc) > 0)
        uv_run(&loop, UV_RUN_ONCE);
    fake_fail(drv, FAKE_SNAPSHOT, -ETIMEDOUT, "no answer after 180 seconds", 1);
    s = create(sb.id);
    ASSERT_STR(wait_state(s.id, "Failed").reason, "snapshot_runtime_timeout");
    char *image;
    struct err err = {0};
    ASSERT_INT(snapshots_resolve(svc, s.id, &image, &err), FAULT_SNAPSHOT_NOT_READY);
    ASSERT_INT(remove_one(s.id).fault, FAULT_NONE);
    tear_down();
}

TEST(one_that_is_being_made_is_not_removed) {
    set_up();
    fake_hold(drv, FAKE_SNAPSHOT);
    struct result s = create(sandbox().id);
    ASSERT_INT(remove_one(s.id).fault, FAULT_SNAPSHOT_STATE);
    fake_release(drv, FAKE_SNAPSHOT);
    ASSERT_STR(wait_state(s.id, "Ready").state, "Ready");
    tear_down();
}

/* Another server of the same repository takes the record away while the image is made. */
TEST(an_image_without_its_record_is_removed) {
    static const struct {
        bool removed;
        enum snap_state to;
        bool image_stays;
    } cases[] = {{true, 0, false}, {false, SNAP_DELETING, false}, {false, SNAP_FAILED, true}};
    set_up();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_hold(drv, FAKE_SNAPSHOT);
        struct result s = create(sandbox().id);
        fake_wait_held(drv, FAKE_SNAPSHOT, 1);
        if (cases[i].removed)
            ASSERT_OK(snapdb_remove(snaps, s.id, SNAP_CREATING, NULL));
        else
            ASSERT_OK(snapdb_change(snaps, s.id, SNAP_CREATING,
                                    &(struct snap_change){.state = cases[i].to}, NULL));
        fake_release(drv, FAKE_SNAPSHOT);
        while (service_pending(svc) > 0)
            uv_run(&loop, UV_RUN_ONCE);
        ASSERT_INT(fake_has_image(drv, image_of(s.id)), cases[i].image_stays);
        struct result r = get(s.id);
        if (cases[i].image_stays)
            ASSERT_STR(r.state, "Failed");
        else
            ASSERT_INT(r.fault, FAULT_SNAPSHOT_MISSING);
    }
    tear_down();
}

TEST(a_busy_image_is_tried_again_in_the_background) {
    set_up();
    struct result s = ready();
    fake_fail(drv, FAKE_SNAPSHOT_REMOVE, -EBUSY, "a sandbox stands on it", 2);
    ASSERT_INT(remove_one(s.id).fault, FAULT_SNAPSHOT_BUSY);
    struct result r = get(s.id);
    ASSERT_STR(r.state, "Deleting");
    ASSERT_STR(r.reason, "snapshot_delete_requested");
    ASSERT_INT(remove_one(s.id).fault, FAULT_SNAPSHOT_BUSY); /* asked for again */
    ASSERT_INT(wait_state(s.id, "gone").fault, FAULT_SNAPSHOT_MISSING);
    ASSERT(!fake_has_image(drv, image_of(s.id)));
    fake_fail(drv, FAKE_SNAPSHOT_REMOVE, -EIO, "engine fault", 1);
    s = ready();
    ASSERT_INT(remove_one(s.id).fault, FAULT_SNAPSHOT_REMOVE);
    ASSERT_INT(remove_one(s.id).fault, FAULT_NONE);
    tear_down();
}

TEST(the_last_sandbox_on_an_image_frees_it) {
    set_up();
    struct result s = ready(), sb = {0}, r;
    struct create_request rq = {.snapshot_id = strdup(s.id), .timeout_s = 600};
    service_create(svc, &rq, on_create, &sb);
    wait_for(&sb);
    ASSERT_INT(sb.fault, FAULT_NONE);
    fake_fail(drv, FAKE_SNAPSHOT_REMOVE, -EBUSY, "a sandbox stands on it", 1000);
    ASSERT_INT(remove_one(s.id).fault, FAULT_SNAPSHOT_BUSY);
    while (fake_calls(drv, FAKE_SNAPSHOT_REMOVE) < 3) /* 1 s and 2 s later */
        uv_run(&loop, UV_RUN_ONCE);
    fake_fail(drv, FAKE_SNAPSHOT_REMOVE, 0, "", 0);
    int64_t before = clock_mono_ms();
    OP(r, service_delete(svc, sb.id, on_op, &r));
    ASSERT_INT(wait_state(s.id, "gone").fault, FAULT_SNAPSHOT_MISSING);
    ASSERT(clock_mono_ms() - before < 2000); /* the next try by itself would be 4 s away */
    tear_down();
}

TEST(two_removals_of_one_both_succeed) {
    set_up();
    struct result s = ready(), a = {0}, b = {0};
    fake_hold(drv, FAKE_SNAPSHOT_REMOVE);
    service_snapshot_delete(svc, s.id, on_snapshot, &a);
    service_snapshot_delete(svc, s.id, on_snapshot, &b);
    fake_wait_held(drv, FAKE_SNAPSHOT_REMOVE, 2);
    fake_release(drv, FAKE_SNAPSHOT_REMOVE);
    wait_for(&a);
    wait_for(&b);
    ASSERT_INT(a.fault, FAULT_NONE);
    ASSERT_INT(b.fault, FAULT_NONE);
    tear_down();
}

TEST(lists_are_asked_for) {
    set_up();
    struct result s = ready(), r;
    struct result sb = sandbox();
    struct result t = create(sb.id);
    wait_state(t.id, "Ready");
    OP(r, service_snapshot_list(svc, &(struct snap_query){.max = 1}, on_list, &r));
    ASSERT(r.n == 1 && r.total == 2);
    OP(r, service_snapshot_list(svc, &(struct snap_query){.max = 9, .sandbox_id = sb.id}, on_list,
                                &r));
    ASSERT(r.n == 1 && r.total == 1);
    ASSERT(strcmp(s.id, t.id) != 0);
    tear_down();
}

static void leave(const char *id, enum snap_state state, const char *image) {
    struct snap_row r = {.id = (char *)id,
                         .sandbox_id = "sb",
                         .state = state,
                         .image = (char *)image,
                         .created_us = clock_wall_us()};
    ASSERT_OK(snapdb_insert(snaps, &r, NULL));
}

TEST(what_cannot_be_restored) {
    struct err err = {0};
    char *image;
    set_up();
    leave("imageless", SNAP_READY, NULL);
    struct snap_row vm = {.id = "vm",
                          .sandbox_id = "fsb-1",
                          .state = SNAP_READY,
                          .image = "x:y",
                          .backend = "fsb",
                          .created_us = 1};
    ASSERT_OK(snapdb_insert(snaps, &vm, NULL));
    ASSERT_INT(snapshots_resolve(svc, "imageless", &image, &err), FAULT_SNAPSHOT_RESTORE);
    ASSERT_INT(snapshots_resolve(svc, "vm", &image, &err), FAULT_SNAPSHOT_RESTORE);
    ASSERT(strstr(err.msg, "fsb"));
    leave("deleting", SNAP_DELETING, "x:y");
    ASSERT_INT(snapshots_resolve(svc, "deleting", &image, &err), FAULT_SNAPSHOT_NOT_READY);
    tear_down();
}

/* ---- a repository that does not answer ---- */

static const struct snapdb_ops *real_ops;
static struct snapdb_ops broken_ops;
static _Atomic unsigned n_broken; /* calls that fail from now on */

static bool breaks(struct err *err) {
    unsigned n = n_broken;
    while (n > 0)
        if (__atomic_compare_exchange_n((unsigned *)&n_broken, &n, n - 1, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return err_set(err, -EIO, "snapshot database: it is away") < 0;
    return false;
}

static int broken_insert(struct snapdb *d, const struct snap_row *row, struct err *err) {
    return breaks(err) ? -EIO : real_ops->insert(d, row, err);
}

static int broken_change(struct snapdb *d, const char *id, enum snap_state from,
                         const struct snap_change *c, struct err *err) {
    return breaks(err) ? -EIO : real_ops->change(d, id, from, c, err);
}

static int broken_remove(struct snapdb *d, const char *id, enum snap_state from, struct err *err) {
    return breaks(err) ? -EIO : real_ops->remove(d, id, from, err);
}

static void make_breakable(void) {
    real_ops = snaps->ops;
    broken_ops = *real_ops;
    broken_ops.insert = broken_insert;
    broken_ops.change = broken_change;
    broken_ops.remove = broken_remove;
    snaps->ops = &broken_ops;
}

TEST(nothing_is_made_without_its_record) {
    set_up();
    make_breakable();
    struct result sb = sandbox();
    n_broken = 1;
    struct result s = create(sb.id);
    ASSERT_INT(s.fault, FAULT_QUERY);
    while (service_pending(svc) > 0)
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT_INT(fake_calls(drv, FAKE_SNAPSHOT), 0);
    ASSERT_INT(create(sb.id).fault, FAULT_NONE); /* the sandbox is free for another */
    tear_down();
}

TEST(an_outcome_is_stored_as_soon_as_it_can_be) {
    set_up();
    make_breakable();
    struct result sb = sandbox();
    fake_hold(drv, FAKE_SNAPSHOT);
    struct result s = create(sb.id);
    n_broken = 2; /* the outcome, and the first retry */
    fake_release(drv, FAKE_SNAPSHOT);
    while (service_pending(svc) > 0)
        uv_run(&loop, UV_RUN_ONCE);
    ASSERT_STR(get(s.id).state, "Creating");
    struct result r = wait_state(s.id, "Ready");
    ASSERT_STR(r.reason, "snapshot_runtime_ready");
    ASSERT_INT(n_broken, 0);
    ASSERT_INT(fake_calls(drv, FAKE_SNAPSHOT), 1);
    tear_down();
}

TEST(a_removal_goes_on_when_the_record_can_be_written) {
    set_up();
    make_breakable();
    struct result s = ready();
    n_broken = 1; /* the mark: nothing was begun */
    ASSERT_INT(remove_one(s.id).fault, FAULT_QUERY);
    ASSERT_STR(get(s.id).state, "Ready");
    ASSERT(fake_has_image(drv, image_of(s.id)));
    leave("going", SNAP_DELETING, NULL);
    n_broken = 1; /* the record, when the image is gone */
    ASSERT_INT(remove_one("going").fault, FAULT_QUERY);
    wait_state("going", "gone"); /* by itself */
    tear_down();
}

/* ---- start-up ---- */

TEST(a_start_finishes_what_was_left) {
    set_up();
    leave("made", SNAP_CREATING, NULL);
    fake_add_image(drv, image_of("made"));
    leave("unmade", SNAP_CREATING, NULL);
    leave("named", SNAP_CREATING, "other:ref");
    fake_add_image(drv, "other:ref");
    leave("going", SNAP_DELETING, "opensandbox-snapshots:going");
    fake_add_image(drv, image_of("going"));
    leave("gone", SNAP_DELETING, NULL);
    leave("fine", SNAP_READY, "opensandbox-snapshots:fine");
    restart();
    struct result r = get("made");
    ASSERT_STR(r.state, "Ready");
    ASSERT_STR(r.reason, "snapshot_recovery_ready");
    r = get("unmade");
    ASSERT_STR(r.state, "Failed");
    ASSERT_STR(r.reason, "snapshot_recovery_missing_image");
    ASSERT_STR(get("named").state, "Ready");
    ASSERT_INT(get("going").fault, FAULT_SNAPSHOT_MISSING);
    ASSERT(!fake_has_image(drv, image_of("going")));
    ASSERT_INT(get("gone").fault, FAULT_SNAPSHOT_MISSING);
    ASSERT_STR(get("fine").state, "Ready");
    char *image;
    ASSERT_INT(snapshots_resolve(svc, "named", &image, NULL), FAULT_NONE);
    ASSERT_STR(image, "other:ref");
    free(image);
    tear_down();
}

TEST(a_start_cannot_look_or_remove) {
    set_up();
    leave("blind", SNAP_CREATING, NULL);
    leave("busy", SNAP_DELETING, NULL);
    stop_service();
    fake_fail(drv, FAKE_SNAPSHOT_EXISTS, -EIO, "engine fault", 1);
    fake_fail(drv, FAKE_SNAPSHOT_REMOVE, -EBUSY, "in use", 1);
    start_service();
    struct result r = get("blind");
    ASSERT_STR(r.state, "Failed");
    ASSERT_STR(r.reason, "snapshot_recovery_inspect_failed");
    ASSERT_STR(get("busy").state, "Deleting");
    wait_state("busy", "gone"); /* tried again by itself */
    tear_down();
}

TEST(a_start_goes_through_pages) {
    char id[16];
    set_up();
    for (int i = 0; i < 450; i++) {
        snprintf(id, sizeof id, "s%d", i);
        leave(id, SNAP_CREATING, NULL);
    }
    leave("stuck", SNAP_DELETING, NULL); /* the newest: it stays in front of every page */
    stop_service();
    fake_fail(drv, FAKE_SNAPSHOT_REMOVE, -EBUSY, "in use", 1);
    start_service();
    struct result r;
    OP(r, service_snapshot_list(svc, &(struct snap_query){.states = 1u << SNAP_CREATING, .max = 1},
                                on_list, &r));
    ASSERT_INT(r.total, 0);
    OP(r, service_snapshot_list(svc, &(struct snap_query){.states = 1u << SNAP_FAILED, .max = 1},
                                on_list, &r));
    ASSERT_INT(r.total, 450);
    tear_down();
}

TEST(commits_that_wait_at_the_end_are_told_as_failed) {
    set_up();
    struct result s[4];
    fake_hold(drv, FAKE_SNAPSHOT);
    for (int i = 0; i < 4; i++)
        s[i] = create(sandbox().id);
    fake_wait_held(drv, FAKE_SNAPSHOT, 2);
    fake_release(drv, FAKE_SNAPSHOT);
    stop_service(); /* what runs is waited for */
    start_service();
    int n_ready = 0;
    for (int i = 0; i < 4; i++) {
        struct result r = get(s[i].id);
        n_ready += str_eq(r.state, "Ready");
        if (!str_eq(r.state, "Ready"))
            ASSERT_STR(r.reason, "snapshot_runtime_failed");
        ASSERT_INT(fake_has_image(drv, image_of(s[i].id)), str_eq(r.state, "Ready"));
    }
    ASSERT(n_ready >= 2);
    tear_down();
}

TEST_MAIN()
