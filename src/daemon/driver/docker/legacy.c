/*
 * Records beside the engine, in the form and place of an opensandbox-server: <dir>/<id>.json holds
 * metadata that was changed after the create, <dir>/_expiration/<id>.json a renewed expiry. Labels
 * of a container cannot change, so these beat them when a sandbox is taken over.
 *
 * We read both for sandboxes that no row knows, keep the expiry up to date (so that the way back,
 * or a lost database, finds the right one), and delete both with the sandbox. The directory is
 * never made: without it nobody reads such records. Any thread; best effort.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"

#define RECORD_MAX ((size_t)1 << 20)
#define OVERRIDE_DIR "_expiration"

/* Ids become file names: only what looks like one does. */
static bool is_plain(const char *id) {
    return *id && *id != '.' && *id != '_' && strlen(id) <= SANDBOX_ID_MAX && !strchr(id, '/');
}

static int open_dir(const struct docker *k, const char *id) {
    const char *dir = k->config.legacy_metadata_dir;
    if (str_is_empty(dir) || !is_plain(id))
        return -ENOENT;
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static json_t *read_record(int dir_fd, const char *name, const char *id) {
    _cleanup_free_ char *text = NULL;
    struct err err = {0};
    size_t len;
    int r = path_read_file_at(dir_fd, name, RECORD_MAX, &text, &len);

    if (r == -ENOENT)
        return NULL;
    json_t *j = r < 0 ? NULL : json_parse(text, len, &err);
    if (!j)
        log_warn("a record of another server cannot be read", LOG_STR("sandbox", id),
                 LOG_STR("file", name));
    return j;
}

/* An object text -> text, or nothing. */
static json_t *as_metadata(const json_t *j) {
    const char *key;
    json_t *value, *copy = json_is_object(j) ? json_deep_copy(j) : NULL;
    void *next;

    json_object_foreach_safe(copy, next, key, value) {
        if (!json_is_string(value))
            json_object_del(copy, key);
    }
    return copy;
}

void legacy_read(const struct docker *k, const char *id, int64_t *ret_expires_us,
                 json_t **ret_metadata) {
    char name[SANDBOX_ID_MAX + 32];
    _cleanup_close_ int dir = open_dir(k, id);
    _cleanup_json_ json_t *metadata = NULL, *expiry = NULL;

    *ret_expires_us = 0;
    *ret_metadata = NULL;
    if (dir < 0)
        return;
    snprintf(name, sizeof name, "%s.json", id);
    metadata = read_record(dir, name, id);
    *ret_metadata = as_metadata(metadata);
    snprintf(name, sizeof name, OVERRIDE_DIR "/%s.json", id);
    expiry = read_record(dir, name, id);
    const char *text = json_str(expiry, "expires_at");
    if (expiry && (!text || rfc3339_parse(text, ret_expires_us) < 0)) {
        *ret_expires_us = 0;
        log_warn("the recorded expiry of another server cannot be read", LOG_STR("sandbox", id));
    }
}

void docker_note_expiry(struct driver *d, const char *id, int64_t expires_us) {
    struct docker *k = docker_of(d);
    char name[SANDBOX_ID_MAX + 32], when[RFC3339_SIZE], text[RFC3339_SIZE + 48];
    _cleanup_close_ int dir = open_dir(k, id);

    if (dir < 0 || expires_us <= 0)
        return;
    rfc3339_format(expires_us, when);
    if (str_ends(when, "Z"))
        when[strlen(when) - 1] = 0; /* older readers know offsets only */
    int len = snprintf(text, sizeof text, "{\"expires_at\": \"%s+00:00\"}", when);
    snprintf(name, sizeof name, OVERRIDE_DIR "/%s.json", id);
    int r = mkdirat(dir, OVERRIDE_DIR, 0700) < 0 && errno != EEXIST ? -errno : 0;
    if (r == 0)
        r = path_write_file_at(dir, name, text, (size_t)len, 0600, false);
    if (r < 0)
        log_warn("cannot note the new expiry for other servers", LOG_STR("sandbox", id),
                 LOG_INT("errno", -r));
}

void legacy_forget(const struct docker *k, const char *id) {
    char name[SANDBOX_ID_MAX + 32];
    _cleanup_close_ int dir = open_dir(k, id);

    if (dir < 0)
        return;
    snprintf(name, sizeof name, "%s.json", id);
    (void)unlinkat(dir, name, 0);
    snprintf(name, sizeof name, OVERRIDE_DIR "/%s.json", id);
    (void)unlinkat(dir, name, 0);
}
