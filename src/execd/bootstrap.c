/*
 * Bootstrap (see bootstrap.h). Needs a shell only where the contract says shell: for BOOTSTRAP_CMD,
 * for
 * "-c" arguments, without arguments, and to source a pre-script, whose variables must reach
 * everything.
 */
#include "execd/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/path.h"
#include "execd/env.h"
#include "execd/lookup.h"
#include "execd/trust.h"

extern char **environ;

#define SOURCED_MARK "COVE_PRE_SCRIPT_DONE"

static void touch_envs_file(void) {
    if (str_is_empty(getenv("EXECD_ENVS")))
        setenv("EXECD_ENVS", ENVFILE_DEFAULT, 1);
    envfile_touch(getenv("EXECD_ENVS"));
}

static char *own_path(const char *argv0) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    if (n <= 0)
        return strdup(argv0);
    path[n] = 0;
    return strdup(path);
}

/* sh -c '. script; exec us "$@"': only a shell can take over what the script exports. */
static void source_pre_script(int argc, char **argv, const char *script) {
    _cleanup_free_ char *name = str_printf("%s%s", strchr(script, '/') ? "" : "./", script),
                        *shell = NULL;
    _cleanup_free_ char *self = own_path(argv[0]);
    _cleanup_strv_ struct strv words = {0}, env = {0};
    struct err err = {0};
    int r;

    if (!name || !self || access(name, R_OK) < 0) {
        log_warn("the pre-script cannot be read", LOG_STR("path", script));
        return;
    }
    strv_copy(&env, (const char *const *)environ);
    r = lookup_shell(&env, &shell, &err);
    if (r < 0) {
        log_warn("the pre-script needs a shell", LOG_ERR(&err));
        return;
    }
    setenv(SOURCED_MARK, "1", 1);
    r = strv_add(&words, path_base(shell));
    const char *fixed[] = {"-c", ". \"$1\"; shift; exec \"$0\" bootstrap \"$@\"", self, name};
    for (size_t i = 0; i < ARRAY_SIZE(fixed) && r == 0; i++)
        r = strv_add(&words, fixed[i]);
    for (int i = strcmp(path_base(argv[0]), "bootstrap.sh") == 0 ? 1 : 2; i < argc && r == 0; i++)
        r = strv_add(&words, argv[i]);
    if (r == 0)
        execve(shell, words.v, environ);
    log_warn("the pre-script cannot be run", LOG_STR("path", name));
}

int bootstrap_prepare(int argc, char **argv) {
    const char *script = getenv("EXECD_BOOTSTRAP_PRE_SCRIPT");
    bool again = getenv(SOURCED_MARK); /* the shell that sourced the script has started us */

    if (!again && trust_is_wanted(getenv("OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"))) {
        int sig = trust_set_up();
        if (sig)
            return 128 + sig;
    }
    touch_envs_file();
    if (!str_is_empty(script) && !again)
        source_pre_script(argc, argv, script);
    return 0;
}

static int shell_words(const struct strv *env, const char *wanted, const char *text,
                       struct strv *ret, struct err *err) {
    _cleanup_free_ char *shell = NULL;
    int r = 0;

    if (!str_is_empty(wanted))
        shell = strdup(wanted);
    else
        r = lookup_shell(env, &shell, err);
    if (r == 0)
        r = shell ? strv_add(ret, shell) : -ENOMEM;
    if (r == 0 && text)
        r = strv_add(ret, "-c");
    if (r == 0 && text)
        r = strv_add(ret, text);
    return r;
}

int bootstrap_command(char *const *args, const struct strv *env, struct strv *ret,
                      struct err *err) {
    const char *cmd = env_get(env, "BOOTSTRAP_CMD"), *shell = env_get(env, "BOOTSTRAP_SHELL");

    if (!str_is_empty(cmd))
        return shell_words(env, shell, cmd, ret, err);
    if (!*args)
        return shell_words(env, shell, NULL, ret, err);
    if (strcmp(*args, "-c") != 0) {
        int r = strv_copy(ret, (const char *const *)args);
        return r < 0 ? err_sys(err, r, "command") : 0;
    }
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    for (args++; *args; args++) {
        if (text.len)
            buf_char(&text, ' ');
        buf_str(&text, *args);
    }
    if (!buf_ok(&text))
        return err_set(err, -E2BIG, "the command is longer than 1 MiB");
    return shell_words(env, shell, text.data ? text.data : "", ret, err);
}
