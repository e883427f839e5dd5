/*
 * The test driver as a runtime that others use as well, the way an engine is one: everything can be
 * asked for, there are policies, named volumes, sandboxes of other servers, and other hands that
 * change what is there.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/driver/fake/fake_priv.h"

static int op_check_policy(struct driver *d, const struct sandbox_spec *spec, struct err *err) {
    return fake_leave(of(d), FAKE_POLICY, fake_enter(of(d), FAKE_POLICY, err));
}

static int op_check_network(struct driver *d, struct err *err) {
    return fake_leave(of(d), FAKE_NETWORK, fake_enter(of(d), FAKE_NETWORK, err));
}

static int op_check_late(struct driver *d, const struct sandbox_spec *spec, struct err *err) {
    return fake_leave(of(d), FAKE_LATE, fake_enter(of(d), FAKE_LATE, err));
}

static void op_note_expiry(struct driver *d, const char *id, int64_t expires_us) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    str_copy(f->noted, sizeof f->noted, id);
    f->noted_us = expires_us;
    pthread_mutex_unlock(&f->lock);
}

static int op_volume_open(struct driver *d, const char *name, const char *create_for,
                          struct volume_info *ret, struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_VOLUME_OPEN, err);
    json_t *v = json_object_get(f->volumes, name);

    if (r == 0 && !v && !create_for)
        r = err_set(err, -ENOENT, "no volume %s", name);
    if (r == 0) {
        ret->created = !v;
        if (!v) {
            v = json_pack("{s:s,s:s}", "driver", "local", "createdFor", create_for);
            json_object_set_new(f->volumes, name, v);
        }
        str_copy(ret->driver, sizeof ret->driver, json_str(v, "driver"));
        const char *at = json_str(v, "mountpoint");
        ret->mountpoint = at ? strdup(at) : NULL;
    }
    return fake_leave(f, FAKE_VOLUME_OPEN, r);
}

static int op_volume_remove(struct driver *d, const char *name, const char *created_for,
                            struct err *err) {
    struct fake *f = of(d);
    int r = fake_enter(f, FAKE_VOLUME_REMOVE, err);

    if (r == 0) {
        const char *owner = json_str(json_object_get(f->volumes, name), "createdFor");
        if (owner && (!created_for || strcmp(owner, created_for) == 0))
            json_object_del(f->volumes, name);
    }
    return fake_leave(f, FAKE_VOLUME_REMOVE, r);
}

static void take_list(const json_t *o, const char *key, struct strv *ret) {
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(o, key), i, v) {
        strv_add(ret, json_string_value(v));
    }
}

static int op_found(struct driver *d, int (*cb)(struct found_sandbox *f, void *ud), void *ud,
                    struct err *err) {
    struct fake *f = of(d);
    const char *id;
    json_t *o;
    int r = 0;

    json_object_foreach(f->strays, id, o) {
        struct found_sandbox s = {.created_us = 1000000, .expires_us = json_int(o, "expiresUs", 0)};
        if (!fake_has(d, id))
            continue;
        str_copy(s.spec.id, sizeof s.spec.id, id);
        s.spec.image = strdup("found:latest");
        s.metadata = json_incref(json_object_get(o, "metadata"));
        s.spec.extensions = json_incref(json_object_get(o, "extensions"));
        take_list(o, "ossMounts", &s.spec.oss_mounts);
        take_list(o, "ownVolumes", &s.spec.own_volumes);
        if ((r = cb(&s, ud)) < 0)
            break;
    }
    return r;
}

void fake_share(struct driver *d) {
    struct fake *f = of(d);

    f->is_shared = true;
    f->ops.check_policy = op_check_policy;
    f->ops.check_network = op_check_network;
    f->ops.check_late = op_check_late;
    f->ops.note_expiry = op_note_expiry;
    f->ops.volume_open = op_volume_open;
    f->ops.volume_remove = op_volume_remove;
    f->ops.found = op_found;
    d->rules = (struct driver_rules){.provider = "docker",
                                     .named_volumes = true,
                                     .oss_volumes = true,
                                     .gpu = true,
                                     .windows = true,
                                     .any_arch = true,
                                     .snapshots = true,
                                     .image_auth = true,
                                     .ignores_limits = true};
}

void fake_add_volume(struct driver *d, const char *name, const char *driver,
                     const char *mountpoint) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    json_object_set_new(f->volumes, name,
                        json_pack("{s:s,s:s?}", "driver", driver, "mountpoint", mountpoint));
    pthread_mutex_unlock(&f->lock);
}

bool fake_has_volume(struct driver *d, const char *name) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    bool has = json_object_get(f->volumes, name) != NULL;
    pthread_mutex_unlock(&f->lock);
    return has;
}

void fake_add_found(struct driver *d, const char *id, json_t *details) {
    struct fake *f = of(d);
    fake_add_stray(d, id);
    pthread_mutex_lock(&f->lock);
    json_object_set_new(f->strays, id, details);
    pthread_mutex_unlock(&f->lock);
}

void fake_set_state(struct driver *d, const char *id, enum instance_state state) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    struct inst *i = fake_find(f, id);
    if (i)
        i->info.state = state;
    pthread_mutex_unlock(&f->lock);
}

void fake_report(struct driver *d, const char *id, enum instance_state state) {
    struct instance_info info = {.state = state};
    str_copy(info.id, sizeof info.id, id);
    if (d->events.on_change)
        d->events.on_change(&info, d->events.ud);
}

int64_t fake_noted_expiry(struct driver *d, const char *id) {
    struct fake *f = of(d);
    pthread_mutex_lock(&f->lock);
    int64_t us = strcmp(f->noted, id) == 0 ? f->noted_us : 0;
    pthread_mutex_unlock(&f->lock);
    return us;
}
