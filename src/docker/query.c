/* Escaping of paths and queries. Pure. */
#include <errno.h>
#include <string.h>

#include "docker/internal.h"

static bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~", c));
}

int engine_escape(struct buf *b, const char *segment) {
    int r = 0;

    for (; *segment && r >= 0; segment++)
        r = is_plain(*segment) ? buf_char(b, *segment)
                               : buf_printf(b, "%%%02X", (unsigned char)*segment);
    return r;
}

int engine_query_add(struct buf *query, const char *key, const char *value) {
    int r = query->len ? buf_char(query, '&') : 0;

    if (r >= 0)
        r = engine_escape(query, key);
    if (r >= 0)
        r = buf_char(query, '=');
    if (r >= 0)
        r = engine_escape(query, value);
    return r < 0 ? r : 0;
}

int engine_query_json(struct buf *query, const char *key, const json_t *value) {
    _cleanup_buf_ struct buf text = BUF_INIT((size_t)1 << 20);
    int r;

    if (!value)
        return 0;
    r = buf_json(&text, value);
    if (r < 0)
        return r;
    return engine_query_add(query, key, text.data);
}

/* A segment that would make the engine's router look elsewhere. */
static bool is_astray(const char *s, size_t len) {
    return len == 0 || (len == 1 && s[0] == '.') || (len == 2 && s[0] == '.' && s[1] == '.');
}

int engine_path(struct buf *b, const char *prefix, const char *id, const char *suffix,
                struct err *err) {
    engine_status_set(0); /* a call begins */
    if (strchr(id, '/') || is_astray(id, strlen(id)))
        return err_set(err, -EINVAL, "\"%.100s\" is no name of the Docker engine", id);
    buf_str(b, prefix);
    engine_escape(b, id);
    buf_str(b, suffix);
    return buf_ok(b) ? 0 : engine_oom(err);
}

int engine_image_path(struct buf *b, const char *ref, const char *suffix, struct err *err) {
    engine_status_set(0);
    for (const char *s = ref;; s++) {
        size_t n = strcspn(s, "/");
        if (is_astray(s, n))
            return err_set(err, -EINVAL, "\"%.200s\" is no image reference", ref);
        s += n;
        if (!*s)
            break;
    }
    buf_str(b, "/images/");
    for (const char *s = ref; *s; s++) {
        if (*s == '/')
            buf_char(b, '/'); /* part of the name, and the engine routes it so */
        else
            engine_escape(b, (char[]){*s, 0});
    }
    buf_str(b, suffix);
    return buf_ok(b) ? 0 : engine_oom(err);
}
