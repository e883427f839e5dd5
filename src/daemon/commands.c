/* Commands that read or write configuration (see commands.h). Nothing here opens a driver. */
#include "daemon/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "daemon/config/config.h"
#include "daemon/store/migrate.h"

int command_complain(const struct err *err) {
    fprintf(stderr, "coved: %s\n", err_text(err));
    return 1;
}

int command_print(const struct buf *b) {
    int r = buf_ok(b) && b->data ? fd_write_full(STDOUT_FILENO, b->data, b->len) : -ENOMEM;
    return r < 0;
}

/* The runtime that an example is for; NULL: there is none. */
static const char *example_runtime(const char *name) {
    if (!name || strcmp(name, "native") == 0)
        return "native";
    /* the other server's names for its examples: its comments are in one language here */
    return strcmp(name, "docker") == 0 || strcmp(name, "docker-zh") == 0 ? "docker" : NULL;
}

static int write_new_file(const char *path, const struct buf *b, bool force, struct err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0600);
    int r = fd < 0 ? -errno : fd_write_full(fd, b->data, b->len);

    fd_close(fd);
    if (r == -EEXIST)
        return err_set(err, r, "%s exists (use --force to replace it)", path);
    return r < 0 ? err_sys(err, r, "%s", path) : 0;
}

int command_init_config(const struct options *o) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    const char *home = getenv("HOME"), *runtime = example_runtime(o->example);
    _cleanup_free_ char *path =
        o->init_path ? strdup(o->init_path) : path_join(home ? home : "/root", ".sandbox.toml");
    struct err err = {0};

    if (!runtime) {
        err_set(&err, -EINVAL, "--example: expected docker or native%s",
                str_starts(o->example, "k8s") ? "; there is no kubernetes runtime here" : "");
        return command_complain(&err); /* NOLINT(clang-analyzer-unix.Malloc): _cleanup_ */
    }
    config_write_sample(&b, runtime);
    if (!path || !buf_ok(&b))
        err_set(&err, -ENOMEM, "out of memory");
    else
        write_new_file(path, &b, o->force, &err);
    if (err.code)
        return command_complain(&err);
    printf("wrote %s\n", path);
    return 0;
}

int command_check_config(const struct options *o) {
    _cleanup_strv_ struct strv warnings = {0};
    struct config c;
    struct err err = {0};
    int r = config_load(o->config, &c, &warnings, &err);

    for (size_t i = 0; i < warnings.n; i++)
        printf("warning: %s\n", warnings.v[i]);
    if (r < 0)
        return command_complain(&err);
    if (!config_has_key(&c) && !c.insecure_ok)
        printf("warning: no API key: %s\n",
               config_is_docker(&c)
                   ? "the daemon will not start without OPENSANDBOX_INSECURE_SERVER=YES "
                     "(set server.api_key)"
                   : "the TCP side stays closed (set server.api_key)");
    printf("%s: good\n", c.path ? c.path : "no configuration file");
    config_done(&c);
    return fflush(stdout) != 0;
}

int command_migrate(const struct options *o) {
    const char *env = getenv("OPENSANDBOX_STORE_POSTGRESQL_DSN");
    _cleanup_free_ char *to = o->to ? strdup(o->to) : env ? strdup(env) : NULL;
    struct err err = {0};
    int r;

    if (o->to) /* the list of processes need not show it any longer */
        explicit_bzero(o->to, strlen(o->to));
    if (!str_is_empty(to))
        r = migrate_snapshots(o->from, to, o->dry_run, &err);
    else
        r = err_set(&err, -EINVAL,
                    "migrate-snapshots: give --to, or set OPENSANDBOX_STORE_POSTGRESQL_DSN");
    if (to)
        explicit_bzero(to, strlen(to));
    return r < 0 ? command_complain(&err) : 0;
}
