/*
 * Named volumes: looked up or made by the driver, a part of one reached through its mountpoint. A
 * volume ends with the sandbox only if it was made here for it. The service's volumes.c calls this;
 * volume_named_check is pure, the rest blocks.
 */
#include <errno.h>
#include <string.h>

#include "base/path.h"
#include "daemon/sandbox/volumes.h"

#define CLAIM_MAX 253

/* Volumes that the server makes for what belongs to one sandbox: its guard's keys lie there. */
static bool is_of_a_sandbox(const char *claim) {
    return str_starts(claim, "opensandbox-runtime-") || str_starts(claim, "opensandbox-win-oem-");
}

enum fault volume_named_check(const struct driver_rules *rules, const struct volume_request *v,
                              struct err *err) {
    if (!v->claim || !str_is_dns_label(v->claim) || strlen(v->claim) > CLAIM_MAX)
        return volume_fail(err, FAULT_VOLUME_NAMED, v,
                           "pvc.claimName must be at most 253 lower-case letters, digits and '-'.");
    if (is_of_a_sandbox(v->claim))
        return volume_fail(err, FAULT_VOLUME_NAMED, v,
                           "pvc.claimName is one of a sandbox's own volumes.");
    if (!rules->named_volumes) {
        err_set(err, -EOPNOTSUPP, "Volume '%.63s': pvc is not supported by the %s provider.",
                v->name, provider_title(rules));
        return FAULT_VOLUME_UNSUPPORTED;
    }
    return FAULT_NONE;
}

/* What cannot be seen from here may be a link to any path of the machine: the engine would follow
 * it. */
static enum fault cannot_tell(const struct volume_request *v, struct err *err) {
    return volume_fail(err, FAULT_VOLUME_SUB_PATH, v,
                       "subPath cannot be checked: this server cannot read the volume's files "
                       "(no permission, or another machine's engine).");
}

/* The real path; a missing directory is made, as the engine would do it. */
static enum fault resolve_part(const struct volume_request *v, const char *mountpoint,
                               const char *path, char **ret, struct err *err) {
    _cleanup_free_ char *root = realpath(mountpoint, NULL);
    const char *rest = "";
    char *real = root ? realpath(path, NULL) : NULL;

    if (root && !real && errno == ENOENT) {
        _cleanup_free_ char *part = volume_existing_part(path, &rest);
        if (part && path_is_below(part, root) && volume_make_below(part, rest) >= 0)
            real = realpath(path, NULL);
        else if (part) /* the engine makes what is missing, or it leads outside */
            real = path_is_below(part, root) ? path_join(part, rest) : strdup(part);
    }
    if (!real)
        return cannot_tell(v, err);
    if (!path_is_below(real, root)) {
        free(real);
        return volume_fail(err, FAULT_VOLUME_SUB_PATH, v,
                           "subPath leads outside of the volume through a symlink.");
    }
    *ret = real;
    return FAULT_NONE;
}

static enum fault take_part(const struct volume_request *v, const struct volume_info *info,
                            struct mount_spec *ret, struct err *err) {
    if (strcmp(info->driver, "local") != 0 || str_is_empty(info->mountpoint)) {
        err_set(
            err, -EINVAL,
            "Volume '%.63s': subPath needs a volume of driver 'local' with a mountpoint; '%.63s' "
            "is of driver '%.60s'.",
            v->name, v->claim, info->driver);
        return FAULT_VOLUME_SUBPATH_DRIVER;
    }
    _cleanup_free_ char *root = path_clean(info->mountpoint);
    _cleanup_free_ char *joined = root ? path_join(root, v->sub_path) : NULL;
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): _cleanup_ */
    _cleanup_free_ char *path = joined ? path_clean(joined) : NULL;
    if (!path)
        return create_no_memory(err);
    if (!path_is_below(path, root))
        return volume_fail(err, FAULT_VOLUME_SUB_PATH, v, "subPath leads outside of the volume.");
    return resolve_part(v, root, path, &ret->source, err);
}

static enum fault take(const struct volume_request *v, struct volume_info *info,
                       struct mount_spec *ret, struct strv *own, struct err *err) {
    if (info->created && v->delete_on_termination && strv_add(own, v->claim) < 0)
        return create_no_memory(err);
    if (!str_is_empty(v->sub_path))
        return take_part(v, info, ret, err);
    ret->volume = strdup(v->claim);
    ret->source = TAKE_PTR(info->mountpoint);
    return ret->volume ? FAULT_NONE : create_no_memory(err);
}

enum fault volume_named_resolve(struct driver *d, const char *sandbox_id,
                                const struct volume_request *v, struct mount_spec *ret,
                                struct strv *own, struct err *err) {
    struct volume_info info = {0};
    int r = d->ops->volume_open(d, v->claim, v->create_if_missing ? sandbox_id : NULL, &info, err);

    if (r == -ENOENT) {
        err_set(err, r, "Volume '%.63s': the named volume '%.253s' does not exist.", v->name,
                v->claim);
        return FAULT_VOLUME_MISSING;
    }
    if (r < 0)
        return r == -ENOSPC ? FAULT_FULL : FAULT_VOLUME_INSPECT;
    enum fault f = take(v, &info, ret, own, err);
    free(info.mountpoint);
    return f;
}
