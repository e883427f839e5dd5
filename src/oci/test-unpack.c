/*
 * The unpack core without its jail: whatever entries say, nothing outside the destination changes.
 * Each test works in DIR/{dest,outside}; outside/canary must be as it was at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/buf.h"
#include "base/path.h"
#include "base/str.h"
#include "base/test.h"
#include "oci/unpack.h"

struct box {
    char path[64];
    int dir, dest;
    struct tree *t;
    struct err err;
};

static struct box box_new_limits(enum tree_mode mode, struct tree_limits limits) {
    struct box b = {.path = "/tmp/cove-test-unpack-XXXXXX"};

    umask(0);
    ASSERT(mkdtemp(b.path));
    b.dir = open(b.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_INT(mkdirat(b.dir, "dest", 0755), 0);
    ASSERT_INT(mkdirat(b.dir, "outside", 0755), 0);
    ASSERT_OK(path_write_file_at(b.dir, "outside/canary", "alive", 5, 0644, false));
    b.dest = openat(b.dir, "dest", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    b.t = tree_new(b.dest, mode, &limits);
    ASSERT(b.t);
    return b;
}

static struct box box_new(enum tree_mode mode) {
    return box_new_limits(mode, (struct tree_limits){.bytes = 1 << 20, .entries = 100000});
}

static void box_end(struct box *b) {
    _cleanup_free_ char *text = NULL;
    struct stat st;

    ASSERT_OK(path_read_file_at(b->dir, "outside/canary", 100, &text, NULL));
    ASSERT_STR(text, "alive");
    ASSERT_INT(fstatat(b->dir, "outside/canary", &st, 0), 0);
    ASSERT_INT(st.st_mode, S_IFREG | 0644);
    ASSERT_INT(st.st_nlink, 1);
    ASSERT_INT(fstatat(b->dir, "outside", &st, 0), 0);
    ASSERT_INT(st.st_mode, S_IFDIR | 0755);
    ASSERT_INT(st.st_nlink, 2);
    ASSERT(faccessat(b->dir, "outside/new", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
    tree_free(b->t);
    fd_close(b->dest);
    fd_close(b->dir);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, b->path));
}

struct content {
    const char *data;
    size_t len;
    const char *xattr;
    bool xattr_given;
};

static int give_data(void *ud, const void **ret, size_t *ret_len, uint64_t *ret_offset,
                     struct err *err) {
    struct content *c = ud;
    if (!c->data)
        return 0;
    *ret = c->data;
    *ret_len = c->len;
    *ret_offset = 0;
    c->data = NULL;
    return 1;
}

static bool give_xattr(void *ud, const char **ret_name, const void **ret_value, size_t *ret_len) {
    struct content *c = ud;
    if (!c->xattr || c->xattr_given)
        return false;
    c->xattr_given = true;
    *ret_name = c->xattr;
    *ret_value = "y";
    *ret_len = 1;
    return true;
}

static int add_full(struct box *b, enum entry_type type, const char *path, const char *link,
                    mode_t perm, const char *xattr) {
    struct content c = {.data = "hello", .len = 5, .xattr = xattr};
    struct entry e = {.type = type,
                      .path = path,
                      .link = link,
                      .perm = perm,
                      .uid = 1234,
                      .gid = 4321,
                      .mtime = {1000000000, 500},
                      .size = 5,
                      .data = give_data,
                      .xattr = give_xattr,
                      .ud = &c};
    b->err = (struct err){0};
    int r = tree_add(b->t, &e, &b->err);
    ASSERT_INT(r, b->err.code);
    return r;
}

static int add(struct box *b, enum entry_type type, const char *path, const char *link) {
    return add_full(b, type, path, link, type == ENTRY_DIR ? 0755 : 0644, NULL);
}

static struct stat get_stat(struct box *b, const char *path) {
    struct stat st;
    if (fstatat(b->dest, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", path, test_errno(-errno));
    return st;
}

static bool exists(struct box *b, const char *path) {
    return faccessat(b->dest, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_whiteout(struct box *b, const char *path) {
    struct stat st = get_stat(b, path);
    return S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0);
}

static bool is_opaque(struct box *b, const char *path) {
    _cleanup_close_ int fd = openat(b->dest, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char v[8];
    return fd >= 0 && fgetxattr(fd, "trusted.overlay.opaque", v, sizeof v) == 1 && v[0] == 'y';
}

static void check_refused(int line, struct box *b, int r, const char *why) {
    if (r != -EINVAL || !strstr(err_text(&b->err), why))
        test_fail(__FILE__, line, "expected a refusal with \"%s\", got %d %s", why, r,
                  err_text(&b->err));
}
#define REFUSED(e, why)                         \
    do {                                        \
        struct box rb = box_new(TREE_LAYER);    \
        check_refused(__LINE__, &rb, (e), why); \
        box_end(&rb);                           \
    } while (0)

TEST(names_that_leave) {
    REFUSED(add(&rb, ENTRY_FILE, "../outside/new", NULL), "\"..\"");
    REFUSED(add(&rb, ENTRY_FILE, "a/../../outside/new", NULL), "\"..\"");
    REFUSED(add(&rb, ENTRY_FILE, "a/..", NULL), "\"..\"");
    REFUSED(add(&rb, ENTRY_DIR, "..", NULL), "\"..\"");
    REFUSED(add(&rb, ENTRY_FILE, NULL, NULL), "no readable name");
}

TEST(absolute_names_stay_inside) {
    struct box b = box_new(TREE_LAYER);
    _cleanup_free_ char *abs = str_printf("/%s/outside/new", b.path + 1);

    ASSERT_OK(add(&b, ENTRY_FILE, abs, NULL));
    ASSERT(exists(&b, abs + 1));
    ASSERT_OK(add(&b, ENTRY_FILE, "//.//x", NULL));
    ASSERT(exists(&b, "x"));
    box_end(&b);
}

TEST(symlinked_parents_stay_inside) {
    struct box b = box_new(TREE_LAYER);
    _cleanup_free_ char *outside = str_printf("%s/outside", b.path);

    ASSERT_OK(add(&b, ENTRY_SYMLINK, "up", "../outside"));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "abs", outside));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "root", "/proc/self/root"));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "cwd", "/proc/self/cwd/"));
    check_refused(__LINE__, &b, add(&b, ENTRY_FILE, "up/new", NULL), "directory");
    check_refused(__LINE__, &b, add(&b, ENTRY_FILE, "abs/new", NULL), "directory");
    check_refused(__LINE__, &b, add(&b, ENTRY_FILE, "root/tmp/new", NULL), "directory");
    check_refused(__LINE__, &b, add(&b, ENTRY_DIR, "cwd/new", NULL), "directory");
    /* The same names inside exist: that is where the links lead. */
    ASSERT_OK(add(&b, ENTRY_DIR, "outside", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, "up/inner", NULL));
    ASSERT(exists(&b, "outside/inner"));
    box_end(&b);
}

TEST(last_component_is_not_followed) {
    struct box b = box_new(TREE_LAYER);
    _cleanup_free_ char *canary = str_printf("%s/outside/canary", b.path);

    ASSERT_OK(add(&b, ENTRY_SYMLINK, "f", canary));
    ASSERT_OK(add(&b, ENTRY_FILE, "f", NULL));
    ASSERT(S_ISREG(get_stat(&b, "f").st_mode));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "d", "../outside"));
    ASSERT_OK(
        add_full(&b, ENTRY_DIR, "d", NULL, 0700, NULL)); /* must not change the mode of outside */
    ASSERT(S_ISDIR(get_stat(&b, "d").st_mode));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "w", "../outside"));
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh.w", NULL)); /* must not mark what the link points to */
    box_end(&b);
}

TEST(link_swapped_under_a_cached_parent) {
    struct box b = box_new(TREE_LAYER);

    ASSERT_OK(add(&b, ENTRY_DIR, "one", NULL));
    ASSERT_OK(add(&b, ENTRY_DIR, "two", NULL));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "l", "one"));
    ASSERT_OK(add(&b, ENTRY_FILE, "l/a", NULL));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "l", "two"));
    ASSERT_OK(add(&b, ENTRY_FILE, "l/b", NULL));
    ASSERT(exists(&b, "one/a") && exists(&b, "two/b") && !exists(&b, "one/b"));
    box_end(&b);
}

TEST(hard_links) {
    struct box b = box_new(TREE_LAYER);

    ASSERT_OK(add(&b, ENTRY_FILE, "f", NULL));
    ASSERT_OK(add(&b, ENTRY_HARDLINK, "d/g", "./f"));
    ASSERT_INT(get_stat(&b, "f").st_nlink, 2);
    ASSERT_INT(get_stat(&b, "d/g").st_ino, get_stat(&b, "f").st_ino);
    /* A second time, and under another spelling of the directory: the file must survive. */
    ASSERT_OK(add(&b, ENTRY_HARDLINK, "d/g", "f"));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "same", "d"));
    ASSERT_OK(add(&b, ENTRY_HARDLINK, "same/g", "d/g"));
    ASSERT_INT(get_stat(&b, "d/g").st_nlink, 2);
    /* To a symlink: the link itself is linked. */
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "s", "/etc/passwd"));
    ASSERT_OK(add(&b, ENTRY_HARDLINK, "s2", "s"));
    ASSERT(S_ISLNK(get_stat(&b, "s2").st_mode));
    box_end(&b);

    REFUSED(add(&rb, ENTRY_HARDLINK, "x", "../outside/canary"), "\"..\"");
    REFUSED(add(&rb, ENTRY_HARDLINK, "x", "/etc/passwd"), "not in this layer");
    REFUSED(add(&rb, ENTRY_HARDLINK, "x", "/"), "root");
    REFUSED(add(&rb, ENTRY_HARDLINK, "x", ""), "root");
    REFUSED(add(&rb, ENTRY_HARDLINK, "x", "x"), "itself");
    REFUSED((add(&rb, ENTRY_DIR, "d", NULL), add(&rb, ENTRY_HARDLINK, "x", "d")), "no file");
    REFUSED((add(&rb, ENTRY_FILE, ".wh.w", NULL), add(&rb, ENTRY_HARDLINK, "x", "w")), "no file");
    REFUSED((add(&rb, ENTRY_SYMLINK, "l", "../outside"), add(&rb, ENTRY_HARDLINK, "x", "l/canary")),
            "not in this layer");
    REFUSED((add(&rb, ENTRY_SYMLINK, "l", "/proc/self/root"),
             add(&rb, ENTRY_HARDLINK, "x", "l/etc/passwd")),
            "not in this layer");
    REFUSED(add(&rb, ENTRY_HARDLINK, "/", "f"), "root entry");
}

TEST(root_entry) {
    struct box b = box_new(TREE_LAYER);

    ASSERT_OK(add_full(&b, ENTRY_DIR, "./", NULL, 0711, NULL));
    ASSERT_OK(tree_finish(b.t, &b.err));
    struct stat st = get_stat(&b, ".");
    ASSERT_INT(st.st_mode, S_IFDIR | 0711);
    ASSERT_INT(st.st_uid, 1234);
    ASSERT_INT(st.st_mtim.tv_sec, 1000000000);
    box_end(&b);
    REFUSED(add(&rb, ENTRY_SYMLINK, "./", "../outside"), "root entry");
    REFUSED(add(&rb, ENTRY_FILE, "/", NULL), "root entry");
}

TEST(devices_and_sockets_are_dropped) {
    struct box b = box_new(TREE_LAYER);

    ASSERT_OK(add(&b, ENTRY_DEVICE, "null", NULL));
    ASSERT_OK(add(&b, ENTRY_SOCKET, "sock", NULL));
    ASSERT_OK(add_full(&b, ENTRY_FIFO, "fifo", NULL, 0620, NULL));
    ASSERT(!exists(&b, "null") && !exists(&b, "sock"));
    ASSERT_INT(get_stat(&b, "fifo").st_mode, S_IFIFO | 0620);
    ASSERT_INT(tree_stats(b.t)->skipped_devices, 1);
    ASSERT_INT(tree_stats(b.t)->skipped_sockets, 1);
    box_end(&b);
}

static int has_xattr(struct box *b, const char *path, const char *name) {
    _cleanup_close_ int fd = openat(b->dest, path, O_RDONLY | O_CLOEXEC);
    char v[64];
    return (int)fgetxattr(fd, name, v, sizeof v);
}

TEST(extended_attributes) {
    static const char *const forged[] = {"trusted.overlay.opaque",
                                         "trusted.overlay.redirect",
                                         "trusted.x",
                                         "user.overlay.opaque",
                                         "security.selinux",
                                         "security.ima",
                                         "system.posix_acl_access",
                                         "user.",
                                         ""};
    struct box b = box_new(TREE_LAYER);

    for (size_t i = 0; i < ARRAY_SIZE(forged); i++) {
        ASSERT_OK(add_full(&b, ENTRY_DIR, "d", NULL, 0755, forged[i]));
        ASSERT_OK(add_full(&b, ENTRY_FILE, "f", NULL, 0644, forged[i]));
        ASSERT(has_xattr(&b, "d", forged[i]) < 0);
        ASSERT(has_xattr(&b, "f", forged[i]) < 0);
    }
    ASSERT_INT(tree_stats(b.t)->skipped_xattrs, 2 * ARRAY_SIZE(forged));
    ASSERT_OK(add_full(&b, ENTRY_FILE, "g", NULL, 0644, "user.mine"));
    ASSERT(has_xattr(&b, "g", "user.mine") == 1);
    /* A capability that the kernel does not accept is an error of the archive. */
    ASSERT_INT(add_full(&b, ENTRY_FILE, "c", NULL, 0755, "security.capability"), -EINVAL);
    box_end(&b);
}

static char *repeat(const char *s, size_t n) {
    struct buf b = BUF_INIT(1 << 20);
    for (size_t i = 0; i < n; i++)
        buf_str(&b, s);
    return buf_take(&b, NULL);
}

TEST(long_and_deep_names) {
    _cleanup_free_ char *c255 = repeat("n", 255), *c256 = repeat("n", 256),
                        *deep = repeat("d/", 255), *too_deep = repeat("d/", 257),
                        *longest = repeat("abcdefghijklmno/", 257);
    struct box b = box_new(TREE_LAYER);

    ASSERT_OK(add(&b, ENTRY_FILE, c255, NULL));
    _cleanup_free_ char *leaf = str_printf("%sf", deep);
    ASSERT_OK(add(&b, ENTRY_FILE, leaf, NULL));
    ASSERT(exists(&b, leaf));
    ASSERT_OK(add(&b, ENTRY_FILE, "d", NULL)); /* replaces the whole chain */
    ASSERT(S_ISREG(get_stat(&b, "d").st_mode));
    box_end(&b);
    REFUSED(add(&rb, ENTRY_FILE, c256, NULL), "255 bytes");
    REFUSED(add(&rb, ENTRY_DIR, too_deep, NULL), "256 components");
    REFUSED(add(&rb, ENTRY_DIR, longest, NULL), "4095 bytes");
}

TEST(whiteouts) {
    struct box b = box_new(TREE_LAYER);

    ASSERT_OK(add(&b, ENTRY_FILE, "a/.wh.gone", NULL));
    ASSERT(is_whiteout(&b, "a/gone") && !exists(&b, "a/.wh.gone"));
    ASSERT_OK(add(&b, ENTRY_FILE, "b/.wh..wh..opq", NULL));
    ASSERT(is_opaque(&b, "b") && !exists(&b, "b/.wh..wh..opq"));
    /* The layer ships the name as well: the file wins, a directory hides what is below it. */
    ASSERT_OK(add(&b, ENTRY_FILE, "file", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh.file", NULL));
    ASSERT(S_ISREG(get_stat(&b, "file").st_mode));
    ASSERT_OK(add(&b, ENTRY_DIR, "dir", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh.dir", NULL));
    ASSERT(is_opaque(&b, "dir"));
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh.later", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, "later", NULL));
    ASSERT(S_ISREG(get_stat(&b, "later").st_mode));
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh.later2", NULL));
    ASSERT_OK(add(&b, ENTRY_DIR, "later2", NULL));
    ASSERT(is_opaque(&b, "later2"));
    /* A parent that nobody listed takes a whiteout's place in the same way. */
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh.p", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, "p/q/f", NULL));
    ASSERT(is_opaque(&b, "p") && exists(&b, "p/q/f"));
    /* Book-keeping of aufs. */
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh..wh.aufs", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh..wh.plnk/1.2", NULL));
    ASSERT(!exists(&b, ".wh..wh.aufs") && !exists(&b, ".wh..wh.plnk"));
    box_end(&b);

    REFUSED(add(&rb, ENTRY_FILE, ".wh.", NULL), "whiteout without a name");
    REFUSED(add(&rb, ENTRY_FILE, ".wh..", NULL), "whiteout without a name");
    REFUSED(add(&rb, ENTRY_FILE, "d/.wh...", NULL), "whiteout without a name");
    REFUSED(add(&rb, ENTRY_FILE, ".wh.x/y", NULL), "whiteout as directory");
}

TEST(plain_has_no_whiteouts) {
    struct box b = box_new(TREE_PLAIN);

    ASSERT_OK(add(&b, ENTRY_FILE, ".wh.x", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh..wh..opq", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, ".wh.d/f", NULL));
    ASSERT(S_ISREG(get_stat(&b, ".wh.x").st_mode) && S_ISREG(get_stat(&b, ".wh..wh..opq").st_mode));
    ASSERT(!is_opaque(&b, "."));
    box_end(&b);
}

TEST(archive_is_ours) {
    struct box b = box_new(TREE_ARCHIVE);

    ASSERT_OK(add_full(&b, ENTRY_FILE, "blob", NULL, 06755, "user.x"));
    ASSERT_OK(add_full(&b, ENTRY_DIR, "d", NULL, 0777, NULL));
    ASSERT_OK(add(&b, ENTRY_FIFO, "fifo", NULL));
    ASSERT_INT(get_stat(&b, "blob").st_mode, S_IFREG | 0600);
    ASSERT_INT(get_stat(&b, "blob").st_uid, getuid());
    ASSERT_INT(get_stat(&b, "d").st_mode, S_IFDIR | 0700);
    ASSERT(!exists(&b, "fifo"));
    ASSERT(has_xattr(&b, "blob", "user.x") < 0);
    box_end(&b);
}

TEST(metadata) {
    struct box b = box_new(TREE_LAYER);

    ASSERT_OK(add_full(&b, ENTRY_DIR, "d", NULL, 02750, NULL));
    ASSERT_OK(add_full(&b, ENTRY_FILE, "d/su", NULL, 06711, NULL));
    ASSERT_OK(add(&b, ENTRY_SYMLINK, "d/l", "su"));
    ASSERT_OK(add_full(&b, ENTRY_DIR, "closed", NULL, 0, NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, "closed/f", NULL));
    ASSERT_OK(tree_finish(b.t, &b.err));
    static const char *const all[] = {"d", "d/su", "d/l"};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        struct stat st = get_stat(&b, all[i]);
        ASSERT_INT(st.st_uid, 1234);
        ASSERT_INT(st.st_gid, 4321);
        ASSERT_INT(st.st_mtim.tv_sec, 1000000000);
        ASSERT_INT(st.st_mtim.tv_nsec, 500);
    }
    ASSERT_INT(get_stat(&b, "d").st_mode, S_IFDIR | 02750);
    ASSERT_INT(get_stat(&b, "d/su").st_mode, S_IFREG | 06711);
    ASSERT_INT(get_stat(&b, "closed").st_mode, S_IFDIR);
    box_end(&b);
}

TEST(replacing) {
    struct box b = box_new(TREE_LAYER);

    ASSERT_OK(add(&b, ENTRY_FILE, "d/e/f", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, "d/e/g", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, "d", NULL));
    ASSERT(S_ISREG(get_stat(&b, "d").st_mode));
    ASSERT_OK(add(&b, ENTRY_DIR, "d", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, "d/x", NULL));
    ASSERT_OK(add_full(&b, ENTRY_DIR, "d", NULL, 0700,
                       NULL)); /* a second time: same directory, new attributes */
    ASSERT(exists(&b, "d/x"));
    ASSERT_INT(get_stat(&b, "d").st_mode, S_IFDIR | 0700);
    ASSERT_OK(add(&b, ENTRY_FILE, "f", NULL));
    check_refused(__LINE__, &b, add(&b, ENTRY_FILE, "f/g", NULL), "directory");
    box_end(&b);
    REFUSED((add(&rb, ENTRY_SYMLINK, "l", "l"), add(&rb, ENTRY_FILE, "l/f", NULL)), "directory");
    REFUSED(add(&rb, ENTRY_SYMLINK, "l", ""), "create");
}

TEST(bounds) {
    struct box b = box_new_limits(TREE_LAYER, (struct tree_limits){.bytes = 12, .entries = 4});

    ASSERT_OK(add(&b, ENTRY_FILE, "1", NULL));
    ASSERT_OK(add(&b, ENTRY_FILE, "2", NULL));
    ASSERT_INT(add(&b, ENTRY_FILE, "3", NULL), -E2BIG);
    ASSERT(strstr(err_text(&b.err), "12 bytes"));
    ASSERT_OK(add(&b, ENTRY_DIR, "4", NULL));
    ASSERT_INT(add(&b, ENTRY_DIR, "5", NULL), -E2BIG);
    ASSERT(strstr(err_text(&b.err), "more than 4 entries"));
    box_end(&b);

    struct content c = {.data = "x", .len = 1};
    struct entry e = {
        .type = ENTRY_FILE, .path = "huge", .size = (uint64_t)1 << 62, .data = give_data, .ud = &c};
    b = box_new(TREE_LAYER);
    ASSERT_INT(tree_add(b.t, &e, &b.err), -E2BIG);
    e.size = 0;
    e.uid = -1;
    ASSERT_INT(tree_add(b.t, &e, &b.err), -EINVAL);
    e.uid = (int64_t)1 << 40;
    ASSERT_INT(tree_add(b.t, &e, &b.err), -EINVAL);
    box_end(&b);
}

TEST(control_characters_do_not_reach_errors) {
    struct box b = box_new(TREE_LAYER);

    ASSERT_INT(add(&b, ENTRY_FILE, "\033[31m/..", NULL), -EINVAL);
    ASSERT(!strchr(err_text(&b.err), '\033'));
    box_end(&b);
}

/* ---- sources ---- */

/* One ustar header and content, appended. */
static void tar_add(struct buf *b, char type, const char *name, const char *content,
                    const char *link) {
    char h[512] = {0};
    size_t n = content ? strlen(content) : 0;
    unsigned sum = 0;

    str_copy(h, 100, name);
    snprintf(h + 100, 8, "%07o", 0644u);
    snprintf(h + 108, 8, "%07o", 7u);
    snprintf(h + 116, 8, "%07o", 8u);
    snprintf(h + 124, 12, "%011o", (unsigned)n);
    snprintf(h + 136, 12, "%011o", 1000u);
    h[156] = type;
    if (link)
        str_copy(h + 157, 100, link);
    memcpy(h + 257, "ustar\00000", 8);
    memset(h + 148, ' ', 8);
    for (size_t i = 0; i < sizeof h; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    buf_append(b, h, sizeof h);
    buf_append(b, content, n);
    while (b->len % 512)
        buf_char(b, 0);
}

static void tar_end(struct buf *b) {
    static const char zeros[1024];
    buf_append(b, zeros, sizeof zeros);
}

static int unpack_buf(struct box *b, const struct buf *tar, struct unpack_result *res) {
    const struct tree_limits limits = {.bytes = 1 << 20, .entries = 1000};
    b->err = (struct err){0};
    return unpack_tar_memory(tar->data, tar->len, b->t, &limits, res, &b->err);
}

TEST(tar_from_memory) {
    struct box b = box_new(TREE_LAYER);
    _cleanup_buf_ struct buf tar = BUF_INIT(1 << 20);
    struct unpack_result res;
    _cleanup_free_ char *text = NULL;

    tar_add(&tar, '5', "d/", NULL, NULL);
    tar_add(&tar, '0', "d/f", "content", NULL);
    tar_add(&tar, '1', "d/h", NULL, "d/f");
    tar_add(&tar, '2', "l", NULL, "/etc/passwd");
    tar_add(&tar, '3', "null", NULL, NULL);
    tar_add(&tar, '0', "z\xff\xfe", "raw name", NULL);
    tar_end(&tar);
    ASSERT_OK(unpack_buf(&b, &tar, &res));
    ASSERT_OK(path_read_file_at(b.dest, "d/f", 100, &text, NULL));
    ASSERT_STR(text, "content");
    ASSERT_INT(get_stat(&b, "d/h").st_nlink, 2);
    ASSERT(exists(&b, "z\xff\xfe"));
    ASSERT_INT(get_stat(&b, "d/f").st_uid, 7);
    ASSERT_INT(res.input_bytes, tar.len);
    ASSERT_STR(res.digest, res.diff_id);
    ASSERT_INT(tree_stats(b.t)->skipped_devices, 1);
    box_end(&b);
}

TEST(damaged_tars) {
    _cleanup_buf_ struct buf tar = BUF_INIT(1 << 20), cut = BUF_INIT(1 << 20);
    struct unpack_result res;
    struct box b = box_new(TREE_LAYER);

    ASSERT_INT(unpack_buf(&b, &tar, &res), -EINVAL);
    ASSERT(strstr(err_text(&b.err), "empty"));
    box_end(&b);
    tar_add(&tar, '0', "f", "some content", NULL);
    tar_end(&tar);
    buf_append(&cut, tar.data, 516);
    b = box_new(TREE_LAYER);
    ASSERT_INT(unpack_buf(&b, &cut, &res), -EINVAL);
    ASSERT(strstr(err_text(&b.err), "bad archive"));
    box_end(&b);
    buf_clear(&cut);
    buf_str(&cut, "this is no tar file at all, only a sentence");
    b = box_new(TREE_LAYER);
    ASSERT_INT(unpack_buf(&b, &cut, &res), -EINVAL);
    box_end(&b);
}

TEST(equal_directories_have_equal_digests) {
    struct unpack_result res[3] = {0};

    for (int i = 0; i < 3; i++) {
        struct box b = box_new(TREE_PLAIN);
        ASSERT_OK(add_full(&b, ENTRY_DIR, "sub", NULL, 0755, "user.x"));
        ASSERT_OK(add(&b, ENTRY_FILE, i == 2 ? "sub/other" : "sub/f", NULL));
        ASSERT_OK(add(&b, ENTRY_HARDLINK, "h", i == 2 ? "sub/other" : "sub/f"));
        ASSERT_OK(add(&b, ENTRY_SYMLINK, "l", "/etc/passwd"));
        ASSERT_OK(add_full(&b, ENTRY_DIR, ".", NULL, 0755, NULL));
        ASSERT_OK(tree_finish(b.t, &b.err));

        struct box to = box_new(TREE_PLAIN);
        if (unpack_dir(b.dest, to.t, &res[i], &to.err) < 0)
            test_fail(__FILE__, __LINE__, "%s", err_text(&to.err));
        ASSERT_INT(get_stat(&to, "h").st_nlink, 2);
        ASSERT(S_ISLNK(get_stat(&to, "l").st_mode));
        ASSERT(has_xattr(&to, "sub", "user.x") == 1);
        ASSERT_INT(get_stat(&to, "sub").st_mtim.tv_sec, 1000000000);
        box_end(&b);
        box_end(&to);
    }
    ASSERT_STR(res[0].diff_id, res[1].diff_id);
    ASSERT(!str_eq(res[0].diff_id, res[2].diff_id));
}

static const char *probe(const struct buf *tar) {
    char path[] = "/tmp/cove-test-probe-XXXXXX";
    _cleanup_close_ int fd = mkostemp(path, O_CLOEXEC);
    const char *format = "?";
    struct err err = {0};

    unlink(path);
    ASSERT_OK(fd_write_full(fd, tar->data, tar->len));
    lseek(fd, 0, SEEK_SET);
    if (unpack_probe(fd, &format, &err) < 0)
        return err_text(&err);
    return format;
}

TEST(probing) {
    static const char id[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    _cleanup_free_ char *layer = str_printf("%s/layer.tar", id),
                        *config = str_printf("%s.json", id);
    const char *const docker[] = {layer, config, "manifest.json", "repositories", NULL};
    const char *const oci[] = {"blobs/",        "blobs/sha256/x", "index.json",
                               "manifest.json", "oci-layout",     NULL};
    const char *const rootfs[] = {"./", "./bin/sh", "./manifest.json", NULL};
    const char *const tricky[] = {"manifest.json", "etc/passwd", "oci-layout", NULL};
    const struct {
        const char *const *names;
        const char *want;
    } cases[] = {{docker, "docker"}, {oci, "oci"}, {rootfs, "rootfs"}, {tricky, "rootfs"}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_buf_ struct buf tar = BUF_INIT(1 << 20);
        for (const char *const *n = cases[i].names; *n; n++)
            tar_add(&tar, str_ends(*n, "/") ? '5' : '0', *n, str_ends(*n, "/") ? NULL : "x", NULL);
        tar_end(&tar);
        ASSERT_STR(probe(&tar), cases[i].want);
    }
}

TEST_MAIN()
