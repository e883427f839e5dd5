/*
 * Metadata labels: syntax and the reserved prefix, for creates and patches. Pure functions, any
 * thread; only the service calls them.
 */
#include "daemon/sandbox/check.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define RESERVED_PREFIX "opensandbox.io/"

static bool is_label_text(const char *s, size_t len) {
    if (len == 0 || len > 63 || !isalnum((unsigned char)s[0]) ||
        !isalnum((unsigned char)s[len - 1]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
            return false;
    return true;
}

static bool is_dns_subdomain(const char *s, size_t len) {
    bool at_start = true;

    if (len == 0 || len > 253)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool alnum = islower((unsigned char)s[i]) || isdigit((unsigned char)s[i]);
        bool at_end = i + 1 == len || s[i + 1] == '.';
        if (s[i] == '.' ? at_start : !alnum && (s[i] != '-' || at_start || at_end))
            return false;
        at_start = s[i] == '.';
    }
    return !at_start;
}

static bool is_label_key(const char *key) {
    const char *slash = strchr(key, '/');
    if (slash && !is_dns_subdomain(key, (size_t)(slash - key)))
        return false;
    const char *name = slash ? slash + 1 : key;
    return is_label_text(name, strlen(name));
}

static enum fault check_label(const char *key, const char *value, struct err *err) {
    if (!is_label_key(key)) {
        err_set(err, -EINVAL,
                "Metadata key '%.80s' is invalid: an optional DNS prefix and '/', then at most 63 "
                "letters, digits, "
                "'-', '_' or '.', beginning and ending with a letter or digit.",
                key);
        return FAULT_LABEL;
    }
    if (*value && !is_label_text(value, strlen(value))) {
        err_set(err, -EINVAL,
                "Metadata value of '%.80s' is invalid: empty, or at most 63 letters, digits, '-', "
                "'_' or '.', "
                "beginning and ending with a letter or digit.",
                key);
        return FAULT_LABEL;
    }
    return FAULT_NONE;
}

static bool is_reserved(const char *key, struct err *err) {
    if (!str_starts(key, RESERVED_PREFIX))
        return false;
    err_set(err, -EINVAL, "Metadata key '%.80s' uses the reserved prefix '" RESERVED_PREFIX "'.",
            key);
    return true;
}

enum fault check_metadata(const json_t *metadata, struct err *err) {
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)metadata, key, v) {
        if (is_reserved(key, err))
            return FAULT_LABEL;
        enum fault f = check_label(key, json_string_value(v), err);
        if (f)
            return f;
    }
    return FAULT_NONE;
}

enum fault check_metadata_patch(const json_t *patch, struct err *err) {
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)patch, key, v) {
        if (is_reserved(key, err))
            return FAULT_LABEL_RESERVED;
    }
    json_object_foreach((json_t *)patch, key, v) {
        enum fault f = json_is_null(v) ? FAULT_NONE : check_label(key, json_string_value(v), err);
        if (f)
            return f;
    }
    return FAULT_NONE;
}
