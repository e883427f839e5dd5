/* For the tests of the service: one over the test driver, in a directory of its own. */
#pragma once

#include "base/test.h"
#include "daemon/driver/fake/fake.h"
#include "daemon/sandbox/internal.h"

extern char dir[64], file[80], oss_root[80];
extern uv_loop_t loop;
extern struct driver *drv;
extern struct statedb *db;
extern struct service *svc;
extern int64_t wall, max_timeout_s; /* wall: microseconds, the service's clock */
extern const char *allowed[2];

void set_up(void);
void start_service(void);
void restart(void); /* as a killed daemon leaves it: nothing is finished or written */
void tear_down(void);

struct result {
    bool done;
    enum fault fault;
    char text[1024], id[SANDBOX_ID_MAX + 1];
    struct sandbox *sb;
    size_t n_steps;
};

void on_create(enum fault f, const struct err *err, struct sandbox *sb,
               const struct step_times *steps, void *ud);
void on_op(enum fault f, const struct err *err, struct sandbox *sb, void *ud);
void wait_for(const struct result *r);
void settle(void); /* until no operation runs or waits */
struct create_request request(void);
void begin_create(struct create_request rq, struct result *r);
struct result create_with(struct create_request rq);
struct result create_ok(void);

#define OP(r, call)             \
    do {                        \
        r = (struct result){0}; \
        call;                   \
        wait_for(&r);           \
    } while (0)
