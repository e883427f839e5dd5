/* The sandbox object: a server's answer, checked once and then read through getters. Immutable. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "client/internal.h"

struct cove_sandbox {
    char *id, *state, *message, *image, *json;
    struct strv entrypoint;
    int64_t created_us, expires_us;
};

struct cove_sandbox *cove_sandbox_free(struct cove_sandbox *s) {
    if (!s)
        return NULL;
    free(s->id);
    free(s->state);
    free(s->message);
    free(s->image);
    free(s->json);
    strv_done(&s->entrypoint);
    free(s);
    return NULL;
}

static int64_t time_of(const json_t *j, const char *key) {
    const char *text = json_str(j, key);
    int64_t us;
    return text && rfc3339_parse(text, &us) == 0 ? us : 0;
}

static char *text_or_empty(const char *s) {
    return strdup(s ? s : "");
}

struct cove_sandbox *sandbox_from_json(json_t *j, struct cove_error *err) {
    const json_t *status = json_object_get(j, "status");
    if (str_is_empty(json_str(j, "id")) || !json_str(status, "state")) {
        cerr_set(err, -EBADMSG,
                 "the server's answer describes no sandbox (id or status.state is missing)");
        return NULL;
    }
    struct cove_sandbox *s = calloc(1, sizeof(*s));
    if (!s) {
        cerr_oom(err);
        return NULL;
    }
    s->id = strdup(json_str(j, "id"));
    s->state = strdup(json_str(status, "state"));
    const char *message = json_str(status, "message");
    s->message = text_or_empty(message ? message : json_str(status, "reason"));
    const char *image = json_str(json_object_get(j, "image"), "uri");
    s->image = text_or_empty(image ? image : json_str(j, "snapshotId"));
    s->created_us = time_of(j, "createdAt");
    s->expires_us = time_of(j, "expiresAt");
    s->json = json_dumps(j, JSON_COMPACT);
    bool failed = !s->id || !s->state || !s->message || !s->image || !s->json;
    size_t i;
    json_t *word;
    json_array_foreach(json_object_get(j, "entrypoint"), i, word) {
        if (json_is_string(word))
            failed = strv_add(&s->entrypoint, json_string_value(word)) < 0 || failed;
    }
    if (failed) {
        cerr_oom(err);
        return cove_sandbox_free(s);
    }
    return s;
}

const char *cove_sandbox_id(const struct cove_sandbox *s) {
    return s->id;
}
const char *cove_sandbox_state(const struct cove_sandbox *s) {
    return s->state;
}
const char *cove_sandbox_message(const struct cove_sandbox *s) {
    return s->message;
}
const char *cove_sandbox_image(const struct cove_sandbox *s) {
    return s->image;
}
const char *const *cove_sandbox_entrypoint(const struct cove_sandbox *s) {
    static const char *const none[] = {NULL};
    return s->entrypoint.n ? (const char *const *)s->entrypoint.v : none;
}
int64_t cove_sandbox_created_us(const struct cove_sandbox *s) {
    return s->created_us;
}
int64_t cove_sandbox_expires_us(const struct cove_sandbox *s) {
    return s->expires_us;
}
const char *cove_sandbox_json(const struct cove_sandbox *s) {
    return s->json;
}
