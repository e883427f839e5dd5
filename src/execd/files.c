/* Files: info, delete, move, permissions, replace (execd.md 5.4). The first failure ends a request.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/path.h"
#include "execd/body.h"
#include "execd/copytree.h"
#include "execd/errors.h"
#include "execd/filejob.h"
#include "execd/fileinfo.h"
#include "execd/handlers.h"
#include "execd/perm.h"
#include "execd/replace.h"

/* Calls fn with every `path` of the query. */
static int each_path(struct filejob *j,
                     int (*fn)(struct filejob *j, const char *text, const char *path, void *ud),
                     void *ud) {
    int r = 0;

    for (size_t i = 0; i < j->query.keys.n && r == 0; i++) {
        _cleanup_free_ char *path = NULL;
        if (strcmp(j->query.keys.v[i], "path") != 0)
            continue;
        r = filejob_path(j, j->query.values.v[i], &path);
        if (r == 0)
            r = fn(j, j->query.values.v[i], path, ud);
    }
    return r;
}

static int info_one(struct filejob *j, const char *text, const char *path, void *ud) {
    json_t *info;
    int r = fileinfo_get(path, ud, &info, &j->err);

    if (r == 0 && json_object_set_new(j->result, text, info) < 0)
        r = err_set(&j->err, -EINVAL, "path %s is not valid UTF-8", text);
    return r;
}

static int run_info(struct filejob *j) {
    _cleanup_(users_done) struct users u = {0};

    users_load(&u, NULL);
    j->result = json_object();
    return j->result ? each_path(j, info_one, &u) : -ENOMEM;
}

static int delete_one(struct filejob *j, const char *text, const char *path, void *ud) {
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(&j->err, -errno, "%s", path);
    if (S_ISDIR(st.st_mode) || (S_ISLNK(st.st_mode) && stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return err_set(&j->err, -EISDIR, "%s is a directory", path);
    return unlink(path) < 0 && errno != ENOENT ? err_sys(&j->err, -errno, "%s", path) : 0;
}

static int run_delete(struct filejob *j) {
    return each_path(j, delete_one, NULL);
}

/* ---- move ---- */

static int rename_new(const char *src, const char *dest) {
    struct stat st;

    if (syscall(SYS_renameat2, AT_FDCWD, src, AT_FDCWD, dest, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (lstat(dest, &st) == 0) /* a file system without the flag: as near as it gets */
        return -EEXIST;
    return rename(src, dest) < 0 ? -errno : 0;
}

static int move_one(struct filejob *j, const char *from, const char *to) {
    _cleanup_free_ char *src = NULL, *dest = NULL;
    const struct perm none = {0};
    struct stat st;
    int r = filejob_path(j, from, &src);

    if (r == 0)
        r = filejob_path(j, to, &dest);
    if (r < 0 || !src || !dest)
        return r < 0 ? r : -ENOMEM;
    if (lstat(src, &st) < 0)
        return err_sys(&j->err, -errno, "%s", src);
    r = perm_make_parents(&none, dest, &j->err);
    if (r < 0)
        return r;
    r = rename_new(src, dest);
    if (r == -EXDEV)
        r = copytree_move(src, dest);
    if (r == -ENOENT) /* not the source: it was there */
        r = -EIO;
    return r < 0 ? err_sys(&j->err, r, "cannot move %s to %s", src, dest) : 0;
}

static int run_move(struct filejob *j) {
    json_t *item;
    size_t i;

    if (!json_is_array(j->body))
        return filejob_bad(j, ERR_BODY, "the body must be an array of {src, dest}");
    json_array_foreach(j->body, i, item) {
        const char *src = NULL, *dest = NULL;
        struct err err = {0};
        if (!json_is_object(item) || body_str(item, "src", &src, &err) < 0 ||
            body_str(item, "dest", &dest, &err) < 0 || str_is_empty(src) || str_is_empty(dest))
            return filejob_bad(j, ERR_BODY, "item %zu must have src and dest", i);
        int r = move_one(j, src, dest);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- permissions and replace: maps of paths ---- */

static int run_permissions(struct filejob *j) {
    const char *text;
    json_t *item;

    if (!json_is_object(j->body))
        return filejob_bad(j, ERR_BODY, "the body must map paths to permissions");
    json_object_foreach(j->body, text, item) {
        _cleanup_(perm_done) struct perm p = {0};
        _cleanup_free_ char *path = NULL;
        if (!json_is_object(item))
            return filejob_bad(j, ERR_BODY, "permissions of %s must be an object", text);
        int r = perm_parse(item, &p, &j->err);
        if (r == 0)
            r = filejob_path(j, text, &path);
        if (r == 0 && access(path, F_OK) < 0)
            r = err_sys(&j->err, -errno, "%s", path);
        if (r == 0)
            r = perm_apply_path(&p, path, &j->err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int replace_one(struct filejob *j, const char *text, const json_t *item, json_t *counts) {
    const char *old = NULL, *new = NULL;
    _cleanup_free_ char *path = NULL;
    struct err err = {0};
    uint64_t n = 0;
    int r;

    if (!json_is_object(item) || body_str(item, "old", &old, &err) < 0 ||
        body_str(item, "new", &new, &err) < 0)
        return filejob_bad(j, ERR_BODY, "%s: old and new must be strings", text);
    if (str_is_empty(old))
        return filejob_bad(j, ERR_BODY, "%s: old is empty", text);
    r = filejob_path(j, text, &path);
    if (r == 0)
        r = replace_in_file(path, old, new ? new : "", &n, &j->err);
    if (r == 0 && counts &&
        json_object_set_new(counts, text, json_pack("{s:I}", "replacedCount", (json_int_t)n)) < 0)
        r = -ENOMEM;
    return r;
}

static int run_replace(struct filejob *j) {
    bool verbose = str_eq(query_get(&j->query, "verbose"), "true");
    const char *text;
    json_t *item;

    if (!json_is_object(j->body))
        return filejob_bad(j, ERR_BODY, "the body must map paths to {old, new}");
    json_t *counts = verbose ? json_object() : NULL;
    json_object_foreach(j->body, text, item) {
        int r = replace_one(j, text, item, counts);
        if (r < 0) {
            json_decref(counts);
            return r;
        }
    }
    j->result = counts;
    return 0;
}

HANDLER(handle_files_info) {
    filejob_query(ud, r, run_info);
}

HANDLER(handle_files_delete) {
    filejob_query(ud, r, run_delete);
}

HANDLER(handle_files_move) {
    filejob_body(ud, r, run_move);
}

HANDLER(handle_files_permissions) {
    filejob_body(ud, r, run_permissions);
}

HANDLER(handle_files_replace) {
    filejob_body(ud, r, run_replace);
}
