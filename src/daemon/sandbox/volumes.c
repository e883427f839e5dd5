/*
 * Volumes of a create: the lexical rules, then (on a worker) the resolution of host paths. What is
 * mounted is the resolved path that was checked, never the name that was given. Only the service
 * calls this.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

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

/* The longest part of the path that exists must be allowed before the rest is created. */
static enum fault make_directory(const struct service_opts *o, const struct create_request *rq,
                                 const struct volume_request *v, const char *path,
                                 struct err *err) {
    _cleanup_free_ char *part = strdup(path);
    char *slash;

    while (part && (slash = strrchr(part, '/')) && slash != part) {
        *slash = '\0';
        _cleanup_free_ char *real = realpath(part, NULL);
        if (!real && errno == ENOENT)
            continue;
        if (!real)
            break;
        _cleanup_free_ char *full =
            str_printf("%s%s", strcmp(real, "/") == 0 ? "" : real, path + strlen(part));
        if (!full || (!rq->is_operator && !is_allowed_resolved(o, full)))
            return fail(err, FAULT_VOLUME_NOT_ALLOWED, v,
                        "host.path leads outside of storage.allowed_host_paths.");
        break;
    }
    int r = path_mkdirs_at(AT_FDCWD, path, 0755);
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
