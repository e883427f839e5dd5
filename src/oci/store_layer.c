/*
 * Layers: import into a temporary directory, publication under the layer's name, garbage (see
 * store.h).
 *
 * Invariants: layers/<name>/{fs,meta.json} is complete, checked against the digests that were asked
 * for, and synced before it gets its name; it is never changed afterwards. Publication happens
 * under the layer's lock; removal begins with giving the name away.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/path.h"
#include "oci/store_internal.h"

static const char *const kind_suffix[] = {"", ".plain", ".dir"};
static const char *const kind_mode[] = {"layer", "plain", "copy"};

/* "<hex>", "<hex>.plain", "<hex>.dir": one tar gives different trees with and without whiteouts. */
static void layer_name(enum layer_kind kind, const char *diff_hex, char ret[LAYER_NAME_SIZE]) {
    snprintf(ret, LAYER_NAME_SIZE, "%.64s%s", diff_hex, kind_suffix[kind]);
}

bool layer_name_is_valid(const char *name) {
    if (!name || strspn(name, "0123456789abcdef") != 64)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(kind_suffix); i++)
        if (str_eq(name + 64, kind_suffix[i]))
            return true;
    return false;
}

bool layer_exists(struct store *s, const char *name) {
    struct stat st;
    return fstatat(s->layers, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* 24 hex digits of the name's hash: short enough for 100 layers in one page of mount options. */
void layer_link(const char *name, char ret[32]) {
    char hex[65] = "";

    store_sha256_hex(name, strlen(name), hex);
    snprintf(ret, 32, "l/%.24s", hex);
}

static int make_link(struct store *s, const char *name) {
    char target[LAYER_NAME_SIZE + 32], link[32];

    layer_link(name, link);
    snprintf(target, sizeof target, "../layers/%s/fs", name);
    if (symlinkat(target, s->root, link) < 0 && errno != EEXIST)
        return -errno;
    return 0;
}

int layer_size(struct store *s, const char *name, uint64_t *ret) {
    char path[LAYER_NAME_SIZE + 16];
    _cleanup_free_ char *text = NULL;
    size_t len;

    snprintf(path, sizeof path, "%s/meta.json", name);
    int r = path_read_file_at(s->layers, path, JSON_MAX, &text, &len);
    if (r < 0)
        return r;
    _cleanup_json_ json_t *j = json_parse(text, len, NULL);
    if (!j)
        return -EBADMSG;
    *ret = (uint64_t)json_int(j, "bytes", 0);
    return 0;
}

static int write_meta(int tmp_fd, enum layer_kind kind, const struct unpack_report *rep) {
    _cleanup_buf_ struct buf b = BUF_INIT(65536);
    json_int_t now = (json_int_t)clock_wall_us();
    _cleanup_json_ json_t *j =
        json_pack("{s:s, s:s, s:I, s:I, s:O?, s:I}", "diffId", rep->diff_id, "kind",
                  kind_mode[kind], "bytes", (json_int_t)rep->bytes, "entries",
                  (json_int_t)rep->entries, "skipped", rep->skipped, "timeUs", now);

    if (!j || (rep->digest[0] && json_object_set_new(j, "digest", json_string(rep->digest)) < 0))
        return -ENOMEM;
    int r = buf_json(&b, j);
    return r < 0 ? r : path_write_file_at(tmp_fd, "meta.json", b.data, b.len, 0600, true);
}

static int check_digests(const struct unpack_report *rep, const char *want_diff,
                         const char *want_digest, struct err *err) {
    if (want_digest && !str_eq(rep->digest, want_digest))
        return err_set(err, -EBADMSG,
                       "its content has digest sha256:%s, the manifest says sha256:%s", rep->digest,
                       want_digest);
    if (want_diff && !str_eq(rep->diff_id, want_diff))
        return err_set(err, -EBADMSG,
                       "its tar has digest sha256:%s, the configuration says sha256:%s",
                       rep->diff_id, want_diff);
    return 0;
}

/* Syncs the finished tree and gives it its name. Another import may have been faster with the same
 * content: fine. */
static int publish(struct store *s, struct store_tmp *tmp, enum layer_kind kind,
                   const struct unpack_report *rep, const char *name, struct err *err) {
    int r = write_meta(tmp->fd, kind, rep);

    if (r == 0 && syncfs(tmp->fd) < 0)
        r = -errno;
    if (r == 0)
        r = store_tmp_publish(tmp, name);
    if (r == -EEXIST)
        r = 0;
    if (r == 0)
        r = make_link(s, name);
    if (r == 0 && (fsync(s->layers) < 0 || fsync(s->links) < 0))
        r = -errno;
    return r < 0 ? err_sys(err, r, "storing the layer in %s", s->path) : 0;
}

static int unpack(struct store *s, enum layer_kind kind, int fd, struct store_tmp *tmp,
                  unsigned number, unsigned total, const struct store_import_opts *opts,
                  struct unpack_report *rep, struct err *err) {
    _cleanup_close_ int fs = -1;
    int r = store_tmp_make(s, s->layers, tmp);

    if (r == 0 && mkdirat(tmp->fd, "fs", 0755) < 0)
        r = -errno;
    if (r == 0) {
        fs = openat(tmp->fd, "fs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fs < 0 || fchmod(fs, 0755) < 0)
            r = -errno;
    }
    if (r < 0)
        return err_sys(err, r, "making a layer in %s", s->path);
    const struct unpack_job job = {.mode = kind_mode[kind],
                                   .in_fd = fd,
                                   .dest_fd = fs,
                                   .lock_fd = tmp->fd,
                                   .layer = number,
                                   .layers = total,
                                   .phase = "layer"};
    return store_run_unpack(s, &job, opts, rep, err);
}

static int lock_layer(struct store *s, const char *diff_hex, struct err *err) {
    char name[16];

    snprintf(name, sizeof name, "layer-%.2s", diff_hex);
    int fd = store_lock(s, name, LOCK_EX);
    return fd < 0 ? err_sys(err, fd, "lock %s of the image store", name) : fd;
}

int layer_import(struct store *s, enum layer_kind kind, int fd, const char *want_diff,
                 const char *want_digest, unsigned number, unsigned total,
                 const struct store_import_opts *opts, char ret[LAYER_NAME_SIZE], char ret_diff[65],
                 struct err *err) {
    _cleanup_(store_tmp_done) struct store_tmp tmp = STORE_TMP_INIT;
    _cleanup_(unpack_report_done) struct unpack_report rep = {0};
    _cleanup_close_ int lock = -1;
    int r;

    if (want_diff) {
        lock = lock_layer(s, want_diff, err);
        if (lock < 0)
            return lock;
        layer_name(kind, want_diff, ret);
        str_copy(ret_diff, 65, want_diff);
        if (layer_exists(s, ret)) {
            r = make_link(s, ret); /* its importer may have died just before */
            return r < 0 ? err_sys(err, r, "link to layer %s", ret) : 0;
        }
    }
    r = unpack(s, kind, fd, &tmp, number, total, opts, &rep, err);
    if (r == 0)
        r = check_digests(&rep, want_diff, want_digest, err);
    if (r < 0)
        return err_wrap(err, "layer %u of %u", number, total);
    if (lock < 0) {
        lock = lock_layer(s, rep.diff_id, err);
        if (lock < 0)
            return lock;
    }
    layer_name(kind, rep.diff_id, ret);
    str_copy(ret_diff, 65, rep.diff_id);
    return publish(s, &tmp, kind, &rep, ret, err);
}

/* ---- garbage ----------------------------------------------------------------------------------
 */

static int remove_layer(struct store *s, const char *name, struct err *err) {
    _cleanup_(store_tmp_done) struct store_tmp tmp = STORE_TMP_INIT;
    char link[32];
    int r = store_tmp_steal(s, s->layers, name, &tmp);

    if (r < 0)
        return err_sys(err, r, "removing layer %s", name);
    layer_link(name, link);
    unlinkat(s->root, link, 0);
    return 0;
}

static int list_garbage(struct store *s, const struct map *live, struct strv *ret,
                        struct err *err) {
    int copy = openat(s->layers, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!d) {
        r = err_sys(err, -errno, "%s/layers", s->path);
        fd_close(copy);
        return r;
    }
    while (r == 0 && (e = readdir(d)))
        if (layer_name_is_valid(e->d_name) && !map_has(live, e->d_name))
            r = strv_add(ret, e->d_name);
    closedir(d);
    return r < 0 ? err_set(err, r, "out of memory") : 0;
}

int store_gc(struct store *s, const char *const *in_use, size_t *ret_freed_layers,
             struct err *err) {
    _cleanup_(map_freep) struct map *live = map_new();
    _cleanup_strv_ struct strv garbage = {0};
    int r = 0;

    if (ret_freed_layers)
        *ret_freed_layers = 0;
    if (!live)
        return err_set(err, -ENOMEM, "out of memory");
    /* An import has layers that no image names yet. */
    _cleanup_close_ int lock = store_lock(s, "gc", LOCK_EX | LOCK_NB);
    if (lock == -EWOULDBLOCK)
        return 0;
    if (lock < 0)
        return err_sys(err, lock, "lock of the image store");
    for (size_t i = 0; r == 0 && in_use && in_use[i]; i++)
        r = map_set(live, in_use[i], s, NULL);
    if (r < 0)
        return err_set(err, r, "out of memory");
    r = lease_replace(s, in_use);
    if (r == 0)
        r = lease_live_layers(s, live);
    if (r < 0)
        return err_sys(err, r, "leases of the image store");
    r = image_live_layers(s, live, err);
    if (r == 0)
        r = list_garbage(s, live, &garbage, err);
    for (size_t i = 0; r == 0 && i < garbage.n; i++) {
        r = remove_layer(s, garbage.v[i], err);
        if (r == 0 && ret_freed_layers)
            ++*ret_freed_layers;
    }
    return r;
}
