/*
 * Directory source of the unpack core: walks a tree by descriptors, in name order, and feeds it to
 * the tree writer. The digest is sha256 over our canonical form (one record per entry, then its
 * content), so equal trees give equal layers.
 *
 * Invariants: symlinks are never followed, other file systems are not entered; a file that changes
 * while it is read gives what was read, and the digest is of that.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/path.h"
#include "base/str.h"
#include "oci/unpack.h"

#define BLOCK_BYTES ((size_t)256 << 10)

struct walk {
    struct tree *t;
    EVP_MD_CTX *md;
    struct map *links; /* "dev:inode" -> first path, owned */
    char path[TREE_PATH_MAX];
    char *block;
    char names[65536], value[65536]; /* extended attributes of one entry */
    dev_t dev;
};

static void walk_done(struct walk *w) {
    const char *key;
    void *path;

    for (size_t i = 0; w->links && map_next(w->links, &i, &key, &path);)
        free(path);
    map_free(w->links);
    EVP_MD_CTX_free(w->md);
    free(w->block);
}

struct dir_entry {
    struct walk *w;
    int fd; /* file or directory, -1 for others */
    uint64_t offset;
    const char *next_name; /* xattrs */
    size_t names_left;
};

static int read_block(void *ud, const void **ret, size_t *ret_len, uint64_t *ret_offset,
                      struct err *err) {
    struct dir_entry *de = ud;
    int n = fd_read_full(de->fd, de->w->block, BLOCK_BYTES);

    if (n < 0)
        return err_sys(err, n, "reading a file of the directory");
    if (n == 0)
        return 0;
    EVP_DigestUpdate(de->w->md, de->w->block, (size_t)n);
    *ret = de->w->block;
    *ret_len = (size_t)n;
    *ret_offset = de->offset;
    de->offset += (uint64_t)n;
    return 1;
}

static bool read_xattr(void *ud, const char **ret_name, const void **ret_value, size_t *ret_len) {
    struct dir_entry *de = ud;

    while (de->names_left > 0) {
        const char *name = de->next_name;
        size_t l = strlen(name) + 1;
        de->next_name += l;
        de->names_left -= MIN(l, de->names_left);
        ssize_t n = fgetxattr(de->fd, name, de->w->value, sizeof de->w->value);
        if (n < 0)
            continue; /* went away */
        uint64_t len = (uint64_t)n;
        EVP_DigestUpdate(de->w->md, name, l);
        EVP_DigestUpdate(de->w->md, &len, sizeof len);
        EVP_DigestUpdate(de->w->md, de->w->value, (size_t)n);
        *ret_name = name;
        *ret_value = de->w->value;
        *ret_len = (size_t)n;
        return true;
    }
    return false;
}

static int type_of(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return ENTRY_FILE;
    case S_IFDIR:
        return ENTRY_DIR;
    case S_IFLNK:
        return ENTRY_SYMLINK;
    case S_IFIFO:
        return ENTRY_FIFO;
    case S_IFSOCK:
        return ENTRY_SOCKET;
    default:
        return ENTRY_DEVICE;
    }
}

/* A second name of a file already seen: *ret is the first. Else this one is remembered. */
static int find_link(struct walk *w, const struct stat *st, const char **ret) {
    char key[64];
    _cleanup_free_ char *path = NULL;

    *ret = NULL;
    if ((!S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode)) || st->st_nlink < 2)
        return 0;
    snprintf(key, sizeof key, "%llx:%llx", (unsigned long long)st->st_dev,
             (unsigned long long)st->st_ino);
    *ret = map_get(w->links, key);
    if (*ret)
        return 0;
    path = strdup(w->path);
    if (!path || map_set(w->links, key, path, NULL) < 0)
        return -ENOMEM;
    path = NULL;
    return 0;
}

static void hash_record(struct walk *w, const struct entry *e) {
    _cleanup_buf_ struct buf b = BUF_INIT(4 * TREE_PATH_MAX);

    buf_printf(&b, "%d %o %lld:%lld %lld.%ld %llu ", (int)e->type, (unsigned)e->perm,
               (long long)e->uid, (long long)e->gid, (long long)e->mtime.tv_sec, e->mtime.tv_nsec,
               (unsigned long long)e->size);
    buf_append(&b, e->path, strlen(e->path) + 1);
    if (e->link)
        buf_append(&b, e->link, strlen(e->link) + 1);
    EVP_DigestUpdate(w->md, b.data, b.len);
}

static int add_one(struct walk *w, int dirfd, const char *name, int fd, const struct stat *st,
                   struct err *err) {
    struct dir_entry de = {.w = w, .fd = fd};
    char target[TREE_PATH_MAX];
    const char *first;
    struct entry e = {
        .type = (enum entry_type)type_of(st->st_mode),
        .path = *w->path ? w->path : ".",
        .perm = st->st_mode & 07777,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .mtime = st->st_mtim,
        .size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
        .data = read_block,
        .ud = &de,
    };
    int r = find_link(w, st, &first);

    if (r < 0)
        return err_set(err, r, "out of memory");
    if (first) {
        e.type = ENTRY_HARDLINK;
        e.link = first;
        e.size = 0;
    } else if (e.type == ENTRY_SYMLINK) {
        ssize_t n = readlinkat(dirfd, name, target, sizeof target - 1);
        if (n < 0)
            return err_sys(err, -errno, "%s", w->path);
        target[n] = 0;
        e.link = target;
    } else if (fd >= 0) {
        ssize_t n = flistxattr(fd, w->names, sizeof w->names);
        de.next_name = w->names;
        de.names_left = n > 0 ? (size_t)n : 0;
        e.xattr = read_xattr;
    }
    hash_record(w, &e);
    return tree_add(w->t, &e, err);
}

static int walk_children(struct walk *w, int fd, struct err *err);

static int walk_one(struct walk *w, int dirfd, const char *name, struct err *err) {
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, -errno, "%s", w->path);
    if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
        fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            return 0;
        if (fd < 0 || fstat(fd, &st) < 0)
            return err_sys(err, -errno, "%s", w->path);
    }
    int r = add_one(w, dirfd, name, fd, &st, err);
    return r == 0 && S_ISDIR(st.st_mode) && st.st_dev == w->dev ? walk_children(w, fd, err) : r;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_names(int fd, struct strv *names, struct err *err) {
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;
    int r = 0;

    if (!d) {
        r = -errno;
        fd_close(copy);
        return err_sys(err, r, "reading a directory");
    }
    while (r == 0 && (e = readdir(d)))
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
            r = strv_add(names, e->d_name);
    closedir(d);
    if (r < 0)
        return err_set(err, r, "out of memory");
    if (names->n)
        qsort(names->v, names->n, sizeof *names->v, compare);
    return 0;
}

/* Recursion is bounded by the depth that the tree accepts. */
static int walk_children(struct walk *w, int fd, struct err *err) {
    _cleanup_strv_ struct strv names = {0};
    size_t len = strlen(w->path);
    int r = list_names(fd, &names, err);

    for (size_t i = 0; r == 0 && i < names.n; i++) {
        size_t n = strlen(names.v[i]);
        if (len + n + 2 > sizeof w->path)
            return err_set(err, -EINVAL, "a path in the directory is longer than %d bytes",
                           TREE_PATH_MAX - 1);
        if (len)
            w->path[len] = '/';
        memcpy(w->path + len + (len > 0), names.v[i], n + 1);
        r = walk_one(w, fd, names.v[i], err);
    }
    w->path[len] = 0;
    return r;
}

int unpack_dir(int dirfd, struct tree *t, struct unpack_result *ret, struct err *err) {
    _cleanup_free_ struct walk *w = calloc(1, sizeof *w);
    unsigned char d[EVP_MAX_MD_SIZE];
    struct stat st;
    unsigned n = 0;
    int r;

    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    w->t = t;
    w->md = EVP_MD_CTX_new();
    w->links = map_new();
    w->block = malloc(BLOCK_BYTES);
    if (!w->md || !w->links || !w->block || !EVP_DigestInit_ex(w->md, EVP_sha256(), NULL)) {
        r = err_set(err, -ENOMEM, "out of memory");
    } else if (fstat(dirfd, &st) < 0) {
        r = err_sys(err, -errno, "directory");
    } else {
        w->dev = st.st_dev;
        r = add_one(w, dirfd, ".", dirfd, &st, err);
        if (r == 0)
            r = walk_children(w, dirfd, err);
        if (r == 0)
            r = tree_finish(t, err);
    }
    if (r == 0 && (!EVP_DigestFinal_ex(w->md, d, &n) || n != 32))
        r = err_set(err, -EIO, "sha256");
    if (r == 0) {
        hex_encode(d, n, ret->diff_id);
        ret->digest[0] = 0;
        ret->input_bytes = tree_stats(t)->bytes;
    }
    walk_done(w);
    return r;
}
