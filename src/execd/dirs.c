/* Directories: make, remove, list; and the search for files (execd.md 5.4). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "execd/body.h"
#include "execd/errors.h"
#include "execd/expand.h"
#include "execd/filejob.h"
#include "execd/fileinfo.h"
#include "execd/glob.h"
#include "execd/handlers.h"
#include "execd/perm.h"
#include "execd/walk.h"

#define MAX_RESULTS 100000

/* Mode and owner go to what this call makes; a directory that was there stays as it is. */
static int make_one(const char *path, const struct perm *p, struct err *err) {
    struct stat st;
    int r = perm_make_parents(p, path, err);

    if (r < 0)
        return r;
    if (mkdir(path, 0777) == 0)
        return perm_apply_path(p, path, err);
    if (errno != EEXIST)
        return err_sys(err, -errno, "%s", path);
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, -ENOTDIR, "%s exists and is not a directory", path);
    return 0;
}

static int run_make(struct filejob *j) {
    const char *text;
    json_t *item;

    if (!json_is_object(j->body))
        return filejob_bad(j, ERR_BODY, "the body must map paths to permissions");
    json_object_foreach(j->body, text, item) {
        _cleanup_(perm_done) struct perm p = {0};
        _cleanup_free_ char *path = NULL;
        int r = 0;
        if (!json_is_object(item) && !json_is_null(item))
            return filejob_bad(j, ERR_BODY, "permissions of %s must be an object", text);
        if (json_is_object(item))
            r = perm_parse(item, &p, &j->err);
        if (r == 0)
            r = filejob_path(j, text, &path);
        if (r == 0)
            r = make_one(path, &p, &j->err);
        if (r == -ENOENT)
            j->err.code = -EIO; /* "not found" would be said of a file that was asked for */
        if (r < 0)
            return r;
    }
    return 0;
}

static int remove_one(struct filejob *j, const char *text) {
    _cleanup_free_ char *path = NULL;
    int r = expand_file_path(text, &j->env, false, &path, &j->err);

    if (r < 0)
        return r;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        path[--len] = 0;
    const char *base = path_base(path);
    if (str_eq(path, "/") || str_eq(base, ".") || str_eq(base, ".."))
        return err_set(&j->err, -EINVAL, "%s will not be removed", text);
    r = path_remove_tree_at(AT_FDCWD, path);
    return r < 0 && r != -ENOTDIR ? err_sys(&j->err, r, "%s", path) : 0;
}

static int run_remove(struct filejob *j) {
    int r = 0;

    for (size_t i = 0; i < j->query.keys.n && r == 0; i++)
        if (strcmp(j->query.keys.v[i], "path") == 0)
            r = remove_one(j, j->query.values.v[i]);
    return r;
}

/* ---- list and search ---- */

struct found {
    struct filejob *job;
    struct users users;
    const struct glob *glob; /* NULL: everything */
    size_t root_len;
};

static int add_info(struct found *f, const char *path) {
    json_t *info;
    struct err ignored = {0};

    if (json_array_size(f->job->result) >= MAX_RESULTS)
        return err_set(&f->job->err, -E2BIG, "more than %d entries", MAX_RESULTS);
    if (fileinfo_get(path, &f->users, &info, &ignored) < 0)
        return 0; /* it vanished */
    return json_array_append_new(f->job->result, info) < 0
               ? err_set(&f->job->err, -ENOMEM, "out of memory")
               : 0;
}

static int visit(const char *path, const char *name, bool is_dir, void *ud) {
    struct found *f = ud;

    if (f->glob) {
        const char *relative = path + f->root_len + (path[f->root_len] == '/');
        if (is_dir || !(glob_match(f->glob, name) ||
                        (strchr(relative, '/') && glob_match(f->glob, relative))))
            return 0;
    }
    return add_info(f, path);
}

/* Fills j->result with what the walk finds. */
static int collect(struct filejob *j, const char *root, const struct glob *glob, unsigned depth) {
    struct found f = {.job = j, .glob = glob, .root_len = str_eq(root, "/") ? 0 : strlen(root)};
    struct walk_opts o = {
        .max_depth = depth, .skip_unreadable = glob != NULL, .visit = visit, .ud = &f};
    struct stat st;
    int r = 0;

    j->result = json_array();
    if (!j->result)
        return -ENOMEM;
    users_load(&f.users, NULL);
    if (glob && stat(root, &st) == 0 && !S_ISDIR(st.st_mode))
        r = glob_match(glob, path_base(root)) ? add_info(&f, root) : 0;
    else
        r = walk_tree(root, &o, &j->err);
    users_done(&f.users);
    return r;
}

static int find_root(struct filejob *j, char **ret) {
    const char *text = query_get(&j->query, "path");

    if (str_is_empty(text))
        return filejob_bad(j, ERR_QUERY, "query parameter path is missing");
    return filejob_path(j, text, ret);
}

static int run_list(struct filejob *j) {
    const char *depth_text = query_get(&j->query, "depth");
    _cleanup_free_ char *root = NULL;
    uint64_t depth = 1;
    struct stat st;
    int r = find_root(j, &root);

    if (r < 0 || !root)
        return r < 0 ? r : -ENOMEM;
    if (!str_is_empty(depth_text) && str_to_u64(depth_text, &depth) < 0)
        return filejob_bad(j, ERR_BODY, "depth must be a number, at least 0");
    if (lstat(root, &st) < 0)
        return err_sys(&j->err, -errno, "%s", root);
    if (!S_ISDIR(st.st_mode))
        return filejob_bad(j, ERR_BODY, "%s is not a directory", root);
    return collect(j, root, NULL, (unsigned)MIN(depth, (uint64_t)UINT_MAX));
}

static int run_search(struct filejob *j) {
    const char *pattern = query_get(&j->query, "pattern");
    _cleanup_(glob_done) struct glob g = {0};
    _cleanup_free_ char *root = NULL;
    int r = find_root(j, &root);

    if (r < 0 || !root)
        return r < 0 ? r : -ENOMEM;
    if (access(root, F_OK) < 0)
        return err_sys(&j->err, -errno, "%s", root);
    r = glob_compile(str_is_empty(pattern) ? "**" : pattern, &g, &j->err);
    return r < 0 ? r : collect(j, root, &g, UINT_MAX);
}

HANDLER(handle_dirs_make) {
    filejob_body(ud, r, run_make);
}

HANDLER(handle_dirs_remove) {
    filejob_query(ud, r, run_remove);
}

HANDLER(handle_dirs_list) {
    filejob_query(ud, r, run_list);
}

HANDLER(handle_files_search) {
    filejob_query(ud, r, run_search);
}
