/*
 * The unit-test harness: one process per test, a time limit, and a check that the test leaves no
 * descriptor open and no child behind. Output is TAP. A program is
 *
 *   TEST(name) { ASSERT(1 + 1 == 2); ASSERT_STR(got, "want"); }
 *   TEST_MAIN()
 *
 * Run with a name pattern to run only matching tests.
 */
#pragma once

#include "base/macros.h"

struct test_case {
    const char *name, *file;
    int line;
    void (*fn)(void);
    struct test_case *next;
};

void test_register(struct test_case *t);
int test_main(int argc, char **argv);
_noreturn_ void test_fail(const char *file, int line, const char *fmt, ...) _printf_(3, 4);
/* Ends the test as skipped; counts as failed when COVE_TEST_NO_SKIP is set (CI), unless the reason
 * starts with "cannot:". */
_noreturn_ void test_skip(const char *why);
void test_set_timeout(unsigned seconds); /* default 20; call inside the test */

#define TEST(n)                                                                  \
    static void test_##n(void);                                                  \
    static struct test_case case_##n = {#n, __FILE__, __LINE__, test_##n, NULL}; \
    static __attribute__((constructor)) void reg_##n(void) {                     \
        test_register(&case_##n);                                                \
    }                                                                            \
    static void test_##n(void)
#define TEST_MAIN()                   \
    int main(int argc, char **argv) { \
        return test_main(argc, argv); \
    }

#define ASSERT(e)                                              \
    do {                                                       \
        if (!(e))                                              \
            test_fail(__FILE__, __LINE__, "not true: %s", #e); \
    } while (0)
#define ASSERT_INT(got, want)                                                                     \
    do {                                                                                          \
        long long g_ = (long long)(got), w_ = (long long)(want);                                  \
        if (g_ != w_)                                                                             \
            test_fail(__FILE__, __LINE__, "%s is %lld, expected %s = %lld", #got, g_, #want, w_); \
    } while (0)
#define ASSERT_STR(got, want)                                                    \
    do {                                                                         \
        const char *g_ = (got), *w_ = (want);                                    \
        if (!g_ || !w_ || __builtin_strcmp(g_, w_) != 0)                         \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", #got, \
                      g_ ? g_ : "(null)", w_ ? w_ : "(null)");                   \
    } while (0)
#define ASSERT_OK(e)                                                            \
    do {                                                                        \
        int r_ = (e);                                                           \
        if (r_ < 0)                                                             \
            test_fail(__FILE__, __LINE__, "%s failed: %s", #e, test_errno(r_)); \
    } while (0)
const char *test_errno(int r);
