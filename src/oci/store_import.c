/*
 * Imports: finding out what a source is, one-layer root file systems, and handing image archives on
 * (see store.h). Holds the lock "gc" shared for the whole import, so that no layer of it is taken
 * for garbage.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "oci/store_internal.h"

/* A root file system gets a configuration of its own making. The layer's name is in it: one tar
 * imported in two ways gives two images. No time stamp: the same content has the same id. */
static json_t *rootfs_config(const char *layer, const char *diff) {
    char diff_id[80];

    str_copy(diff_id, sizeof diff_id, "sha256:");
    str_copy(diff_id + 7, sizeof diff_id - 7, diff);
    return json_pack("{s:s, s:s, s:{}, s:{s:s, s:[s]}, s:{s:s}}", "os", "linux", "architecture",
                     NATIVE_ARCH, "config", "rootfs", "type", "layers", "diff_ids", diff_id, "cove",
                     "layer", layer);
}

static int import_rootfs(struct store *s, int fd, enum layer_kind kind,
                         const struct store_import_opts *opts, struct image_build *b,
                         struct err *err) {
    char name[LAYER_NAME_SIZE], diff[65];
    int r = layer_import(s, kind, fd, NULL, NULL, 1, 1, opts, name, diff, err);

    if (r < 0)
        return r;
    b->config_blob = rootfs_config(name, diff);
    if (!b->config_blob || strv_add(&b->layers, name) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    return 0;
}

/* ---- what is it? --------------------------------------------------------------------------------
 */

static bool has_file(int dirfd, const char *name) {
    struct stat st;
    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static bool has_name(int dirfd, const char *name) {
    struct stat st;
    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A root file system may have files of these names at its top, too. */
static enum store_format format_of_dir(int fd) {
    if (has_name(fd, "bin") || has_name(fd, "usr") || has_name(fd, "etc"))
        return STORE_ROOTFS_DIR;
    if (has_file(fd, "oci-layout"))
        return STORE_OCI;
    return has_file(fd, "manifest.json") ? STORE_DOCKER_SAVE : STORE_ROOTFS_DIR;
}

/* Looks at the first names of a file and winds it back. What cannot be wound back is a root file
 * system. */
static int format_of_file(struct store *s, int fd, const struct store_import_opts *opts,
                          enum store_format *ret, struct err *err) {
    _cleanup_(store_tmp_done) struct store_tmp tmp = STORE_TMP_INIT;
    _cleanup_(unpack_report_done) struct unpack_report rep = {0};
    off_t start = lseek(fd, 0, SEEK_CUR);
    int r;

    *ret = STORE_ROOTFS_TAR;
    if (start < 0)
        return 0;
    r = store_tmp_make(s, s->layers, &tmp);
    if (r < 0)
        return err_sys(err, r, "image store %s", s->path);
    const struct unpack_job job = {
        .mode = "probe", .in_fd = fd, .dest_fd = tmp.fd, .lock_fd = tmp.fd, .phase = "probe"};
    r = store_run_unpack(s, &job, opts, &rep, err);
    if (r < 0)
        return r;
    if (lseek(fd, start, SEEK_SET) < 0)
        return err_sys(err, -errno, "winding the archive back");
    if (str_eq(rep.format, "oci"))
        *ret = STORE_OCI;
    else if (str_eq(rep.format, "docker"))
        *ret = STORE_DOCKER_SAVE;
    return 0;
}

/* The format to use; one given by the caller must fit what the descriptor is. */
static int find_format(struct store *s, int fd, const struct store_import_opts *opts,
                       bool *ret_is_dir, enum store_format *ret, struct err *err) {
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, -errno, "the source");
    *ret_is_dir = S_ISDIR(st.st_mode);
    *ret = opts->format;
    if (opts->format == STORE_AUTO && *ret_is_dir) {
        *ret = format_of_dir(fd);
        return 0;
    }
    if (opts->format == STORE_AUTO)
        return format_of_file(s, fd, opts, ret, err);
    if (*ret_is_dir != (opts->format == STORE_ROOTFS_DIR) &&
        (opts->format == STORE_ROOTFS_DIR || opts->format == STORE_ROOTFS_TAR))
        return err_set(err, -EINVAL, "the source is %s directory", *ret_is_dir ? "a" : "no");
    return 0;
}

/* ---- image archives
 * -------------------------------------------------------------------------------- */

/* Unpacks the tar of an image into a temporary directory, which is then read like a directory given
 * by the caller. */
static int import_image_tar(struct store *s, int fd, bool docker,
                            const struct store_import_opts *opts, struct image_build *b,
                            struct err *err) {
    _cleanup_(store_tmp_done) struct store_tmp tmp = STORE_TMP_INIT;
    _cleanup_(unpack_report_done) struct unpack_report rep = {0};
    _cleanup_close_ int root = -1;
    int r = store_tmp_make(s, s->layers, &tmp);

    if (r == 0 && mkdirat(tmp.fd, "archive", 0700) < 0)
        r = -errno;
    if (r == 0) {
        root = openat(tmp.fd, "archive", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (root < 0)
            r = -errno;
    }
    if (r < 0)
        return err_sys(err, r, "image store %s", s->path);
    const struct unpack_job job = {.mode = "archive",
                                   .in_fd = fd,
                                   .dest_fd = root,
                                   .lock_fd = tmp.fd,
                                   .layer = 1,
                                   .layers = 1,
                                   .phase = "unpack"};
    r = store_run_unpack(s, &job, opts, &rep, err);
    if (r < 0)
        return err_wrap(err, "archive of the image");
    return archive_import(s, root, docker, opts, b, err);
}

int store_import(struct store *s, int fd, const struct store_import_opts *opts, struct image *ret,
                 struct err *err) {
    _cleanup_(image_build_done) struct image_build b = {0};
    _cleanup_json_ json_t *overrides = NULL;
    enum store_format format = STORE_AUTO;
    bool is_dir = false;
    int r = store_check_local_name(opts->reference, err);

    if (r == 0)
        r = image_check_config(opts->config, &overrides, err);
    if (r < 0)
        return r;
    _cleanup_close_ int gc = store_lock(s, "gc", LOCK_SH);
    if (gc < 0)
        return err_sys(err, gc, "lock of the image store");
    r = find_format(s, fd, opts, &is_dir, &format, err);
    if (r < 0)
        return err_wrap(err, "import of %s", opts->reference);
    if (format == STORE_ROOTFS_TAR || format == STORE_ROOTFS_DIR)
        r = import_rootfs(s, fd, is_dir ? LAYER_DIR : LAYER_PLAIN, opts, &b, err);
    else if (is_dir)
        r = archive_import(s, fd, format == STORE_DOCKER_SAVE, opts, &b, err);
    else
        r = import_image_tar(s, fd, format == STORE_DOCKER_SAVE, opts, &b, err);
    if (r == 0)
        r = image_commit(s, &b, overrides, opts->reference, err);
    if (r == 0 && ret)
        r = image_resolve(s, opts->reference, ret, err);
    return r < 0 ? err_wrap(err, "import of %s", opts->reference) : 0;
}
