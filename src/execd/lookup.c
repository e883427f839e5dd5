/* Program lookup (see lookup.h). The answer is advice: whether the file may be executed says execve
 * in the child. */
#include "execd/lookup.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int check_program(const char *path) {
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    return st.st_mode & 0111 ? 0 : -EACCES;
}

static int search(const char *name, const char *path, char **ret) {
    int found = -ENOENT;

    while (*path) {
        const char *e = strchrnul(path, ':');
        if (*path == '/') {
            char *p = str_printf("%.*s/%s", (int)(e - path), path, name);
            if (!p)
                return -ENOMEM;
            int r = check_program(p);
            if (r == 0) {
                *ret = p;
                return 0;
            }
            free(p);
            if (r == -EACCES)
                found = r;
        }
        path = *e ? e + 1 : e;
    }
    return found;
}

int lookup_program(const char *name, const char *cwd, const struct strv *env, char **ret,
                   struct err *err) {
    const char *path = env_get(env, "PATH");
    char *p;
    int r;

    if (strchr(name, '/')) {
        p = path_join(cwd, name);
        if (!p)
            return err_set(err, -ENOMEM, "out of memory");
        r = check_program(p);
        if (r < 0) {
            free(p);
            return err_sys(err, r, "%s", name);
        }
        *ret = p;
        return 0;
    }
    r = search(name, path ? path : DEFAULT_PATH, ret);
    if (r == -ENOENT)
        return err_set(err, r, "%s: not found in PATH", name);
    return r < 0 ? err_sys(err, r, "%s", name) : 0;
}

int lookup_shell(const struct strv *env, char **ret, struct err *err) {
    if (lookup_program("bash", "/", env, ret, NULL) == 0 ||
        lookup_program("sh", "/", env, ret, NULL) == 0)
        return 0;
    if (lookup_program("/bin/sh", "/", env, ret, NULL) == 0)
        return 0;
    return err_set(err, -ENOENT, "no shell: neither bash nor sh is on PATH");
}
