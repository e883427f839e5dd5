/* The command line of coved (see options.h). */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "base/str.h"

const char options_help[] =
    "Usage: coved [OPTION]...\n"
    "       coved init-config [PATH] [--example docker|native] [--force]\n"
    "       coved migrate-snapshots [--from FILE] [--to DSN] [--dry-run]\n"
    "\n"
    "The daemon that makes and keeps sandboxes. Listens on a Unix socket and, with an API key, on "
    "TCP.\n"
    "\n"
    "  --config FILE        configuration (default: SANDBOX_CONFIG_PATH, /etc/cove/coved.toml, "
    "~/.sandbox.toml)\n"
    "  --socket PATH        Unix socket, instead of server.socket\n"
    "  --state-dir DIR      state, instead of server.state_dir\n"
    "  --log-level LEVEL    error, warning, info or debug\n"
    "  --private            for one client: own state, no TCP; everything is removed at the end\n"
    "  --life-fd N          end when descriptor N reaches its end (with --private: standard input "
    "by default)\n"
    "  --ready-fd N         write the address to descriptor N when serving\n"
    "  --check-config       check the configuration and exit: 0 good (with warnings perhaps), 1 "
    "bad\n"
    "  --print-config-doc   print all configuration keys as Markdown\n"
    "  --probe [--json]     try what this machine offers to sandboxes\n"
    "  --version, --help\n"
    "\n"
    "init-config writes a commented configuration for one runtime to PATH (default: native, "
    "~/.sandbox.toml).\n"
    "migrate-snapshots copies the records of snapshots from an SQLite file (default: "
    "~/.opensandbox/opensandbox.db)\n"
    "to a PostgreSQL database (default: OPENSANDBOX_STORE_POSTGRESQL_DSN, which other users of the "
    "machine do not see).\n"
    "Signals: TERM and INT end the daemon after requests in flight, sandboxes live on; HUP reloads "
    "API keys and log\n"
    "level and opens log files again, USR1 does only the latter.\n";

enum {
    OPT_CONFIG = 256,
    OPT_SOCKET,
    OPT_STATE,
    OPT_LEVEL,
    OPT_PRIVATE,
    OPT_LIFE,
    OPT_READY,
    OPT_FORCE,
    OPT_JSON,
    OPT_CHECK,
    OPT_DOC,
    OPT_PROBE,
    OPT_POINTS,
    OPT_VERSION,
    OPT_RELOAD,
    OPT_EXAMPLE,
    OPT_FROM,
    OPT_TO,
    OPT_DRY,
};

static const struct option table[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"state-dir", required_argument, NULL, OPT_STATE},
    {"log-level", required_argument, NULL, OPT_LEVEL},
    {"private", no_argument, NULL, OPT_PRIVATE},
    {"life-fd", required_argument, NULL, OPT_LIFE},
    {"ready-fd", required_argument, NULL, OPT_READY},
    {"force", no_argument, NULL, OPT_FORCE},
    {"json", no_argument, NULL, OPT_JSON},
    {"check-config", no_argument, NULL, OPT_CHECK},
    {"print-config-doc", no_argument, NULL, OPT_DOC},
    {"probe", no_argument, NULL, OPT_PROBE},
    {"list-crash-points", no_argument, NULL, OPT_POINTS}, /* for the tests */
    {"version", no_argument, NULL, OPT_VERSION},
    {"reload", no_argument, NULL, OPT_RELOAD}, /* of another server of this wire */
    {"example", required_argument, NULL, OPT_EXAMPLE},
    {"from", required_argument, NULL, OPT_FROM},
    {"to", required_argument, NULL, OPT_TO},
    {"dry-run", no_argument, NULL, OPT_DRY},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static int take_fd(const char *text, const char *name, int *ret, struct err *err) {
    uint64_t n;
    if (str_to_u64(text, &n) < 0 || n > 65535)
        return err_set(err, -EINVAL, "%s takes a descriptor's number", name);
    *ret = (int)n;
    return 0;
}

/* word: what the command line said, for messages. */
static int take(struct options *o, int opt, const char *word, struct err *err) {
    switch (opt) {
    case OPT_CONFIG:
        o->config = optarg;
        return 0;
    case OPT_SOCKET:
        o->socket = optarg;
        return 0;
    case OPT_STATE:
        o->state_dir = optarg;
        return 0;
    case OPT_LEVEL:
        o->log_level = optarg;
        return 0;
    case OPT_PRIVATE:
        o->is_private = true;
        return 0;
    case OPT_LIFE:
        return take_fd(optarg, "--life-fd", &o->life_fd, err);
    case OPT_READY:
        return take_fd(optarg, "--ready-fd", &o->ready_fd, err);
    case OPT_FORCE:
        o->force = true;
        return 0;
    case OPT_JSON:
        o->json = true;
        return 0;
    case OPT_CHECK:
        o->mode = MODE_CHECK_CONFIG;
        return 0;
    case OPT_DOC:
        o->mode = MODE_CONFIG_DOC;
        return 0;
    case OPT_PROBE:
        o->mode = MODE_PROBE;
        return 0;
    case OPT_POINTS:
        o->mode = MODE_CRASH_POINTS;
        return 0;
    case OPT_RELOAD:
        o->reload = true;
        return 0;
    case OPT_EXAMPLE:
        o->example = optarg;
        return 0;
    case OPT_FROM:
        o->from = optarg;
        return 0;
    case OPT_TO:
        o->to = optarg;
        return 0;
    case OPT_DRY:
        o->dry_run = true;
        return 0;
    case OPT_VERSION:
        o->mode = MODE_VERSION;
        return 0;
    case 'h':
        o->mode = MODE_HELP;
        return 0;
    case ':':
        return err_set(err, -EINVAL, "%.100s needs a value (see --help)", word);
    default:
        return err_set(err, -EINVAL, "unknown option %.100s (see --help)", word);
    }
}

int options_parse(int argc, char **argv, struct options *ret, struct err *err) {
    struct options o = {.life_fd = -1, .ready_fd = -1};
    int c, r;

    optind = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", table, NULL)) >= 0) {
        if ((r = take(&o, c, optind > 1 ? argv[optind - 1] : "", err)) < 0)
            return r;
    }
    if (optind < argc && strcmp(argv[optind], "init-config") == 0) {
        o.mode = MODE_INIT_CONFIG;
        optind++;
        o.init_path = optind < argc ? argv[optind++] : NULL;
    } else if (optind < argc && strcmp(argv[optind], "migrate-snapshots") == 0) {
        o.mode = MODE_MIGRATE;
        optind++;
    }
    if (o.mode != MODE_MIGRATE && (o.from || o.to || o.dry_run))
        return err_set(err, -EINVAL, "--from, --to and --dry-run belong to migrate-snapshots");
    if (optind < argc)
        return err_set(err, -EINVAL, "unexpected argument '%.100s' (see --help)", argv[optind]);
    if (o.is_private && o.life_fd < 0)
        o.life_fd = 0;
    *ret = o;
    return 0;
}
