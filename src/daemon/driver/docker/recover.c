/*
 * Start-up (lifecycle.md 5.6): the store says what was promised, the engine what exists. Undone
 * sandboxes go with all that belongs to them; promised ones enter the index as they are; found_each
 * hands out what nobody knows. Runs before the first request.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"

static int list_sandboxes(struct docker *k, json_t **ret, struct err *err) {
    _cleanup_json_ json_t *filters = json_pack("{s:[s]}", "label", LABEL_ID);
    return engine_container_list(k->engine, true, filters, ret, err);
}

/* The sandbox of a list's entry when it is one of ours or nobody's, else NULL. */
static const char *id_of(const struct docker *k, const json_t *entry) {
    const json_t *labels = json_object_get(entry, "Labels");
    const char *id = json_str(labels, LABEL_ID);

    return !str_is_empty(id) && strlen(id) <= SANDBOX_ID_MAX && docker_is_mine(k, labels) ? id
                                                                                          : NULL;
}

/* A sandbox that our store has acknowledged and that carries another mark: the state directory was
 * moved, and its name is what the mark is made of. */
static int note_former(struct docker *k, const json_t *list, const json_t *known) {
    json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry) {
        const json_t *labels = json_object_get(entry, "Labels");
        const char *id = json_str(labels, LABEL_ID);
        if (!id || !json_object_get(known, id) || docker_is_mine(k, labels))
            continue;
        log_info("the state directory has moved: sandboxes with its former mark are ours",
                 LOG_STR("sandbox", id), LOG_STR("mark", json_str(labels, LABEL_INSTANCE)));
        if (strv_add(&k->former, json_str(labels, LABEL_INSTANCE)) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int remove_undone(struct docker *k, const char *const *undone, struct err *err) {
    for (size_t i = 0; undone && undone[i]; i++) {
        int r = docker_remove(&k->driver, undone[i], err);
        if (r < 0 && r != -ENOENT)
            return err_wrap(err, "removing what is left of sandbox %s", undone[i]), r;
        crash_point("recover-one");
    }
    return 0;
}

/* By the engine's id, since a name may be anybody's. One that vanished meanwhile is no error. */
static int index_entry(struct docker *k, const json_t *entry, json_t **ret_inspect,
                       struct err *err) {
    _cleanup_json_ json_t *inspect = NULL;
    int r = engine_container_inspect(k->engine, json_str(entry, "Id") ?: "", &inspect, err);

    if (r == 0 && !ret_inspect)
        r = docker_index_update(k, inspect, NULL, err);
    if (r == 0 && ret_inspect)
        *ret_inspect = TAKE_PTR(inspect);
    return r;
}

static bool is_indexed(struct docker *k, const char *id) {
    pthread_mutex_lock(&k->lock);
    bool yes = docker_find(k, id) != NULL;
    pthread_mutex_unlock(&k->lock);
    return yes;
}

/* Does the container bear the name that we gave to the sandbox's? */
static bool is_named(const json_t *entry, const char *id) {
    char name[SANDBOX_ID_MAX + 16];
    json_t *value;
    size_t i;

    snprintf(name, sizeof name, "/" SANDBOX_NAME_FORMAT, id);
    json_array_foreach(json_object_get(entry, "Names"), i, value) {
        if (str_eq(json_string_value(value), name))
            return true;
    }
    return false;
}

/* The name goes before the label, which another container may have as well (one that somebody ran
 * from a commit of the sandbox). */
static int index_known(struct docker *k, const json_t *list, const json_t *known, bool by_name,
                       struct err *err) {
    json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry) {
        const char *id = id_of(k, entry);
        if (!id || !json_object_get(known, id) || is_indexed(k, id) ||
            (by_name && !is_named(entry, id)))
            continue;
        int r = index_entry(k, entry, NULL, err);
        if (r < 0 && r != -ENOENT)
            return err_wrap(err, "sandbox %s", id), r;
    }
    return 0;
}

int docker_recover(struct driver *d, const char *const *known, const char *const *undone,
                   struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *list = NULL, *ids = json_object();
    int r = list_sandboxes(k, &list, err);

    for (size_t i = 0; known && known[i]; i++)
        json_object_set_new(ids, known[i], json_true());
    if (r == 0 && note_former(k, list, ids) < 0)
        r = err_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = remove_undone(k, undone, err);
    if (r == 0)
        r = index_known(k, list, ids, true, err);
    if (r == 0)
        r = index_known(k, list, ids, false, err);
    if (r < 0)
        return r;
    guard_collect_orphans(k);
    agent_collect(k);
    return 0;
}

/* ---- what nobody knows ---- */

/* The expiry: the record beside the engine, then the label; a text that is no time counts as
 * missing, and missing is worth a warning unless it is meant. */
static void settle_expiry(const json_t *inspect, int64_t recorded_us, struct found_sandbox *f) {
    const char *label = docker_label(inspect, LABEL_EXPIRES_AT);
    int64_t us = 0;

    if (recorded_us) {
        f->expires_us = recorded_us;
        return;
    }
    f->expires_us = label && rfc3339_parse(label, &us) == 0 ? us : 0;
    if (f->expires_us == 0 && label)
        log_warn("a sandbox's expiry cannot be read, it will not expire",
                 LOG_STR("sandbox", f->spec.id), LOG_STR("label", label));
    else if (f->expires_us == 0 && !docker_label(inspect, LABEL_MANUAL_CLEANUP))
        log_warn("a sandbox has no expiry, it will not expire", LOG_STR("sandbox", f->spec.id));
}

int docker_decode_found(const struct docker *k, const json_t *inspect, struct found_sandbox *ret,
                        struct err *err) {
    struct found_sandbox f = {0};
    json_t *metadata = NULL;
    int64_t recorded_us = 0;
    int r = docker_found(k, inspect, &f, err);

    if (r < 0) {
        found_sandbox_done(&f);
        return r;
    }
    legacy_read(k, f.spec.id, &recorded_us, &metadata);
    settle_expiry(inspect, recorded_us, &f);
    if (metadata) {
        json_decref(f.metadata);
        f.metadata = metadata;
    }
    *ret = f;
    return 0;
}

/* Says the image, and not who made the container, that it is a sandbox and at which ports of this
 * machine it is reached? Then its labels are the word of whoever made the image. A token alone may
 * be left of a snapshot of another server; it leads nowhere. */
static int check_origin(struct docker *k, const json_t *inspect, struct err *err) {
    static const char *const keys[] = {LABEL_ID, LABEL_AGENT_PORT, LABEL_HTTP_PORT};
    const char *ref = json_str(inspect, "Image"),
               *mode = json_str(json_object_get(inspect, "HostConfig"), "NetworkMode");
    size_t n = str_eq(mode, "host") ? 1 : ARRAY_SIZE(keys); /* there ports are not looked at */
    _cleanup_json_ json_t *image = NULL;
    int r = str_is_empty(ref) ? 0 : engine_image_inspect(k->engine, ref, &image, err);

    if (r < 0) /* one that is gone can say nothing, and keeps nothing from us */
        return r == -ENOENT ? 0 : r;
    for (size_t i = 0; i < n; i++) {
        const char *own = docker_label(inspect, keys[i]);
        if (own && str_eq(own, docker_label(image, keys[i])))
            return err_set(err, -EINVAL, "its label %s comes from its image", keys[i]);
    }
    return 0;
}

/* One entry of the list. */
static int hand_out(struct docker *k, const json_t *entry, const char *id,
                    int (*cb)(struct found_sandbox *f, void *ud), void *ud, struct err *err) {
    _cleanup_json_ json_t *inspect = NULL;
    struct found_sandbox f;
    struct err cause = {0};
    int r = index_entry(k, entry, &inspect, err);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (check_origin(k, inspect, &cause) < 0 || docker_decode_found(k, inspect, &f, &cause) < 0) {
        log_warn("a container that looks like a sandbox cannot be taken over",
                 LOG_STR("sandbox", id), LOG_ERR(&cause));
        return 0;
    }
    r = docker_index_update(k, inspect, NULL, err);
    if (r == 0) {
        log_info("taking a sandbox over", LOG_STR("sandbox", id));
        r = cb(&f, ud);
        if (r < 0) {
            docker_index_drop(k, id);
            if (err && !err->code)
                err_sys(err, r, "taking over sandbox %s", id);
        }
    }
    found_sandbox_done(&f);
    return r;
}

int docker_found_each(struct driver *d, int (*cb)(struct found_sandbox *f, void *ud), void *ud,
                      struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *list = NULL;
    json_t *entry;
    size_t i;
    int r = list_sandboxes(k, &list, err);

    json_array_foreach(list, i, entry) {
        const char *id = id_of(k, entry);
        if (id && !is_indexed(k, id) && (r = hand_out(k, entry, id, cb, ud, err)) < 0)
            return r;
    }
    return r;
}
