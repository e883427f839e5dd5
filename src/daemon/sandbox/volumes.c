/*
 * Volumes of a create: the lexical rules of all kinds, and the order of what is done for them.
 * Which volumes end with the sandbox is decided before anything is made (volumes_plan: candidates,
 * for the intent row) and narrowed to those that were really made here (volumes_resolve). Only the
 * service calls this.
 */
#include "daemon/sandbox/volumes.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"
#include "daemon/sandbox/ossfs.h"

enum fault volume_fail(struct err *err, enum fault f, const struct volume_request *v,
                       const char *text) {
    err_set(err, -EINVAL, "Volume '%.63s': %s", v->name, text);
    return f;
}

bool path_has_dotdot(const char *path) {
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
bool path_is_below(const char *path, const char *entry) {
    size_t n = strlen(entry);
    while (n > 1 && entry[n - 1] == '/')
        n--;
    if (n == 1 && entry[0] == '/')
        return true;
    return strncmp(path, entry, n) == 0 && (path[n] == '/' || !path[n]);
}

static enum fault check_one(const struct service_opts *o, const struct create_request *rq, size_t i,
                            struct err *err) {
    const struct volume_request *v = &rq->volumes[i];

    for (size_t k = 0; k < i; k++)
        if (strcmp(rq->volumes[k].name, v->name) == 0)
            return volume_fail(err, FAULT_VOLUME_DUPLICATE, v, "the name is used twice.");
    if (!str_is_dns_label(v->name) || strlen(v->name) > 63)
        return volume_fail(err, FAULT_VOLUME_NAME, v,
                           "the name must be at most 63 lower-case letters, digits and '-'.");
    if (v->mount_path[0] != '/')
        return volume_fail(err, FAULT_VOLUME_MOUNT_PATH, v, "mountPath must be absolute.");
    if (path_has_dotdot(v->mount_path))
        return volume_fail(err, FAULT_VOLUME_MOUNT_PATH, v, "mountPath must not contain '..'.");
    if (v->sub_path && (v->sub_path[0] == '/' || path_has_dotdot(v->sub_path)))
        return volume_fail(err, FAULT_VOLUME_SUB_PATH, v,
                           "subPath must be relative and without '..'.");
    if (v->n_backends != 1)
        return volume_fail(err, FAULT_VOLUME_BACKEND, v,
                           "exactly one of host, pvc and ossfs must be given.");
    switch (v->kind) {
    case VOLUME_HOST:
        return volume_host_check(o, rq, v, err);
    case VOLUME_NAMED:
        return volume_named_check(&o->driver->rules, v, err);
    case VOLUME_OSS:
        if (o->driver->rules.oss_volumes)
            return ossfs_check(o->oss_root ? o->oss_root : OSS_ROOT, v, err);
    }
    err_set(err, -EOPNOTSUPP, "Volume '%.63s': ossfs is not supported by the %s provider.", v->name,
            provider_title(&o->driver->rules));
    return FAULT_VOLUME_UNSUPPORTED;
}

enum fault check_volumes(const struct service_opts *o, const struct create_request *rq,
                         struct err *err) {
    enum fault f = FAULT_NONE;
    for (size_t i = 0; i < rq->n_volumes && !f; i++)
        f = check_one(o, rq, i, err);
    return f;
}

static bool has(const struct strv *list, const char *s) {
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->v[i], s) == 0)
            return true;
    return false;
}

/* One key counts once, however many volumes of the request have it. */
static enum fault plan_oss(struct service *s, struct volume_request *v, struct sandbox *sb,
                           struct err *err) {
    struct strv *paths = &sb->spec.oss_mounts;
    char tag[OSS_TAG_LEN + 1];
    char *path;
    enum fault f = ossfs_reserve(s->oss, v, &path, tag, err);

    if (f)
        return f;
    free(v->host_path);
    v->host_path = path;
    if (has(paths, path)) {
        ossfs_unreserve(s->oss, path);
        return FAULT_NONE;
    }
    if (strv_add(&sb->oss_tags, tag) == 0 && strv_add(paths, path) == 0)
        return FAULT_NONE;
    ossfs_unreserve(s->oss, path);
    return create_no_memory(err);
}

static enum fault plan_named(const struct volume_request *v, struct sandbox_spec *spec,
                             struct err *err) {
    if (!v->create_if_missing || !v->delete_on_termination || has(&spec->own_volumes, v->claim))
        return FAULT_NONE;
    return strv_add(&spec->own_volumes, v->claim) < 0 ? create_no_memory(err) : FAULT_NONE;
}

static void release_mounts(struct service *s, const struct sandbox_spec *spec) {
    for (size_t i = spec->oss_mounts.n; i > 0; i--)
        ossfs_release(s->oss, spec->oss_mounts.v[i - 1]);
}

enum fault volumes_plan(struct service *s, struct create_request *rq, struct sandbox *sb,
                        struct err *err) {
    enum fault f = FAULT_NONE;

    for (size_t i = 0; i < rq->n_volumes && !f; i++) {
        struct volume_request *v = &rq->volumes[i];
        if (v->kind == VOLUME_NAMED)
            f = plan_named(v, &sb->spec, err);
        else if (v->kind == VOLUME_OSS)
            f = plan_oss(s, v, sb, err);
    }
    if (f)
        release_mounts(s, &sb->spec);
    return f;
}

static enum fault resolve_one(struct service *s, const struct create_request *rq,
                              const struct volume_request *v, const char *id, struct mount_spec *m,
                              struct strv *own, struct err *err) {
    if (v->kind == VOLUME_NAMED)
        return volume_named_resolve(s->o.driver, id, v, m, own, err);
    if (v->kind == VOLUME_OSS)
        return (m->source = strdup(v->host_path)) ? FAULT_NONE : create_no_memory(err);
    return volume_host_resolve(&s->o, rq, v, &m->source, err);
}

enum fault volumes_resolve(struct service *s, const struct create_request *rq,
                           struct sandbox_spec *spec, struct err *err) {
    struct strv own = {0};
    enum fault f = FAULT_NONE;

    if (rq->n_volumes == 0)
        return FAULT_NONE;
    spec->mounts = calloc(rq->n_volumes, sizeof *spec->mounts);
    for (size_t i = 0; i < rq->n_volumes && !f; i++) {
        const struct volume_request *v = &rq->volumes[i];
        struct mount_spec *m = spec->mounts ? &spec->mounts[spec->n_mounts] : NULL;
        if (!m || !(m->target = path_clean(v->mount_path))) {
            f = create_no_memory(err);
            break;
        }
        spec->n_mounts++;
        m->read_only = v->read_only;
        f = resolve_one(s, rq, v, spec->id, m, &own, err);
    }
    strv_done(&spec->own_volumes);
    spec->own_volumes = own;
    return f;
}

enum fault volumes_mount(struct service *s, const struct create_request *rq, struct err *err) {
    enum fault f = FAULT_NONE;

    for (size_t i = 0; i < rq->n_volumes && !f; i++)
        if (rq->volumes[i].kind == VOLUME_OSS)
            f = ossfs_mount(s->oss, rq->volumes[i].host_path, &rq->volumes[i], err);
    return f;
}

static void remove_volumes(struct service *s, const struct sandbox_spec *spec,
                           const char *created_for) {
    const struct strv *names = &spec->own_volumes;
    struct driver *d = s->o.driver;

    for (size_t i = names->n; i > 0 && d->ops->volume_remove; i--) {
        struct err err = {0};
        if (d->ops->volume_remove(d, names->v[i - 1], created_for, &err) < 0)
            log_warn("a volume of the server stays", LOG_STR("volume", names->v[i - 1]),
                     LOG_ERR(&err));
    }
}

void volumes_undo(struct service *s, const struct sandbox_spec *spec) {
    release_mounts(s, spec);
    remove_volumes(s, spec, spec->id);
}

void volumes_release(struct service *s, const struct sandbox_spec *spec) {
    release_mounts(s, spec);
    remove_volumes(s, spec, NULL);
}

void volumes_forget(struct service *s, const struct sandbox_spec *spec, const char *created_for) {
    for (size_t i = spec->oss_mounts.n; i > 0; i--)
        ossfs_drop(s->oss, spec->oss_mounts.v[i - 1]);
    remove_volumes(s, spec, created_for);
}
