/* Object storage mounts, with programs that stand in for ossfs and ossfs2 and really mount. */
#include "daemon/sandbox/ossfs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/test.h"

/*
 * Both forms of the command line are read as the programs do; what was seen goes into a log. Files
 * in $STANDIN steer it: fail, hang, lie.
 */
static const char program[] =
    "#!/bin/sh\n"
    "set -e\n"
    "name=${0##*/}\n"
    "if [ $name = ossfs ]; then\n"
    "  bucket=${1%%:*} prefix=${1#*:/}; [ \"$prefix\" != \"$1\" ] || prefix=\n"
    "  path=$2 file=\n"
    "  for a; do case $a in passwd_file=*) file=${a#passwd_file=};; esac; done\n"
    "else\n"
    "  path=$2 file=$4\n"
    "  bucket=$(sed -n 's/^--oss_bucket=//p' $file)\n"
    "  prefix=$(sed -n 's/^--oss_bucket_prefix=//p' $file)\n"
    "fi\n"
    "echo \"$name $* [$(stat -c %a $file)] $(tr '\\n' ' ' <$file)\" >>$STANDIN/log\n"
    "if [ -e $STANDIN/fail ]; then echo mount failed >&2; exit 1; fi\n"
    "if [ -e $STANDIN/hang ]; then echo $bucket >$STANDIN/hangs; exec sleep 60; fi\n"
    "if [ -e $STANDIN/slow ]; then read line <$STANDIN/slow; fi\n"
    "if [ -e $STANDIN/lie ]; then exit 0; fi\n"
    "mkdir -p $STANDIN/data/$bucket/$prefix\n"
    "if [ -n \"$STANDIN_FUSE\" ]; then \n"
    "  bindfs $STANDIN/data/$bucket/$prefix $path\n"
    "  pgrep -f \"bindfs $STANDIN/data/\" >$STANDIN/pid\n"
    "else mount --bind $STANDIN/data/$bucket/$prefix $path; fi\n";

static char dir[64], root[80], temp[80];
static struct ossfs *oss;

static void put(const char *name, const char *text, mode_t mode) {
    _cleanup_free_ char *p = path_join(dir, name);
    ASSERT_OK(path_write_file_at(AT_FDCWD, p, text, strlen(text), mode, false));
}

static void drop(const char *name) {
    _cleanup_free_ char *p = path_join(dir, name);
    unlink(p);
}

static bool has(const char *name) {
    _cleanup_free_ char *p = path_join(dir, name);
    return access(p, F_OK) == 0;
}

static char *seen(void) {
    _cleanup_free_ char *p = path_join(dir, "log");
    char *text = NULL;
    if (path_read_file_at(AT_FDCWD, p, 1 << 20, &text, NULL) < 0)
        return strdup("");
    return text;
}

static unsigned runs(void) {
    _cleanup_free_ char *text = seen();
    unsigned n = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        n++;
    return n;
}

static void set_up(void) {
    log_setup(LOG_ERROR, false, "test");
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        test_skip("cannot: mounting needs root");
    str_copy(dir, sizeof dir, "/tmp/cove-test-ossfs-XXXXXX");
    ASSERT(mkdtemp(dir));
    snprintf(root, sizeof root, "%s/mnt", dir);
    snprintf(temp, sizeof temp, "%s/tmp", dir);
    ASSERT_OK(path_mkdirs_at(AT_FDCWD, temp, 0755));
    put("ossfs", program, 0755);
    put("ossfs2", program, 0755);
    _cleanup_free_ char *search = str_printf("%s:%s", dir, getenv("PATH"));
    setenv("PATH", search, 1);
    setenv("STANDIN", dir, 1);
    ASSERT_OK(ossfs_new(
        &(struct ossfs_opts){.root = root, .temp_dir = temp, .mount_timeout_ms = 3000}, &oss));
}

static void tear_down(void) {
    ossfs_free(oss);
    path_remove_tree_at(AT_FDCWD, dir);
}

static struct volume_request volume(const char *bucket, const char *sub, const char *secret) {
    struct volume_request v = {
        .name = "data",
        .mount_path = "/mnt/data",
        .sub_path = (char *)sub,
        .kind = VOLUME_OSS,
        .n_backends = 1,
        .oss = {.bucket = (char *)bucket,
                .endpoint = "oss-cn-hangzhou.aliyuncs.com",
                .version = "2.0",
                .key_id = "AKIDEXAMPLE",
                .key_secret = (char *)secret},
    };
    return v;
}

static char *reserve(const struct volume_request *v) {
    char tag[OSS_TAG_LEN + 1], *path = NULL;
    struct err err = {0};
    if (ossfs_reserve(oss, v, &path, tag, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    ASSERT_INT(strlen(tag), OSS_TAG_LEN);
    return path;
}

static char *mounted(const struct volume_request *v) {
    struct err err = {0};
    char *path = reserve(v);
    if (ossfs_mount(oss, path, v, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    ASSERT_INT(oss_is_mounted(path), 1);
    return path;
}

static bool ends(const char *path, const char *tail) {
    return str_starts(path, root) && strcmp(path + strlen(root), tail) == 0;
}

TEST(command_lines_and_files) {
    char *options[] = {"allow_other", "umask=0022", NULL};
    struct volume_request v = volume("bucket-test-3", "task-001", "SECRETEXAMPLE");
    struct oss_mount m = {
        .path = "/mnt/ossfs/bucket-test-3/task-001", .rq = &v.oss, .prefix = "task-001"};
    v.oss.options = (struct strv){.v = options, .n = 2};
    struct strv argv = {0};
    ASSERT_OK(oss_command(&m, "/tmp/f.conf", &argv));
    static const char *const two[] = {"ossfs2", "mount", "/mnt/ossfs/bucket-test-3/task-001", "-c",
                                      "/tmp/f.conf"};
    ASSERT_INT(argv.n, ARRAY_SIZE(two));
    for (size_t i = 0; i < argv.n; i++)
        ASSERT_STR(argv.v[i], two[i]);
    strv_done(&argv);
    _cleanup_free_ char *file = oss_file_text(&m);
    ASSERT_STR(file, "--oss_endpoint=https://oss-cn-hangzhou.aliyuncs.com\n"
                     "--oss_bucket=bucket-test-3\n--oss_access_key_id=AKIDEXAMPLE\n"
                     "--oss_access_key_secret=SECRETEXAMPLE\n--oss_bucket_prefix=task-001/\n"
                     "--allow_other\n--umask=0022\n");
    v.oss.version = "1.0";
    v.oss.endpoint = "http://oss-cn-hangzhou.aliyuncs.com";
    ASSERT_OK(oss_command(&m, "/tmp/f", &argv));
    static const char *const one[] = {"ossfs",
                                      "bucket-test-3:/task-001",
                                      "/mnt/ossfs/bucket-test-3/task-001",
                                      "-o",
                                      "url=http://oss-cn-hangzhou.aliyuncs.com",
                                      "-o",
                                      "passwd_file=/tmp/f",
                                      "-o",
                                      "allow_other",
                                      "-o",
                                      "umask=0022"};
    ASSERT_INT(argv.n, ARRAY_SIZE(one));
    for (size_t i = 0; i < argv.n; i++)
        ASSERT_STR(argv.v[i], one[i]);
    strv_done(&argv);
    _cleanup_free_ char *pass = oss_file_text(&m);
    ASSERT_STR(pass, "bucket-test-3:AKIDEXAMPLE:SECRETEXAMPLE\n");
    m.prefix = "";
    ASSERT_OK(oss_command(&m, "/tmp/f", &argv));
    ASSERT_STR(argv.v[1], "bucket-test-3");
    strv_done(&argv);
}

TEST(words_of_a_request) {
    static const struct {
        const char *bucket, *endpoint, *version, *option, *id, *secret, *sub;
        enum fault want;
    } cases[] = {
        {"bucket", "e", "2.0", "allow_other", "i", "s", NULL, FAULT_NONE},
        {"bucket", "e", "1.0", "umask=0022,uid=1", "i", "s", "a/b", FAULT_NONE},
        {"bucket", "e", "3.0", NULL, "i", "s", NULL, FAULT_OSS_VERSION},
        {"Bucket", "e", "2.0", NULL, "i", "s", NULL, FAULT_OSS_BUCKET},
        {"bucket-", "e", "2.0", NULL, "i", "s", NULL, FAULT_OSS_BUCKET},
        {"a/b", "e", "2.0", NULL, "i", "s", NULL, FAULT_OSS_BUCKET},
        {"..", "e", "2.0", NULL, "i", "s", NULL, FAULT_OSS_BUCKET},
        {"bucket", "", "2.0", NULL, "i", "s", NULL, FAULT_OSS_ENDPOINT},
        {"bucket", "e f", "2.0", NULL, "i", "s", NULL, FAULT_OSS_ENDPOINT},
        {"bucket", "e;f", "2.0", NULL, "i", "s", NULL, FAULT_OSS_ENDPOINT},
        {"bucket", "e\nf", "2.0", NULL, "i", "s", NULL, FAULT_OSS_ENDPOINT},
        {"bucket", "e", "2.0", "", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "2.0", "-o", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "2.0", "a`b`", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "1.0", "passwd_file=x", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "1.0", "allow_other,URL=http:x", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "1.0", "use_cache=/etc", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e,use_cache=x", "1.0", NULL, "i", "s", NULL, FAULT_OSS_ENDPOINT},
        {"bucket", "e\\,f", "1.0", NULL, "i", "s", NULL, FAULT_OSS_ENDPOINT},
        {"bucket", "e\x1b[", "1.0", NULL, "i", "s", NULL, FAULT_OSS_ENDPOINT},
        {"bucket", "e", "1.0", "passwd\\_file=x", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "1.0", "x=\\057etc", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "1.0", "use_cache=etc", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "1.0", "x=etc/systemd", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "1.0", "allow_other,suid", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "1.0", "ram_role=r", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "2.0", "allow_other --oss_bucket=b", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "http://h:80", "1.0", "max_stat_cache_size=10,umask=0", "i", "s", NULL,
         FAULT_NONE},
        {"bucket", "e", "2.0", "oss_access_key_id=x", "i", "s", NULL, FAULT_OSS_OPTION},
        {"bucket", "e", "2.0", NULL, "", "s", NULL, FAULT_OSS_CREDENTIALS},
        {"bucket", "e", "2.0", NULL, "i", NULL, NULL, FAULT_OSS_CREDENTIALS},
        {"bucket", "e", "2.0", NULL, "i", "s\n--x", NULL, FAULT_OSS_CREDENTIALS},
        {"bucket", "e", "1.0", NULL, "i:j", "s", NULL, FAULT_OSS_CREDENTIALS},
        {"bucket", "e", "2.0", NULL, "i", "s", "a|b", FAULT_VOLUME_SUB_PATH},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *options[] = {(char *)cases[i].option, NULL};
        struct volume_request v = volume(cases[i].bucket, cases[i].sub, cases[i].secret);
        struct err err = {0};
        v.oss.endpoint = (char *)cases[i].endpoint;
        v.oss.version = (char *)cases[i].version;
        v.oss.key_id = (char *)cases[i].id;
        v.oss.options = (struct strv){.v = options, .n = cases[i].option != NULL};
        enum fault f = ossfs_check("/mnt/ossfs", &v, &err);
        if (f != cases[i].want)
            test_fail(__FILE__, __LINE__, "case %zu: %d %s", i, f, err.msg);
        ASSERT(!strstr(err.msg, "s\n"));
    }
    struct volume_request v = volume("bucket", NULL, "s");
    struct err err = {0};
    ASSERT_INT(ossfs_check("mnt", &v, &err), FAULT_OSS_ROOT);
}

/* What a label of a container may name. */
TEST(places_below_the_root_only) {
    static const struct {
        const char *path;
        bool want;
    } cases[] = {{"bucket", true},        {"bucket/a/b", true}, {"../data", false},
                 {"a/../../data", false}, {"a/", false},        {"", false},
                 {"a//b", false}};
    set_up();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_free_ char *path = str_printf("%s/%s", root, cases[i].path);
        if (ossfs_is_place(oss, path) != cases[i].want)
            test_fail(__FILE__, __LINE__, "%s", path);
    }
    ASSERT(!ossfs_is_place(oss, root));
    ASSERT(!ossfs_is_place(oss, "/"));
    ASSERT(!ossfs_is_place(oss, "bucket"));
    ASSERT(!ossfs_is_place(oss, ""));
    tear_down();
}

TEST(users_share_a_mount_until_the_last_has_gone) {
    set_up();
    struct volume_request v = volume("bucket", "task/1", "s");
    _cleanup_free_ char *a = mounted(&v), *b = mounted(&v);
    ASSERT(ends(a, "/bucket/task/1"));
    ASSERT_STR(a, b);
    ASSERT_INT(ossfs_users(oss, a), 2);
    ASSERT_INT(runs(), 1);
    _cleanup_free_ char *log = seen();
    ASSERT(strstr(log, "ossfs2 mount ") && strstr(log, "[600] ") &&
           strstr(log, "--oss_access_key_secret=s"));
    ASSERT(strstr(log, "/tmp/opensandbox-ossfs-inline-"));
    ASSERT(rmdir(temp) == 0); /* the credential file is gone */
    _cleanup_free_ char *file = path_join(a, "x");
    ASSERT_OK(path_write_file_at(AT_FDCWD, file, "1", 1, 0644, false));
    ASSERT(has("data/bucket/task/1/x"));
    ossfs_release(oss, a);
    ASSERT_INT(oss_is_mounted(a), 1);
    ossfs_release(oss, a);
    ASSERT_INT(oss_is_mounted(a), 0);
    ASSERT_INT(ossfs_users(oss, a), 0);
    ossfs_release(oss, a); /* not counted: nothing happens */
    tear_down();
}

TEST(the_first_version_mounts_too) {
    set_up();
    struct volume_request v = volume("bucket", "p", "s");
    v.oss.version = "1.0";
    _cleanup_free_ char *a = mounted(&v);
    _cleanup_free_ char *log = seen();
    ASSERT(str_starts(log, "ossfs bucket:/p ") && strstr(log, "[600] bucket:AKIDEXAMPLE:s"));
    ossfs_release(oss, a);
    ASSERT_INT(oss_is_mounted(a), 0);
    tear_down();
}

TEST(nobody_sees_a_bucket_through_the_credentials_of_others) {
    set_up();
    struct volume_request v = volume("bucket", NULL, "s"), other = volume("bucket", NULL, "t");
    struct volume_request below = volume("bucket", "p", "t"), same = volume("bucket", "q", "s");
    struct volume_request source = v;
    source.oss.endpoint = "elsewhere";
    _cleanup_free_ char *a = mounted(&v), *b = mounted(&other), *c = mounted(&below);
    _cleanup_free_ char *d = mounted(&same), *e = mounted(&source), *again = mounted(&other);
    ASSERT(ends(a, "/bucket"));
    const char *const apart[] = {b, c, d, e};
    for (size_t i = 0; i < ARRAY_SIZE(apart); i++) {
        ASSERT(strchr(apart[i], '@') && strcmp(apart[i], a) != 0);
        for (size_t k = 0; k < i; k++)
            ASSERT(strcmp(apart[i], apart[k]) != 0);
    }
    ASSERT_STR(b, again);
    ASSERT_INT(ossfs_users(oss, b), 2);
    ASSERT_INT(runs(), 5);
    ossfs_release(oss, a); /* the plain name is free: it goes to whoever comes next */
    _cleanup_free_ char *f = mounted(&source), *g = NULL;
    ASSERT_STR(f, e);
    struct volume_request new = volume("bucket", NULL, "u");
    g = mounted(&new);
    ASSERT(ends(g, "/bucket"));
    const char *const all[] = {b, b, c, d, e, e, g};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        ossfs_release(oss, all[i]);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        ASSERT_INT(oss_is_mounted(all[i]), 0);
    tear_down();
}

TEST(a_failed_mount_leaves_nothing) {
    set_up();
    struct volume_request v = volume("bucket", NULL, "very-secret");
    struct err err = {0};
    static const struct {
        const char *how, *text;
    } cases[] = {{"fail", "mount failed"}, {"lie", "nothing is mounted"}, {"hang", "was killed"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        put(cases[i].how, "", 0644);
        _cleanup_free_ char *a = reserve(&v);
        int64_t t = clock_mono_ms();
        ASSERT_INT(ossfs_mount(oss, a, &v, &err), FAULT_OSS_MOUNT);
        ASSERT(clock_mono_ms() - t < 15000);
        if (!strstr(err.msg, cases[i].text) || strstr(err.msg, "very-secret"))
            test_fail(__FILE__, __LINE__, "%s", err.msg);
        ASSERT_INT(oss_is_mounted(a), 0);
        ossfs_release(oss, a);
        ASSERT_INT(ossfs_users(oss, a), 0);
        drop(cases[i].how);
    }
    drop("ossfs2");
    _cleanup_free_ char *a = reserve(&v);
    ASSERT_INT(ossfs_mount(oss, a, &v, &err), FAULT_OSS_MOUNT);
    ossfs_release(oss, a);
    ASSERT(rmdir(temp) == 0); /* no credential file stays */
    tear_down();
}

struct user {
    pthread_t thread;
    struct volume_request v;
    char *path;
    enum fault fault;
};

static void *use(void *ud) {
    struct user *u = ud;
    struct err err = {0};
    u->path = reserve(&u->v);
    u->fault = ossfs_mount(oss, u->path, &u->v, &err);
    return NULL;
}

TEST(one_mount_for_all_who_ask_at_once) {
    set_up();
    struct user u[8];
    for (size_t i = 0; i < ARRAY_SIZE(u); i++) {
        u[i] = (struct user){.v = volume("bucket", NULL, "s")};
        pthread_create(&u[i].thread, NULL, use, &u[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(u); i++) {
        pthread_join(u[i].thread, NULL);
        ASSERT_INT(u[i].fault, FAULT_NONE);
        ASSERT_STR(u[i].path, u[0].path);
    }
    ASSERT_INT(runs(), 1);
    ASSERT_INT(ossfs_users(oss, u[0].path), 8);
    for (size_t i = 0; i < ARRAY_SIZE(u); i++) {
        ASSERT_INT(oss_is_mounted(u[0].path), 1);
        ossfs_release(oss, u[i].path);
    }
    ASSERT_INT(oss_is_mounted(u[0].path), 0);
    for (size_t i = 0; i < ARRAY_SIZE(u); i++)
        free(u[i].path);
    tear_down();
}

/* The first mount waits on a pipe of ours; another key is mounted and released meanwhile. */
TEST(a_slow_mount_holds_up_nobody_else) {
    set_up();
    _cleanup_free_ char *fifo = path_join(dir, "slow");
    ASSERT(mkfifo(fifo, 0600) == 0);
    struct user slow = {.v = volume("slow", NULL, "s")};
    pthread_create(&slow.thread, NULL, use, &slow);
    int fd = open(fifo, O_WRONLY | O_CLOEXEC); /* it is in there, reading */
    ASSERT(fd >= 0);
    unlink(fifo);
    struct volume_request v = volume("quick", NULL, "s");
    _cleanup_free_ char *a = mounted(&v);
    ossfs_release(oss, a);
    ASSERT_OK(fd_write_full(fd, "go\n", 3));
    fd_close(fd);
    pthread_join(slow.thread, NULL);
    ASSERT_INT(slow.fault, FAULT_NONE);
    ossfs_release(oss, slow.path);
    free(slow.path);
    tear_down();
}

struct churn {
    pthread_t thread;
    unsigned seed;
};

static void *churn(void *ud) {
    struct churn *c = ud;
    for (int i = 0; i < 12; i++) {
        struct volume_request v = volume("bucket", NULL, rand_r(&c->seed) % 2 ? "s" : "t");
        char *path = reserve(&v);
        if (rand_r(&c->seed) % 3) {
            struct err err = {0};
            if (ossfs_mount(oss, path, &v, &err))
                test_fail(__FILE__, __LINE__, "%s", err.msg);
            ASSERT_INT(oss_is_mounted(path), 1); /* as long as we count */
        }
        ossfs_release(oss, path);
        free(path);
    }
    return NULL;
}

TEST(mounting_and_unmounting_of_one_path_exclude_each_other) {
    set_up();
    test_set_timeout(60);
    struct churn c[4];
    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        c[i].seed = (unsigned)i + 1;
        pthread_create(&c[i].thread, NULL, churn, &c[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(c); i++)
        pthread_join(c[i].thread, NULL);
    ASSERT_INT(rmdir(root), 0); /* no mount, and no mount point either */
    tear_down();
}

TEST(counts_of_a_start_keep_mounts) {
    set_up();
    struct volume_request v = volume("bucket", NULL, "s"), other = volume("other", NULL, "s");
    char tag[OSS_TAG_LEN + 1], *path;
    _cleanup_free_ char *b = mounted(&other);
    ASSERT_INT(ossfs_reserve(oss, &v, &path, tag, NULL), FAULT_NONE);
    ASSERT_INT(ossfs_mount(oss, path, &v, NULL), FAULT_NONE);
    ossfs_free(oss); /* the daemon ends, mounts stay */
    ASSERT_OK(ossfs_new(&(struct ossfs_opts){.root = root, .temp_dir = temp}, &oss));
    ASSERT_OK(ossfs_restore(oss, path, tag));
    ASSERT_OK(ossfs_restore(oss, path, tag));
    ASSERT_INT(ossfs_users(oss, path), 2);
    ossfs_drop(oss, path); /* an undone create used it as well */
    ASSERT_INT(oss_is_mounted(path), 1);
    ossfs_drop(oss, b);
    ASSERT_INT(oss_is_mounted(b), 0);
    _cleanup_free_ char *again = mounted(&v);
    ASSERT_STR(again, path);
    ASSERT_INT(runs(), 2);
    for (int i = 0; i < 3; i++)
        ossfs_release(oss, path);
    ASSERT_INT(oss_is_mounted(path), 0);
    /* known by its label only: with what it was mounted nobody can tell */
    ASSERT_OK(ossfs_restore(oss, path, ""));
    _cleanup_free_ char *apart = reserve(&v);
    ASSERT(strchr(apart, '@'));
    ossfs_release(oss, apart);
    free(path);
    tear_down();
}

TEST(credential_files_of_a_killed_daemon_are_removed) {
    set_up();
    ossfs_free(oss);
    put("tmp/opensandbox-ossfs-inline-c07e0001", "left", 0600);
    put("tmp/opensandbox-ossfs-inline-c07e0002.conf", "in use", 0600);
    put("tmp/opensandbox-ossfs-inline-0003", "of another server", 0600);
    _cleanup_free_ char *used = path_join(temp, "opensandbox-ossfs-inline-c07e0002.conf");
    int fd = open(used, O_RDONLY | O_CLOEXEC);
    ASSERT(flock(fd, LOCK_EX | LOCK_NB) == 0);
    ASSERT_OK(ossfs_new(&(struct ossfs_opts){.root = root, .temp_dir = temp}, &oss));
    ASSERT(!has("tmp/opensandbox-ossfs-inline-c07e0001"));
    ASSERT(has("tmp/opensandbox-ossfs-inline-c07e0002.conf"));
    ASSERT(has("tmp/opensandbox-ossfs-inline-0003"));
    fd_close(fd);
    tear_down();
}

TEST(a_mount_that_is_not_ours_is_left_alone) {
    set_up();
    _cleanup_free_ char *bucket = path_join(root, "bucket");
    ASSERT_OK(path_mkdirs_at(AT_FDCWD, bucket, 0755));
    ASSERT(mount("none", bucket, "tmpfs", 0, NULL) == 0);
    struct volume_request v = volume("bucket", NULL, "s"), below = volume("bucket", "p", "s");
    _cleanup_free_ char *a = mounted(&v), *b = mounted(&below);
    ASSERT(strchr(a, '@') && strchr(b, '@'));
    ossfs_release(oss, a);
    ossfs_release(oss, b);
    ASSERT_INT(oss_is_mounted(bucket), 1);
    ASSERT(umount(bucket) == 0);
    tear_down();
}

TEST(a_dead_mount_is_replaced) {
    set_up();
    if (access("/usr/bin/bindfs", X_OK) < 0 || access("/dev/fuse", R_OK | W_OK) < 0)
        test_skip("cannot: bindfs or /dev/fuse is missing");
    setenv("STANDIN_FUSE", "1", 1);
    struct volume_request v = volume("bucket", NULL, "s");
    _cleanup_free_ char *a = mounted(&v);
    _cleanup_free_ char *file = path_join(dir, "pid"), *text = NULL;
    ASSERT_OK(path_read_file_at(AT_FDCWD, file, 64, &text, NULL));
    ASSERT(kill((pid_t)strtol(text, NULL, 10), SIGKILL) == 0);
    struct stat st;
    while (stat(a, &st) == 0 || errno != ENOTCONN)
        sched_yield();
    _cleanup_free_ char *b = mounted(&v);
    ASSERT_STR(a, b);
    ASSERT(stat(a, &st) == 0);
    ASSERT_INT(runs(), 2);
    ossfs_release(oss, b);
    ASSERT_INT(oss_is_mounted(a), 1);
    ossfs_release(oss, a);
    ASSERT_INT(oss_is_mounted(a), 0);
    while (waitpid(-1, NULL, 0) > 0) /* the file systems' processes end with their mounts */
        ;
    tear_down();
}

TEST_MAIN()
