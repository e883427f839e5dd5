/*
 * Image archives: OCI layouts and `docker save` trees (see store.h). The tree is hostile: files are
 * opened beneath its root and must be regular, JSON is bounded, every blob is checked against its
 * digest.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "oci/store_internal.h"

#define INDEX_DEPTH_MAX 3
#define REF_NAME "org.opencontainers.image.ref.name"

static int open_file(int root, const char *path, struct err *err) {
    _cleanup_close_ int fd = path_open_beneath(root, path, O_RDONLY | O_NONBLOCK, 0);
    struct stat st;

    if (fd < 0)
        return err_sys(err, fd == -ENOENT || fd == -EXDEV || fd == -ELOOP ? -EINVAL : fd,
                       "file %.200s of the archive%s", path, fd == -ENOENT ? " is missing" : "");
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "%.200s in the archive is no regular file", path);
    return TAKE_FD(fd);
}

static int read_text(int root, const char *path, char **ret, size_t *ret_len, struct err *err) {
    _cleanup_close_ int fd = open_file(root, path, err);
    _cleanup_free_ char *text = NULL;
    struct stat st;

    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0 || st.st_size > (off_t)JSON_MAX)
        return err_set(err, -E2BIG, "%.200s is larger than %zu bytes", path, JSON_MAX);
    text = calloc(1, (size_t)st.st_size + 1);
    if (!text)
        return err_set(err, -ENOMEM, "out of memory");
    int n = fd_read_full(fd, text, (size_t)st.st_size);
    if (n < 0)
        return err_sys(err, n, "%.200s", path);
    *ret = TAKE_PTR(text);
    *ret_len = (size_t)n;
    return 0;
}

static int read_json_file(int root, const char *path, json_t **ret, struct err *err) {
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = read_text(root, path, &text, &len, err);

    if (r < 0)
        return r;
    *ret = json_parse(text, len, err);
    return *ret ? 0 : err_wrap(err, "%.200s", path);
}

/* "sha256:<hex>" of a descriptor -> hex within it. NULL = not one we know. */
static const char *digest_hex(const json_t *descriptor) {
    const char *d = json_str(descriptor, "digest");
    return d && str_starts(d, "sha256:") && store_is_hex64(d + 7) ? d + 7 : NULL;
}

static int blob_path(const json_t *descriptor, char ret[96], struct err *err) {
    const char *hex = digest_hex(descriptor);

    if (!hex)
        return err_set(err, -EINVAL, "a descriptor has no sha256 digest");
    snprintf(ret, 96, "blobs/sha256/%s", hex);
    return 0;
}

/* A JSON blob, checked. */
static int read_blob(int root, const json_t *descriptor, char **ret, size_t *ret_len,
                     json_t **ret_json, struct err *err) {
    _cleanup_free_ char *text = NULL;
    char path[96], hex[65];
    size_t len = 0;
    int r = blob_path(descriptor, path, err);

    if (r == 0)
        r = read_text(root, path, &text, &len, err);
    if (r == 0)
        r = store_sha256_hex(text, len, hex);
    if (r < 0)
        return r;
    if (!str_eq(hex, digest_hex(descriptor)))
        return err_set(err, -EBADMSG, "%s has digest sha256:%s", path, hex);
    *ret_json = json_parse(text, len, err);
    if (!*ret_json)
        return err_wrap(err, "%s", path);
    *ret = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}

/* ---- layers
 * -------------------------------------------------------------------------------------- */

static int check_layer_type(const char *type, struct err *err) {
    if (!type)
        return 0;
    if (str_ends(type, "+encrypted"))
        return err_set(err, -EOPNOTSUPP, "encrypted layers are not supported");
    if (strstr(type, "nondistributable") || strstr(type, ".foreign."))
        return err_set(err, -EOPNOTSUPP,
                       "layers that are not part of the image (foreign layers) are not supported");
    if (!str_starts(type, "application/vnd.oci.image.layer.v1.tar") &&
        !str_starts(type, "application/vnd.docker.image.rootfs.diff.tar"))
        return err_set(err, -EOPNOTSUPP, "layers of type %.100s are not supported", type);
    return 0;
}

/* The platform must be ours, the layers as many as the configuration has digests. */
static int check_config(const json_t *config, size_t n_layers, const json_t **ret_diffs,
                        struct err *err) {
    const char *os = json_str(config, "os"), *arch = json_str(config, "architecture");
    const json_t *diffs = json_object_get(json_object_get(config, "rootfs"), "diff_ids");

    if (os && *os && !str_eq(os, "linux"))
        return err_set(err, -EOPNOTSUPP, "the image is for %.40s, not linux", os);
    if (arch && *arch && !str_eq(arch, NATIVE_ARCH))
        return err_set(err, -EOPNOTSUPP, "the image is for %.40s, this machine is %s", arch,
                       NATIVE_ARCH);
    if (n_layers == 0 || n_layers > LAYERS_MAX)
        return err_set(err, n_layers ? -E2BIG : -EINVAL,
                       "the image has %zu layers, %d are possible", n_layers, LAYERS_MAX);
    if (json_array_size(diffs) != n_layers)
        return err_set(err, -EINVAL, "the image has %zu layers, but its configuration lists %zu",
                       n_layers, json_array_size(diffs));
    *ret_diffs = diffs;
    return 0;
}

static int import_layer(struct store *s, int root, const char *path, const json_t *diff,
                        const char *want_digest, size_t number, size_t total,
                        const struct store_import_opts *opts, struct image_build *b,
                        struct err *err) {
    const char *d = json_string_value(diff);
    char name[LAYER_NAME_SIZE], hex[65];

    if (!d || !str_starts(d, "sha256:") || !store_is_hex64(d + 7))
        return err_set(err, -EINVAL, "the configuration has a diff id that is no sha256 digest");
    _cleanup_close_ int fd = open_file(root, path, err);
    if (fd < 0)
        return fd;
    int r = layer_import(s, LAYER_OCI, fd, d + 7, want_digest, (unsigned)number, (unsigned)total,
                         opts, name, hex, err);
    if (r == 0 && strv_add(&b->layers, name) < 0)
        r = err_set(err, -ENOMEM, "out of memory");
    return r;
}

/* ---- OCI layout
 * ----------------------------------------------------------------------------------- */

static bool is_index(const json_t *descriptor) {
    const char *type = json_str(descriptor, "mediaType");
    return str_eq(type, "application/vnd.oci.image.index.v1+json") ||
           str_eq(type, "application/vnd.docker.distribution.manifest.list.v2+json");
}

static bool is_our_platform(const json_t *descriptor) {
    const json_t *p = json_object_get(descriptor, "platform");
    return !p ||
           (str_eq(json_str(p, "os"), "linux") && str_eq(json_str(p, "architecture"), NATIVE_ARCH));
}

static bool has_ref_name(const json_t *descriptor, const char *name) {
    const json_t *a = json_object_get(descriptor, "annotations");
    const char *full =
        json_str(a, "io.containerd.image.name"); /* docker save: "docker.io/library/NAME:TAG" */

    if (str_eq(json_str(a, REF_NAME), name) || str_eq(full, name))
        return true;
    size_t n = strlen(name), m = full ? strlen(full) : 0;
    return m > n && full[m - n - 1] == '/' && str_eq(full + m - n, name);
}

/* The one descriptor to follow in an index: of the wanted name, of our platform. */
static int choose(const json_t *index, const char *ref_name, json_t **ret, struct err *err) {
    json_t *d, *found = NULL;
    size_t i, n = 0;

    json_array_foreach(json_object_get(index, "manifests"), i, d) {
        if ((ref_name && !has_ref_name(d, ref_name)) || !is_our_platform(d))
            continue;
        found = d;
        n++;
    }
    if (n == 1) {
        *ret = json_incref(found);
        return 0;
    }
    if (n == 0 && ref_name)
        return err_set(err, -EINVAL, "the archive has no image called %.100s for %s", ref_name,
                       NATIVE_ARCH);
    if (n == 0)
        return err_set(err, -EOPNOTSUPP, "the archive has no image for linux/%s", NATIVE_ARCH);
    return err_set(err, -EINVAL, "the archive has %zu images: say which by its name", n);
}

/* Follows indexes down to the manifest. */
static int find_manifest(int root, const char *ref_name, struct image_build *b, json_t **ret,
                         struct err *err) {
    _cleanup_json_ json_t *index = NULL;
    int r = read_json_file(root, "index.json", &index, err);

    for (int depth = 0; r == 0; depth++) {
        _cleanup_json_ json_t *descriptor = NULL;
        json_t *next = NULL;
        r = choose(index, depth == 0 ? ref_name : NULL, &descriptor, err);
        if (r < 0)
            return r;
        free(TAKE_PTR(b->manifest_text));
        r = read_blob(root, descriptor, &b->manifest_text, &b->manifest_len, &next, err);
        if (r < 0)
            return r;
        if (!is_index(descriptor) && !json_object_get(next, "manifests")) {
            *ret = next;
            return 0;
        }
        json_decref(index);
        index = next;
        if (depth == INDEX_DEPTH_MAX)
            return err_set(err, -EINVAL, "image indexes are nested deeper than %d levels",
                           INDEX_DEPTH_MAX);
    }
    return r;
}

static int import_oci(struct store *s, int root, const struct store_import_opts *opts,
                      struct image_build *b, struct err *err) {
    _cleanup_json_ json_t *layout = NULL, *manifest = NULL;
    const json_t *layers, *layer, *diffs = NULL;
    size_t i;
    int r = read_json_file(root, "oci-layout", &layout, err);

    if (r < 0)
        return r;
    if (!str_starts(json_str(layout, "imageLayoutVersion") ? json_str(layout, "imageLayoutVersion")
                                                           : "",
                    "1."))
        return err_set(err, -EOPNOTSUPP, "unknown version of the OCI layout");
    r = find_manifest(root, opts->ref_name, b, &manifest, err);
    if (r == 0)
        r = read_blob(root, json_object_get(manifest, "config"), &b->config_text, &b->config_len,
                      &b->config_blob, err);
    layers = json_object_get(manifest, "layers");
    if (r == 0)
        r = check_config(b->config_blob, json_array_size(layers), &diffs, err);
    if (r < 0)
        return r;
    json_array_foreach(layers, i, layer) {
        char path[96] = "";
        r = check_layer_type(json_str(layer, "mediaType"), err);
        if (r == 0)
            r = blob_path(layer, path, err);
        if (r == 0)
            r = import_layer(s, root, path, json_array_get(diffs, i), digest_hex(layer), i + 1,
                             json_array_size(layers), opts, b, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- docker save
 * ------------------------------------------------------------------------------------- */

static bool has_tag(const json_t *image, const char *name) {
    const json_t *tag;
    size_t i;

    json_array_foreach(json_object_get(image, "RepoTags"), i, tag) {
        if (str_eq(json_string_value(tag), name))
            return true;
    }
    return false;
}

static int choose_docker(const json_t *list, const char *ref_name, const json_t **ret,
                         struct err *err) {
    const json_t *image;
    size_t i;

    if (json_array_size(list) == 0)
        return err_set(err, -EINVAL, "manifest.json lists no image");
    if (!ref_name && json_array_size(list) > 1)
        return err_set(err, -EINVAL, "the archive has %zu images: say which by its name",
                       json_array_size(list));
    json_array_foreach(list, i, image) {
        if (!ref_name || has_tag(image, ref_name)) {
            *ret = image;
            return 0;
        }
    }
    return err_set(err, -EINVAL, "the archive has no image called %.100s", ref_name);
}

static int import_docker(struct store *s, int root, const struct store_import_opts *opts,
                         struct image_build *b, struct err *err) {
    _cleanup_json_ json_t *list = NULL;
    const json_t *image = NULL, *layers, *layer, *diffs = NULL;
    const char *config;
    size_t i;
    int r = read_json_file(root, "manifest.json", &list, err);

    if (r == 0)
        r = choose_docker(list, opts->ref_name, &image, err);
    if (r < 0)
        return r;
    config = json_str(image, "Config");
    if (!config)
        return err_set(err, -EINVAL, "manifest.json names no configuration");
    r = read_text(root, config, &b->config_text, &b->config_len, err);
    if (r < 0)
        return r;
    b->config_blob = json_parse(b->config_text, b->config_len, err);
    if (!b->config_blob)
        return err_wrap(err, "%.200s", config);
    layers = json_object_get(image, "Layers");
    r = check_config(b->config_blob, json_array_size(layers), &diffs, err);
    json_array_foreach(layers, i, layer) {
        if (r == 0 && !json_is_string(layer))
            r = err_set(err, -EINVAL, "manifest.json: a layer is no string");
        if (r == 0)
            r = import_layer(s, root, json_string_value(layer), json_array_get(diffs, i), NULL,
                             i + 1, json_array_size(layers), opts, b, err);
    }
    return r;
}

int archive_import(struct store *s, int root, bool docker, const struct store_import_opts *opts,
                   struct image_build *ret, struct err *err) {
    struct stat st;

    /* Newer `docker save` archives are OCI layouts as well, which say more about their layers. */
    if (docker && fstatat(root, "oci-layout", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return import_docker(s, root, opts, ret, err);
    return import_oci(s, root, opts, ret, err);
}
