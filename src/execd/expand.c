/* Path expansion (see expand.h). No state; results are malloc'd. */
#include "execd/expand.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/path.h"
#include "execd/users.h"

#define MAX_EXPANDED ((size_t)1 << 20)

static bool is_name_char(char c, bool first) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (!first && c >= '0' && c <= '9');
}

/* Length of the reference at s ("$..."), its name in *ret_name; 0 when the '$' is only a '$'. */
static size_t find_reference(const char *s, const char **ret_name, size_t *ret_len) {
    const char *p = s + 1;
    bool braces = *p == '{';
    size_t n = 0;

    p += braces;
    while (is_name_char(p[n], n == 0))
        n++;
    if (n == 0 || (braces && p[n] != '}'))
        return 0;
    *ret_name = p;
    *ret_len = n;
    return (size_t)(p - s) + n + braces;
}

int expand_vars(const char *s, const struct strv *env, bool strict, char **ret, struct err *err) {
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_EXPANDED);
    const char *name;
    size_t name_len;

    while (*s) {
        size_t plain = strcspn(s, "$");
        buf_append(&b, s, plain);
        s += plain;
        if (!*s)
            break;
        size_t n = find_reference(s, &name, &name_len);
        if (n == 0) {
            buf_char(&b, *s++);
            continue;
        }
        _cleanup_free_ char *key = str_ndup(name, name_len);
        const char *value = key ? env_get(env, key) : NULL;
        if (!value && strict)
            return err_set(err, key ? -ENOENT : -ENOMEM, "variable %s is not set", key ? key : "?");
        buf_str(&b, value ? value : "");
        s += n;
    }
    if (!buf_ok(&b))
        return err_set(err, -ENOBUFS, "longer than %zu bytes after expansion", MAX_EXPANDED);
    *ret = buf_take(&b, NULL);
    return *ret ? 0 : -ENOMEM;
}

static char *home_dir(const struct strv *env) {
    const char *home = env_get(env, "HOME");
    _cleanup_(users_done) struct users u = {0};
    struct user_entry e;

    if (!str_is_empty(home))
        return str_printf("%s", home);
    users_load(&u, NULL);
    if (users_by_uid(&u, getuid(), &e) == 0 && e.home_len > 0)
        return str_ndup(e.home, e.home_len);
    return str_printf("/");
}

int expand_path(const char *s, const struct strv *env, char **ret, struct err *err) {
    _cleanup_free_ char *p = NULL;
    int r = expand_vars(s, env, true, &p, err);

    if (r < 0)
        return r;
    if (p[0] == '~' && (p[1] == 0 || p[1] == '/')) {
        _cleanup_free_ char *home = home_dir(env);
        char *joined = home ? str_printf("%s%s", home, p + 1) : NULL;
        free(p);
        p = joined;
    }
    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    *ret = TAKE_PTR(p);
    return 0;
}

int expand_file_path(const char *s, const struct strv *env, bool clean, char **ret,
                     struct err *err) {
    _cleanup_free_ char *p = NULL, *cwd = NULL, *abs = NULL;
    bool special = strchr(s, '$') || s[0] == '~';
    struct err ignored = {0};

    if (special && faccessat(AT_FDCWD, s, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
        int r = expand_path(s, env, &p, &ignored);
        if (r < 0 && r != -ENOENT)
            return err_set(err, r, "path %s: %s", s, err_text(&ignored));
    }
    if (!p && !(p = strdup(s)))
        return err_set(err, -ENOMEM, "out of memory");
    if (p[0] != '/') {
        cwd = get_current_dir_name();
        abs = cwd ? path_join(cwd, p) : NULL;
        if (!abs)
            return err_sys(err, cwd ? -ENOMEM : -errno, "working directory");
        free(p);
        p = TAKE_PTR(abs);
    }
    if (clean) {
        char *c = path_clean(p);
        if (!c)
            return err_set(err, -ENOMEM, "out of memory");
        free(p);
        p = c;
    }
    *ret = TAKE_PTR(p);
    return 0;
}
