/* The API key check (see auth.h). Owns the texts of the keys. */
#include "daemon/api/auth.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

/* ^(/v1)?/sandboxes/[^/]+/proxy/[0-9]+(/|$), without ".." anywhere */
static bool is_proxy_path(const char *path) {
    const char *p = path;

    if (strstr(path, ".."))
        return false;
    if (str_starts(p, "/v1/"))
        p += 3;
    if (!str_starts(p, "/sandboxes/"))
        return false;
    p += strlen("/sandboxes/");
    size_t n = strcspn(p, "/");
    if (n == 0 || !str_starts(p + n, "/proxy/"))
        return false;
    p += n + strlen("/proxy/");
    n = strspn(p, "0123456789");
    return n > 0 && (p[n] == '/' || !p[n]);
}

bool auth_is_exempt(const char *path) {
    static const char *const exact[] = {"/health", "/version", "/docs", "/redoc", "/openapi.json"};

    for (size_t i = 0; i < ARRAY_SIZE(exact); i++)
        if (strcmp(path, exact[i]) == 0)
            return true;
    return str_starts(path, "/docs/") || is_proxy_path(path);
}

struct auth_keys {
    struct {
        char *name, *key;
    } * v;
    size_t n;
};

struct auth_keys *auth_keys_new(void) {
    return calloc(1, sizeof(struct auth_keys));
}

int auth_keys_add(struct auth_keys *k, const char *name, const char *key) {
    if (str_is_empty(key) || key[strspn(key, " \t")] == '\0')
        return 0;
    if (strlen(name) > AUTH_NAME_MAX)
        return -EINVAL;
    void *more = reallocarray(k->v, k->n + 1, sizeof *k->v);
    if (!more)
        return -ENOMEM;
    k->v = more;
    k->v[k->n].name = strdup(name);
    k->v[k->n].key = strdup(key);
    k->n++; /* from here on auth_keys_free takes care of both */
    return k->v[k->n - 1].name && k->v[k->n - 1].key ? 0 : -ENOMEM;
}

struct auth_keys *auth_keys_free(struct auth_keys *k) {
    if (!k)
        return NULL;
    for (size_t i = 0; i < k->n; i++) {
        if (k->v[i].key)
            explicit_bzero(k->v[i].key, strlen(k->v[i].key));
        free(k->v[i].key);
        free(k->v[i].name);
    }
    free(k->v);
    free(k);
    return NULL;
}

enum auth_result auth_check(const struct auth_keys *k, const char *given, const char **ret_name) {
    const char *name = NULL;

    if (ret_name)
        *ret_name = NULL;
    if (!k || k->n == 0)
        return AUTH_OK;
    if (str_is_empty(given))
        return AUTH_MISSING;
    for (size_t i = 0; i < k->n; i++) /* all of them: the time must not tell which one it was */
        if (str_eq_const_time(k->v[i].key, given))
            name = k->v[i].name;
    if (ret_name)
        *ret_name = name;
    return name ? AUTH_OK : AUTH_WRONG;
}
