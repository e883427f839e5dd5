/*
 * struct sandbox_spec (see driver.h): release, and the JSON form in which the store keeps it and
 * drivers hand it to their helpers. Pure functions; any thread.
 */
#include "daemon/driver/driver.h"

#include <errno.h>
#include <string.h>

void sandbox_spec_done(struct sandbox_spec *s) {
    free(s->image);
    strv_done(&s->entrypoint);
    strv_done(&s->env);
    free(s->cwd);
    free(s->hostname);
    if (s->access_token)
        explicit_bzero(s->access_token, strlen(s->access_token));
    free(s->access_token);
    for (size_t i = 0; i < s->n_mounts; i++) {
        free(s->mounts[i].source);
        free(s->mounts[i].target);
        free(s->mounts[i].volume);
    }
    free(s->mounts);
    free(s->os);
    free(s->arch);
    json_decref(s->limits);
    json_decref(s->policy);
    strv_done(&s->guard_env);
    free(s->snapshot_id);
    free(s->renew_extend);
    json_decref(s->extensions);
    json_decref(s->labels);
    strv_done(&s->own_volumes);
    strv_done(&s->oss_mounts);
    free(s->registry_user);
    if (s->registry_password)
        explicit_bzero(s->registry_password, strlen(s->registry_password));
    free(s->registry_password);
    memset(s, 0, sizeof *s);
}

void found_sandbox_done(struct found_sandbox *f) {
    sandbox_spec_done(&f->spec);
    json_decref(f->metadata);
    json_decref(f->platform);
    memset(f, 0, sizeof *f);
}

static json_t *strv_to_json(const struct strv *sv) {
    json_t *a = json_array();
    for (size_t i = 0; a && i < sv->n; i++) {
        if (json_array_append_new(a, json_string(sv->v[i])) < 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

/* Sets a member that may be absent; NULL is left out. */
static int set_text(json_t *o, const char *key, const char *value) {
    return value ? json_object_set_new(o, key, json_string(value)) : 0;
}

static int set_json(json_t *o, const char *key, json_t *value) {
    return value ? json_object_set(o, key, value) : 0;
}

static int set_list(json_t *o, const char *key, const struct strv *sv) {
    return sv->n ? json_object_set_new(o, key, strv_to_json(sv)) : 0;
}

static json_t *mounts_to_json(const struct sandbox_spec *s) {
    json_t *a = json_array();
    for (size_t i = 0; a && i < s->n_mounts; i++) {
        const struct mount_spec *m = &s->mounts[i];
        json_t *o = json_pack("{s:s,s:b}", "target", m->target, "readOnly", m->read_only);
        if (set_text(o, "source", m->source) < 0 || set_text(o, "volume", m->volume) < 0 ||
            json_array_append_new(a, o) < 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

json_t *sandbox_spec_to_json(const struct sandbox_spec *s) {
    _cleanup_json_ json_t *o = json_object();
    int bad = 0;

    bad |= set_text(o, "id", s->id);
    bad |= set_text(o, "image", s->image);
    bad |= json_object_set_new(o, "entrypoint", strv_to_json(&s->entrypoint));
    bad |= json_object_set_new(o, "env", strv_to_json(&s->env));
    bad |= set_text(o, "cwd", s->cwd);
    bad |= set_text(o, "hostname", s->hostname);
    bad |= set_text(o, "accessToken", s->access_token);
    bad |= json_object_set_new(o, "memoryBytes", json_integer((json_int_t)s->memory_bytes));
    bad |= json_object_set_new(o, "cpuMillis", json_integer((json_int_t)s->cpu_millis));
    bad |= json_object_set_new(o, "pids", json_integer((json_int_t)s->pids));
    bad |= json_object_set_new(o, "diskBytes", json_integer((json_int_t)s->disk_bytes));
    bad |= set_text(o, "net", s->net == NET_NAT ? "nat" : "none");
    bad |= json_object_set_new(o, "mounts", mounts_to_json(s));
    if (s->cpu_nanos)
        bad |= json_object_set_new(o, "cpuNanos", json_integer((json_int_t)s->cpu_nanos));
    if (s->gpus)
        bad |= json_object_set_new(o, "gpus", json_integer(s->gpus));
    if (s->credential_proxy)
        bad |= json_object_set_new(o, "credentialProxy", json_true());
    if (s->isolation)
        bad |= json_object_set_new(o, "isolation", json_true());
    if (s->expires_us)
        bad |= json_object_set_new(o, "expiresUs", json_integer(s->expires_us));
    bad |= set_text(o, "os", s->os) | set_text(o, "arch", s->arch);
    bad |= set_text(o, "snapshotId", s->snapshot_id) | set_text(o, "renewExtend", s->renew_extend);
    bad |= set_json(o, "limits", s->limits) | set_json(o, "policy", s->policy);
    bad |= set_json(o, "extensions", s->extensions) | set_json(o, "labels", s->labels);
    bad |= set_list(o, "guardEnv", &s->guard_env) | set_list(o, "ownVolumes", &s->own_volumes);
    bad |= set_list(o, "ossMounts", &s->oss_mounts);
    return bad ? NULL : TAKE_PTR(o);
}

static int read_strv(const json_t *j, const char *key, struct strv *ret, struct err *err) {
    const json_t *a = json_object_get(j, key);
    size_t i;
    json_t *v;

    if (!a)
        return 0;
    if (!json_is_array(a))
        return err_set(err, -EINVAL, "sandbox record: '%s' is not a list", key);
    json_array_foreach(a, i, v) {
        if (!json_is_string(v))
            return err_set(err, -EINVAL, "sandbox record: '%s' has an element that is no text",
                           key);
        if (strv_add(ret, json_string_value(v)) < 0)
            return err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static int dup_member(const json_t *j, const char *key, char **ret) {
    const char *s = json_str(j, key);
    *ret = s ? strdup(s) : NULL;
    return s && !*ret ? -ENOMEM : 0;
}

static int read_mounts(const json_t *j, struct sandbox_spec *s, struct err *err) {
    const json_t *a = json_object_get(j, "mounts");
    size_t n = json_array_size(a);

    if (n == 0)
        return 0;
    s->mounts = calloc(n, sizeof *s->mounts);
    if (!s->mounts)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(a, i);
        struct mount_spec *m = &s->mounts[s->n_mounts++];
        if (dup_member(o, "source", &m->source) < 0 || dup_member(o, "target", &m->target) < 0 ||
            dup_member(o, "volume", &m->volume) < 0)
            return err_set(err, -ENOMEM, "out of memory");
        if (!m->target || (!m->source && !m->volume))
            return err_set(err, -EINVAL, "sandbox record: mount without source or target");
        m->read_only = json_bool(o, "readOnly", false);
    }
    return 0;
}

static int read_number(const json_t *j, const char *key, uint64_t *ret, struct err *err) {
    int64_t n = json_int(j, key, 0);
    if (n < 0)
        return err_set(err, -EINVAL, "sandbox record: '%s' is negative", key);
    *ret = (uint64_t)n;
    return 0;
}

/* What only some drivers use. */
static int read_wire_parts(const json_t *j, struct sandbox_spec *s, struct err *err) {
    int r = read_number(j, "cpuNanos", &s->cpu_nanos, err);

    if (r < 0 || (r = read_strv(j, "guardEnv", &s->guard_env, err)) < 0 ||
        (r = read_strv(j, "ownVolumes", &s->own_volumes, err)) < 0 ||
        (r = read_strv(j, "ossMounts", &s->oss_mounts, err)) < 0)
        return r;
    if (dup_member(j, "os", &s->os) < 0 || dup_member(j, "arch", &s->arch) < 0 ||
        dup_member(j, "snapshotId", &s->snapshot_id) < 0 ||
        dup_member(j, "renewExtend", &s->renew_extend) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    s->gpus = json_int(j, "gpus", 0);
    s->expires_us = json_int(j, "expiresUs", 0);
    s->credential_proxy = json_bool(j, "credentialProxy", false);
    s->isolation = json_bool(j, "isolation", false);
    s->limits = json_incref(json_object_get(j, "limits"));
    s->policy = json_incref(json_object_get(j, "policy"));
    s->extensions = json_incref(json_object_get(j, "extensions"));
    s->labels = json_incref(json_object_get(j, "labels"));
    return 0;
}

static int read_all(const json_t *j, struct sandbox_spec *s, struct err *err) {
    const char *id = json_str(j, "id"), *net = json_str(j, "net");
    int r;

    if (!id || !*id || strlen(id) > SANDBOX_ID_MAX)
        return err_set(err, -EINVAL, "sandbox record: no usable id");
    str_copy(s->id, sizeof s->id, id);
    if (dup_member(j, "image", &s->image) < 0 || dup_member(j, "cwd", &s->cwd) < 0 ||
        dup_member(j, "hostname", &s->hostname) < 0 ||
        dup_member(j, "accessToken", &s->access_token) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    if (!s->image)
        return err_set(err, -EINVAL, "sandbox record: no image");
    if ((r = read_strv(j, "entrypoint", &s->entrypoint, err)) < 0 ||
        (r = read_strv(j, "env", &s->env, err)) < 0 || (r = read_mounts(j, s, err)) < 0)
        return r;
    if ((r = read_number(j, "memoryBytes", &s->memory_bytes, err)) < 0 ||
        (r = read_number(j, "cpuMillis", &s->cpu_millis, err)) < 0 ||
        (r = read_number(j, "pids", &s->pids, err)) < 0 ||
        (r = read_number(j, "diskBytes", &s->disk_bytes, err)) < 0)
        return r;
    s->net = str_eq(net, "nat") ? NET_NAT : NET_NONE;
    return read_wire_parts(j, s, err);
}

int sandbox_spec_from_json(const json_t *j, struct sandbox_spec *ret, struct err *err) {
    struct sandbox_spec s = {0};
    int r = read_all(j, &s, err);

    if (r < 0) {
        sandbox_spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}
