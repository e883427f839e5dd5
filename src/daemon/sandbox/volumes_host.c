/*
 * Host paths: the allow list before and after links, directories that are missing. What is mounted
 * is the resolved path that was checked, never the name that was given. The service's volumes.c
 * calls this; volume_host_check is pure, the rest blocks.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "daemon/sandbox/volumes.h"

static bool is_allowed(const struct service_opts *o, const char *path) {
    for (const char *const *a = o->allowed_host_paths; a && *a; a++)
        if (path_is_below(path, *a))
            return true;
    return false;
}

enum fault volume_host_check(const struct service_opts *o, const struct create_request *rq,
                             const struct volume_request *v, struct err *err) {
    const char *p = v->host_path;

    if (p[0] != '/' || path_has_dotdot(p) || strstr(p, "//") || (p[1] && p[strlen(p) - 1] == '/'))
        return volume_fail(err, FAULT_VOLUME_HOST_PATH, v,
                           "host.path must be absolute, without '..', '//' or a '/' at the end.");
    if (!rq->is_operator && !is_allowed(o, p))
        return volume_fail(err, FAULT_VOLUME_NOT_ALLOWED, v,
                           "host.path is not below a path of storage.allowed_host_paths.");
    return FAULT_NONE;
}

/* The allow list again, after links: an entry that is itself a link counts by what it leads to. */
static bool is_allowed_resolved(const struct service_opts *o, const char *path) {
    for (const char *const *a = o->allowed_host_paths; a && *a; a++) {
        _cleanup_free_ char *real = realpath(*a, NULL);
        if (real && path_is_below(path, real))
            return true;
    }
    return false;
}

/* The longest part of the path that exists, resolved; *ret_rest: what is missing below it. */
char *volume_existing_part(const char *path, const char **ret_rest) {
    _cleanup_free_ char *part = strdup(path);
    char *slash, *real = NULL;

    while (part && !real && (slash = strrchr(part, '/'))) {
        slash[slash == part] = '\0'; /* the root keeps its own */
        real = realpath(part, NULL);
        if (!real && (errno != ENOENT || slash == part))
            return NULL;
    }
    if (real)
        *ret_rest = path + strlen(part) + (part[1] != '\0');
    return real; /* NOLINT(clang-analyzer-unix.Malloc): _cleanup_ */
}

/* Makes the missing directories below an opened one, never through a link that appears meanwhile.
 */
int volume_make_below(const char *real, const char *rest) {
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = root < 0  ? -errno
             : real[1] ? path_open_no_links(root, real + 1, O_PATH | O_DIRECTORY)
                       : fcntl(root, F_DUPFD_CLOEXEC, 0);

    while (fd >= 0 && *rest) {
        size_t n = strcspn(rest, "/");
        _cleanup_free_ char *name = str_ndup(rest, n);
        int next = !name ? -ENOMEM
                   : mkdirat(fd, name, 0755) < 0 && errno != EEXIST
                       ? -errno
                       : path_open_no_links(fd, name, O_PATH | O_DIRECTORY);
        fd_close(fd);
        fd = next;
        rest += n + (rest[n] == '/');
    }
    if (fd < 0)
        return fd;
    fd_close(fd);
    return 0;
}

static enum fault make_directory(const struct service_opts *o, const struct create_request *rq,
                                 const struct volume_request *v, const char *path,
                                 struct err *err) {
    const char *rest = "";
    _cleanup_free_ char *real = volume_existing_part(path, &rest);
    _cleanup_free_ char *full = real ? path_join(real, rest) : NULL;

    if (full && !rq->is_operator && !is_allowed_resolved(o, full))
        return volume_fail(err, FAULT_VOLUME_NOT_ALLOWED, v,
                           "host.path leads outside of storage.allowed_host_paths.");
    int r = full ? volume_make_below(real, rest) : -ENOENT;
    if (r < 0) {
        err_sys(err, r, "Volume '%.63s': host path cannot be created", v->name);
        return FAULT_VOLUME_CREATE;
    }
    return FAULT_NONE;
}

enum fault volume_host_resolve(const struct service_opts *o, const struct create_request *rq,
                               const struct volume_request *v, char **ret, struct err *err) {
    _cleanup_free_ char *joined =
        v->sub_path && *v->sub_path ? path_join(v->host_path, v->sub_path) : strdup(v->host_path);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): _cleanup_ */
    _cleanup_free_ char *path = joined ? path_clean(joined) : NULL;

    if (!path)
        return create_no_memory(err);
    char *real = realpath(path, NULL);
    if (!real && errno == ENOENT) {
        enum fault f = make_directory(o, rq, v, path, err);
        if (f)
            return f;
        real = realpath(path, NULL);
    }
    if (!real) {
        err_sys(err, -errno, "Volume '%.63s': host path cannot be resolved", v->name);
        return FAULT_VOLUME_CREATE;
    }
    if (!rq->is_operator && !is_allowed_resolved(o, real)) {
        free(real);
        return volume_fail(err, FAULT_VOLUME_NOT_ALLOWED, v,
                           "host.path leads outside of storage.allowed_host_paths.");
    }
    *ret = real;
    return FAULT_NONE;
}
