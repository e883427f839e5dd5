/*
 * Reading the configuration by the table of keys (config_keys.c). Every message names file, line
 * and key and says what was expected; none holds a value. Called at start and on SIGHUP, from the
 * loop thread.
 */
#include "daemon/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "daemon/config/toml.h"

#define MAX_FILE ((size_t)1 << 20)
#define SYSTEM_FILE "/etc/cove/coved.toml"
#define USER_FILE ".sandbox.toml"

struct reading {
    struct config *c;
    const char *name;
    struct strv *warnings;
    struct err *err;
    bool has_tenants;
};

/* ---- looking keys up ---- */

/* "a.b[3].c" fits "a.b[].c". A table of texts also takes what is one level below it. */
static bool fits(const char *pattern, const char *key) {
    while (*pattern && *key) {
        if (pattern[0] == '[' && pattern[1] == ']' && *key == '[') {
            key += strcspn(key, "]") + 1;
            pattern += 2;
        } else if (*pattern++ != *key++) {
            return false;
        }
    }
    return !*pattern && !*key;
}

static const struct config_key *find_key(const char *key) {
    for (const struct config_key *k = config_keys; k->key; k++)
        if (fits(k->key, key))
            return k;
    return NULL;
}

/* The map that `key` is an entry of, or NULL. */
static const struct config_key *find_map(const char *key) {
    for (const struct config_key *k = config_keys; k->key; k++) {
        size_t n = strlen(k->key);
        if (k->type == KEY_MAP && strncmp(k->key, key, n) == 0 && key[n] == '.' && key[n + 1])
            return k;
    }
    return NULL;
}

/* Is it the beginning of a known key: a section? */
static bool is_section(const char *key) {
    size_t n = strlen(key);
    for (const struct config_key *k = config_keys; k->key; k++)
        if (strncmp(k->key, key, n) == 0 && (k->key[n] == '.' || k->key[n] == '['))
            return true;
    return false;
}

/* ---- one value ---- */

static int complain(const struct reading *r, const struct toml_value *v, const char *expected) {
    if (v->line)
        return err_set(r->err, -EINVAL, "%s:%u: %s: expected %s", r->name, v->line, v->key,
                       expected);
    return err_set(r->err, -EINVAL, "%s: %s: expected %s", r->name, v->key, expected);
}

static bool is_blank(const char *s) {
    return !s[strspn(s, " \t\r\n")];
}

static void describe(const struct config_key *k, char *out, size_t size) {
    static const char *const names[] = {"a text",        "an integer",      "a number",
                                        "true or false", "a list of texts", "a table of texts"};
    struct buf b = BUF_INIT(1024);

    if (k->choices) {
        buf_str(&b, "one of");
        for (const char *const *c = k->choices; *c; c++)
            buf_printf(&b, "%s \"%s\"", c == k->choices ? "" : ",", *c);
    } else if (k->type == KEY_INT) {
        buf_printf(&b, "an integer from %lld to %lld", (long long)k->min, (long long)k->max);
    } else if (k->type == KEY_FLOAT) {
        buf_printf(&b, "a number %s",
                   k->flags & KEY_REQUIRED_POSITIVE ? "above 0"
                   : k->min                         ? "of at least 1"
                                                    : "not below 0");
    } else if (k->type == KEY_TEXT && k->max) {
        buf_printf(&b, "a text of %lld to %lld characters", (long long)k->min, (long long)k->max);
    } else if (k->flags & KEY_NONEMPTY) {
        buf_str(&b, "a text that is not blank");
    } else {
        buf_str(&b, names[k->type]);
    }
    str_copy(out, size, b.data ? b.data : "");
    buf_done(&b);
}

static bool is_choice(const struct config_key *k, const char *s) {
    for (const char *const *c = k->choices; *c; c++)
        if (str_ieq(*c, s))
            return true;
    return false;
}

static bool is_valid(const struct config_key *k, const struct toml_value *v) {
    switch (k->type) {
    case KEY_TEXT:
        if (v->type != TOML_STRING || (k->choices && !is_choice(k, v->str)))
            return false;
        if (k->max && ((int64_t)strlen(v->str) < k->min || (int64_t)strlen(v->str) > k->max))
            return false;
        return !(k->flags & KEY_NONEMPTY) || !is_blank(v->str);
    case KEY_INT:
        return v->type == TOML_INT && v->num >= k->min && v->num <= k->max;
    case KEY_FLOAT:
        if (v->type != TOML_INT && v->type != TOML_FLOAT)
            return false;
        return k->flags & KEY_REQUIRED_POSITIVE ? v->real > 0 : v->real >= (double)k->min;
    case KEY_BOOL:
        return v->type == TOML_BOOL;
    case KEY_LIST:
        return v->type == TOML_STRINGS;
    case KEY_MAP:
        return v->type == TOML_TABLE;
    }
    return false;
}

static int store_text(char **field, const char *s) {
    char *copy = strdup(s);
    if (!copy)
        return -ENOMEM;
    free(*field);
    *field = copy;
    return 0;
}

static int keep(struct config *c, const struct config_key *k, const struct toml_value *v) {
    char *base = (char *)c;

    if (k->offset == NO_FIELD)
        return 0;
    switch (k->type) {
    case KEY_TEXT:
        return store_text((char **)(base + k->offset), v->str);
    case KEY_INT:
        *(int64_t *)(base + k->offset) = v->num;
        return 0;
    case KEY_BOOL:
        *(bool *)(base + k->offset) = v->num;
        return 0;
    case KEY_LIST:
        strv_done((struct strv *)(base + k->offset));
        return strv_copy((struct strv *)(base + k->offset), v->strings);
    default:
        return 0;
    }
}

static int warn(const struct reading *r, const struct toml_value *v, const char *what) {
    if (r->warnings && strv_addf(r->warnings, "%s:%u: %s %s", r->name, v->line, v->key, what) < 0)
        return err_set(r->err, -ENOMEM, "out of memory");
    return 0;
}

static int on_value(const struct toml_value *v, void *ud) {
    struct reading *r = ud;
    const struct config_key *k = find_key(v->key);
    char expected[300];

    if (strcmp(v->key, "tenants") == 0)
        r->has_tenants = true;
    if (!k && find_map(v->key))
        return v->type == TOML_STRING ? 0 : complain(r, v, "a text");
    if (!k && v->type == TOML_TABLE && is_section(v->key))
        return 0;
    if (!k)
        return warn(r, v, "is no known key, ignored");
    if (!is_valid(k, v)) {
        describe(k, expected, sizeof expected);
        return complain(r, v, expected);
    }
    if (keep(r->c, k, v) < 0)
        return err_set(r->err, -ENOMEM, "out of memory");
    return k->flags & KEY_LATER ? warn(r, v, "has no effect in this version") : 0;
}

/* ---- the whole ---- */

/* The default text is TOML itself: it goes the same way as a file. */
static int set_defaults(struct config *c, struct err *err) {
    struct reading r = {.c = c, .name = "defaults", .err = err};

    for (const struct config_key *k = config_keys; k->key; k++) {
        if (!k->dflt || k->offset == NO_FIELD)
            continue;
        _cleanup_free_ char *line = str_printf("%s = %s", k->key, k->dflt);
        if (!line)
            return err_set(err, -ENOMEM, "out of memory");
        int e = toml_visit(line, strlen(line), on_value, &r, err);
        if (e < 0)
            return e;
    }
    return 0;
}

static int check_rules(const struct reading *r) {
    const struct config *c = r->c;
    enum log_level level;

    if (config_log_level(c, &level) < 0)
        return err_set(r->err, -EINVAL, "%s: log.level: expected error, warning, info or debug",
                       r->name);
    if (!str_ieq(c->runtime_type, "native"))
        return err_set(r->err, -EOPNOTSUPP,
                       "%s: runtime.type: expected \"native\"; this version has no other driver",
                       r->name);
    if (r->has_tenants)
        return err_set(
            r->err, -EINVAL,
            "%s: tenants: expected absent; the section belongs to the kubernetes runtime", r->name);
    return 0;
}

static int fail(struct config *c, int r) {
    config_done(c);
    return r;
}

int config_parse(const char *text, size_t len, const char *name, struct config *ret,
                 struct strv *warnings, struct err *err) {
    struct config c = {0};
    struct err own = {0};
    struct reading rd = {.c = &c, .name = name, .warnings = warnings, .err = err ? err : &own};
    int r;

    if ((r = set_defaults(&c, rd.err)) < 0)
        return fail(&c, r);
    if ((r = toml_visit(text, len, on_value, &rd, rd.err)) < 0) {
        if (!str_starts(rd.err->msg, name)) /* the parser's own: it does not know the file */
            err_wrap(rd.err, "%s", name);
        return fail(&c, r);
    }
    if ((r = check_rules(&rd)) < 0)
        return fail(&c, r);
    *ret = c;
    return 0;
}

static char *expand_home(const char *path) {
    const char *home = getenv("HOME");
    return path[0] == '~' && path[1] == '/' && home ? path_join(home, path + 2) : strdup(path);
}

/* Which file; *ret NULL = none. */
static int choose_file(const char *path, char **ret, struct err *err) {
    const char *env = getenv("SANDBOX_CONFIG_PATH");
    char *p;

    if (!path && !str_is_empty(env))
        path = env;
    if (path) {
        p = expand_home(path);
    } else if (access(SYSTEM_FILE, F_OK) == 0) {
        p = strdup(SYSTEM_FILE);
    } else {
        p = getenv("HOME") ? path_join(getenv("HOME"), USER_FILE) : NULL;
        if (!p || access(p, F_OK) < 0) {
            free(p);
            *ret = NULL;
            return 0;
        }
    }
    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    *ret = p;
    return 0;
}

int config_load(const char *path, struct config *ret, struct strv *warnings, struct err *err) {
    _cleanup_free_ char *file = NULL, *text = NULL;
    const char *key = getenv("OPENSANDBOX_SERVER_API_KEY"),
               *ok = getenv("OPENSANDBOX_INSECURE_SERVER");
    size_t len = 0;
    int r;

    if ((r = choose_file(path, &file, err)) < 0)
        return r;
    if (file && (r = path_read_file_at(AT_FDCWD, file, MAX_FILE, &text, &len)) < 0)
        return err_sys(err, r, "configuration %s", file);
    if ((r = config_parse(text ? text : "", len, file ? file : "configuration", ret, warnings,
                          err)) < 0)
        return r; /* NOLINT(clang-analyzer-unix.Malloc): _cleanup_ */
    ret->path = TAKE_PTR(file);
    ret->insecure_ok = str_eq(ok, "YES");
    if (key && store_text(&ret->api_key, key) < 0) {
        config_done(ret);
        return err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

void config_done(struct config *c) {
    for (const struct config_key *k = config_keys; k->key; k++) {
        char **text = (char **)((char *)c + (k->offset == NO_FIELD ? 0 : k->offset));
        if (k->offset == NO_FIELD)
            continue;
        if (k->type == KEY_LIST)
            strv_done((struct strv *)text);
        if (k->type != KEY_TEXT)
            continue;
        if (k->flags & KEY_SECRET && *text)
            explicit_bzero(*text, strlen(*text));
        free(*text);
    }
    free(c->path);
    memset(c, 0, sizeof *c);
}

int config_log_level(const struct config *c, enum log_level *ret) {
    return log_level_parse(c->log_level, ret);
}
