/* A service over the test driver, with a wall clock that tests set (see test-kit.h). */
#include "daemon/sandbox/test-kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"

char dir[64], file[80], oss_root[80];
uv_loop_t loop;
struct driver *drv;
struct statedb *db;
struct service *svc;
int64_t wall = 1700000000LL * 1000000;
int64_t max_timeout_s;
const char *allowed[] = {NULL, NULL};

static int64_t fake_wall(void) {
    return wall;
}

void start_service(void) {
    struct err err = {0};
    struct service_opts o = {
        .loop = &loop,
        .driver = drv,
        .store = db,
        .max_workers = 16,
        .max_timeout_s = max_timeout_s,
        .allowed_host_paths = allowed,
        .oss_root = oss_root,
        .wall_us = fake_wall,
    };
    if (service_open(&o, &svc, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
}

static void open_db(void) {
    ASSERT_OK(statedb_open(file, &db, NULL));
}

void set_up(void) {
    log_setup(LOG_ERROR, false, "test");
    str_copy(dir, sizeof dir, "/tmp/cove-test-service-XXXXXX");
    ASSERT(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/state.db", dir);
    snprintf(oss_root, sizeof oss_root, "%s/oss", dir);
    uv_loop_init(&loop);
    drv = fake_new();
    open_db();
    start_service();
}

/* As a killed daemon leaves it: nothing is finished or written. */
void restart(void) {
    service_close(svc);
    uv_run(&loop, UV_RUN_DEFAULT);
    statedb_close(db);
    open_db();
    start_service();
}

void tear_down(void) {
    service_close(svc);
    uv_run(&loop, UV_RUN_DEFAULT);
    ASSERT_INT(uv_loop_close(&loop), 0);
    statedb_close(db);
    fake_destroy(drv);
    uv_library_shutdown(); /* libuv's own descriptors */
    path_remove_tree_at(AT_FDCWD, dir);
}

void on_create(enum fault f, const struct err *err, struct sandbox *sb,
               const struct step_times *steps, void *ud) {
    struct result *r = ud;
    r->done = true;
    r->fault = f;
    r->sb = sb;
    str_copy(r->text, sizeof r->text, err->msg);
    if (sb)
        str_copy(r->id, sizeof r->id, sb->spec.id);
    if (steps)
        r->n_steps = steps->n;
}

void on_op(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    on_create(f, err, sb, NULL, ud);
}

void wait_for(const struct result *r) {
    while (!r->done)
        uv_run(&loop, UV_RUN_ONCE);
}

struct create_request request(void) {
    struct create_request rq = {.image = strdup("host"), .timeout_s = 600};
    strv_add(&rq.entrypoint, "tail");
    strv_add(&rq.entrypoint, "-f");
    strv_add(&rq.entrypoint, "/dev/null");
    return rq;
}

void begin_create(struct create_request rq, struct result *r) {
    *r = (struct result){0};
    service_create(svc, &rq, on_create, r);
}

struct result create_with(struct create_request rq) {
    struct result r;
    begin_create(rq, &r);
    wait_for(&r);
    return r;
}

struct result create_ok(void) {
    struct result r = create_with(request());
    if (r.fault)
        test_fail(__FILE__, __LINE__, "create: %d %s", r.fault, r.text);
    return r;
}

void settle(void) {
    while (service_pending(svc))
        uv_run(&loop, UV_RUN_ONCE);
}
