/*
 * Reading the configuration by the table of keys (config_keys.c). Every message names file, line
 * and key and says what was expected; none holds a value. Called at start and on SIGHUP, from the
 * loop thread.
 */
#include "daemon/config/config_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "daemon/config/toml.h"

#define MAX_FILE ((size_t)1 << 20)
#define SYSTEM_FILE "/etc/cove/coved.toml"
#define USER_FILE ".sandbox.toml"

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

bool config_is_blank(const char *s) {
    return !s || !s[strspn(s, " \t\r\n")];
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
        return !(k->flags & KEY_NONEMPTY) || !config_is_blank(v->str);
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

static const char *home_dir(void) {
    const char *home = getenv("HOME");
    if (!str_is_empty(home))
        return home;
    const struct passwd *pw = getpwuid(geteuid());
    return pw ? pw->pw_dir : "/root";
}

static char *expand_home(const char *path) {
    return path[0] == '~' && path[1] == '/' ? path_join(home_dir(), path + 2) : strdup(path);
}

static int store_path(char **field, const char *s) {
    char *path = expand_home(s);
    if (!path)
        return -ENOMEM;
    free(*field);
    *field = path;
    return 0;
}

static int keep(struct config *c, const struct config_key *k, const struct toml_value *v) {
    if (k->offset == NO_FIELD)
        return 0;
    void *field = (char *)c + k->offset;
    switch (k->type) {
    case KEY_TEXT:
        return (k->flags & KEY_PATH ? store_path : store_text)(field, v->str);
    case KEY_INT:
        *(int64_t *)field = v->num;
        return 0;
    case KEY_FLOAT:
        *(double *)field = v->real;
        return 0;
    case KEY_BOOL:
        *(bool *)field = v->num;
        return 0;
    case KEY_LIST:
        strv_done(field);
        return strv_copy(field, v->strings);
    case KEY_MAP:
        json_decref(*(json_t **)field);
        *(json_t **)field = json_object();
        return *(json_t **)field ? 0 : -ENOMEM;
    }
    return 0;
}

/* An entry of a table of texts. */
static int keep_entry(struct config *c, const struct config_key *k, const struct toml_value *v) {
    json_t **map = (json_t **)((char *)c + k->offset);

    if (k->offset == NO_FIELD)
        return 0;
    if (!*map && !(*map = json_object()))
        return -ENOMEM;
    return json_object_set_new(*map, v->key + strlen(k->key) + 1, json_string(v->str)) < 0 ? -ENOMEM
                                                                                           : 0;
}

unsigned config_line(const struct reading *r, const char *key) {
    return (unsigned)json_integer_value(json_object_get(r->lines, key));
}

int config_complain(const struct reading *r, const char *key, const char *expected) {
    return complain(r, &(struct toml_value){.key = key, .line = config_line(r, key)}, expected);
}

int config_warn(const struct reading *r, const char *key, const char *what) {
    unsigned line = config_line(r, key);
    int e = 0;

    if (r->warnings && line)
        e = strv_addf(r->warnings, "%s:%u: %s %s", r->name, line, key, what);
    else if (r->warnings)
        e = strv_addf(r->warnings, "%s: %s %s", r->name, key, what);
    return e < 0 ? err_set(r->err, -ENOMEM, "out of memory") : 0;
}

/* Keys that older releases of OpenSandbox's server had: their files are no mistake. */
static bool is_retired(const char *key) {
    static const char *const all[] = {"kubernetes.informer_enabled", "kubernetes.service_account",
                                      "kubernetes.snapshot_create_timeout_seconds"};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (strcmp(key, all[i]) == 0)
            return true;
    return false;
}

static int on_map_entry(struct reading *r, const struct config_key *map,
                        const struct toml_value *v) {
    if (v->type != TOML_STRING)
        return complain(r, v, "a text");
    return keep_entry(r->c, map, v) < 0 ? err_set(r->err, -ENOMEM, "out of memory") : 0;
}

static int on_value(const struct toml_value *v, void *ud) {
    struct reading *r = ud;
    const struct config_key *k = find_key(v->key), *map = k ? NULL : find_map(v->key);
    char expected[300];

    if (r->lines && json_object_set_new(r->lines, v->key, json_integer(v->line)) < 0)
        return err_set(r->err, -ENOMEM, "out of memory");
    if (map)
        return on_map_entry(r, map, v);
    if (!k && ((v->type == TOML_TABLE && is_section(v->key)) || is_retired(v->key)))
        return 0;
    if (!k && is_section(v->key))
        return complain(r, v, "a table");
    if (!k)
        return config_warn(r, v->key, "is no known key, ignored");
    if (!is_valid(k, v)) {
        describe(k, expected, sizeof expected);
        return complain(r, v, expected);
    }
    if (keep(r->c, k, v) < 0)
        return err_set(r->err, -ENOMEM, "out of memory");
    return k->flags & KEY_LATER ? config_warn(r, v->key, "has no effect in this version") : 0;
}

/* ---- the whole ---- */

/* The default text is TOML itself: it goes the same way as a file. */
static int set_defaults(struct config *c, struct err *err) {
    struct reading r = {.c = c, .name = "defaults", .err = err};

    for (const struct config_key *k = config_keys; k->key; k++) {
        if (!k->dflt || k->offset == NO_FIELD || k->flags & KEY_ALIAS)
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

static void forget(char *secret) {
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

/* What replaces keys of the file. Before the rules: they judge the outcome. */
static int take_environment(struct reading *r) {
    const char *key = getenv("OPENSANDBOX_SERVER_API_KEY"),
               *dsn = getenv("OPENSANDBOX_STORE_POSTGRESQL_DSN");

    r->c->insecure_ok = str_eq(getenv("OPENSANDBOX_INSECURE_SERVER"), "YES");
    if ((key && store_text(&r->c->api_key, key) < 0) ||
        (dsn && store_text(&r->c->store.pg_dsn, dsn) < 0))
        return err_set(r->err, -ENOMEM, "out of memory");
    if (getenv("OPENSANDBOX_SECURE_ACCESS_KEYS") || getenv("OPENSANDBOX_SECURE_ACCESS_ACTIVE_KEY"))
        return err_set(r->err, -EINVAL,
                       "environment: OPENSANDBOX_SECURE_ACCESS_KEYS and "
                       "OPENSANDBOX_SECURE_ACCESS_ACTIVE_KEY: expected unset; they belong to the "
                       "gateway ingress of the kubernetes runtime");
    return 0;
}

/* The folder that the service manager made; NULL: none, or several. */
static const char *made_folder(const char *variable) {
    const char *v = getenv(variable);
    return v && *v && !strchr(v, ':') ? v : NULL;
}

/* Of a daemon that is not root: what the service manager made for it, else the usual places of
 * users. */
static char *own_state_dir(void) {
    const char *made = made_folder("STATE_DIRECTORY"), *xdg = getenv("XDG_STATE_HOME");

    if (made)
        return strdup(made);
    return !str_is_empty(xdg) ? path_join(xdg, "cove") : path_join(home_dir(), ".local/state/cove");
}

static char *own_run_dir(const char *state_dir) {
    const char *made = made_folder("RUNTIME_DIRECTORY"), *xdg = getenv("XDG_RUNTIME_DIR");

    if (made)
        return strdup(made);
    return !str_is_empty(xdg) ? path_join(xdg, "cove") : path_join(state_dir, "run");
}

/* Defaults that depend on other keys, or on who runs the daemon. */
static int fill_in(struct config *c) {
    bool is_root = geteuid() == 0;

    if (!c->host)
        c->host = strdup(config_is_docker(c) ? "0.0.0.0" : "127.0.0.1");
    if (!c->state_dir)
        c->state_dir = is_root ? strdup("/var/lib/cove") : own_state_dir();
    if (!c->run_dir && c->state_dir)
        c->run_dir = is_root ? strdup("/run/cove") : own_run_dir(c->state_dir);
    if (config_is_blank(c->docker.publish_host) && store_text(&c->docker.publish_host, "0.0.0.0"))
        return -ENOMEM;
    return c->host && c->state_dir && c->run_dir ? 0 : -ENOMEM;
}

static int read_text(struct reading *rd, const char *text, size_t len, bool with_environment) {
    int r;

    if ((r = set_defaults(rd->c, rd->err)) < 0)
        return r;
    if (!(rd->lines = json_object()))
        return err_set(rd->err, -ENOMEM, "out of memory");
    if ((r = toml_visit(text, len, on_value, rd, rd->err)) < 0) {
        if (!str_starts(rd->err->msg, rd->name)) /* the parser's own: it does not know the file */
            err_wrap(rd->err, "%s", rd->name);
        return r;
    }
    if (with_environment && (r = take_environment(rd)) < 0)
        return r;
    if (fill_in(rd->c) < 0)
        return err_set(rd->err, -ENOMEM, "out of memory");
    return config_check_rules(rd);
}

static int parse(const char *text, size_t len, const char *name, bool with_environment,
                 struct config *ret, struct strv *warnings, struct err *err) {
    struct config c = {0};
    struct err own = {0};
    struct reading rd = {.c = &c, .name = name, .warnings = warnings, .err = err ? err : &own};
    int r = read_text(&rd, text, len, with_environment);

    json_decref(rd.lines);
    if (r < 0)
        config_done(&c);
    else
        *ret = c;
    return r;
}

int config_parse(const char *text, size_t len, const char *name, struct config *ret,
                 struct strv *warnings, struct err *err) {
    return parse(text, len, name, false, ret, warnings, err);
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
        p = path_join(home_dir(), USER_FILE);
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
    _cleanup_free_ char *file = NULL;
    char *text = NULL;
    size_t len = 0;
    int r;

    if ((r = choose_file(path, &file, err)) < 0)
        return r;
    if (file && (r = path_read_file_at(AT_FDCWD, file, MAX_FILE, &text, &len)) < 0) {
        if (r == -ENOENT)
            return err_set(err, r, "no configuration %s; coved init-config %s writes one", file,
                           file);
        return err_sys(err, r, "configuration %s", file);
    }
    r = parse(text ? text : "", len, file ? file : "configuration", true, ret, warnings, err);
    forget(text);
    if (r == 0)
        ret->path = TAKE_PTR(file);
    return r; /* NOLINT(clang-analyzer-unix.Malloc): _cleanup_ */
}

static void forget_map(json_t *map) {
    const char *name;
    json_t *v;

    json_object_foreach(map, name, v) {
        explicit_bzero((char *)json_string_value(v), json_string_length(v));
    }
    json_decref(map);
}

void config_done(struct config *c) {
    for (const struct config_key *k = config_keys; k->key; k++) {
        bool is_secret = k->flags & KEY_SECRET;
        if (k->offset == NO_FIELD || k->flags & KEY_ALIAS)
            continue;
        void *field = (char *)c + k->offset;
        if (k->type == KEY_LIST)
            strv_done(field);
        else if (k->type == KEY_MAP)
            (is_secret ? forget_map : json_decref)(*(json_t **)field);
        else if (k->type == KEY_TEXT)
            (is_secret ? forget : (void (*)(char *))free)(*(char **)field);
    }
    free(c->path);
    memset(c, 0, sizeof *c);
}

bool config_has_key(const struct config *c) {
    return !config_is_blank(c->api_key) || json_object_size(c->api_keys) > 0;
}

bool config_is_docker(const struct config *c) {
    return str_ieq(c->runtime_type, "docker");
}

const char *config_secure_runtime(const struct config *c) {
    if (config_is_blank(c->secure.type))
        return NULL;
    if (!config_is_blank(c->secure.docker_runtime))
        return c->secure.docker_runtime;
    return str_ieq(c->secure.type, "gvisor") ? "runsc" : "kata-runtime";
}

int config_log_level(const struct config *c, enum log_level *ret) {
    return log_level_parse(c->log_level, ret);
}
