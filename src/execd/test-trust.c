/* The certificate step: what switches it on, when a certificate is whole, the merged bundle, Java
 * layouts, programs with limits. The step itself runs in test_execd_trust.py. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/test.h"
#include "execd/trust.h"

#define PEM "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"

TEST(the_switch) {
    static const char *const yes[] = {"1", "true", "TRUE", "Yes", "oN"}, *const no[] = {
                                                                             "",   "0",     "false",
                                                                             "y",  " true", "2",
                                                                             "off"};

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        ASSERT(trust_is_wanted(yes[i]));
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        ASSERT(!trust_is_wanted(no[i]));
    ASSERT(!trust_is_wanted(NULL));
}

TEST(whole_certificates) {
    ASSERT(trust_pem_is_whole(PEM, strlen(PEM)));
    for (size_t n = 0; n < strlen(PEM); n++)
        ASSERT(!trust_pem_is_whole(PEM, n));
    const char *backwards = "-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\n";
    ASSERT(!trust_pem_is_whole(backwards, strlen(backwards)));
}

TEST(merging) {
    static const struct {
        const char *base, *want;
    } all[] = {{"", PEM "\n"}, {"base", "base\n" PEM "\n"}, {"base\n", "base\n" PEM "\n"}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        ASSERT_OK(trust_merge(all[i].base, strlen(all[i].base), PEM, strlen(PEM), &b));
        ASSERT_STR(b.data, all[i].want);
    }
    _cleanup_buf_ struct buf small = BUF_INIT(16);
    ASSERT_INT(trust_merge("base", 4, PEM, strlen(PEM), &small), -ENOBUFS);
}

TEST(java_homes) {
    static const struct {
        const char *program, *home;
    } all[] = {{"/usr/lib/jvm/a/bin/java", "/usr/lib/jvm/a"},
               {"/usr/lib/jvm/a/jre/bin/java", "/usr/lib/jvm/a"},
               {"/usr/bin/java", "/usr"},
               {"/bin/java", NULL},
               {"/usr/bin/javac", NULL}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        _cleanup_free_ char *home = trust_java_home(all[i].program);
        ASSERT(str_eq(home, all[i].home));
    }
}

TEST(java_stores) {
    char dir[] = "/tmp/cove-trust-XXXXXX";
    _cleanup_strv_ struct strv stores = {0}, tools = {0};

    ASSERT(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    static const char *const dirs[] = {"new/lib/security", "new/bin", "old/jre/lib/security",
                                       "none/lib/security/cacerts"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        ASSERT_OK(path_mkdirs_at(fd, dirs[i], 0755));
    ASSERT_OK(path_write_file_at(fd, "new/lib/security/cacerts", "x", 1, 0644, false));
    ASSERT_OK(path_write_file_at(fd, "new/bin/keytool", "x", 1, 0755, false));
    ASSERT_OK(path_write_file_at(fd, "old/jre/lib/security/cacerts", "x", 1, 0644, false));
    ASSERT(symlinkat("new", fd, "alias") == 0);
    static const char *const homes[] = {"new", "alias", "old", "none", "missing"};
    for (size_t i = 0; i < ARRAY_SIZE(homes); i++) {
        _cleanup_free_ char *home = path_join(dir, homes[i]);
        ASSERT_OK(trust_java_add(home, &stores, &tools));
    }
    ASSERT_INT(stores.n, 2);
    ASSERT(str_ends(stores.v[0], "/new/lib/security/cacerts"));
    ASSERT(str_ends(tools.v[0], "/new/bin/keytool"));
    ASSERT(str_ends(stores.v[1], "/old/jre/lib/security/cacerts"));
    ASSERT_STR(tools.v[1], "keytool");
    fd_close(fd);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, dir));
}

TEST(programs) {
    struct trust t = {.signals = -1, .deadline = clock_mono_ms() + 10000};
    _cleanup_buf_ struct buf out = BUF_INIT(8);
    struct err err = {0};
    const char *echo[] = {"echo", "123456789", NULL}, *none[] = {"no-such-program", NULL},
               *fails[] = {"sh", "-c", "echo why >&2; exit 3", NULL},
               *sleeps[] = {"sleep", "30", NULL};

    ASSERT_OK(env_set(&t.env, "PATH", "/usr/bin:/bin"));
    ASSERT_OK(trust_run(&t, echo, &out, &err));
    ASSERT_STR(out.data, "12345678");
    ASSERT_INT(trust_run(&t, none, NULL, &err), -ENOENT);
    ASSERT_INT(trust_run(&t, fails, NULL, &err), -EIO);
    ASSERT_STR(err.msg, "sh ended with status 3: why");
    t.deadline = clock_mono_ms() + 100;
    ASSERT_INT(trust_run(&t, sleeps, NULL, &err), -ETIMEDOUT);
    ASSERT(strstr(err.msg, "sleep"));
    strv_done(&t.env);
}

TEST_MAIN()
