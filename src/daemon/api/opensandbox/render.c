/*
 * Sandboxes as clients see them. The Sandbox object is rendered once and kept in the sandbox until
 * the service changes something: a GET is a look-up and a copy. Null members are left out
 * everywhere.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/api/opensandbox/dialect.h"

static const struct {
    const char *name, *reason, *message;
} states[] = {
    [SB_RUNNING] = {"Running", "CONTAINER_RUNNING", "Sandbox is running."},
    [SB_PAUSED] = {"Paused", "CONTAINER_PAUSED", "Sandbox is paused."},
    [SB_STOPPING] = {"Stopping", "CONTAINER_STOPPING", "Sandbox is being removed."},
    [SB_TERMINATED] = {"Terminated", "CONTAINER_EXITED", "Sandbox has ended with exit code 0."},
    [SB_FAILED] = {"Failed", "CONTAINER_EXITED_ERROR", NULL},
    [SB_LOST] = {"Failed", "CONTAINER_LOST",
                 "Sandbox no longer exists: the machine or its runtime was restarted."},
    [SB_PENDING] = {"Pending", "CONTAINER_STARTING", "Sandbox is starting."},
    [SB_UNKNOWN] = {"Unknown", "CONTAINER_STATE_UNKNOWN",
                    "The runtime reports a state that is not known."},
};

const char *render_state(enum sandbox_state s) {
    return states[s].name;
}

unsigned parse_states(const char *name) {
    unsigned bits = 0;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        if (str_ieq(states[i].name, name))
            bits |= 1u << i;
    return bits;
}

void render_time(json_t *o, const char *key, int64_t us) {
    char text[RFC3339_SIZE];
    rfc3339_format(us, text);
    json_object_set_new(o, key, json_string(text));
}

static json_t *status(const struct sandbox *sb) {
    enum sandbox_state s = sandbox_state_of(sb);
    json_t *o = json_pack("{s:s,s:s}", "state", states[s].name, "reason", states[s].reason);

    if (states[s].message) {
        json_object_set_new(o, "message", json_string(states[s].message));
    } else {
        char text[96];
        snprintf(text, sizeof text, "Sandbox has ended with exit code %d%s.", sb->exit_code,
                 sb->oom_killed ? " (out of memory)" : "");
        json_object_set_new(o, "message", json_string(text));
    }
    render_time(o, "lastTransitionAt", sb->changed_us);
    return o;
}

/* What both shapes have. */
static json_t *common(const struct sandbox *sb) {
    json_t *o = json_pack("{s:s,s:o}", "id", sb->spec.id, "status", status(sb));
    json_t *words = json_array();

    for (size_t i = 0; i < sb->spec.entrypoint.n; i++)
        json_array_append_new(words, json_string(sb->spec.entrypoint.v[i]));
    json_object_set_new(o, "entrypoint", words);
    if (sb->platform)
        json_object_set(o, "platform", sb->platform);
    if (sb->extensions)
        json_object_set(o, "extensions", sb->extensions);
    if (sb->expires_us)
        render_time(o, "expiresAt", sb->expires_us);
    render_time(o, "createdAt", sb->created_us);
    return o;
}

json_t *render_created(const struct sandbox *sb) {
    return common(sb);
}

const char *render_sandbox(struct sandbox *sb, size_t *ret_len) {
    if (!sb->cache) {
        _cleanup_buf_ struct buf b = BUF_INIT(0);
        _cleanup_json_ json_t *o = common(sb);
        if (sb->spec.snapshot_id)
            json_object_set_new(o, "snapshotId", json_string(sb->spec.snapshot_id));
        else
            json_object_set_new(o, "image", json_pack("{s:s}", "uri", sb->spec.image));
        if (json_object_size(sb->metadata) > 0)
            json_object_set(o, "metadata", sb->metadata);
        if (buf_json(&b, o) < 0)
            return NULL;
        sb->cache = buf_take(&b, &sb->cache_len);
    }
    *ret_len = sb->cache_len;
    return sb->cache;
}
