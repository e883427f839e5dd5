/* jansson helpers (see json.h). */
#include "base/json.h"

#include <errno.h>
#include <string.h>

#define MAX_DEPTH 64

static bool too_deep(const json_t *j, int depth) {
    const char *key;
    json_t *v;
    size_t i;

    if (depth > MAX_DEPTH)
        return true;
    if (json_is_object(j)) {
        json_object_foreach((json_t *)j, key, v) {
            if (too_deep(v, depth + 1))
                return true;
        }
    } else if (json_is_array(j)) {
        json_array_foreach(j, i, v) {
            if (too_deep(v, depth + 1))
                return true;
        }
    }
    return false;
}

/* The same before the text is parsed: the parser goes down with it, on stacks that are small. Only
 * the first value counts, whatever follows is refused or not looked at. */
static bool is_text_too_deep(const char *data, size_t len) {
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < len; i++) {
        char c = data[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '[' || c == '{') && ++depth > MAX_DEPTH)
            return true;
        else if (!in_string && (c == ']' || c == '}') && --depth <= 0)
            return false;
    }
    return false;
}

static int refuse_depth(struct err *err) {
    return err_set(err, -EINVAL, "nested deeper than %d levels", MAX_DEPTH);
}

static json_t *parse(const char *data, size_t len, size_t flags, struct err *err) {
    json_error_t e;

    if (is_text_too_deep(data, len)) {
        refuse_depth(err);
        return NULL;
    }
    json_t *j = json_loadb(data, len, flags | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);

    if (!j) {
        err_set(err, -EINVAL, "%s at line %d, column %d", e.text, e.line, e.column);
        return NULL;
    }
    if (too_deep(j, 1)) {
        json_decref(j);
        refuse_depth(err);
        return NULL;
    }
    return j;
}

json_t *json_parse(const char *data, size_t len, struct err *err) {
    return parse(data, len, 0, err);
}

json_t *json_parse_first(const char *data, size_t len, struct err *err) {
    return parse(data, len, JSON_DISABLE_EOF_CHECK, err);
}

const char *json_str(const json_t *obj, const char *key) {
    return json_string_value(json_object_get(obj, key));
}

int64_t json_int(const json_t *obj, const char *key, int64_t dflt) {
    const json_t *v = json_object_get(obj, key);
    return json_is_integer(v) ? json_integer_value(v) : dflt;
}

bool json_bool(const json_t *obj, const char *key, bool dflt) {
    const json_t *v = json_object_get(obj, key);
    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

static int dump_cb(const char *data, size_t len, void *ud) {
    return buf_append(ud, data, len) < 0 ? -1 : 0;
}

int buf_json(struct buf *b, const json_t *j) {
    return json_dump_callback(j, dump_cb, b, JSON_COMPACT | JSON_ENCODE_ANY) < 0 ? -ENOBUFS : 0;
}
