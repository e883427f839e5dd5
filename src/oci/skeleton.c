/*
 * Skeleton layers: tiny trees of ours that are stacked with images or host directories (see
 * store.h). They give every mount a real target, so that an image cannot redirect one by a symlink
 * and nothing is made in the sandbox's own upper layer.
 *
 * Invariants: plain data below says what is in them; a change of it needs a new SKELETON_VERSION,
 * since a skeleton in use is never edited. Directories merge with the image's: none is opaque.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "oci/store_internal.h"

#define SKELETON_VERSION 1

struct node {
    const char *path;
    mode_t mode; /* with S_IFDIR or S_IFREG */
};
#define DIR_(p, m) \
    { p, S_IFDIR | (m) }
#define FILE_(p, m) \
    { p, S_IFREG | (m) }

static const struct node image_nodes[] = {
    DIR_("proc", 0555),          DIR_("sys", 0555),
    DIR_("dev", 0755),           DIR_("run", 0755),
    DIR_("tmp", 01777),          DIR_("opt", 0755),
    DIR_("opt/cove", 0755),      FILE_("opt/cove/execd", 0755),
    DIR_("etc", 0755),           DIR_("opt/opensandbox", 0755),
    FILE_("etc/hosts", 0644),    FILE_("opt/opensandbox/execd", 0755),
    FILE_("etc/hostname", 0644), FILE_("etc/resolv.conf", 0644),
};
static const struct node host_nodes[] = {
    DIR_("proc", 0555),     DIR_("sys", 0555),
    DIR_("dev", 0755),      DIR_("run", 0755),
    DIR_("tmp", 01777),     DIR_("opt", 0755),
    DIR_("opt/cove", 0755), FILE_("opt/cove/execd", 0755),
    DIR_("usr", 0755),      DIR_("opt/opensandbox", 0755),
    DIR_("etc", 0755),      FILE_("opt/opensandbox/execd", 0755),
    DIR_("root", 0700),     DIR_("home", 0755),
    DIR_("srv", 0755),      DIR_("mnt", 0755),
    DIR_("var", 0755),      DIR_("var/tmp", 01777),
    DIR_("var/lib", 0755),  DIR_("var/cache", 0755),
    DIR_("var/log", 0755),  DIR_("workspace", 0755),
};
static const struct node host_usr_nodes[] = {
    DIR_("local", 0755),       DIR_("local/bin", 0755),     DIR_("local/lib", 0755),
    DIR_("local/share", 0755), DIR_("local/include", 0755),
};
static const struct node host_etc_nodes[] = {
    FILE_("hosts", 0644),
    FILE_("hostname", 0644),
    FILE_("resolv.conf", 0644),
};
/* Taken over from the host's root when they are symlinks into /usr; empty directories otherwise. */
static const char *const host_links[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

static const struct {
    const char *name;
    const struct node *nodes;
    size_t n;
} kinds[] = {
    [SKELETON_IMAGE] = {"image", image_nodes, ARRAY_SIZE(image_nodes)},
    [SKELETON_HOST] = {"host", host_nodes, ARRAY_SIZE(host_nodes)},
    [SKELETON_HOST_USR] = {"host-usr", host_usr_nodes, ARRAY_SIZE(host_usr_nodes)},
    [SKELETON_HOST_ETC] = {"host-etc", host_etc_nodes, ARRAY_SIZE(host_etc_nodes)},
};

static int make_node(int root, const struct node *n) {
    if (S_ISDIR(n->mode) && mkdirat(root, n->path, 0700) < 0)
        return -errno;
    _cleanup_close_ int fd =
        openat(root, n->path,
               S_ISDIR(n->mode) ? O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
                                : O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
               0600);
    return fd < 0 || fchmod(fd, n->mode & 07777) < 0 ? -errno : 0;
}

/* Text of the host's link; "" for a directory of its own, NULL when the host has no such name. */
static int read_host_link(const char *name, char target[256], const char **ret) {
    _cleanup_free_ char *path = str_printf("/%s", name);
    struct stat st;

    *ret = NULL;
    if (!path)
        return -ENOMEM;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    *ret = target;
    target[0] = 0;
    if (!S_ISLNK(st.st_mode))
        return 0;
    ssize_t n = readlink(path, target, 255);
    if (n < 0)
        return -errno;
    target[n] = 0;
    return 0;
}

static int make_host_links(int root) {
    for (size_t i = 0; i < ARRAY_SIZE(host_links); i++) {
        char target[256];
        const char *text;
        int r = read_host_link(host_links[i], target, &text);
        if (r < 0)
            return r;
        if (!text)
            continue;
        if (*text)
            r = symlinkat(text, root, host_links[i]) < 0 ? -errno : 0;
        else
            r = make_node(root, &(struct node){host_links[i], S_IFDIR | 0755});
        if (r < 0)
            return r;
    }
    return 0;
}

/* "host-1-<8 hex digits>": the digits are of the host's links, so that another host layout gets
 * another skeleton. */
static int skeleton_name(enum store_skeleton kind, char ret[48]) {
    _cleanup_buf_ struct buf b = BUF_INIT(8192);
    char hex[65] = "", target[256];
    int r = 0;

    snprintf(ret, 48, "%s-%d", kinds[kind].name, SKELETON_VERSION);
    if (kind != SKELETON_HOST)
        return 0;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(host_links); i++) {
        const char *text;
        r = read_host_link(host_links[i], target, &text);
        if (r == 0)
            buf_printf(&b, "%s=%s\n", host_links[i], text ? (*text ? text : "directory") : "");
    }
    if (r == 0)
        r = buf_ok(&b) ? store_sha256_hex(b.data, b.len, hex) : -ENOBUFS;
    snprintf(ret, 48, "%s-%d-%.8s", kinds[kind].name, SKELETON_VERSION, hex);
    return r;
}

static int build(enum store_skeleton kind, int tmp_fd) {
    if (mkdirat(tmp_fd, "fs", 0700) < 0)
        return -errno;
    _cleanup_close_ int root =
        openat(tmp_fd, "fs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0 || fchmod(root, 0755) < 0)
        return -errno;
    int r = kind == SKELETON_HOST ? make_host_links(root) : 0;
    for (size_t i = 0; r == 0 && i < kinds[kind].n; i++)
        r = make_node(root, &kinds[kind].nodes[i]);
    if (r == 0 && syncfs(tmp_fd) < 0)
        r = -errno;
    return r;
}

int store_skeleton(struct store *s, enum store_skeleton kind, char **ret_path, struct err *err) {
    char name[48];
    struct stat st;

    if ((size_t)kind >= ARRAY_SIZE(kinds))
        return err_set(err, -EINVAL, "unknown skeleton %d", (int)kind);
    int r = skeleton_name(kind, name);
    if (r == 0 && fstatat(s->skel, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        _cleanup_(store_tmp_done) struct store_tmp tmp = STORE_TMP_INIT;
        r = store_tmp_make(s, s->skel, &tmp);
        if (r == 0)
            r = build(kind, tmp.fd);
        if (r == 0)
            r = store_tmp_publish(&tmp, name);
        if (r == -EEXIST) /* another process was faster */
            r = 0;
        if (r == 0 && fsync(s->skel) < 0)
            r = -errno;
    }
    if (r < 0)
        return err_sys(err, r, "skeleton layer %s in %s", kinds[kind].name, s->path);
    *ret_path = str_printf("%s/skel/%s/fs", s->path, name);
    return *ret_path ? 0 : err_set(err, -ENOMEM, "out of memory");
}
