/* Flags and variables (see config.h). Flags beat variables; secrets are taken from the environment
 * only once. */
#include "execd/config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/path.h"

static const char usage[] =
    "usage: cove-execd [OPTION...]                     serve the API\n"
    "       cove-execd --init [OPTION...] [-- COMMAND] supervise COMMAND as well, as PID 1 or not\n"
    "       cove-execd bootstrap [COMMAND...]          container entrypoint\n"
    "\n"
    "  --port N              listen on 0.0.0.0:N (44772)\n"
    "  --access-token TOKEN  required of every request (better: EXECD_ACCESS_TOKEN)\n"
    "  --log-level N         0..2 fatal, 3 error, 4 warnings, 6 normal, 7 debug\n"
    "  --version, --help\n";

enum { OPT_PORT = 256, OPT_TOKEN, OPT_LOG, OPT_INIT, OPT_IGNORED, OPT_VERSION, OPT_HELP };

/* Accepted and without effect here are settings of features that the agent lacks or has no use for.
 */
static const struct option options[] = {
    {"port", required_argument, NULL, OPT_PORT},
    {"access-token", required_argument, NULL, OPT_TOKEN},
    {"log-level", required_argument, NULL, OPT_LOG},
    {"init", no_argument, NULL, OPT_INIT},
    {"jupyter-host", required_argument, NULL, OPT_IGNORED},
    {"jupyter-token", required_argument, NULL, OPT_IGNORED},
    {"graceful-shutdown-timeout", required_argument, NULL, OPT_IGNORED},
    {"jupyter-idle-poll-interval", required_argument, NULL, OPT_IGNORED},
    {"isolation-config", required_argument, NULL, OPT_IGNORED},
    {"lifecycle-startup-status-file", required_argument, NULL, OPT_IGNORED},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

void config_done(struct config *c) {
    free(c->token);
    *c = (struct config){0};
}

static int check_fd(const char *name, int fd, struct err *err) {
    int on = 0;
    socklen_t len = sizeof on;

    if (fd < 3 || fcntl(fd, F_GETFD) < 0)
        return err_set(err, -EINVAL, "COVE_FDS: descriptor %d for %s is not open", fd, name);
    if (strcmp(name, "listen") == 0 &&
        (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) < 0 || !on))
        return err_set(err, -EINVAL, "COVE_FDS: descriptor %d is not a listening socket", fd);
    fd_set_cloexec(fd, true);
    return 0;
}

int config_parse_fds(const char *text, struct config *c, struct err *err) {
    while (*text) {
        const char *end = strchrnul(text, ','), *colon = memchr(text, ':', (size_t)(end - text));
        _cleanup_free_ char *name = colon ? str_ndup(text, (size_t)(colon - text)) : NULL;
        uint64_t fd;
        int *slot = NULL;

        if (!name || str_to_u64n(colon + 1, (size_t)(end - colon - 1), &fd) < 0 || fd > 65535)
            return err_set(err, -EINVAL, "COVE_FDS must be a list of name:number");
        if (strcmp(name, "listen") == 0)
            slot = &c->listen_fd;
        else if (strcmp(name, "cgroup") == 0)
            slot = &c->cgroup_fd;
        else if (strcmp(name, "log") == 0)
            slot = &c->log_fd;
        else if (strcmp(name, "state") == 0)
            slot = &c->state_fd;
        if (!slot)
            return err_set(err, -EINVAL, "COVE_FDS: \"%s\" is not a known descriptor", name);
        int r = check_fd(name, (int)fd, err);
        if (r < 0)
            return r;
        *slot = (int)fd;
        text = *end ? end + 1 : end;
    }
    return 0;
}

static int set_token(struct config *c, const char *text, struct err *err) {
    free(c->token);
    c->token = str_is_empty(text) ? NULL : strdup(text);
    return c->token || str_is_empty(text) ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int number(const char *name, const char *text, uint64_t max, uint64_t *ret,
                  struct err *err) {
    if (str_to_u64(text, ret) < 0 || *ret > max)
        return err_set(err, -EINVAL, "--%s must be a number up to %llu", name,
                       (unsigned long long)max);
    return 0;
}

static int take_option(struct config *c, int opt, const char *arg, struct err *err) {
    uint64_t v;
    int r = 0;

    switch (opt) {
    case OPT_PORT:
        r = number("port", arg, 65535, &v, err);
        if (r == 0)
            c->port = (uint16_t)v;
        break;
    case OPT_LOG:
        r = number("log-level", arg, 10, &v, err);
        if (r == 0)
            c->log_level = (int)v;
        break;
    case OPT_TOKEN:
        r = set_token(c, arg, err);
        break;
    case OPT_INIT:
        c->mode = MODE_INIT;
        break;
    case OPT_IGNORED:
        break;
    case OPT_VERSION:
        printf("cove-execd %s\n", COVE_VERSION);
        return 1;
    case OPT_HELP:
        fputs(usage, stdout);
        return 1;
    default:
        return err_set(err, -EINVAL, "unknown option or missing argument; see --help");
    }
    return r;
}

static int from_environment(struct config *c, struct err *err) {
    const char *fds = getenv("COVE_FDS"), *token = getenv("COVE_TOKEN"),
               *ends = getenv("OSB_EXECD_LINE_ENDS");

    c->strip_line_ends = str_eq(ends, "strip");
    if (ends && !c->strip_line_ends && strcmp(ends, "keep") != 0)
        log_warn("OSB_EXECD_LINE_ENDS is neither keep nor strip: keep is used");
    c->native = fds != NULL;
    int r = set_token(c, token ? token : getenv("EXECD_ACCESS_TOKEN"), err);
    return r == 0 && fds ? config_parse_fds(fds, c, err) : r;
}

static int parse_flags(int argc, char **argv, struct config *c, struct err *err) {
    int opt, r = 0;

    opterr = 0;
    optind = 1;
    while (r == 0 && (opt = getopt_long_only(argc, argv, "+", options, NULL)) != -1)
        r = take_option(c, opt, optarg, err);
    return r;
}

/* A bootstrap has no flags of its own; EXECD may carry some after the program's name. */
static int from_execd_variable(struct config *c, struct err *err) {
    _cleanup_strv_ struct strv words = {0};
    const char *p = getenv("EXECD");

    while (p && *(p += strspn(p, " \t\n"))) {
        size_t n = strcspn(p, " \t\n");
        int r = strv_take(&words, str_ndup(p, n));
        if (r < 0)
            return err_sys(err, r, "EXECD");
        p += n;
    }
    return words.n > 1 ? parse_flags((int)words.n, words.v, c, err) : 0;
}

int config_parse(int argc, char **argv, struct config *ret, struct err *err) {
    struct config c = {.port = 44772,
                       .log_level = 6,
                       .listen_fd = -1,
                       .cgroup_fd = -1,
                       .log_fd = -1,
                       .state_fd = -1};
    int r = from_environment(&c, err);

    bool by_name = str_eq(path_base(argv[0]), "bootstrap.sh");
    if (r == 0 && (by_name || (argc > 1 && str_eq(argv[1], "bootstrap")))) {
        c.mode = MODE_BOOTSTRAP;
        c.argv = argv + (by_name ? 1 : 2);
        r = from_execd_variable(&c, err);
        if (r != 0)
            config_done(&c);
        else
            *ret = c;
        return r;
    }
    r = r == 0 ? parse_flags(argc, argv, &c, err) : r;
    if (r == 0 && c.mode == MODE_PLAIN && argv[optind])
        r = err_set(err, -EINVAL, "unexpected argument %s; see --help", argv[optind]);
    if (r != 0) {
        config_done(&c);
        return r;
    }
    c.argv = argv + optind;
    *ret = c;
    return 0;
}
