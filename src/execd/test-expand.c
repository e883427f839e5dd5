/* Expansion of variables and home directories in paths. */
#include "execd/expand.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/test.h"

static void check(const char *in, const char *want) {
    _cleanup_strv_ struct strv env = {0};
    _cleanup_free_ char *got = NULL;
    struct err err = {0};

    env_set(&env, "HOME", "/home/u");
    env_set(&env, "A", "x");
    env_set(&env, "EMPTY", "");
    int r = expand_path(in, &env, &got, &err);
    if (!want) {
        ASSERT_INT(r, -ENOENT);
        ASSERT(strstr(err.msg, "not set"));
        return;
    }
    ASSERT_OK(r);
    ASSERT_STR(got, want);
}

TEST(paths) {
    check("", "");
    check("/a/$A/${A}b", "/a/x/xb");
    check("$A$A${EMPTY}", "xx");
    check("~", "/home/u");
    check("~/f", "/home/u/f");
    check("~user", "~user");
    check("a~", "a~");
    check("$", "$");
    check("$1 $$ ${} ${A", "$1 $$ ${} ${A");
    check("$A_B", NULL);
    check("/$MISSING", NULL);
}

TEST(size_is_bounded) {
    _cleanup_strv_ struct strv env = {0};
    _cleanup_free_ char *big = malloc(70000), *out = NULL;
    char in[64] = "";

    memset(big, 'y', 69999);
    big[69999] = 0;
    env_set(&env, "B", big);
    for (int i = 0; i < 16; i++)
        memcpy(in + 2 * i, "$B", 3);
    ASSERT_INT(expand_vars(in, &env, true, &out, NULL), -ENOBUFS);
}

TEST(file_paths) {
    char dir[] = "/tmp/cove-expand-XXXXXX";
    _cleanup_strv_ struct strv env = {0};
    char *got = NULL;

    ASSERT(mkdtemp(dir));
    _cleanup_free_ char *odd = path_join(dir, "$HOME");
    ASSERT(mkdirat(AT_FDCWD, odd, 0700) == 0);
    env_set(&env, "HOME", "/h");
    ASSERT_OK(expand_file_path(odd, &env, true, &got, NULL)); /* exists: literal */
    ASSERT_STR(got, odd);
    free(got);
    ASSERT_OK(expand_file_path("/q/$HOME/../x", &env, true, &got, NULL));
    ASSERT_STR(got, "/q/x");
    free(got);
    ASSERT_OK(expand_file_path("/q/$NONE//x", &env, true, &got, NULL));
    ASSERT_STR(got, "/q/$NONE/x");
    free(got);
    ASSERT_OK(expand_file_path("rel", &env, false, &got, NULL));
    ASSERT(got[0] == '/');
    free(got);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, dir));
}

TEST_MAIN()
