/*
 * Named volumes of the engine (lifecycle.md 4.10). Those that the server made carry its mark, for
 * which sandbox, and of which daemon: only such are ever removed.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <string.h>

static int read_volume(const json_t *v, struct volume_info *ret, struct err *err) {
    const char *mountpoint = json_str(v, "Mountpoint");

    memset(ret, 0, sizeof *ret);
    str_copy(ret->driver, sizeof ret->driver, json_str(v, "Driver") ?: "");
    if (str_is_empty(mountpoint))
        return 0;
    ret->mountpoint = strdup(mountpoint);
    return ret->mountpoint ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int fail(struct err *err, const char *name, const struct err *cause) {
    return err_set(err, DRIVER_VOLUME_INSPECT, "Volume '%s': %s", name, err_text(cause));
}

/* Makes it; one that somebody made in the meantime is taken as it is. */
static int make(struct docker *k, const char *name, const char *create_for, struct volume_info *ret,
                struct err *err) {
    struct err cause = {0};
    _cleanup_json_ json_t *v = NULL, *labels = json_pack("{s:s, s:s, s:s}", LABEL_MANAGED_BY,
                                                         "server", LABEL_CREATED_FOR, create_for,
                                                         LABEL_INSTANCE, k->instance);

    if (!labels)
        return err_set(err, -ENOMEM, "out of memory");
    if (engine_volume_create(k->engine, name, labels, &v, &cause) < 0)
        return fail(err, name, &cause);
    int r = read_volume(v, ret, err);
    if (r == 0)
        ret->created =
            str_eq(json_str(json_object_get(v, "Labels"), LABEL_CREATED_FOR), create_for);
    return r;
}

int docker_volume_open(struct driver *d, const char *name, const char *create_for,
                       struct volume_info *ret, struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *v = NULL;
    struct err cause = {0};
    int r = engine_volume_inspect(k->engine, name, &v, &cause);

    if (r == 0)
        return read_volume(v, ret, err);
    if (r != -ENOENT)
        return fail(err, name, &cause);
    if (!create_for)
        return err_set(err, -ENOENT, "Volume '%s' does not exist.", name);
    return make(k, name, create_for, ret, err);
}

/* Did the server make it, for that sandbox? One of an opensandbox-server names none. Pure. */
bool docker_volume_is_ours(const struct docker *k, const json_t *labels, const char *created_for) {
    const char *made_for = json_str(labels, LABEL_CREATED_FOR);

    return str_eq(json_str(labels, LABEL_MANAGED_BY), "server") && docker_is_mine(k, labels) &&
           (!created_for || str_is_empty(made_for) || str_eq(made_for, created_for));
}

int docker_volume_remove(struct driver *d, const char *name, const char *created_for,
                         struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *v = NULL;
    int r = engine_volume_inspect(k->engine, name, &v, err);

    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    if (!docker_volume_is_ours(k, json_object_get(v, "Labels"), created_for))
        return 0;
    r = engine_volume_remove(k->engine, name, false, err);
    return r == -ENOENT ? 0 : r;
}
