/* See option_values.h. */
#include "cli/option_values.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"

/*
 * Reads "12" or "12.345" and returns the value times `scale`, in whole units (rest cut). *ret_rest
 * is what follows the digits. -EINVAL without a digit, -ERANGE when it does not fit.
 */
static int scaled_number(const char *s, uint64_t scale, uint64_t *ret, const char **ret_rest) {
    uint64_t whole = 0, part = 0, unit = scale;
    size_t n = strspn(s, "0123456789");
    if (n == 0 || n > 19 || str_to_u64n(s, n, &whole) < 0)
        return n > 19 ? -ERANGE : -EINVAL;
    s += n;
    if (*s == '.') {
        s++;
        if (*s < '0' || *s > '9')
            return -EINVAL;
        for (; *s >= '0' && *s <= '9'; s++) {
            part += unit / 10 * (uint64_t)(*s - '0') + unit % 10 * (uint64_t)(*s - '0') / 10;
            unit /= 10;
        }
    }
    if (__builtin_mul_overflow(whole, scale, ret) || __builtin_add_overflow(*ret, part, ret))
        return -ERANGE;
    *ret_rest = s;
    return 0;
}

static int read_with_units(const char *s, const char *const *units, const uint64_t *scales,
                           uint64_t *ret) {
    const char *rest = s + strspn(s, "0123456789.");
    for (size_t i = 0; units[i]; i++) {
        if (!str_ieq(rest, units[i]))
            continue;
        uint64_t value;
        const char *end;
        int r = scaled_number(s, scales[i], &value, &end);
        if (r < 0 || end != rest)
            return r < 0 ? r : -EINVAL;
        *ret = value;
        return 0;
    }
    return -EINVAL;
}

int parse_size(const char *s, uint64_t *ret_bytes, struct err *err) {
    static const char *const units[] = {"",   "b",  "k",   "kb",  "ki", "kib", "m",
                                        "mb", "mi", "mib", "g",   "gb", "gi",  "gib",
                                        "t",  "tb", "ti",  "tib", NULL};
    static const uint64_t scales[] = {1,          1,          1 << 10,   1 << 10, 1 << 10,
                                      1 << 10,    1 << 20,    1 << 20,   1 << 20, 1 << 20,
                                      1 << 30,    1 << 30,    1 << 30,   1 << 30, 1ull << 40,
                                      1ull << 40, 1ull << 40, 1ull << 40};
    uint64_t bytes;
    int r = read_with_units(s, units, scales, &bytes);
    if (r < 0 || bytes == 0 || bytes > INT64_MAX)
        return err_set(err, -EINVAL, "\"%s\" is not a size: write 512m, 2g or a number of bytes",
                       s);
    *ret_bytes = bytes;
    return 0;
}

int parse_cpu(const char *s, uint64_t *ret_millis, struct err *err) {
    static const char *const units[] = {"", "m", NULL};
    static const uint64_t scales[] = {1000, 1};
    uint64_t millis;
    int r = read_with_units(s, units, scales, &millis);
    if (r < 0 || millis == 0 || millis > 1000000)
        return err_set(err, -EINVAL, "\"%s\" is not a number of CPUs: write 2, 0.5 or 500m", s);
    *ret_millis = millis;
    return 0;
}

int parse_time(const char *s, uint64_t *ret_ms, struct err *err) {
    static const char *const units[] = {"", "ms", "s", "m", "h", "d", NULL};
    static const uint64_t scales[] = {1000, 1, 1000, 60000, 3600000, 86400000};
    uint64_t ms;
    int r = read_with_units(s, units, scales, &ms);
    if (r < 0 || ms == 0)
        return err_set(err, -EINVAL, "\"%s\" is not a time: write 500ms, 30s, 5m or 2h", s);
    if (ms > UINT32_MAX)
        return err_set(err, -ERANGE, "\"%s\" is longer than the possible 49 days", s);
    *ret_ms = ms;
    return 0;
}

int parse_count(const char *s, const char *what, uint64_t min, uint64_t max, uint64_t *ret,
                struct err *err) {
    uint64_t n;
    if (str_to_u64(s, &n) < 0 || n < min || n > max)
        return err_set(err, -EINVAL,
                       "%s must be a number from %" PRIu64 " to %" PRIu64 ", not \"%s\"", what, min,
                       max, s);
    *ret = n;
    return 0;
}

int parse_user(const char *s, int64_t *ret_uid, int64_t *ret_gid, struct err *err) {
    const char *colon = strchr(s, ':');
    uint64_t uid, gid = 0;
    if (str_to_u64n(s, colon ? (size_t)(colon - s) : strlen(s), &uid) < 0 || uid >= UINT32_MAX ||
        (colon && (str_to_u64(colon + 1, &gid) < 0 || gid >= UINT32_MAX)))
        return err_set(
            err, -EINVAL,
            "\"%s\" is not a user: write UID or UID:GID as numbers (names are known only inside)",
            s);
    *ret_uid = (int64_t)uid;
    *ret_gid = colon ? (int64_t)gid : -1;
    return 0;
}

void mount_arg_done(struct mount_arg *m) {
    free(m->source);
    free(m->target);
    *m = (struct mount_arg){0};
}

static int mount_source(const char *s, size_t len, bool local_paths, struct mount_arg *m,
                        struct err *err) {
    _cleanup_free_ char *given = str_ndup(s, len);
    if (!given)
        return err_set(err, -ENOMEM, "out of memory");
    if (!*given)
        return err_set(err, -EINVAL,
                       "a mount begins with a path of this machine, as in ./src:/workspace");
    if (!local_paths) {
        if (*given != '/')
            return err_set(
                err, -EINVAL,
                "the daemon is elsewhere: the path \"%s\" of its machine must be absolute", given);
        m->source = path_clean(given);
        return m->source ? 0 : err_set(err, -ENOMEM, "out of memory");
    }
    char resolved[PATH_MAX];
    if (!realpath(given, resolved))
        return err_sys(err, -errno, "cannot mount \"%s\"", given);
    m->source = strdup(resolved);
    return m->source ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int parse_mount(const char *s, bool local_paths, struct mount_arg *ret, struct err *err) {
    _cleanup_(mount_arg_done) struct mount_arg m = {0};
    size_t len = strlen(s);
    if (str_ends(s, ":ro") || str_ends(s, ":rw")) {
        m.read_only = str_ends(s, ":ro");
        len -= 3;
    }
    const char *colon = memchr(s, ':', len);
    size_t source_len = colon ? (size_t)(colon - s) : len;
    m.target = colon ? str_ndup(colon + 1, len - source_len - 1) : strdup("/workspace");
    if (!m.target)
        return err_set(err, -ENOMEM, "out of memory");
    if (m.target[0] != '/')
        return err_set(
            err, -EINVAL,
            "the target of the mount \"%s\" must be an absolute path, as in ./src:/workspace:ro",
            s);
    if (strchr(m.target, ':'))
        return err_set(err, -EINVAL,
                       "the mount \"%s\" has too many colons: write HOST:PATH or HOST:PATH:ro", s);
    int r = mount_source(s, source_len, local_paths, &m, err);
    if (r < 0)
        return r;
    *ret = m;
    m = (struct mount_arg){0};
    return 0;
}

int parse_env(const char *s, struct strv *env, struct err *err) {
    size_t n = strcspn(s, "=");
    if (n == 0 || (s[0] >= '0' && s[0] <= '9'))
        return err_set(err, -EINVAL, "\"%s\" is not a variable: write NAME=VALUE", s);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f)
            return err_set(err, -EINVAL, "the name of the variable \"%s\" must have no blanks", s);
    int r = 0;
    if (s[n] == '=') {
        r = strv_add(env, s);
    } else {
        const char *value = getenv(s);
        r = value ? strv_addf(env, "%s=%s", s, value) : 0;
    }
    return r < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
}

const char *split_remote(const char *s) {
    const char *colon = strchr(s, ':');
    if (!colon || colon == s || s[0] == '/' || s[0] == '.' || memchr(s, '/', (size_t)(colon - s)))
        return NULL;
    return colon + 1;
}

void format_age(int64_t us, char *ret, size_t size) {
    int64_t s = us / 1000000;
    if (s < 0)
        s = 0;
    if (s < 120)
        snprintf(ret, size, "%" PRId64 "s", s);
    else if (s < 7200)
        snprintf(ret, size, "%" PRId64 "m", s / 60);
    else if (s < 172800)
        snprintf(ret, size, "%" PRId64 "h", s / 3600);
    else
        snprintf(ret, size, "%" PRId64 "d", s / 86400);
}

void format_bytes(uint64_t bytes, char *ret, size_t size) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        snprintf(ret, size, "%" PRIu64 " B", bytes);
        return;
    }
    double value = (double)bytes / 1024;
    size_t i = 0;
    for (; value >= 1024 && i + 1 < ARRAY_SIZE(units); i++)
        value /= 1024;
    snprintf(ret, size, "%.1f %s", value, units[i]);
}
