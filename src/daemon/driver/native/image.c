/*
 * From an image name to the overlays a root is made of (native-runtime.md 5, 6). Plain data for
 * cove-launch; nothing is mounted here.
 *
 * Every root has a skeleton of ours as its uppermost lower layer: mount targets are real
 * directories there, whatever the image has in their place. The "host" image shows /usr and /etc of
 * this machine through overlays that are not id-mapped: in a user namespace host root's files then
 * belong to nobody, so what is not world-readable stays closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "daemon/driver/native/native_priv.h"

#define HOST_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

void root_plan_done(struct root_plan *p) {
    json_decref(p->overlays);
    strv_done(&p->env);
    strv_done(&p->layers);
    strv_done(&p->dirs);
    free(p->cwd);
    memset(p, 0, sizeof *p);
}

/* One overlay; takes the arrays. */
static int add_overlay(struct root_plan *p, const char *at, json_t *lowers, json_t *plain) {
    char dir[32] = "fs";

    if (p->dirs.n)
        snprintf(dir, sizeof dir, "fs%zu", p->dirs.n + 1);
    json_t *o =
        json_pack("{s:s, s:o, s:o, s:s}", "at", at, "lowers", lowers, "plain", plain, "dir", dir);
    if (!o || json_array_append_new(p->overlays, o) < 0 || strv_add(&p->dirs, dir) < 0)
        return -ENOMEM;
    return 0;
}

static int plan_stored(struct native *n, const char *name, struct root_plan *p, struct err *err) {
    _cleanup_image_ struct image img = {0};
    _cleanup_free_ char *skeleton = NULL;
    json_t *lowers;
    int r = store_resolve(n->store, name, &img, err);

    if (r == 0)
        r = store_skeleton(n->store, SKELETON_IMAGE, &skeleton, err);
    if (r < 0)
        return r;
    lowers = json_pack("[s]", skeleton);
    for (size_t i = 0; i < img.n_layers && r == 0; i++) {
        json_array_append_new(lowers, json_string(img.layers[i].path));
        r = strv_add(&p->layers, img.layers[i].name);
    }
    if (r == 0)
        r = add_overlay(p, "/", lowers, json_array());
    if (r == 0)
        r = strv_copy(&p->env, (const char *const *)img.env.v);
    if (r == 0 && !env_get(&p->env, "PATH"))
        r = strv_add(&p->env, HOST_PATH);
    p->cwd = strdup(str_is_empty(img.cwd) ? "/" : img.cwd);
    return r < 0 || !p->cwd ? err_set(err, -ENOMEM, "out of memory") : 0;
}

/* Overlays do not show what is mounted below their lower layer: one more for each such mount. */
static int add_submounts(struct root_plan *p, const char *tree) {
    _cleanup_free_ char *text = NULL;
    size_t len = strlen(tree);
    int r = path_read_file_at(AT_FDCWD, "/proc/self/mountinfo", (size_t)4 << 20, &text, NULL);

    for (char *save, *line = r < 0 ? NULL : strtok_r(text, "\n", &save); line && r == 0;
         line = strtok_r(NULL, "\n", &save)) {
        char point[PATH_MAX];
        struct stat st;
        if (sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1 || strncmp(point, tree, len) != 0 ||
            point[len] != '/' || strchr(point, '\\') || stat(point, &st) < 0 ||
            !S_ISDIR(st.st_mode))
            continue;
        r = add_overlay(p, point, json_array(), json_pack("[s]", point));
    }
    return r;
}

static int add_host_tree(struct native *n, struct root_plan *p, const char *tree,
                         enum store_skeleton kind, struct err *err) {
    _cleanup_free_ char *skeleton = NULL;
    int r = store_skeleton(n->store, kind, &skeleton, err);

    if (r < 0)
        return r;
    r = add_overlay(p, tree, json_pack("[s]", skeleton), json_pack("[s]", tree));
    if (r == 0)
        r = add_submounts(p, tree);
    return r < 0 ? err_set(err, r, "reading the host's mounts") : 0;
}

static int plan_host(struct native *n, struct root_plan *p, struct err *err) {
    static const char *const links[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
    _cleanup_free_ char *root = NULL;
    struct stat st;
    int r;

    if (!n->config.userns)
        return err_set(err, -EOPNOTSUPP,
                       "image \"host\" needs user namespaces, which are switched off "
                       "(native.userns): without them "
                       "the sandbox could read every file of this host");
    r = store_skeleton(n->store, SKELETON_HOST, &root, err);
    if (r == 0 && add_overlay(p, "/", json_pack("[s]", root), json_array()) < 0)
        r = err_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = add_host_tree(n, p, "/usr", SKELETON_HOST_USR, err);
    if (r == 0)
        r = add_host_tree(n, p, "/etc", SKELETON_HOST_ETC, err);
    for (size_t i = 0; i < ARRAY_SIZE(links) && r == 0; i++)
        if (lstat(links[i], &st) == 0 && S_ISDIR(st.st_mode)) /* a host whose /usr is not merged */
            r = add_overlay(p, links[i], json_array(), json_pack("[s]", links[i]));
    if (r == 0 && (strv_add(&p->env, HOST_PATH) < 0 || strv_add(&p->env, "HOME=/root") < 0 ||
                   strv_add(&p->env, "LANG=C.UTF-8") < 0))
        r = err_set(err, -ENOMEM, "out of memory");
    p->cwd = strdup("/workspace");
    return r;
}

int root_plan_make(struct native *n, const char *image, struct root_plan *ret, struct err *err) {
    struct root_plan p = {.overlays = json_array()};
    int r = str_eq(image, "host") ? plan_host(n, &p, err) : plan_stored(n, image, &p, err);

    if (r < 0) {
        root_plan_done(&p);
        return r;
    }
    *ret = p;
    return 0;
}

int native_ensure_image(struct driver *d, struct sandbox_spec *spec, struct err *err) {
    const char *image = spec->image;
    struct native *n = native_of(d);
    _cleanup_image_ struct image img = {0};
    int r;

    if (str_eq(image, "host")) {
        if (n->config.userns)
            return 0;
        return err_set(err, -EOPNOTSUPP,
                       "image \"host\" needs user namespaces, which are switched off");
    }
    if (str_starts(image, "local/"))
        return store_resolve(n->store, image, &img, err);
    r = store_resolve(n->store, image, &img, NULL);
    if (r == -ENOENT || r == -EINVAL)
        return err_set(err, -ENOENT,
                       "image %s is not in the store, and native sandboxes do not pull from "
                       "registries yet: import "
                       "it as local/NAME, or use \"host\"",
                       image);
    return r < 0 ? err_sys(err, r, "image %s", image) : 0;
}
