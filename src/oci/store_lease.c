/*
 * Leases: which layers a daemon's sandboxes may run on, told to every other process that uses the
 * store (see store_opts.user_dir). One file per user: leases/<hash of user_dir>.json
 * {"userDir","bootId","layers"}.
 *
 * Invariants: a layer is in the lease before store_resolve() returns it. A lease ends with the boot
 * or with its user's directory, so nothing has to be told when a daemon is killed: its sandboxes
 * live on. Written under the lock "refs", and growing only while no garbage is collected (lock
 * "gc", shared).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/path.h"
#include "oci/store_internal.h"

int lease_file_name(const char *user_dir, char ret[80]) {
    char hex[65];
    int r = store_sha256_hex(user_dir, strlen(user_dir), hex);

    snprintf(ret, 80, "%.32s.json", r == 0 ? hex : "");
    return r;
}

/* The layers of a lease, or NULL when there is none or it is over. */
static json_t *read_lease(struct store *s, const char *file) {
    _cleanup_free_ char *text = NULL;
    struct stat st;
    size_t len;

    if (path_read_file_at(s->leases, file, JSON_MAX, &text, &len) < 0)
        return NULL;
    _cleanup_json_ json_t *j = json_parse(text, len, NULL);
    const char *dir = json_str(j, "userDir");
    if (!str_eq(json_str(j, "bootId"), s->boot_id) || !dir ||
        (stat(dir, &st) < 0 && errno == ENOENT))
        return NULL;
    json_t *layers = json_object_get(j, "layers");
    return json_is_array(layers) ? json_incref(layers) : NULL;
}

static int write_lease(struct store *s, json_t *layers) {
    _cleanup_buf_ struct buf b = BUF_INIT(JSON_MAX);
    _cleanup_json_ json_t *j = json_pack("{s:s, s:s, s:O}", "userDir", s->user_dir, "bootId",
                                         s->boot_id, "layers", layers);
    int r = j ? buf_json(&b, j) : -ENOMEM;
    /* Not synced: it means nothing after a reboot. */
    return r < 0 ? r : path_write_file_at(s->leases, s->lease_file, b.data, b.len, 0600, false);
}

static bool has_name(const json_t *layers, const char *name) {
    const json_t *v;
    size_t i;

    json_array_foreach(layers, i, v) {
        if (str_eq(json_string_value(v), name))
            return true;
    }
    return false;
}

static bool has_all(const json_t *layers, const struct image *img) {
    for (size_t i = 0; i < img->n_layers; i++)
        if (!has_name(layers, img->layers[i].name))
            return false;
    return true;
}

int lease_add(struct store *s, const struct image *img) {
    _cleanup_json_ json_t *layers = NULL;

    if (!s->user_dir)
        return 0;
    layers = read_lease(s, s->lease_file);
    if (has_all(layers, img))
        return 0;
    _cleanup_close_ int gc = store_lock(s, "gc", LOCK_SH);
    _cleanup_close_ int lock = gc < 0 ? gc : store_lock(s, "refs", LOCK_EX);
    if (lock < 0)
        return lock;
    json_decref(layers);
    layers = read_lease(s, s->lease_file);
    if (!layers)
        layers = json_array();
    for (size_t i = 0; i < img->n_layers; i++) {
        const char *name = img->layers[i].name;
        if (!layer_exists(s, name))
            return -ENOENT; /* collected since the record was read */
        if (!has_name(layers, name) && json_array_append_new(layers, json_string(name)) < 0)
            return -ENOMEM;
    }
    return write_lease(s, layers);
}

int lease_replace(struct store *s, const char *const *in_use) {
    if (!s->user_dir)
        return 0;
    _cleanup_close_ int lock = store_lock(s, "refs", LOCK_EX);
    if (lock < 0)
        return lock;
    if (!in_use || !in_use[0])
        return unlinkat(s->leases, s->lease_file, 0) < 0 && errno != ENOENT ? -errno : 0;
    _cleanup_json_ json_t *layers = json_array();
    for (; *in_use; in_use++)
        if (!has_name(layers, *in_use) && json_array_append_new(layers, json_string(*in_use)) < 0)
            return -ENOMEM;
    return write_lease(s, layers);
}

static int add_live(const json_t *layers, struct map *live) {
    const json_t *v;
    size_t i;
    int r = 0;

    json_array_foreach(layers, i, v) {
        if (r == 0 && json_is_string(v))
            r = map_set(live, json_string_value(v), live, NULL);
    }
    return r;
}

int lease_live_layers(struct store *s, struct map *live) {
    _cleanup_close_ int lock = store_lock(s, "refs", LOCK_EX);
    int copy = openat(s->leases, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!d || lock < 0) {
        r = lock < 0 ? lock : -errno;
        if (d)
            closedir(d);
        else
            fd_close(copy);
        return r;
    }
    while (r == 0 && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        _cleanup_json_ json_t *layers = read_lease(s, e->d_name);
        if (layers)
            r = add_live(layers, live);
        else
            unlinkat(s->leases, e->d_name, 0);
    }
    closedir(d);
    return r;
}
