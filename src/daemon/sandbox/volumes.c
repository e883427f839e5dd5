/*
 * Volumes of a create: the lexical rules, then (on a worker) the resolution of host paths. What is
 * mounted is the resolved path that was checked, never the name that was given. Only the service
 * calls this.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "daemon/sandbox/check.h"

static enum fault fail(struct err *err, enum fault f, const struct volume_request *v,
                       const char *text) {
    err_set(err, -EINVAL, "Volume '%.63s': %s", v->name, text);
    return f;
}

static bool is_dns_label(const char *s, size_t max) {
    size_t n = strlen(s);

    if (n == 0 || n > max || s[0] == '-' || s[n - 1] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && s[i] != '-')
            return false;
    return true;
}

static bool has_dotdot(const char *path) {
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2]))
            return true;
        if (!strchr(p, '/'))
            break;
    }
    return false;
}

/* Equal to an entry, or below it at a '/' boundary. */
static bool is_below(const char *path, const char *entry) {
    size_t n = strlen(entry);
    while (n > 1 && entry[n - 1] == '/')
        n--;
    if (n == 1 && entry[0] == '/')
        return true;
    return strncmp(path, entry, n) == 0 && (path[n] == '/' || !path[n]);
}

static bool is_allowed(const struct service_opts *o, const char *path) {
    for (const char *const *a = o->allowed_host_paths; a && *a; a++)
        if (is_below(path, *a))
            return true;
    return false;
}

static enum fault check_host_path(const struct service_opts *o, const struct create_request *rq,
                                  const struct volume_request *v, struct err *err) {
    const char *p = v->host_path;

    if (p[0] != '/' || has_dotdot(p) || strstr(p, "//") || (p[1] && p[strlen(p) - 1] == '/'))
        return fail(err, FAULT_VOLUME_HOST_PATH, v,
                    "host.path must be absolute, without '..', '//' or a '/' at the end.");
    if (!rq->is_operator && !is_allowed(o, p))
        return fail(err, FAULT_VOLUME_NOT_ALLOWED, v,
                    "host.path is not below a path of storage.allowed_host_paths.");
    return FAULT_NONE;
}

static enum fault check_one(const struct service_opts *o, const struct create_request *rq, size_t i,
                            struct err *err) {
    const struct volume_request *v = &rq->volumes[i];

    for (size_t k = 0; k < i; k++)
        if (strcmp(rq->volumes[k].name, v->name) == 0)
            return fail(err, FAULT_VOLUME_DUPLICATE, v, "the name is used twice.");
    if (!is_dns_label(v->name, 63))
        return fail(err, FAULT_VOLUME_NAME, v,
                    "the name must be at most 63 lower-case letters, digits and '-'.");
    if (v->mount_path[0] != '/')
        return fail(err, FAULT_VOLUME_MOUNT_PATH, v, "mountPath must be absolute.");
    if (has_dotdot(v->mount_path))
        return fail(err, FAULT_VOLUME_MOUNT_PATH, v, "mountPath must not contain '..'.");
    if (v->sub_path && (v->sub_path[0] == '/' || has_dotdot(v->sub_path)))
        return fail(err, FAULT_VOLUME_SUB_PATH, v, "subPath must be relative and without '..'.");
    if (v->n_backends != 1)
        return fail(err, FAULT_VOLUME_BACKEND, v,
                    "exactly one of host, pvc and ossfs must be given.");
    if (v->kind != VOLUME_HOST)
        return fail(err, FAULT_VOLUME_UNSUPPORTED, v,
                    "only host volumes are supported by the native provider yet.");
    return check_host_path(o, rq, v, err);
}

enum fault check_volumes(const struct service_opts *o, const struct create_request *rq,
                         struct err *err) {
    enum fault f = FAULT_NONE;
    for (size_t i = 0; i < rq->n_volumes && !f; i++)
        f = check_one(o, rq, i, err);
    return f;
}

/* The allow list again, after links: an entry that is itself a link counts by what it leads to. */
static bool is_allowed_resolved(const struct service_opts *o, const char *path) {
    for (const char *const *a = o->allowed_host_paths; a && *a; a++) {
        _cleanup_free_ char *real = realpath(*a, NULL);
        if (real && is_below(path, real))
            return true;
    }
    return false;
}

/* The longest part of the path that exists, resolved; *ret_rest: what is missing below it. */
static char *existing_part(const char *path, const char **ret_rest) {
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
static int make_below(const char *real, const char *rest) {
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
    _cleanup_free_ char *real = existing_part(path, &rest);
    _cleanup_free_ char *full = real ? path_join(real, rest) : NULL;

    if (full && !rq->is_operator && !is_allowed_resolved(o, full))
        return fail(err, FAULT_VOLUME_NOT_ALLOWED, v,
                    "host.path leads outside of storage.allowed_host_paths.");
    int r = full ? make_below(real, rest) : -ENOENT;
    if (r < 0) {
        err_sys(err, r, "Volume '%.63s': host path cannot be created", v->name);
        return FAULT_VOLUME_CREATE;
    }
    return FAULT_NONE;
}

static enum fault resolve(const struct service_opts *o, const struct create_request *rq,
                          const struct volume_request *v, char **ret, struct err *err) {
    _cleanup_free_ char *joined =
        v->sub_path && *v->sub_path ? path_join(v->host_path, v->sub_path) : strdup(v->host_path);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): _cleanup_ */
    _cleanup_free_ char *path = joined ? path_clean(joined) : NULL;

    if (!path) {
        err_set(err, -ENOMEM, "out of memory");
        return FAULT_CREATE;
    }
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
        return fail(err, FAULT_VOLUME_NOT_ALLOWED, v,
                    "host.path leads outside of storage.allowed_host_paths.");
    }
    *ret = real;
    return FAULT_NONE;
}

enum fault volumes_resolve(const struct service_opts *o, const struct create_request *rq,
                           struct sandbox_spec *spec, struct err *err) {
    if (rq->n_volumes == 0)
        return FAULT_NONE;
    spec->mounts = calloc(rq->n_volumes, sizeof *spec->mounts);
    for (size_t i = 0; i < rq->n_volumes; i++) {
        const struct volume_request *v = &rq->volumes[i];
        struct mount_spec *m = spec->mounts ? &spec->mounts[spec->n_mounts] : NULL;
        if (!m || !(m->target = path_clean(v->mount_path))) {
            err_set(err, -ENOMEM, "out of memory");
            return FAULT_CREATE;
        }
        spec->n_mounts++;
        m->read_only = v->read_only;
        enum fault f = resolve(o, rq, v, &m->source, err);
        if (f)
            return f;
    }
    return FAULT_NONE;
}
