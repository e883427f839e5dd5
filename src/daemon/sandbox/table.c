/*
 * The table of sandboxes and the lookups on it. Owns membership: a sandbox is in the map and in the
 * age list, or in neither. Loop thread only; nothing here waits.
 */
#include <errno.h>
#include <string.h>

#include "daemon/sandbox/internal.h"

static bool is_newer(const struct sandbox *a, const struct sandbox *b) {
    if (a->created_us != b->created_us)
        return a->created_us > b->created_us;
    return strcmp(a->spec.id, b->spec.id) > 0;
}

int table_add(struct service *s, struct sandbox *sb) {
    if (map_has(s->table, sb->spec.id))
        return -EEXIST;
    int r = map_set(s->table, sb->spec.id, sb, NULL);
    if (r < 0)
        return r;
    /* nearly always the newest: the walk is short */
    struct list *at = s->by_age.next;
    while (at != &s->by_age && !is_newer(sb, list_entry(at, struct sandbox, by_age)))
        at = at->next;
    list_append(at, &sb->by_age);
    return 0;
}

void table_remove(struct service *s, struct sandbox *sb) {
    map_remove(s->table, sb->spec.id);
    list_remove(&sb->by_age);
    sb->fire_us = 0;
    expiry_schedule(s, sb);
}

void sandbox_touch(struct sandbox *sb) {
    free(sb->cache);
    sb->cache = NULL;
    sb->cache_len = 0;
}

void sandbox_free(struct sandbox *sb) {
    if (!sb)
        return;
    sandbox_touch(sb);
    sandbox_spec_done(&sb->spec);
    strv_done(&sb->oss_tags);
    json_decref(sb->metadata);
    json_decref(sb->extensions);
    json_decref(sb->platform);
    free(sb);
}

struct sandbox *service_get(struct service *s, const char *id) {
    return map_get(s->table, id);
}

static bool matches(const struct sandbox *sb, const struct sandbox_filter *f) {
    const char *key;
    json_t *want;

    if (f->states && !(f->states & 1u << sandbox_state_of(sb)))
        return false;
    json_object_foreach((json_t *)f->metadata, key, want) {
        const char *have = json_str(sb->metadata, key);
        if (!have || strcmp(have, json_string_value(want)) != 0)
            return false;
    }
    return true;
}

size_t service_list(struct service *s, const struct sandbox_filter *f, size_t skip, size_t max,
                    struct sandbox **ret, size_t *ret_total) {
    bool all = f->states == 0 && json_object_size(f->metadata) == 0;
    size_t seen = 0, n = 0;

    list_foreach (it, &s->by_age) {
        struct sandbox *sb = list_entry(it, struct sandbox, by_age);
        if (!all && !matches(sb, f))
            continue;
        if (seen++ >= skip && n < max)
            ret[n++] = sb;
        if (all && n == max)
            break;
    }
    *ret_total = all ? map_size(s->table) : seen;
    return n;
}

const char *sandbox_state_name(enum sandbox_state state) {
    static const char *const names[] = {
        [SB_RUNNING] = "running",       [SB_PAUSED] = "paused",   [SB_STOPPING] = "stopping",
        [SB_TERMINATED] = "terminated", [SB_FAILED] = "failed",   [SB_LOST] = "lost",
        [SB_PENDING] = "pending",       [SB_UNKNOWN] = "unknown",
    };
    return (size_t)state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

static enum fault find_port(struct service *s, const char *id, int64_t port, struct sandbox **ret,
                            struct err *err) {
    if (port < 1 || port > 65535) {
        err_set(err, -EINVAL, "Invalid port %lld: must be between 1 and 65535.", (long long)port);
        return FAULT_PORT;
    }
    *ret = map_get(s->table, id);
    if (!*ret || (*ret)->removing) {
        err_set(err, -ENOENT, "Sandbox %s not found.", id);
        return FAULT_NOT_FOUND;
    }
    return FAULT_NONE;
}

enum fault service_address(struct service *s, const char *id, int64_t port, struct target *ret,
                           struct err *err) {
    struct driver *d = s->o.driver;
    struct sandbox *sb;
    enum fault f = find_port(s, id, port, &sb, err);

    if (f)
        return f;
    int r = d->ops->address(d, id, (uint16_t)port, ret);
    if (r < 0) {
        if (sb->state == SB_RUNNING || sb->state == SB_PAUSED)
            err_sys(err, r, "no address for port %lld of sandbox %s", (long long)port, id);
        else
            err_set(err, r, "Sandbox %s is %s: nothing of it can be reached.", id,
                    sandbox_state_name(sb->state));
        return FAULT_ADDRESS;
    }
    return FAULT_NONE;
}

enum fault service_published(struct service *s, const char *id, int64_t port, struct published *ret,
                             struct err *err) {
    struct driver *d = s->o.driver;
    struct target unused;
    struct sandbox *sb;

    *ret = (struct published){0};
    if (!d->ops->published)
        return service_address(s, id, port, &unused, err);
    enum fault f = find_port(s, id, port, &sb, err);
    if (f)
        return f;
    return d->ops->published(d, id, (uint16_t)port, ret, err) < 0 ? FAULT_ADDRESS : FAULT_NONE;
}

char *service_guard_token(struct service *s, const char *id) {
    struct driver *d = s->o.driver;
    return d->ops->guard_token && map_has(s->table, id) ? d->ops->guard_token(d, id) : NULL;
}

bool service_takes_policy(struct service *s, bool with_credentials) {
    struct driver *d = s->o.driver;
    struct sandbox_spec spec = {.credential_proxy = with_credentials};
    struct err err = {0};

    spec.policy = json_pack("{s:[]}", "egress");
    bool takes = spec.policy && d->ops->check_policy && d->ops->check_policy(d, &spec, &err) == 0;
    json_decref(spec.policy);
    return takes;
}

bool service_renews_by_use(const struct service *s) {
    return s->access != NULL;
}

const struct driver_rules *service_rules(const struct service *s) {
    return &s->o.driver->rules;
}
