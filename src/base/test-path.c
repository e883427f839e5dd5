#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/str.h"
#include "base/test.h"

static char dir[] = "/tmp/cove-test-XXXXXX";
static int open_dir(void) {
    ASSERT(mkdtemp(dir));
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

TEST(clean) {
    static const char *const t[][2] = {
        {"/", "/"},       {"//a//b/", "/a/b"},   {"/a/./b/../c", "/a/c"},
        {"/..", "/"},     {"/../../x", "/x"},    {"a/..", "."},
        {"../a", "../a"}, {"a/../../b", "../b"}, {"../../a/..", "../.."},
        {"", "."},        {"./a", "a"},          {"/a/b/../..", "/"}};
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        _cleanup_free_ char *c = path_clean(t[i][0]);
        ASSERT_STR(c, t[i][1]);
    }
}

TEST(escapes_are_refused) {
    _cleanup_close_ int d = open_dir(), f = -1;
    ASSERT_OK(mkdirat(d, "root", 0755));
    ASSERT_OK(path_write_file_at(d, "outside", "x", 1, 0644, false));
    _cleanup_close_ int root = openat(d, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_OK(symlinkat("../outside", root, "link"));
    ASSERT_OK(symlinkat("/etc/passwd", root, "abs"));
    ASSERT_INT(path_open_beneath(root, "link", O_RDONLY, 0), -EXDEV);
    ASSERT_INT(path_open_beneath(root, "../outside", O_RDONLY, 0), -EXDEV);
    ASSERT_INT(path_open_beneath(root, "abs", O_RDONLY, 0), -EXDEV);
    ASSERT_INT(path_open_in_root(root, "abs", O_RDONLY, 0), -ENOENT);
    f = path_open_in_root(root, "../new", O_WRONLY | O_CREAT, 0600);
    ASSERT(f >= 0 && faccessat(root, "new", F_OK, 0) == 0);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, dir));
}

TEST(write_read_remove) {
    _cleanup_close_ int d = open_dir();
    _cleanup_free_ char *data = NULL;
    size_t len;
    ASSERT_OK(path_mkdirs_at(d, "a/b/c", 0755));
    ASSERT_OK(path_mkdirs_at(d, "a/b/c", 0755));
    ASSERT_OK(path_write_file_at(d, "a/b/f", "hello", 5, 0640, true));
    ASSERT_OK(path_read_file_at(d, "a/b/f", 5, &data, &len));
    ASSERT_STR(data, "hello");
    ASSERT_INT(path_read_file_at(d, "a/b/f", 4, &data, &len), -EFBIG);
    ASSERT_INT(path_mkdirs_at(d, "a/b/f/x", 0755), -ENOTDIR);
    ASSERT_OK(symlinkat("/etc", d, "a/etc"));
    ASSERT_OK(path_remove_tree_at(d, "a"));
    ASSERT_OK(path_remove_tree_at(d, "a"));
    ASSERT(access("/etc/passwd", F_OK) == 0);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, dir));
}

/* Three branches, one of which is deeper than any walk that recurses may go; files on the way. */
static void make_deep_tree(int d) {
    static const int levels[] = {100, 4200, 100};

    for (size_t branch = 0; branch < ARRAY_SIZE(levels); branch++) {
        int at = fcntl(d, F_DUPFD_CLOEXEC, 0);
        for (int level = 0; level < levels[branch]; level++) {
            char name[32];
            snprintf(name, sizeof name, "%zu", level == 0 ? branch : 7);
            ASSERT_OK(mkdirat(at, name, 0700));
            int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            fd_close(at);
            at = next;
            if (level % 50 == 0)
                ASSERT_OK(path_write_file_at(at, "file", "x", 1, 0600, false));
        }
        fd_close(at);
    }
}

TEST(a_tree_of_any_depth_is_removed_with_few_descriptors) {
    const struct rlimit few = {64, 64};
    _cleanup_close_ int d = open_dir();

    ASSERT_OK(mkdirat(d, "tree", 0700));
    _cleanup_close_ int tree = openat(d, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_deep_tree(tree);
    ASSERT_OK(setrlimit(RLIMIT_NOFILE, &few));
    ASSERT_OK(path_remove_tree_at(d, "tree"));
    ASSERT_OK(rmdir(dir));
}

TEST(write_failure_leaves_no_temporary_file) {
    _cleanup_close_ int d = open_dir();
    ASSERT_OK(mkdirat(d, "target", 0755));
    ASSERT_INT(path_write_file_at(d, "target", "x", 1, 0644, false), -EISDIR);
    ASSERT_OK(unlinkat(d, "target", AT_REMOVEDIR));
    ASSERT_OK(rmdir(dir));
}
TEST_MAIN()
