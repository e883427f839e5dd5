/*
 * Environment layers and the EXECD_ENVS grammar (see env.h). Owns the two lower layers; built
 * vectors belong to the caller. Secrets are removed once, at start, so no later path can leak them.
 */
#include "execd/env.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/path.h"
#include "execd/expand.h"

#define MAX_ENV_FILE ((size_t)1 << 20)

static const char *const hidden[] = {
    "EXECD_ACCESS_TOKEN",     "JUPYTER_HOST",          "JUPYTER_TOKEN",
    "EXECD_ISOLATION_CONFIG", "OPENSANDBOX_LIFECYCLE", "OPEN_SANDBOX_LIFECYCLE",
    "EXECD_LIFECYCLE_CONFIG", "EXECD_RUNTIME_INIT",    "_EXECD_CLONE3_COMPAT_APPLIED"};
/* Image entrypoints start the notebook server themselves, so they may see these. */
static const char *const entrypoint_only[] = {"JUPYTER_HOST", "JUPYTER_TOKEN"};

static bool is_in(const char *const *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

bool env_is_hidden(const char *name) {
    return is_in(hidden, ARRAY_SIZE(hidden), name);
}

int env_init(struct env *e, char **environ_in) {
    int r = 0;

    *e = (struct env){0};
    for (char **p = environ_in; *p && r == 0; p++) {
        const char *eq = strchr(*p, '=');
        if (!eq || eq == *p || str_starts(*p, "COVE_"))
            continue;
        _cleanup_free_ char *name = str_ndup(*p, (size_t)(eq - *p));
        if (!name)
            r = -ENOMEM;
        else if (!env_is_hidden(name))
            r = env_set(&e->daemon, name, eq + 1);
        if (r == 0 &&
            (!env_is_hidden(name) || is_in(entrypoint_only, ARRAY_SIZE(entrypoint_only), name)))
            r = env_set(&e->entrypoint, name, eq + 1);
    }
    if (r < 0)
        env_done(e);
    return r;
}

void env_done(struct env *e) {
    strv_done(&e->daemon);
    strv_done(&e->entrypoint);
    strv_done(&e->claim);
}

static int overlay(struct strv *out, const struct strv *layer) {
    int r = 0;

    for (size_t i = 0; i < layer->n && r == 0; i++) {
        const char *eq = strchr(layer->v[i], '=');
        if (!eq)
            continue;
        _cleanup_free_ char *name = str_ndup(layer->v[i], (size_t)(eq - layer->v[i]));
        r = name ? env_set(out, name, eq + 1) : -ENOMEM;
    }
    return r;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static const char *skip_blanks(const char *p, const char *end) {
    while (p < end && is_blank(*p))
        p++;
    return p;
}

static const char *line_end(const char *p, const char *end) {
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    return nl ? nl : end;
}

static const char *trim_end(const char *start, const char *stop) {
    while (stop > start && is_blank(stop[-1]))
        stop--;
    return stop;
}

/* The closing quote of a value that starts at p, or NULL. Backslashes count in double quotes only.
 */
static const char *closing_quote(const char *p, const char *end, char quote) {
    for (; p < end; p++) {
        if (quote == '"' && *p == '\\' && p + 1 < end)
            p++;
        else if (*p == quote)
            return p;
    }
    return NULL;
}

static char unescape(char c) {
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case '\\':
    case '"':
        return c;
    default:
        return 0;
    }
}

/* Text of a value with its quoting taken off. */
static char *decode(const char *p, const char *stop, char quote) {
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_ENV_FILE);

    for (; p < stop; p++) {
        char c = quote == '"' && *p == '\\' && p + 1 < stop ? unescape(p[1]) : 0;
        buf_char(&b, c ? c : *p);
        p += c != 0;
    }
    return buf_take(&b, NULL);
}

/* One entry "KEY=value" at p. *ret_next: where the next line starts. 1 = set, 0 = nothing there,
 * -EINVAL = skipped. */
static int parse_entry(const char *p, const char *end, const struct strv *base, struct strv *out,
                       const char **ret_next) {
    const char *nl = line_end(p, end), *eq, *v, *stop;
    char quote = 0;

    *ret_next = nl < end ? nl + 1 : end;
    p = skip_blanks(p, nl);
    if (p == nl || *p == '#')
        return 0;
    eq = memchr(p, '=', (size_t)(nl - p));
    if (!eq || trim_end(p, eq) == p)
        return -EINVAL;
    v = skip_blanks(eq + 1, nl);
    stop = trim_end(v, nl);
    if (v < nl && (*v == '"' || *v == '\'')) {
        quote = *v++;
        stop = closing_quote(v, end, quote);
        if (!stop)
            return -EINVAL;
        nl = line_end(stop, end);
        *ret_next = nl < end ? nl + 1 : end;
        if (skip_blanks(stop + 1, nl) != nl)
            return -EINVAL;
    }
    _cleanup_free_ char *key = str_ndup(p, (size_t)(trim_end(p, eq) - p));
    _cleanup_free_ char *text = decode(v, stop, quote), *value = NULL;
    if (!key || !text)
        return -ENOMEM;
    if (memchr(v, 0, (size_t)(stop - v)) || strlen(key) != (size_t)(trim_end(p, eq) - p))
        return -EINVAL; /* NUL cannot be in a variable */
    if (quote != '\'') {
        int r = expand_vars(text, base, false, &value, NULL);
        if (r < 0)
            return r == -ENOMEM ? r : -EINVAL;
    }
    if (env_is_hidden(key) || str_eq(key, "OPENSANDBOX_ID"))
        return 0;
    int r = env_set(out, key, value ? value : text);
    return r < 0 ? r : 1;
}

int envfile_apply(const char *text, size_t len, const struct strv *base, struct strv *out) {
    const char *p = text, *end = text + len;
    int skipped = 0;

    while (p < end) {
        int r = parse_entry(p, end, base, out, &p);
        if (r == -ENOMEM)
            return r;
        skipped += r < 0;
    }
    return skipped;
}

void envfile_touch(const char *path) {
    _cleanup_free_ char *dir = strdup(path);
    char *slash;

    if (dir && (slash = strrchr(dir, '/')) && slash != dir) {
        *slash = 0;
        path_mkdirs_at(AT_FDCWD, dir, 0755);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
    if (fd < 0)
        log_warn("the EXECD_ENVS file cannot be made", LOG_STR("path", path),
                 LOG_STR("error", strerrordesc_np(errno)));
    fd_close(fd);
}

static int apply_file(struct strv *out) {
    const char *name = env_get(out, "EXECD_ENVS");
    _cleanup_free_ char *path = NULL, *text = NULL;
    _cleanup_strv_ struct strv base = {0};
    struct err err = {0};
    size_t len = 0;
    int r;

    if (str_is_empty(name))
        return 0;
    r = expand_path(name, out, &path, &err);
    if (r == 0)
        r = path_read_file_at(AT_FDCWD, path, MAX_ENV_FILE, &text, &len);
    if (r == -ENOENT)
        return 0;
    if (r < 0) {
        err_sys(&err, r, "cannot be read");
        log_warn("EXECD_ENVS file ignored", LOG_STR("path", name), LOG_ERR(&err));
        return 0;
    }
    r = strv_copy(&base, (const char *const *)out->v);
    if (r == 0)
        r = envfile_apply(text, len, &base, out);
    if (r > 0)
        log_warn("entries of the EXECD_ENVS file are malformed", LOG_STR("path", name),
                 LOG_INT("entries", r));
    return r < 0 ? r : 0;
}

static int build(const struct strv *daemon, const struct strv *claim, const struct strv *extra,
                 bool file, struct strv *ret) {
    struct strv out = {0};
    int r = daemon->n ? strv_copy(&out, (const char *const *)daemon->v) : 0;

    if (r == 0)
        r = overlay(&out, claim);
    if (r == 0 && file)
        r = apply_file(&out);
    if (r == 0 && extra)
        r = overlay(&out, extra);
    if (r < 0)
        strv_done(&out);
    else
        *ret = out;
    return r;
}

int env_build(const struct env *e, const struct strv *extra, struct strv *ret) {
    return build(&e->daemon, &e->claim, extra, true, ret);
}

int env_build_entrypoint(const struct env *e, struct strv *ret) {
    return build(&e->entrypoint, &e->claim, NULL, false, ret);
}
