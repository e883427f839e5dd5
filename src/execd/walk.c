/*
 * Directory walk (see walk.h). A directory's names are read whole and sorted before they are
 * visited; no descriptor stays open on the way down. Depth is bounded by the length of a path.
 */
#include "execd/walk.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"

#define MAX_LEVELS 2048

static int cmp_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_names(const char *path, struct strv *ret) {
    DIR *d = opendir(path);
    struct dirent *e;
    int r = 0;

    if (!d)
        return -errno;
    while (r == 0 && (e = readdir(d)))
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, ".."))
            r = strv_add(ret, e->d_name);
    closedir(d);
    if (r == 0 && ret->n > 1)
        qsort(ret->v, ret->n, sizeof *ret->v, cmp_names);
    return r;
}

static int walk(const char *dir, const struct walk_opts *o, unsigned depth, struct err *err) {
    _cleanup_strv_ struct strv names = {0};
    struct stat st;
    int r;

    if (depth >= o->max_depth || depth >= MAX_LEVELS)
        return 0;
    r = read_names(dir, &names);
    if (r == -ENOENT || r == -ENOTDIR || (r == -EACCES && o->skip_unreadable))
        return 0;
    if (r < 0)
        return err_sys(err, r, "%s", dir);
    for (size_t i = 0; i < names.n && r == 0; i++) {
        _cleanup_free_ char *path = path_join(dir, names.v[i]);
        if (!path)
            return err_set(err, -ENOMEM, "out of memory");
        if (lstat(path, &st) < 0)
            continue;
        r = o->visit(path, names.v[i], S_ISDIR(st.st_mode), o->ud);
        if (r == 0 && S_ISDIR(st.st_mode))
            r = walk(path, o, depth + 1, err);
    }
    return r;
}

int walk_tree(const char *root, const struct walk_opts *o, struct err *err) {
    return walk(root, o, 0, err);
}
