/* GET /files/info and DELETE /files (execd.md 5.4). Paths are handled one by one; the first failure
 * ends it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "execd/agent.h"
#include "execd/errors.h"
#include "execd/expand.h"
#include "execd/fileinfo.h"
#include "execd/handlers.h"
#include "net/url.h"

/* The values of `path` in the query; NULL entries never. 0 or -ENOMEM. */
static int query_paths(struct h1_req *r, struct strv *ret) {
    const char *raw = h1_req_query(r);
    struct query q;
    int e = query_parse(raw, raw ? strlen(raw) : 0, &q);

    if (e < 0)
        return e;
    for (size_t i = 0; i < q.keys.n && e == 0; i++)
        if (strcmp(q.keys.v[i], "path") == 0)
            e = strv_add(ret, q.values.v[i]);
    query_done(&q);
    return e;
}

static int collect_info(struct agent *a, const struct strv *paths, json_t *out, struct err *err) {
    _cleanup_(users_done) struct users u = {0};
    _cleanup_strv_ struct strv env = {0};
    int r = env_build(&a->env, NULL, &env);

    if (r < 0)
        return err_sys(err, r, "environment");
    users_load(&u, NULL);
    for (size_t i = 0; i < paths->n && r == 0; i++) {
        _cleanup_free_ char *path = NULL;
        json_t *info = NULL;
        r = expand_file_path(paths->v[i], &env, true, &path, err);
        if (r == 0)
            r = fileinfo_get(path, &u, &info, err);
        if (r == 0 && json_object_set_new(out, paths->v[i], info) < 0)
            r = err_set(err, -EINVAL, "path %s is not valid UTF-8", paths->v[i]);
    }
    return r;
}

HANDLER(handle_files_info) {
    _cleanup_strv_ struct strv paths = {0};
    json_t *out = json_object();
    struct err err = {0};
    int e = query_paths(r, &paths);

    if (e < 0)
        err_sys(&err, e, "query");
    else
        e = collect_info(ud, &paths, out, &err);
    if (e == 0) {
        reply_json(r, 200, out);
        return;
    }
    json_decref(out);
    reply_errno(r, e, &err);
}

static int delete_one(const char *path, struct err *err) {
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, -errno, "%s", path);
    if (S_ISDIR(st.st_mode) || (S_ISLNK(st.st_mode) && stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return err_set(err, -EISDIR, "%s is a directory", path);
    return unlink(path) < 0 && errno != ENOENT ? err_sys(err, -errno, "%s", path) : 0;
}

HANDLER(handle_files_delete) {
    _cleanup_strv_ struct strv paths = {0}, env = {0};
    struct agent *a = ud;
    struct err err = {0};
    int e = query_paths(r, &paths);

    if (e == 0)
        e = env_build(&a->env, NULL, &env);
    if (e < 0)
        err_sys(&err, e, "query");
    for (size_t i = 0; i < paths.n && e == 0; i++) {
        _cleanup_free_ char *path = NULL;
        e = expand_file_path(paths.v[i], &env, true, &path, &err);
        if (e == 0)
            e = delete_one(path, &err);
    }
    if (e < 0)
        reply_error(r, 500, ERR_RUNTIME, "%s", err_text(&err));
    else
        reply_empty(r);
}
