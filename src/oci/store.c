/*
 * The store's directory: opening, locks, temporary directories (see store.h, store_internal.h).
 *
 * Invariants: a name that does not begin with "tmp-" or "." is complete and on disk. Temporary
 * directories carry a lock that ends with their owner, so whoever gets the lock may remove them;
 * the lock file "tmp" is held between making (or finding) one and locking it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/path.h"
#include "oci/store_internal.h"

#define MAX_LAYER_BYTES ((uint64_t)64 << 30)
#define MAX_ENTRIES 2000000

int store_sha256_hex(const void *data, size_t len, char ret[65]) {
    unsigned char d[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (!EVP_Digest(data, len, d, &n, EVP_sha256(), NULL) || n != 32)
        return -EIO;
    hex_encode(d, n, ret);
    return 0;
}

bool store_is_hex64(const char *s) {
    return s && strspn(s, "0123456789abcdef") == 64 && !s[64];
}

int store_lock(struct store *s, const char *name, int op) {
    _cleanup_close_ int fd =
        openat(s->locks, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return -errno;
    while (flock(fd, op) < 0)
        if (errno != EINTR)
            return -errno;
    return TAKE_FD(fd);
}

/* ---- temporary directories ------------------------------------------------------------------- */

static void tmp_name(struct store_tmp *t) {
    char rnd[33];
    id_hex32(rnd);
    snprintf(t->name, sizeof t->name, TMP_PREFIX "%s", rnd);
}

static int open_locked(int parent, const char *name) {
    _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    return flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : TAKE_FD(fd);
}

int store_tmp_make(struct store *s, int parent, struct store_tmp *ret) {
    struct store_tmp t = {.parent = parent, .fd = -1};
    _cleanup_close_ int lock = store_lock(s, "tmp", LOCK_EX);

    if (lock < 0)
        return lock;
    tmp_name(&t);
    if (mkdirat(parent, t.name, 0700) < 0)
        return -errno;
    t.fd = open_locked(parent, t.name);
    if (t.fd < 0) {
        int r = t.fd;
        store_tmp_done(&t);
        return r;
    }
    *ret = t;
    return 0;
}

int store_tmp_steal(struct store *s, int parent, const char *name, struct store_tmp *ret) {
    struct store_tmp t = {.parent = parent, .fd = -1};
    _cleanup_close_ int lock = store_lock(s, "tmp", LOCK_EX);

    if (lock < 0)
        return lock;
    tmp_name(&t);
    if (renameat(parent, name, parent, t.name) < 0)
        return -errno;
    t.fd = open_locked(parent, t.name);
    *ret = t; /* without a lock it is removed all the same, by us or by the next sweep */
    return 0;
}

int store_tmp_publish(struct store_tmp *t, const char *name) {
    if (renameat2(t->parent, t->name, t->parent, name, RENAME_NOREPLACE) < 0)
        return -errno;
    t->parent = -1;
    return 0;
}

void store_tmp_done(struct store_tmp *t) {
    if (t->parent >= 0 && t->name[0])
        path_remove_tree_at(t->parent, t->name);
    t->fd = fd_close(t->fd);
    t->parent = -1;
}

/* Removes the temporary directories whose owners are gone. Failures are left for the next time. */
static int sweep_tmp(struct store *s, int parent) {
    int copy = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!d) {
        int r = -errno;
        fd_close(copy);
        return r;
    }
    while ((e = readdir(d))) {
        if (!str_starts(e->d_name, TMP_PREFIX))
            continue;
        int lock = store_lock(s, "tmp", LOCK_EX);
        _cleanup_close_ int fd = lock < 0 ? lock : open_locked(parent, e->d_name);
        fd_close(lock);
        if (fd >= 0 || fd == -ENOTDIR)
            path_remove_tree_at(parent, e->d_name);
    }
    closedir(d);
    return 0;
}

/* Removes half-written files (".name.random" of path_write_file_at). The caller holds the lock of
 * that folder's writers. */
static int sweep_files(int dirfd) {
    int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!d) {
        int r = -errno;
        fd_close(copy);
        return r;
    }
    while ((e = readdir(d)))
        if (e->d_name[0] == '.' && !str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
            unlinkat(dirfd, e->d_name, 0);
    closedir(d);
    return 0;
}

static int sweep(struct store *s) {
    int r = sweep_tmp(s, s->layers);

    if (r == 0)
        r = sweep_tmp(s, s->skel);
    if (r < 0)
        return r;
    _cleanup_close_ int lock = store_lock(s, "refs", LOCK_EX);
    if (lock < 0)
        return lock;
    r = sweep_files(s->refs);
    if (r == 0)
        r = sweep_files(s->images);
    if (r == 0)
        r = sweep_files(s->blobs);
    if (r == 0)
        r = sweep_files(s->leases);
    _cleanup_close_ int cache = openat(s->root, "seccomp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && cache >= 0)
        r = flock(cache, LOCK_EX) < 0 ? -errno : sweep_files(cache);
    return r;
}

/* ---- open ------------------------------------------------------------------------------------ */

struct store *store_free(struct store *s) {
    if (!s)
        return NULL;
    int fds[] = {s->root,  s->layers, s->links,  s->images, s->refs,
                 s->blobs, s->skel,   s->leases, s->locks};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fd_close(fds[i]);
    free(s->path);
    free(s->unpack_path);
    free(s->user_dir);
    free(s);
    return NULL;
}

const char *store_path(const struct store *s) {
    return s->path;
}

int store_fd(const struct store *s) {
    return s->root;
}

/* Opens folder `name`, made when missing; its mode is set at every start. */
static int open_folder(int root, const char *name, mode_t mode, int *ret) {
    int r = path_mkdirs_at(root, name, mode);

    if (r < 0)
        return r;
    *ret = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret < 0 || fchmod(*ret, mode) < 0)
        return -errno;
    return 0;
}

static int check_version(struct store *s, struct err *err) {
    _cleanup_free_ char *have = NULL;
    int r = path_read_file_at(s->root, "version", 64, &have, NULL);

    if (r == -ENOENT) {
        r = path_write_file_at(s->root, "version", STORE_VERSION, strlen(STORE_VERSION), 0644,
                               true);
        return r < 0 ? err_sys(err, r, "%s/version", s->path) : 0;
    }
    if (r < 0)
        return err_sys(err, r, "%s/version", s->path);
    if (!str_eq(have, STORE_VERSION))
        return err_set(err, -EPROTO, "%s has layout version %.10s, this program knows version %.1s",
                       s->path, have, STORE_VERSION);
    return 0;
}

static int read_boot_id(struct store *s, struct err *err) {
    _cleanup_free_ char *text = NULL;
    int r = path_read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", sizeof s->boot_id - 1,
                              &text, NULL);

    if (r < 0)
        return err_sys(err, r, "boot id");
    str_copy(s->boot_id, sizeof s->boot_id, text);
    s->boot_id[strcspn(s->boot_id, "\n")] = 0;
    return 0;
}

/* All closed to other users of this host: layers hold set-user-id programs of anybody's making. A
 * launcher opens them as root. */
static int open_folders(struct store *s, struct err *err) {
    int blobs_parent = -1;
    int r = open_folder(s->root, "locks", 0700, &s->locks);

    if (r == 0)
        r = open_folder(s->root, "layers", 0700, &s->layers);
    if (r == 0)
        r = open_folder(s->root, "l", 0700, &s->links);
    if (r == 0)
        r = open_folder(s->root, "images", 0700, &s->images);
    if (r == 0)
        r = open_folder(s->root, "refs", 0700, &s->refs);
    if (r == 0)
        r = open_folder(s->root, "blobs", 0700, &blobs_parent);
    if (r == 0)
        r = open_folder(blobs_parent, "sha256", 0700, &s->blobs);
    if (r == 0)
        r = open_folder(s->root, "skel", 0700, &s->skel);
    if (r == 0)
        r = open_folder(s->root, "leases", 0700, &s->leases);
    fd_close(blobs_parent);
    return r < 0 ? err_sys(err, r, "%s", s->path) : 0;
}

static struct store *store_new(const struct store_opts *opts) {
    static const struct store_opts none;
    struct store *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->root = s->layers = s->links = s->images = s->refs = s->blobs = s->skel = s->leases = -1;
    s->locks = -1;
    if (!opts)
        opts = &none;
    s->max_layer_bytes = opts->max_layer_bytes ? opts->max_layer_bytes : MAX_LAYER_BYTES;
    s->max_entries = opts->max_entries ? opts->max_entries : MAX_ENTRIES;
    if (opts->unpack_path && !(s->unpack_path = strdup(opts->unpack_path)))
        return store_free(s);
    return s;
}

int store_open(const char *dir, const struct store_opts *opts, struct store **ret,
               struct err *err) {
    _cleanup_(store_freep) struct store *s = store_new(opts);
    int r;

    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    if (mkdir(dir, 0711) < 0 && errno != EEXIST)
        return err_sys(err, -errno, "image store %s", dir);
    if (opts && opts->user_dir) {
        s->user_dir = realpath(opts->user_dir, NULL); /* one name, however it was spelled */
        r = s->user_dir ? lease_file_name(s->user_dir, s->lease_file) : -errno;
        if (r < 0)
            return err_sys(err, r, "%s", opts->user_dir);
    }
    s->path = realpath(dir, NULL); /* layer paths are used from other working directories */
    if (!s->path)
        return err_sys(err, -errno, "image store %s", dir);
    r = open_folder(AT_FDCWD, s->path, 0711, &s->root);
    if (r < 0)
        return err_sys(err, r, "image store %s", dir);
    r = check_version(s, err);
    if (r == 0)
        r = open_folders(s, err);
    if (r == 0)
        r = read_boot_id(s, err);
    if (r < 0)
        return err_wrap(err, "image store");
    r = sweep(s);
    if (r < 0)
        return err_sys(err, r, "cleaning image store %s", s->path);
    *ret = TAKE_PTR(s);
    return 0;
}
