/* Permission objects (see perm.h). Owns its two names. May run on worker threads: no shared state.
 */
#include "execd/perm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "execd/body.h"
#include "execd/users.h"

void perm_done(struct perm *p) {
    free(p->owner);
    free(p->group);
    *p = (struct perm){0};
}

/* 755 means 0755. */
static int parse_mode(int64_t digits, mode_t *ret) {
    mode_t mode = 0;
    int shift = 0;

    if (digits < 0 || digits > 7777)
        return -EINVAL;
    for (; digits > 0; digits /= 10, shift += 3) {
        if (digits % 10 > 7)
            return -EINVAL;
        mode |= (mode_t)(digits % 10) << shift;
    }
    *ret = mode;
    return 0;
}

int perm_parse(const json_t *obj, struct perm *ret, struct err *err) {
    const char *owner = NULL, *group = NULL;
    struct perm p = {0};
    int64_t digits = 0;
    int r = body_str(obj, "owner", &owner, err);

    if (r == 0)
        r = body_str(obj, "group", &group, err);
    if (r == 0)
        r = body_int(obj, "mode", 0, INT32_MAX, &digits, err);
    if (r == 0 && parse_mode(digits, &p.mode) < 0)
        r = err_set(err, -EINVAL, "mode %lld is not made of octal digits", (long long)digits);
    p.has_mode = digits != 0;
    if (r == 0 && ((!str_is_empty(owner) && !(p.owner = strdup(owner))) ||
                   (!str_is_empty(group) && !(p.group = strdup(group)))))
        r = err_set(err, -ENOMEM, "out of memory");
    if (r < 0)
        perm_done(&p);
    else
        *ret = p;
    return r;
}

static int resolve(const struct perm *p, uid_t *uid, gid_t *gid, struct err *err) {
    _cleanup_(users_done) struct users u = {0};

    *uid = (uid_t)-1;
    *gid = (gid_t)-1;
    if (!p->owner && !p->group)
        return 0;
    users_load(&u, NULL);
    if (p->owner && users_resolve_owner(&u, p->owner, uid) < 0)
        return err_set(err, -ENXIO, "there is no account named %s", p->owner);
    if (p->group && users_resolve_group(&u, p->group, gid) < 0)
        return err_set(err, -ENXIO, "there is no group named %s", p->group);
    return 0;
}

int perm_apply_fd(const struct perm *p, int fd, struct err *err) {
    uid_t uid;
    gid_t gid;
    int r = resolve(p, &uid, &gid, err);

    if (r < 0)
        return r;
    if ((p->owner || p->group) && fchown(fd, uid, gid) < 0)
        return err_sys(err, -errno, "cannot change the owner");
    if (p->has_mode && fchmod(fd, p->mode) < 0)
        return err_sys(err, -errno, "cannot change the mode");
    return 0;
}

int perm_apply_path(const struct perm *p, const char *path, struct err *err) {
    uid_t uid;
    gid_t gid;
    int r = resolve(p, &uid, &gid, err);

    if (r < 0)
        return r;
    if ((p->owner || p->group) && chown(path, uid, gid) < 0)
        return err_sys(err, -errno, "%s: cannot change the owner", path);
    if (p->has_mode && chmod(path, p->mode) < 0)
        return err_sys(err, -errno, "%s: cannot change the mode", path);
    return 0;
}

int perm_make_parents(const struct perm *p, const char *path, struct err *err) {
    _cleanup_free_ char *copy = strdup(path);
    const struct perm owner_only = {.owner = p->owner, .group = p->group};

    if (!copy)
        return err_set(err, -ENOMEM, "out of memory");
    for (char *slash = strchr(copy + (*copy == '/'), '/'); slash; slash = strchr(slash + 1, '/')) {
        int r = 0;
        *slash = 0;
        if (mkdir(copy, 0777) == 0)
            r = perm_apply_path(&owner_only, copy, err);
        else if (errno != EEXIST && access(copy, F_OK) < 0)
            r = err_sys(err, -errno, "cannot make directory %s", copy);
        if (r < 0)
            return r;
        *slash = '/';
    }
    return 0;
}
