/* The API key check (see auth.h). */
#include "daemon/api/auth.h"

#include <ctype.h>
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

enum auth_result auth_check(const char *key, const char *given) {
    if (str_is_empty(key))
        return AUTH_OK;
    if (str_is_empty(given))
        return AUTH_MISSING;
    return str_eq_const_time(key, given) ? AUTH_OK : AUTH_WRONG;
}
