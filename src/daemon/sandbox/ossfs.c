/*
 * Who uses which object-storage mount (see ossfs.h). Owns the table of paths under one mutex, which
 * is never held while a program runs: `busy` marks a path that is being mounted or unmounted, and
 * whoever needs it waits for the condition. An entry exists while it has users or is busy.
 */
#include "daemon/sandbox/ossfs.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/map.h"
#include "base/path.h"
#include "daemon/sandbox/volumes.h"

#define MOUNT_TIMEOUT_MS 30000
#define UNMOUNT_TIMEOUT_MS 20000

struct entry {
    char *path;
    char tag[OSS_TAG_LEN + 1]; /* "" = not known */
    unsigned users;
    bool busy;
};

struct ossfs {
    char *root, *temp_dir;
    char *real_root; /* as the kernel names it; made at the first use */
    int mount_timeout_ms, unmount_timeout_ms;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct map *entries; /* path -> struct entry */
};

int ossfs_new(const struct ossfs_opts *opts, struct ossfs **ret) {
    const char *tmp = opts->temp_dir ? opts->temp_dir : getenv("TMPDIR");
    struct ossfs *o = calloc(1, sizeof *o);

    if (!o)
        return -ENOMEM;
    o->root = path_clean(opts->root);
    o->temp_dir = strdup(str_is_empty(tmp) || tmp[0] != '/' ? "/tmp" : tmp);
    o->mount_timeout_ms = opts->mount_timeout_ms ? opts->mount_timeout_ms : MOUNT_TIMEOUT_MS;
    o->unmount_timeout_ms =
        opts->unmount_timeout_ms ? opts->unmount_timeout_ms : UNMOUNT_TIMEOUT_MS;
    o->entries = map_new();
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    if (!o->root || !o->temp_dir || !o->entries) {
        ossfs_free(o);
        return -ENOMEM;
    }
    oss_sweep_files(o->temp_dir);
    *ret = o;
    return 0;
}

static void entry_free(struct entry *e) {
    free(e->path);
    free(e);
}

void ossfs_free(struct ossfs *o) {
    size_t i = 0;
    void *e;

    if (!o)
        return;
    while (o->entries && map_next(o->entries, &i, NULL, &e))
        entry_free(e);
    map_free(o->entries);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->changed);
    free(o->root);
    free(o->temp_dir);
    free(o->real_root);
    free(o);
}

/* ---- names ---- */

/* Everything that decides what is seen below the path; lengths in front keep parts apart. The
 * secret in it is random and long: the digest may be stored. */
static int digest(const struct volume_request *v, const char *prefix, char ret[OSS_TAG_LEN + 1]) {
    const struct oss_request *rq = &v->oss;
    _cleanup_free_ char *url = oss_endpoint_url(rq->endpoint);
    const char *const parts[] = {rq->version, url, rq->bucket, prefix, rq->key_id, rq->key_secret};
    unsigned char sum[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool ok = c && url && EVP_DigestInit_ex(c, EVP_sha256(), NULL);

    for (size_t i = 0; i < ARRAY_SIZE(parts) + rq->options.n && ok; i++) {
        const char *s = i < ARRAY_SIZE(parts) ? parts[i] : rq->options.v[i - ARRAY_SIZE(parts)];
        uint64_t n = strlen(s);
        ok = EVP_DigestUpdate(c, &n, sizeof n) && EVP_DigestUpdate(c, s, n);
    }
    ok = ok && EVP_DigestFinal_ex(c, sum, NULL);
    EVP_MD_CTX_free(c);
    if (ok)
        hex_encode(sum, OSS_TAG_LEN / 2, ret);
    return ok ? 0 : -ENOMEM;
}

/* "" without a subPath; "." of a clean path counts as none. */
static char *prefix_of(const struct volume_request *v) {
    char *p = path_clean(str_is_empty(v->sub_path) ? "." : v->sub_path);
    if (p && strcmp(p, ".") == 0)
        *p = '\0';
    return p;
}

/* The path as the kernel's table of mounts has it. */
static char *kernel_path(struct ossfs *o, const char *path) {
    size_t n = strlen(o->root);

    pthread_mutex_lock(&o->lock);
    if (!o->real_root)
        o->real_root = realpath(o->root, NULL);
    char *real = o->real_root && path_is_below(path, o->root) && n > 1
                     ? str_printf("%s%s", o->real_root, path + n)
                     : strdup(path);
    pthread_mutex_unlock(&o->lock);
    return real;
}

/* ---- users ---- */

static bool overlaps(const char *a, const char *b) {
    return path_is_below(a, b) || path_is_below(b, a);
}

static bool is_place_taken(struct ossfs *o, const char *path) {
    size_t i = 0;
    void *p;

    while (map_next(o->entries, &i, NULL, &p)) {
        const struct entry *e = p;
        if (overlaps(e->path, path))
            return true;
    }
    return false;
}

static struct entry *entry_new(struct ossfs *o, const char *path, const char *tag) {
    struct entry *e = calloc(1, sizeof *e);

    if (!e || !(e->path = strdup(path)) || map_set(o->entries, path, e, NULL) < 0) {
        if (e)
            entry_free(e);
        return NULL;
    }
    str_copy(e->tag, sizeof e->tag, tag);
    return e;
}

/* Lock held. plain is used when it is ours already, or free; else the directory of our own. */
static struct entry *choose(struct ossfs *o, const char *plain, const char *apart, const char *tag,
                            bool is_foreign) {
    struct entry *e = map_get(o->entries, plain);

    if (e && strcmp(e->tag, tag) == 0)
        return e;
    if ((e = map_get(o->entries, apart)))
        return e;
    return entry_new(o, is_foreign || is_place_taken(o, plain) ? apart : plain, tag);
}

static enum fault reserve(struct ossfs *o, const char *plain, const char *apart, const char *tag,
                          char **ret_path, struct err *err) {
    _cleanup_free_ char *real_root = kernel_path(o, o->root), *real = kernel_path(o, plain);
    int foreign = real && real_root ? oss_is_inside_mount(real_root, real) : -ENOMEM;

    if (foreign < 0) {
        err_sys(err, foreign, "the table of mounts cannot be read");
        return FAULT_OSS_MOUNT;
    }
    pthread_mutex_lock(&o->lock);
    struct entry *ours = map_get(o->entries, plain);
    struct entry *e = choose(o, plain, apart, tag, foreign && !ours);
    char *path = e ? strdup(e->path) : NULL;
    if (e)
        e->users++;
    if (e && !path && --e->users == 0 && !e->busy) {
        map_remove(o->entries, e->path);
        entry_free(e);
    }
    pthread_mutex_unlock(&o->lock);
    if (!path)
        return create_no_memory(err);
    *ret_path = path;
    return FAULT_NONE;
}

enum fault ossfs_reserve(struct ossfs *o, const struct volume_request *v, char **ret_path,
                         char ret_tag[OSS_TAG_LEN + 1], struct err *err) {
    _cleanup_free_ char *prefix = prefix_of(v);
    _cleanup_free_ char *bucket = path_join(o->root, v->oss.bucket);
    _cleanup_free_ char *plain =
        bucket && prefix ? (*prefix ? path_join(bucket, prefix) : strdup(bucket)) : NULL;

    if (!plain || digest(v, prefix, ret_tag) < 0)
        return create_no_memory(err);
    _cleanup_free_ char *apart = str_printf("%s@%s", bucket, ret_tag);
    if (!apart)
        return create_no_memory(err);
    int r = path_mkdirs_at(AT_FDCWD, o->root, 0755);
    if (r < 0) {
        err_sys(err, r, "storage.ossfs_mount_root %s", o->root);
        return FAULT_OSS_ROOT;
    }
    return reserve(o, plain, apart, ret_tag, ret_path, err);
}

/* Waits until the path is nobody's, then it is ours. Lock held. */
static void take(struct ossfs *o, struct entry *e) {
    while (e->busy)
        pthread_cond_wait(&o->changed, &o->lock);
    e->busy = true;
}

/* Lock held; frees the entry when nobody uses it. */
static void give_back(struct ossfs *o, struct entry *e) {
    e->busy = false;
    pthread_cond_broadcast(&o->changed);
    if (e->users == 0) {
        map_remove(o->entries, e->path);
        entry_free(e);
    }
}

void ossfs_unreserve(struct ossfs *o, const char *path) {
    pthread_mutex_lock(&o->lock);
    struct entry *e = map_get(o->entries, path);
    if (e && --e->users == 0 && !e->busy) {
        map_remove(o->entries, path);
        entry_free(e);
    }
    pthread_mutex_unlock(&o->lock);
}

/* ---- mounting: the path is ours (busy), the lock is not held ---- */

static void unmount(struct ossfs *o, const char *path) {
    _cleanup_free_ char *real = kernel_path(o, path);
    struct err err = {0};

    if (!real || oss_is_mounted(real) == 0)
        return;
    if (oss_run_unmount(path, o->unmount_timeout_ms, &err) < 0)
        log_error("an object storage mount stays", LOG_STR("path", path), LOG_ERR(&err));
    else
        rmdir(path); /* stays when it holds something: then it is not only a mount point */
}

/* The program behind it has ended: nothing can be read there any more. */
static bool is_dead(const char *path) {
    struct stat st;
    return stat(path, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED || errno == ESTALE);
}

static enum fault mount_it(struct ossfs *o, const char *path, const struct volume_request *v,
                           struct err *err) {
    _cleanup_free_ char *prefix = prefix_of(v), *real = kernel_path(o, path);
    struct oss_mount m = {.path = path,
                          .rq = &v->oss,
                          .prefix = prefix,
                          .temp_dir = o->temp_dir,
                          .timeout_ms = o->mount_timeout_ms};

    if (!prefix || !real)
        return create_no_memory(err);
    if (oss_is_mounted(real) > 0) {
        if (!is_dead(path))
            return FAULT_NONE;
        unmount(o, path);
    }
    int r = path_mkdirs_at(AT_FDCWD, path, 0755);
    if (r < 0) {
        err_sys(err, r, "Volume '%.63s': mount point %s", v->name, path);
        return FAULT_OSS_MOUNT;
    }
    r = oss_run_mount(&m, err);
    if (r == 0 && oss_is_mounted(real) != 1)
        r = err_set(err, -EIO, "the program has ended, but nothing is mounted at %s", path);
    if (r == 0)
        return FAULT_NONE;
    unmount(o, path); /* a program that was killed may have got that far */
    err_wrap(err, "Volume '%.63s': mounting object storage", v->name);
    return FAULT_OSS_MOUNT;
}

enum fault ossfs_mount(struct ossfs *o, const char *path, const struct volume_request *v,
                       struct err *err) {
    pthread_mutex_lock(&o->lock);
    struct entry *e = map_get(o->entries, path);
    if (!e) { /* cannot be: it was reserved */
        pthread_mutex_unlock(&o->lock);
        err_set(err, -EINVAL, "object storage mount %s is not reserved", path);
        return FAULT_OSS_MOUNT;
    }
    take(o, e);
    pthread_mutex_unlock(&o->lock);
    enum fault f = mount_it(o, path, v, err);
    pthread_mutex_lock(&o->lock);
    give_back(o, e);
    pthread_mutex_unlock(&o->lock);
    return f;
}

void ossfs_release(struct ossfs *o, const char *path) {
    pthread_mutex_lock(&o->lock);
    struct entry *e = map_get(o->entries, path);
    if (!e || e->users == 0) {
        pthread_mutex_unlock(&o->lock);
        log_warn("an object storage mount that nobody has counted is left alone",
                 LOG_STR("path", path));
        return;
    }
    if (e->users > 1) {
        e->users--;
        pthread_mutex_unlock(&o->lock);
        return;
    }
    take(o, e);            /* still counted: the entry stays while we wait */
    if (--e->users == 0) { /* else somebody came meanwhile */
        pthread_mutex_unlock(&o->lock);
        unmount(o, path);
        pthread_mutex_lock(&o->lock);
    }
    give_back(o, e);
    pthread_mutex_unlock(&o->lock);
}

bool ossfs_is_place(const struct ossfs *o, const char *path) {
    _cleanup_free_ char *clean = path[0] == '/' ? path_clean(path) : NULL;

    return clean && str_eq(clean, path) && !str_eq(path, o->root) && path_is_below(path, o->root);
}

int ossfs_restore(struct ossfs *o, const char *path, const char *tag) {
    int r = 0;

    pthread_mutex_lock(&o->lock);
    struct entry *e = map_get(o->entries, path);
    if (!e)
        e = entry_new(o, path, tag);
    if (e)
        e->users++;
    else
        r = -ENOMEM;
    pthread_mutex_unlock(&o->lock);
    return r;
}

void ossfs_drop(struct ossfs *o, const char *path) {
    pthread_mutex_lock(&o->lock);
    bool used = map_has(o->entries, path);
    pthread_mutex_unlock(&o->lock);
    if (!used)
        unmount(o, path);
}

unsigned ossfs_users(struct ossfs *o, const char *path) {
    pthread_mutex_lock(&o->lock);
    const struct entry *e = map_get(o->entries, path);
    unsigned n = e ? e->users : 0;
    pthread_mutex_unlock(&o->lock);
    return n;
}
