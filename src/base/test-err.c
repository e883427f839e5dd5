#include "base/err.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

TEST(set_wrap_and_text) {
    struct err e = {0};
    ASSERT_STR(err_text(&e), "no error");
    ASSERT_INT(err_set(&e, -EINVAL, "bad %s", "port"), -EINVAL);
    ASSERT_INT(err_wrap(&e, "sandbox %d", 7), -EINVAL);
    ASSERT_STR(err_text(&e), "sandbox 7: bad port");
    ASSERT_INT(err_sys(&e, -ENOENT, "open %s", "/x"), -ENOENT);
    ASSERT_STR(err_text(&e), "open /x: No such file or directory");
}

TEST(null_is_accepted) {
    ASSERT_INT(err_set(NULL, -EIO, "x"), -EIO);
    ASSERT_INT(err_sys(NULL, -EIO, "x"), -EIO);
}

TEST(long_text_is_cut_at_a_code_point) {
    struct err e = {0};
    char big[4000];
    for (size_t i = 0; i + 1 < sizeof big; i += 2)
        memcpy(big + i, "\xc3\xa4", 2);
    big[sizeof big - 2] = 0;
    err_set(&e, -EIO, "%s", big);
    size_t n = strlen(e.msg);
    ASSERT(n < sizeof e.msg && n % 2 == 0);
}
TEST_MAIN()
