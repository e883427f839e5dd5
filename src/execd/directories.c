/*
 * POST /directories, GET /directories/list, POST /files/permissions (execd.md 5.4): what copying
 * whole trees needs. Listings run on a worker and are bounded; paths of the other two are handled
 * one by one, the first failure ends it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "execd/agent.h"
#include "execd/body.h"
#include "execd/errors.h"
#include "execd/expand.h"
#include "execd/fileinfo.h"
#include "execd/handlers.h"
#include "execd/perm.h"
#include "execd/work.h"
#include "net/url.h"

#define MAX_ENTRIES 1000000u /* of one listing */
#define MAX_DEPTH 200u       /* one descriptor per level */

/* ---- maps of path to permission ---- */

typedef int (*perm_step)(const char *path, const struct perm *p, struct err *err);

static int each_permission(struct agent *a, const json_t *body, perm_step step, struct err *err) {
    _cleanup_strv_ struct strv env = {0};
    const char *given;
    json_t *value;
    int r = env_build(&a->env, NULL, &env);

    if (r < 0)
        return err_sys(err, r, "environment");
    json_object_foreach((json_t *)body, given, value) {
        _cleanup_(perm_done) struct perm perm = {0};
        _cleanup_free_ char *path = NULL;
        if (!json_is_object(value) && !json_is_null(value))
            return err_set(err, -EINVAL, "the permission of %s must be an object", given);
        r = json_is_null(value) ? 0 : perm_parse(value, &perm, err);
        if (r == 0)
            r = expand_file_path(given, &env, true, &path, err);
        if (r == 0)
            r = step(path, &perm, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static void permissions_body(struct h1_req *r, const char *data, size_t len, struct agent *a,
                             perm_step step) {
    _cleanup_json_ json_t *body = NULL;
    struct err err = {0};
    int e = body_parse(data, len, false, &body, &err);

    if (e < 0) {
        reply_error(r, 400, ERR_BODY, "%s", err_text(&err));
        return;
    }
    e = each_permission(a, body, step, &err);
    if (e == 0)
        reply_empty(r);
    else
        reply_errno(r, e, &err);
}

/* mkdir -p; permissions go to what is made here, an existing directory stays as it is. */
static int make_directory(const char *path, const struct perm *p, struct err *err) {
    struct stat st;
    int r = perm_make_parents(p, path, err);

    if (r < 0)
        return r;
    if (mkdir(path, 0777) == 0)
        return perm_apply_path(p, path, err);
    if (errno != EEXIST)
        return err_sys(err, errno == ENOENT ? -ENOTDIR : -errno, "cannot make directory %s", path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    return err_set(err, -EEXIST, "%s exists and is not a directory", path);
}

static void on_make_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    permissions_body(r, data, len, ud, make_directory);
}

HANDLER(handle_directories_make) {
    h1_req_collect(r, MAX_JSON_BODY, on_make_body, ud);
}

static int set_permission(const char *path, const struct perm *p, struct err *err) {
    struct stat st;

    if (stat(path, &st) < 0)
        return err_sys(err, -errno, "%s", path);
    return perm_apply_path(p, path, err);
}

static void on_permissions_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    permissions_body(r, data, len, ud, set_permission);
}

HANDLER(handle_files_permissions) {
    h1_req_collect(r, MAX_JSON_BODY, on_permissions_body, ud);
}

/* ---- listings ---- */

struct listing {
    struct work work;
    struct h1_req *req; /* NULL: the client has gone */
    char *path;
    unsigned depth;
    struct users users;
    json_t *out;
    int error;
    bool busy;
    struct err err;
};

static void listing_free(struct listing *l) {
    json_decref(l->out);
    users_done(&l->users);
    free(l->path);
    free(l);
}

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_entry(const struct dirent *e) {
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int list_directory(struct listing *l, int dirfd, const char *path, unsigned depth);

/* What vanishes meanwhile is left out, and so is what may not be read further down. */
static int list_one(struct listing *l, int dirfd, const char *dir, const char *name,
                    unsigned depth) {
    _cleanup_free_ char *path = path_join(dir, name);
    json_t *info = NULL;

    if (!path)
        return err_set(&l->err, -ENOMEM, "out of memory");
    int r = fileinfo_get(path, &l->users, &info, &l->err);
    if (r == -ENOENT || r == -EACCES)
        return 0;
    if (r < 0)
        return r;
    bool is_dir = str_eq(json_str(info, "type"), "directory");
    if (json_array_size(l->out) >= MAX_ENTRIES) {
        json_decref(info);
        return err_set(&l->err, -E2BIG, "%s has more than %u entries", l->path, MAX_ENTRIES);
    }
    json_array_append_new(l->out, info);
    if (!is_dir || depth <= 1)
        return 0;
    _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? 0 : list_directory(l, fd, path, depth - 1);
}

static int list_directory(struct listing *l, int dirfd, const char *path, unsigned depth) {
    struct dirent **names = NULL;
    int n = scandirat(dirfd, ".", &names, is_entry, by_bytes), r = 0;

    if (n < 0)
        return errno == ENOENT ? 0 : err_sys(&l->err, -errno, "%s", path);
    for (int i = 0; i < n; i++) {
        if (r == 0)
            r = list_one(l, dirfd, path, names[i]->d_name, depth);
        free(names[i]);
    }
    free(names);
    return r;
}

static void run_listing(void *ud) {
    struct listing *l = ud;
    _cleanup_close_ int fd = open(l->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    users_load(&l->users, NULL);
    if (fd < 0)
        l->error = errno == ELOOP || errno == ENOTDIR
                       ? err_set(&l->err, -ENOTDIR, "%s is not a directory", l->path)
                       : err_sys(&l->err, -errno, "%s", l->path);
    else if (l->depth > 0)
        l->error = list_directory(l, fd, l->path, l->depth);
}

static void on_listed(void *ud) {
    struct listing *l = ud;

    l->busy = false;
    if (!l->req)
        listing_free(l);
    else if (l->error == -ENOTDIR)
        reply_error(l->req, 400, ERR_BODY, "%s", err_text(&l->err));
    else if (l->error < 0)
        reply_errno(l->req, l->error, &l->err);
    else
        reply_json(l->req, 200, TAKE_PTR(l->out));
}

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct listing *l = ud;

    l->req = NULL;
    if (!l->busy)
        listing_free(l);
}

/* Answers a bad request itself and returns NULL. */
static struct listing *listing_new(struct agent *a, struct h1_req *r) {
    _cleanup_strv_ struct strv env = {0};
    const char *raw = h1_req_query(r);
    struct listing *l = calloc(1, sizeof *l);
    struct query q = {0};
    struct err err = {0};
    uint64_t depth = 1;
    int e = l ? query_parse(raw, raw ? strlen(raw) : 0, &q) : -ENOMEM;

    if (e == 0)
        e = env_build(&a->env, NULL, &env);
    const char *path = query_get(&q, "path"), *text = query_get(&q, "depth");
    if (e < 0)
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
    else if (str_is_empty(path))
        e = -EINVAL, reply_error(r, 400, ERR_QUERY, "the query must name a path");
    else if (text && str_to_u64(text, &depth) < 0)
        e = -EINVAL, reply_error(r, 400, ERR_BODY, "depth must be a whole number from 0 on");
    else if ((e = expand_file_path(path, &env, true, &l->path, &err)) < 0)
        reply_errno(r, e, &err);
    query_done(&q);
    if (e < 0) {
        free(l);
        return NULL;
    }
    l->req = r;
    l->depth = (unsigned)MIN(depth, (uint64_t)MAX_DEPTH);
    l->out = json_array();
    return l;
}

HANDLER(handle_directories_list) {
    static const struct h1_req_ops ops = {.on_close = on_close};
    struct agent *a = ud;
    struct listing *l = listing_new(a, r);

    if (!l)
        return;
    h1_req_set_ops(r, &ops, l);
    l->busy = true;
    if (work_start(a->loop, &l->work, run_listing, on_listed, l) == 0)
        return;
    l->busy = false;
    reply_error(r, 500, ERR_RUNTIME, "no worker for the listing");
}
