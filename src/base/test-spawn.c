#include "base/spawn.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "base/test.h"

TEST(collects_output_and_status) {
    struct spawn_result r;
    struct err e = {0};
    const char *const argv[] = {"sh", "-c", "cat; echo oops >&2; exit 3", NULL};
    ASSERT_OK(spawn_run(argv, "input text", 1000, 5000, &r, &e));
    ASSERT_INT(r.status, 3);
    ASSERT_STR(r.out, "input text");
    ASSERT_STR(r.errs, "oops\n");
    spawn_result_done(&r);
}

TEST(limits_output_but_drains_it) {
    struct spawn_result r;
    const char *const argv[] = {"sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo end >&2",
                                NULL};
    ASSERT_OK(spawn_run(argv, NULL, 10, 10000, &r, NULL));
    ASSERT_INT(r.out_len, 10);
    ASSERT_STR(r.errs, "end\n");
    ASSERT_INT(r.status, 0);
    spawn_result_done(&r);
}

TEST(time_limit_and_missing_program) {
    struct spawn_result r;
    struct err e = {0};
    const char *const slow[] = {"sleep", "60", NULL}, *const none[] = {"/no/such/program", NULL};
    ASSERT_INT(spawn_run(slow, NULL, 10, 50, &r, &e), -ETIMEDOUT);
    ASSERT(strstr(e.msg, "50 ms"));
    ASSERT_INT(spawn_run(none, NULL, 10, 50, &r, &e), -ENOENT);
    ASSERT(strstr(e.msg, "/no/such/program"));
}

TEST(a_survivor_that_holds_the_pipes_does_not_hang_us) {
    struct spawn_result r;
    const char *const argv[] = {"sh", "-c", "sleep 3 & echo up", NULL};
    ASSERT_OK(spawn_run(argv, NULL, 100, 2000, &r, NULL));
    ASSERT_STR(r.out, "up\n");
    spawn_result_done(&r);
    const char *const killer[] = {"pkill", "-f", "^sleep 3$", NULL};
    ASSERT_OK(spawn_run(killer, NULL, 100, 2000, &r, NULL));
    spawn_result_done(&r);
    while (waitpid(-1, NULL, 0) > 0)
        ;
}
TEST_MAIN()
