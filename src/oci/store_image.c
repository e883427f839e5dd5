/*
 * Image records and references: images/<id>.json, refs/<sha256(reference)>.json, blobs (see
 * store.h).
 *
 * Invariants: records are written under the lock "refs", durably, blobs before image before
 * reference, so a reference never names something incomplete. A record is checked when it is read:
 * its layer names become paths.
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

#define REFERENCE_MAX 200
#define LOCAL_PREFIX "local/"
#define ID_PREFIX "sha256:"

static const char *const config_keys[] = {"Env", "Entrypoint", "Cmd", "WorkingDir", "User"};

/* ---- names -------------------------------------------------------------------------------------
 */

static bool is_alnum(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Components of letters and digits with single separators; *end is the first byte that does not
 * belong. */
static bool scan_name(const char *s, const char **end) {
    while (true) {
        if (!is_alnum(*s))
            return false;
        while (is_alnum(*s))
            s++;
        if (*s == '/' || *s == '.' || *s == '-')
            s++;
        else if (*s == '_')
            s += s[1] == '_' ? 2 : 1;
        else
            break;
    }
    *end = s;
    return true;
}

int store_check_local_name(const char *reference, struct err *err) {
    static const char tag_chars[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    const char *p;

    if (!reference || !str_starts(reference, LOCAL_PREFIX))
        return err_set(err, -EINVAL, "an imported image is called local/NAME");
    if (strlen(reference) > REFERENCE_MAX)
        return err_set(err, -EINVAL, "an image name is at most %d bytes long", REFERENCE_MAX);
    if (!scan_name(reference + strlen(LOCAL_PREFIX), &p))
        return err_set(
            err, -EINVAL,
            "the name of an image consists of lower-case letters, digits and single . _ - / "
            "between them");
    if (*p == ':') {
        size_t n = strspn(++p, tag_chars);
        if (n == 0 || n > 128 || *p == '.' || *p == '-')
            return err_set(err, -EINVAL, "a tag consists of at most 128 letters, digits and _ . -");
        p += n;
    }
    if (*p)
        return err_set(
            err, -EINVAL,
            "the name of an image consists of lower-case letters, digits and single . _ - / "
            "between them");
    return 0;
}

static int ref_file(const char *reference, char ret[80]) {
    char hex[65];
    int r = store_sha256_hex(reference, strlen(reference), hex);

    snprintf(ret, 80, "%s.json", r == 0 ? hex : "");
    return r;
}

/* ---- configuration ------------------------------------------------------------------------------
 */

static bool is_string_array(const json_t *v, bool env) {
    const json_t *e;
    size_t i;

    if (!json_is_array(v))
        return false;
    json_array_foreach(v, i, e) {
        const char *s = json_string_value(e);
        if (!s || (env && (!strchr(s, '=') || s[0] == '=')))
            return false;
    }
    return true;
}

static int check_config_value(const char *key, const json_t *v, struct err *err) {
    bool ok;

    if (str_eq(key, "WorkingDir"))
        ok = json_is_string(v) && (!*json_string_value(v) || *json_string_value(v) == '/');
    else if (str_eq(key, "User"))
        ok = json_is_string(v);
    else
        ok = is_string_array(v, str_eq(key, "Env"));
    if (ok)
        return 0;
    return err_set(err, -EINVAL, "configuration: %s must be %s", key,
                   str_eq(key, "WorkingDir") ? "an absolute path"
                   : str_eq(key, "User")     ? "a string"
                   : str_eq(key, "Env")      ? "a list of \"NAME=value\" strings"
                                             : "a list of strings");
}

int image_check_config(const json_t *config, json_t **ret, struct err *err) {
    const char *key;
    json_t *v;
    int r = 0;

    if (config && !json_is_object(config))
        return err_set(err, -EINVAL, "configuration: must be an object");
    json_object_foreach((json_t *)config, key, v) {
        size_t i = 0;
        while (i < ARRAY_SIZE(config_keys) && !str_eq(key, config_keys[i]))
            i++;
        if (i == ARRAY_SIZE(config_keys))
            return err_set(
                err, -EINVAL,
                "configuration: unknown key \"%.60s\": use Env, Entrypoint, Cmd, WorkingDir, User",
                key);
        r = check_config_value(key, v, err);
        if (r < 0)
            return r;
    }
    *ret = config ? json_deep_copy(config) : json_object();
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* An image's variables without those that are no assignments. */
static json_t *pick_env(const json_t *env) {
    json_t *out = json_array(), *v;
    size_t i;

    json_array_foreach(env, i, v) {
        const char *s = json_string_value(v);
        if (s && *s != '=' && strchr(s, '='))
            json_array_append(out, v);
    }
    return out;
}

/* What of an image's own configuration is used: our keys, where their values make sense. */
static json_t *pick_config(const json_t *config) {
    json_t *out = json_object();

    for (size_t i = 0; out && i < ARRAY_SIZE(config_keys); i++) {
        json_t *v = json_object_get(config, config_keys[i]);
        if (json_is_array(v) && str_eq(config_keys[i], "Env"))
            json_object_set_new(out, config_keys[i], pick_env(v));
        else if (v && check_config_value(config_keys[i], v, NULL) == 0)
            json_object_set(out, config_keys[i], v);
    }
    return out;
}

/* Puts the overrides into the configuration; its text, and so the image's id, changes. */
static int apply_overrides(struct image_build *b, const json_t *overrides, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(JSON_MAX);

    if (json_object_size(overrides) > 0) {
        json_t *config = json_object_get(b->config_blob, "config");
        if (!json_is_object(config)) {
            config = json_object();
            json_object_set_new(b->config_blob, "config", config);
        }
        if (json_object_update(config, (json_t *)overrides) < 0)
            return err_set(err, -ENOMEM, "out of memory");
        free(b->config_text);
        b->config_text = NULL;
    }
    if (b->config_text)
        return 0;
    int r = buf_json(&text, b->config_blob);
    if (r == 0 && !(b->config_text = buf_take(&text, &b->config_len)))
        r = -ENOMEM;
    return r < 0 ? err_sys(err, r, "configuration of the image") : 0;
}

void image_build_done(struct image_build *b) {
    json_decref(b->config_blob);
    free(b->config_text);
    free(b->manifest_text);
    strv_done(&b->layers);
    *b = (struct image_build){0};
}

/* ---- writing
 * -------------------------------------------------------------------------------------- */

static int write_blob(struct store *s, const char *text, size_t len, char ret_hex[65]) {
    int r = store_sha256_hex(text, len, ret_hex);
    return r < 0 ? r : path_write_file_at(s->blobs, ret_hex, text, len, 0600, true);
}

static int write_json(int dirfd, const char *file, const json_t *j) {
    _cleanup_buf_ struct buf b = BUF_INIT(JSON_MAX);
    int r = j ? buf_json(&b, j) : -ENOMEM;
    return r < 0 ? r : path_write_file_at(dirfd, file, b.data, b.len, 0600, true);
}

static json_t *make_record(struct store *s, struct image_build *b, const char *id,
                           const char *manifest_hex) {
    const char *created = json_str(b->config_blob, "created"), *os = json_str(b->config_blob, "os"),
               *arch = json_str(b->config_blob, "architecture");
    json_t *layers = json_array();
    int64_t created_us = 0;
    uint64_t total = 0, size;

    for (size_t i = 0; i < b->layers.n; i++) {
        json_array_append_new(layers, json_string(b->layers.v[i]));
        if (layer_size(s, b->layers.v[i], &size) == 0)
            total += size;
    }
    if (created)
        rfc3339_parse(created, &created_us);
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:o?}", "id", id, "manifest",
                     manifest_hex, "os", os ? os : "linux", "architecture", arch ? arch : "",
                     "createdUs", (json_int_t)created_us, "size", (json_int_t)total, "layers",
                     layers, "config", pick_config(json_object_get(b->config_blob, "config")));
}

int image_commit(struct store *s, struct image_build *b, const json_t *overrides,
                 const char *reference, struct err *err) {
    char id[65], manifest[65] = "", file[80];
    int r = apply_overrides(b, overrides, err);

    if (r < 0)
        return r;
    _cleanup_close_ int lock = store_lock(s, "refs", LOCK_EX);
    if (lock < 0)
        return err_sys(err, lock, "lock of the image store");
    r = write_blob(s, b->config_text, b->config_len, id);
    if (r == 0 && b->manifest_text)
        r = write_blob(s, b->manifest_text, b->manifest_len, manifest);
    if (r == 0) {
        _cleanup_json_ json_t *record = make_record(s, b, id, manifest);
        snprintf(file, sizeof file, "%s.json", id);
        r = write_json(s->images, file, record);
    }
    if (r == 0)
        r = ref_file(reference, file);
    if (r == 0) {
        json_int_t now = (json_int_t)clock_wall_us();
        _cleanup_json_ json_t *ref =
            json_pack("{s:s, s:s, s:I}", "reference", reference, "id", id, "importedUs", now);
        r = write_json(s->refs, file, ref);
    }
    return r < 0 ? err_sys(err, r, "recording the image in %s", s->path) : 0;
}

/* ---- reading
 * -------------------------------------------------------------------------------------- */

static int read_json(int dirfd, const char *file, json_t **ret) {
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r = path_read_file_at(dirfd, file, JSON_MAX, &text, &len);

    if (r < 0)
        return r;
    *ret = json_parse(text, len, NULL);
    return json_is_object(*ret) ? 0 : -EBADMSG;
}

void image_done(struct image *img) {
    free(img->reference);
    for (size_t i = 0; i < img->n_layers; i++)
        free(img->layers[i].path);
    free(img->layers);
    strv_done(&img->env);
    strv_done(&img->entrypoint);
    strv_done(&img->cmd);
    free(img->cwd);
    free(img->user);
    free(img->os);
    free(img->arch);
    *img = (struct image){0};
}

static int copy_strings(const json_t *array, struct strv *ret) {
    const json_t *v;
    size_t i;
    int r = 0;

    json_array_foreach(array, i, v) {
        if (r == 0 && json_is_string(v))
            r = strv_add(ret, json_string_value(v));
    }
    return r;
}

static char *dup_or_empty(const json_t *obj, const char *key) {
    const char *s = json_str(obj, key);
    return strdup(s ? s : "");
}

static bool has_layer(const struct image *img, const char *name) {
    for (size_t i = 0; i < img->n_layers; i++)
        if (str_eq(img->layers[i].name, name))
            return true;
    return false;
}

/*
 * Turns the order around: the record has the lowest layer first, overlayfs wants the uppermost. A
 * layer that comes twice (old images repeat an empty one) is kept at its upper place only:
 * overlayfs takes no directory twice, and what the lower one shows or hides is shown or hidden by
 * the upper one as well.
 */
static int fill_layers(struct store *s, const json_t *layers, struct image *img) {
    size_t n = json_array_size(layers);

    if (n == 0 || n > LAYERS_MAX)
        return -EBADMSG;
    img->layers = calloc(n, sizeof *img->layers);
    if (!img->layers)
        return -ENOMEM;
    for (size_t i = n; i-- > 0;) {
        const char *name = json_string_value(json_array_get(layers, i));
        struct image_layer *l = &img->layers[img->n_layers];
        if (!layer_name_is_valid(name) || !layer_exists(s, name))
            return -EBADMSG;
        if (has_layer(img, name))
            continue;
        str_copy(l->name, sizeof l->name, name);
        layer_link(name, l->link);
        l->path = str_printf("%s/layers/%s/fs", s->path, name);
        if (!l->path)
            return -ENOMEM;
        img->n_layers++;
    }
    return 0;
}

static int fill_image(struct store *s, const json_t *record, const json_t *ref,
                      const char *reference, struct image *img) {
    const json_t *config = json_object_get(record, "config");
    int r = fill_layers(s, json_object_get(record, "layers"), img);

    img->reference = strdup(reference);
    img->cwd = dup_or_empty(config, "WorkingDir");
    img->user = dup_or_empty(config, "User");
    img->os = dup_or_empty(record, "os");
    img->arch = dup_or_empty(record, "architecture");
    img->size_bytes = (uint64_t)json_int(record, "size", 0);
    img->imported_us = json_int(ref, "importedUs", 0);
    img->created_us = json_int(record, "createdUs", 0);
    if (img->created_us == 0)
        img->created_us = img->imported_us;
    if (r == 0)
        r = copy_strings(json_object_get(config, "Env"), &img->env);
    if (r == 0)
        r = copy_strings(json_object_get(config, "Entrypoint"), &img->entrypoint);
    if (r == 0)
        r = copy_strings(json_object_get(config, "Cmd"), &img->cmd);
    if (r == 0 && (!img->reference || !img->cwd || !img->user || !img->os || !img->arch))
        r = -ENOMEM;
    return r;
}

/* Both records behind a name. *ret_ref is NULL for "sha256:..." names. */
static int load(struct store *s, const char *reference, json_t **ret_ref, json_t **ret_record,
                struct err *err) {
    const char *id;
    char file[80];
    int r;

    *ret_ref = *ret_record = NULL;
    if (!reference || !*reference || strlen(reference) > 512)
        return err_set(err, -EINVAL, "not an image name");
    if (str_starts(reference, ID_PREFIX)) {
        id = reference + strlen(ID_PREFIX);
        if (!store_is_hex64(id))
            return err_set(err, -EINVAL, "an image id is sha256: and 64 hex digits");
    } else {
        r = str_starts(reference, LOCAL_PREFIX) ? store_check_local_name(reference, err) : 0;
        if (r < 0)
            return r;
        r = ref_file(reference, file);
        if (r == 0)
            r = read_json(s->refs, file, ret_ref);
        if (r == -ENOENT)
            return err_set(err, r, "image %.200s is not in the store", reference);
        id = json_str(*ret_ref, "id");
        if (r == 0 && !store_is_hex64(id))
            r = -EBADMSG;
        if (r < 0)
            return err_sys(err, r, "record of image %.200s", reference);
    }
    snprintf(file, sizeof file, "%s.json", id);
    r = read_json(s->images, file, ret_record);
    if (r == -ENOENT)
        return err_set(err, r, "image %.200s is not in the store", reference);
    return r < 0 ? err_sys(err, r, "record of image %.200s", reference) : 0;
}

int image_resolve(struct store *s, const char *reference, struct image *ret, struct err *err) {
    _cleanup_json_ json_t *ref = NULL, *record = NULL;
    _cleanup_image_ struct image img = {0};
    int r = load(s, reference, &ref, &record, err);

    if (r < 0)
        return r;
    str_copy(img.id, sizeof img.id, json_str(record, "id") ? json_str(record, "id") : "");
    r = fill_image(s, record, ref, reference, &img);
    if (r < 0)
        return err_sys(err, r, "record of image %.200s", reference);
    *ret = img;
    img = (struct image){0};
    return 0;
}

int store_resolve(struct store *s, const char *reference, struct image *ret, struct err *err) {
    _cleanup_image_ struct image img = {0};
    int r = image_resolve(s, reference, &img, err);

    if (r < 0)
        return r;
    r = lease_add(s, &img);
    if (r == -ENOENT)
        return err_set(err, r, "image %.200s is not in the store any more", reference);
    if (r < 0)
        return err_sys(err, r, "lease of image %.200s", reference);
    *ret = img;
    img = (struct image){0};
    return 0;
}

int store_inspect(struct store *s, const char *reference, json_t **ret, struct err *err) {
    _cleanup_json_ json_t *ref = NULL, *record = NULL;
    int r = load(s, reference, &ref, &record, err);

    if (r < 0)
        return r;
    if (json_object_set_new(record, "reference", json_string(reference)) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    if (ref)
        json_object_set(record, "importedUs", json_object_get(ref, "importedUs"));
    *ret = TAKE_PTR(record);
    return 0;
}

/* ---- lists
 * ------------------------------------------------------------------------------------------ */

/* The records of a folder, one after the other; damaged ones end the walk with -EBADMSG when
 * `strict`. */
static int for_each_record(int dirfd, bool strict, int (*fn)(const char *file, json_t *j, void *ud),
                           void *ud) {
    int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!d) {
        r = -errno;
        fd_close(copy);
        return r;
    }
    while (r == 0 && (e = readdir(d))) {
        _cleanup_json_ json_t *j = NULL;
        if (e->d_name[0] == '.' || !str_ends(e->d_name, ".json"))
            continue;
        r = read_json(dirfd, e->d_name, &j);
        if (r == -ENOENT || (r < 0 && r != -ENOMEM && !strict))
            r = 0;
        else if (r == 0)
            r = fn(e->d_name, j, ud);
    }
    closedir(d);
    return r;
}

static int add_reference(const char *file, json_t *ref, void *ud) {
    const char *name = json_str(ref, "reference");
    return name ? strv_add(ud, name) : 0;
}

static int compare_strings(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void image_list_free(struct image *images, size_t n) {
    for (size_t i = 0; images && i < n; i++)
        image_done(&images[i]);
    free(images);
}

int store_list(struct store *s, struct image **ret, size_t *ret_n, struct err *err) {
    _cleanup_strv_ struct strv names = {0};
    struct image *images;
    size_t n = 0;
    int r = for_each_record(s->refs, false, add_reference, &names);

    if (r < 0)
        return err_sys(err, r, "%s/refs", s->path);
    if (names.n)
        qsort(names.v, names.n, sizeof *names.v, compare_strings);
    images = calloc(names.n + 1, sizeof *images);
    if (!images)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < names.n; i++) {
        r = image_resolve(s, names.v[i], &images[n], NULL);
        if (r == -ENOMEM) {
            image_list_free(images, n);
            return err_set(err, r, "out of memory");
        }
        n += r == 0;
    }
    *ret = images;
    *ret_n = n;
    return 0;
}

/* ---- removal
 * ------------------------------------------------------------------------------------------ */

static int add_live_id(const char *file, json_t *ref, void *ud) {
    const char *id = json_str(ref, "id");
    return store_is_hex64(id) ? map_set(ud, id, ud, NULL) : -EBADMSG;
}

struct sweep_images {
    struct store *s;
    const struct map *live_ids;
    struct map *layers, *blobs; /* what the living ones need */
};

static int sweep_image(const char *file, json_t *record, void *ud) {
    struct sweep_images *w = ud;
    const json_t *v, *layers = json_object_get(record, "layers");
    const char *manifest = json_str(record, "manifest");
    char id[65];
    size_t i;

    snprintf(id, sizeof id, "%.64s", file);
    if (!map_has(w->live_ids, id)) {
        unlinkat(w->s->images, file, 0);
        return 0;
    }
    if (!json_is_array(layers))
        return -EBADMSG;
    int r = map_set(w->blobs, id, w, NULL);
    if (r == 0 && store_is_hex64(manifest))
        r = map_set(w->blobs, manifest, w, NULL);
    json_array_foreach(layers, i, v) {
        const char *name = json_string_value(v);
        if (r == 0)
            r = layer_name_is_valid(name) ? map_set(w->layers, name, w, NULL) : -EBADMSG;
    }
    return r;
}

/* Blobs of images that are gone, or that were never recorded. */
static int sweep_blobs(struct store *s, const struct map *live) {
    int copy = openat(s->blobs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!d) {
        int r = -errno;
        fd_close(copy);
        return r;
    }
    while ((e = readdir(d)))
        if (store_is_hex64(e->d_name) && !map_has(live, e->d_name))
            unlinkat(s->blobs, e->d_name, 0);
    closedir(d);
    return 0;
}

int image_live_layers(struct store *s, struct map *names, struct err *err) {
    _cleanup_(map_freep) struct map *ids = map_new(), *blobs = map_new();
    struct sweep_images w = {.s = s, .live_ids = ids, .layers = names, .blobs = blobs};

    if (!ids || !blobs)
        return err_set(err, -ENOMEM, "out of memory");
    _cleanup_close_ int lock = store_lock(s, "refs", LOCK_EX);
    if (lock < 0)
        return err_sys(err, lock, "lock of the image store");
    int r = for_each_record(s->refs, true, add_live_id, ids);
    if (r == 0)
        r = for_each_record(s->images, true, sweep_image, &w);
    if (r == 0)
        r = sweep_blobs(s, blobs);
    return r < 0 ? err_sys(err, r, "a record in %s is damaged: nothing is removed", s->path) : 0;
}

int store_remove(struct store *s, const char *reference, const char *const *in_use,
                 struct err *err) {
    char file[80];
    int r = store_check_local_name(reference, err);

    if (r == 0)
        r = ref_file(reference, file);
    if (r < 0)
        return r;
    int lock = store_lock(s, "refs", LOCK_EX);
    if (lock < 0)
        return err_sys(err, lock, "lock of the image store");
    r = unlinkat(s->refs, file, 0) < 0 ? -errno : 0;
    if (r == 0 && fsync(s->refs) < 0)
        r = -errno;
    fd_close(lock);
    if (r == -ENOENT)
        return err_set(err, r, "image %.200s is not in the store", reference);
    if (r < 0)
        return err_sys(err, r, "removing image %.200s", reference);
    return store_gc(s, in_use, NULL, err);
}
