/*
 * Snapshots by commit (lifecycle.md 6.2): image opensandbox-snapshots:<snapshot id>. The engine
 * freezes the sandbox while it copies. What belongs to the sandbox alone (our labels, its tokens,
 * its id) is blanked in the image: a commit can replace a value, not remove it, and everywhere
 * here an empty one counts as absent.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <string.h>

#include "base/crash.h"

#define REPOSITORY "opensandbox-snapshots"

static bool is_own_label(const char *key) {
    return str_starts(key, "opensandbox.io/");
}

/* Of the sandbox, not of what runs in it; ends with '=' or is a prefix. */
static bool is_own_variable(const char *var) {
    static const char *const own[] = {"EXECD_ACCESS_TOKEN=", "EXECD_INIT=", "OPENSANDBOX_ID=",
                                      "OPENSANDBOX_EGRESS_", "JUPYTER_TOKEN="};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        if (str_starts(var, own[i]))
            return true;
    return false;
}

/* The configuration that a commit lays over the container's own. Pure. */
json_t *docker_snapshot_config(const json_t *inspect) {
    const json_t *config = json_object_get(inspect, "Config");
    json_t *labels = json_object(), *env = json_array(), *value;
    const char *key;
    size_t i;

    json_object_foreach(json_object_get(config, "Labels"), key, value) {
        if (is_own_label(key))
            json_object_set_new(labels, key, json_string(""));
    }
    json_array_foreach(json_object_get(config, "Env"), i, value) {
        const char *var = json_string_value(value), *end = var ? strchr(var, '=') : NULL;
        if (end && is_own_variable(var))
            json_array_append_new(env, json_stringn(var, (size_t)(end - var) + 1));
    }
    return json_pack("{s:o, s:o}", "Labels", labels, "Env", env);
}

int docker_snapshot_create(struct driver *d, const char *id, const char *snapshot_id,
                           char **ret_image, struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *inspect = NULL, *config = NULL;
    int r = docker_lookup(k, id, &inspect, err);

    if (r < 0)
        return r;
    config = docker_snapshot_config(inspect);
    _cleanup_free_ char *image = str_printf(REPOSITORY ":%s", snapshot_id);
    if (!config || !image)
        return err_set(err, -ENOMEM, "out of memory");
    crash_point("snapshot-commit");
    r = engine_container_commit(k->engine, json_str(inspect, "Id"), REPOSITORY, snapshot_id, config,
                                NULL, NULL, err);
    crash_point("snapshot-committed");
    if (r < 0)
        return r;
    *ret_image = TAKE_PTR(image);
    return 0;
}

int docker_snapshot_exists(struct driver *d, const char *image, struct err *err) {
    return engine_image_inspect(docker_of(d)->engine, image, NULL, err);
}

int docker_snapshot_remove(struct driver *d, const char *image, struct err *err) {
    int r = engine_image_remove(docker_of(d)->engine, image, false, err);
    return r == -ENOENT ? 0 : r;
}
