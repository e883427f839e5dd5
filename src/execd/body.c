/* Typed access to request bodies (see body.h). */
#include "execd/body.h"

#include <errno.h>
#include <string.h>

int body_parse(const char *data, size_t len, bool allow_empty, json_t **ret, struct err *err) {
    json_t *j;

    if (len == 0 && allow_empty) {
        *ret = json_object();
        return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
    }
    if (len == 0)
        return err_set(err, -EINVAL, "the request has no body");
    j = json_parse_first(data, len, err);
    if (!j)
        return err_wrap(err, "request body");
    if (json_is_null(j) && allow_empty) {
        json_decref(j);
        return body_parse("", 0, true, ret, err);
    }
    if (!json_is_object(j)) {
        json_decref(j);
        return err_set(err, -EINVAL, "the request body is not a JSON object");
    }
    *ret = j;
    return 0;
}

static json_t *find(const json_t *obj, const char *name) {
    json_t *v = json_object_get(obj, name), *other;
    const char *key;

    if (v)
        return v;
    json_object_foreach((json_t *)obj, key, other) {
        if (str_ieq(key, name))
            return other;
    }
    return NULL;
}

json_t *body_member(const json_t *obj, const char *name) {
    json_t *v = find(obj, name);
    return json_is_null(v) ? NULL : v;
}

bool body_has(const json_t *obj, const char *name) {
    return find(obj, name) != NULL;
}

int body_str(const json_t *obj, const char *name, const char **ret, struct err *err) {
    json_t *v = body_member(obj, name);

    if (!v)
        return 0;
    if (!json_is_string(v))
        return err_set(err, -EINVAL, "%s must be a string", name);
    *ret = json_string_value(v);
    return 0;
}

int body_bool(const json_t *obj, const char *name, bool *ret, struct err *err) {
    json_t *v = body_member(obj, name);

    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return err_set(err, -EINVAL, "%s must be true or false", name);
    *ret = json_is_true(v);
    return 0;
}

int body_int(const json_t *obj, const char *name, int64_t min, int64_t max, int64_t *ret,
             struct err *err) {
    json_t *v = body_member(obj, name);

    if (!v)
        return 0;
    if (!json_is_integer(v))
        return err_set(err, -EINVAL, "%s must be an integer", name);
    if (json_integer_value(v) < min || json_integer_value(v) > max)
        return err_set(err, -EINVAL, "%s must be between %lld and %lld", name, (long long)min,
                       (long long)max);
    *ret = json_integer_value(v);
    return 0;
}

int body_strv(const json_t *obj, const char *name, struct strv *ret, struct err *err) {
    json_t *v = body_member(obj, name), *item;
    size_t i;

    if (!v)
        return 0;
    if (!json_is_array(v))
        return err_set(err, -EINVAL, "%s must be an array of strings", name);
    json_array_foreach(v, i, item) {
        if (!json_is_string(item))
            return err_set(err, -EINVAL, "%s[%zu] must be a string", name, i);
        if (strv_add(ret, json_string_value(item)) < 0)
            return err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

int body_env(const json_t *obj, const char *name, struct strv *ret, struct err *err) {
    json_t *v = body_member(obj, name), *item;
    const char *key;

    if (!v)
        return 0;
    if (!json_is_object(v))
        return err_set(err, -EINVAL, "%s must be an object of strings", name);
    json_object_foreach(v, key, item) {
        if (!json_is_string(item))
            return err_set(err, -EINVAL, "%s: the value of %s must be a string", name, key);
        if (!*key || strchr(key, '='))
            return err_set(err, -EINVAL, "%s: \"%s\" cannot be a variable's name", name, key);
        if (strv_addf(ret, "%s=%s", key, json_string_value(item)) < 0)
            return err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}
