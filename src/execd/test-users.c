/* The account file parser on well-formed, odd and missing files. */
#include "execd/users.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/path.h"
#include "base/test.h"

static const char passwd[] =
    "root:x:0:0:root:/root:/bin/bash\n# comment\n\nbroken\nbad:x:notanumber:0::/:/\n+nis::::::\n"
    "app:x:1000:1001:App,,,:/home/app:/bin/sh\nshort:x:5:6\nbig:x:4294967296:1::/:/\nlast:x:7:7::/"
    "l:";
static const char group[] = "root:x:0:\nwheel:x:10:root,app\nempty:x:11:\napp:x:1001:app\nvideo:x:"
                            "44:other,app,x\nsub:x:45:apple,ap\n";

static char dir[] = "/tmp/cove-users-XXXXXX";

static void load(struct users *u) {
    ASSERT(mkdtemp(dir));
    int fd = open(dir, O_PATH | O_CLOEXEC);
    ASSERT_OK(path_write_file_at(fd, "passwd", passwd, sizeof passwd - 1, 0644, false));
    ASSERT_OK(path_write_file_at(fd, "group", group, sizeof group - 1, 0644, false));
    fd_close(fd);
    users_load(u, dir);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, dir));
}

TEST(lookups) {
    _cleanup_(users_done) struct users u = {0};
    struct user_entry e;
    gid_t gid, *groups;
    size_t n;

    load(&u);
    ASSERT_OK(users_by_uid(&u, 1000, &e));
    ASSERT(e.name_len == 3 && e.gid == 1001 && e.home_len == 9 &&
           memcmp(e.home, "/home/app", 9) == 0);
    ASSERT_OK(users_groups(&u, &e, e.gid, &groups, &n));
    ASSERT(n == 3 && groups[0] == 1001 && groups[1] == 10 && groups[2] == 44);
    free(groups);
    ASSERT_OK(users_by_name(&u, "short", &e));
    ASSERT(e.home_len == 0);
    ASSERT_OK(users_by_name(&u, "last", &e));
    ASSERT(e.shell_len == 0 && e.home_len == 2);
    ASSERT_INT(users_by_name(&u, "bad", &e), -ENOENT);
    ASSERT_INT(users_by_name(&u, "big", &e), -ENOENT);
    ASSERT_INT(users_by_name(&u, "ap", &e), -ENOENT);
    ASSERT_OK(users_gid_by_name(&u, "wheel", &gid));
    ASSERT_INT(gid, 10);
}

TEST(display_and_resolution) {
    _cleanup_(users_done) struct users u = {0};
    uid_t id;

    load(&u);
    char *t = users_uid_text(&u, 0);
    ASSERT_STR(t, "root");
    free(t);
    t = users_uid_text(&u, 999);
    ASSERT_STR(t, "999");
    free(t);
    t = users_gid_text(&u, 44);
    ASSERT_STR(t, "video");
    free(t);
    ASSERT_OK(users_resolve_owner(&u, "app", &id));
    ASSERT_INT(id, 1000);
    ASSERT_OK(users_resolve_owner(&u, "nobody", &id));
    ASSERT_INT(id, 65534);
    ASSERT_OK(users_resolve_group(&u, "nogroup", &id));
    ASSERT_INT(id, 65534);
    ASSERT_OK(users_resolve_owner(&u, "77", &id));
    ASSERT_INT(id, 77);
    ASSERT_INT(users_resolve_owner(&u, "nemo", &id), -ENOENT);
    ASSERT_INT(users_resolve_owner(&u, "4294967295", &id), -ENOENT);
}

TEST(missing_files_are_empty) {
    _cleanup_(users_done) struct users u = {0};
    struct user_entry e;

    users_load(&u, "/does/not/exist");
    ASSERT_INT(users_by_uid(&u, 0, &e), -ENOENT);
}

TEST_MAIN()
