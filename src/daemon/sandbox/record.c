/* The stored form of a sandbox: one JSON text beside the columns of the row. Pure functions, any
 * thread. */
#include <errno.h>

#include "daemon/sandbox/internal.h"

static json_t *tags_to_json(const struct strv *tags) {
    json_t *a = json_array();
    for (size_t i = 0; i < tags->n; i++)
        if (json_array_append_new(a, json_string(tags->v[i])) < 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

/* One for each mount, "" where none was written. */
static int read_tags(const json_t *a, struct sandbox *sb) {
    for (size_t i = 0; i < sb->spec.oss_mounts.n; i++) {
        const char *tag = json_string_value(json_array_get(a, i));
        if (strv_add(&sb->oss_tags, tag ? tag : "") < 0)
            return -ENOMEM;
    }
    return 0;
}

char *record_to_text(const struct sandbox *sb) {
    _cleanup_json_ json_t *o = json_object();
    json_t *spec = sandbox_spec_to_json(&sb->spec);

    if (json_object_set_new(o, "spec", spec) < 0)
        return NULL;
    if (sb->extensions && json_object_set(o, "extensions", sb->extensions) < 0)
        return NULL;
    if (sb->platform && json_object_set(o, "platform", sb->platform) < 0)
        return NULL;
    if (sb->oss_tags.n && json_object_set_new(o, "ossTags", tags_to_json(&sb->oss_tags)) < 0)
        return NULL;
    return json_dumps(o, JSON_COMPACT);
}

static int read_row(const struct statedb_row *row, struct sandbox *sb, struct err *err) {
    _cleanup_json_ json_t *o = json_loads(row->record, 0, NULL);
    json_t *spec = json_object_get(o, "spec");

    if (!spec)
        return err_set(err, -EINVAL, "stored record of sandbox %s is damaged", row->id);
    int r = sandbox_spec_from_json(spec, &sb->spec, err);
    if (r < 0)
        return r;
    if (!str_eq(sb->spec.id, row->id))
        return err_set(err, -EINVAL, "stored record of sandbox %s names another id", row->id);
    if (read_tags(json_object_get(o, "ossTags"), sb) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    sb->extensions = json_incref(json_object_get(o, "extensions"));
    sb->platform = json_incref(json_object_get(o, "platform"));
    sb->metadata = json_loads(row->metadata, 0, NULL);
    if (!json_is_object(sb->metadata)) {
        json_decref(sb->metadata);
        sb->metadata = json_object();
    }
    sb->created_us = row->created_us;
    sb->changed_us = row->changed_us ? row->changed_us : row->created_us;
    sb->expires_us = row->expires_us;
    return sb->metadata ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int record_from_row(const struct statedb_row *row, struct sandbox **ret, struct err *err) {
    struct sandbox *sb = calloc(1, sizeof *sb);

    if (!sb)
        return err_set(err, -ENOMEM, "out of memory");
    list_init(&sb->ops);
    list_init(&sb->by_age);
    int r = read_row(row, sb, err);
    if (r < 0) {
        sandbox_free(sb);
        return r;
    }
    *ret = sb;
    return 0;
}
