/*
 * Removal, pause, resume and looking at one or all (lifecycle.md 5.5). The service runs one
 * operation at a time for a sandbox. What depends on a sandbox (guard, volumes made by the driver,
 * records) goes only after its container is gone, so that a failed removal can be repeated whole.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <string.h>

#include "base/crash.h"
#include "base/log.h"

#define NOT_RUNNING "Sandbox is not in a running state."
#define NOT_PAUSED "Sandbox is not in a paused state."

/* Our own removal makes events that are no news. */
static void mark_leaving(struct docker *k, const char *id, bool leaving) {
    pthread_mutex_lock(&k->lock);
    struct box *b = docker_find(k, id);
    if (b)
        b->is_leaving = leaving;
    pthread_mutex_unlock(&k->lock);
}

/* The engine's own word on a container after a refusal; INST_GONE when it cannot be had. */
static enum instance_state state_now(struct docker *k, const char *container) {
    _cleanup_json_ json_t *j = NULL;
    struct instance_info now = {.state = INST_GONE};

    if (engine_container_inspect(k->engine, container, &j, NULL) == 0)
        docker_read_state(j, &now);
    return now.state;
}

static int remove_container(struct docker *k, const json_t *inspect, struct err *err) {
    const char *container = json_str(inspect, "Id");
    struct instance_info now;
    struct err cause = {0};
    int r;

    docker_read_state(inspect, &now);
    if (now.state == INST_RUNNING || now.state == INST_PAUSED) {
        r = engine_container_kill(k->engine, container, "KILL", &cause);
        if (r < 0 && r != -ENOENT && r != -EBUSY)
            return err_set(err, r, "%s", err_text(&cause));
    }
    crash_point("remove-killed");
    r = engine_container_remove(k->engine, container, true, err);
    crash_point("remove-container");
    return r == -ENOENT ? 0 : r;
}

/* Is there a sidecar to look for? A sandbox with one carries its token, or stands in its network.
 */
static bool may_have_guard(const json_t *inspect) {
    const char *mode = json_str(json_object_get(inspect, "HostConfig"), "NetworkMode");
    return docker_label(inspect, LABEL_GUARD_TOKEN) || str_starts(mode ?: "", "container:");
}

int docker_remove(struct driver *d, const char *id, struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *inspect = NULL;
    int r = docker_lookup(k, id, &inspect, err);

    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0) {
        mark_leaving(k, id, true);
        r = remove_container(k, inspect, err);
        if (r < 0) {
            mark_leaving(k, id, false);
            return r;
        }
    }
    /* gone already: whatever may be left of it */
    if (!inspect || may_have_guard(inspect))
        guard_remove(k, id);
    crash_point("remove-guard");
    if (!inspect || str_eq(docker_label(inspect, LABEL_OS), "windows"))
        windows_remove_volume(k, id);
    legacy_forget(k, id);
    docker_index_drop(k, id);
    return r;
}

/* ---- pause and resume ---- */

void docker_add_undo_failure(struct err *err, const char *what, const struct err *failure) {
    struct err first = *err;
    err_set(err, first.code, "%s (undoing it failed for the %s: %s)", first.msg, what,
            err_text(failure));
}

/* What is known at once; the event says the same a little later. */
static void set_state(struct docker *k, const char *id, enum instance_state state) {
    pthread_mutex_lock(&k->lock);
    struct box *b = docker_find(k, id);
    if (b && (b->info.state == INST_RUNNING || b->info.state == INST_PAUSED))
        b->info.state = state;
    pthread_mutex_unlock(&k->lock);
}

/* The container in the wanted state, and its guards; -EALREADY. */
static int find_for(struct docker *k, const char *id, bool resume, json_t **ret_inspect,
                    json_t **ret_guards, struct err *err) {
    _cleanup_json_ json_t *inspect = NULL, *guards = NULL;
    struct instance_info now;
    int r = docker_lookup(k, id, &inspect, err);

    if (r < 0)
        return r;
    docker_read_state(inspect, &now);
    if (now.state != (resume ? INST_PAUSED : INST_RUNNING))
        return err_set(err, -EALREADY, "%s", resume ? NOT_PAUSED : NOT_RUNNING);
    if (docker_label(inspect, LABEL_GUARD_TOKEN)) {
        r = guard_find(k, id, &guards, err);
        if (r < 0)
            return err_wrap(err, "looking for the egress sidecar"), r;
    }
    *ret_inspect = TAKE_PTR(inspect);
    *ret_guards = TAKE_PTR(guards);
    return 0;
}

/* A refusal may mean that the state has changed since it was looked at. */
static int change_state(struct docker *k, const char *container, bool resume, struct err *err) {
    int r = engine_container_pause(k->engine, container, resume, err);

    if (r != -EBUSY && r != -EREMOTEIO)
        return r;
    enum instance_state now = state_now(k, container);
    if (now == (resume ? INST_PAUSED : INST_RUNNING) || now == INST_GONE)
        return r;
    return err_set(err, -EALREADY, "%s", resume ? NOT_PAUSED : NOT_RUNNING);
}

int docker_pause(struct driver *d, const char *id, struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *inspect = NULL, *guards = NULL;
    struct err undo = {0};
    int r = find_for(k, id, false, &inspect, &guards, err);

    if (r < 0)
        return r;
    const char *container = json_str(inspect, "Id");
    r = change_state(k, container, false, err);
    if (r < 0)
        return r;
    crash_point("pause-sandbox");
    if (guards && json_array_size(guards) == 0) {
        /* nothing guards it: better that it stays frozen */
        set_state(k, id, INST_PAUSED);
        return err_set(
            err, -EIO,
            "The sandbox is paused, but its egress sidecar is missing; it stays paused.");
    }
    r = guards ? guard_pause(k, guards, err) : 0;
    crash_point("pause-guard");
    if (r < 0) {
        if (engine_container_pause(k->engine, container, true, &undo) < 0)
            docker_add_undo_failure(err, "sandbox", &undo);
        return r;
    }
    set_state(k, id, INST_PAUSED);
    return 0;
}

int docker_resume(struct driver *d, const char *id, struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *inspect = NULL, *guards = NULL;
    int r = find_for(k, id, true, &inspect, &guards, err);

    if (r < 0)
        return r;
    if (guards && json_array_size(guards) == 0)
        return err_set(err, -EIO,
                       "The sandbox's egress sidecar is missing; the sandbox stays paused.");
    r = guards ? guard_resume(k, guards, err) : 0;
    if (r < 0)
        return r;
    crash_point("resume-guard");
    r = change_state(k, json_str(inspect, "Id"), true, err);
    if (r < 0) {
        if (guards)
            guard_pause_again(k, guards, err);
        return r;
    }
    set_state(k, id, INST_RUNNING);
    return 0;
}

/* ---- looking ---- */

int docker_inspect(struct driver *d, const char *id, struct instance_info *ret, struct err *err) {
    struct docker *k = docker_of(d);
    _cleanup_json_ json_t *inspect = NULL;
    int r = docker_lookup(k, id, &inspect, err);

    return r < 0 ? r : docker_index_update(k, inspect, ret, err);
}

int docker_list(struct driver *d, struct instance_info **ret, size_t *ret_n, struct err *err) {
    struct docker *k = docker_of(d);
    size_t at = 0, n = 0;
    void *value;

    pthread_mutex_lock(&k->lock);
    struct instance_info *v = calloc(map_size(k->boxes) + 1, sizeof *v);
    while (v && map_next(k->boxes, &at, NULL, &value)) {
        const struct box *b = value;
        if (b->info.state != INST_GONE)
            v[n++] = b->info;
    }
    pthread_mutex_unlock(&k->lock);
    if (!v)
        return err_set(err, -ENOMEM, "out of memory");
    *ret = v;
    *ret_n = n;
    return 0;
}
