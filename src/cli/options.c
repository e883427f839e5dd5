/* The option table, and how a command's arguments are read by it. Pure: prints nothing, keeps
 * nothing. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "base/buf.h"
#include "cli/cli.h"

static const char *const networks[] = {"none", "nat", NULL};
static const char *const states[] = {"Pending",  "Running",    "Pausing", "Paused", "Resuming",
                                     "Stopping", "Terminated", "Failed",  NULL};

const struct option_def option_defs[N_OPTIONS] = {
    [OPT_HELP] = {"help", NULL, "explain the command", NULL, 'h', false},
    [OPT_JSON] = {"json", NULL, "answer in JSON, for programs", NULL, 0, false},
    [OPT_HOST] = {"host", "ADDRESS",
                  "where the daemon listens: unix:/path or http://host:port [$COVE_HOST, else "
                  "unix:/run/cove/api.sock]",
                  NULL, 'H', false},
    [OPT_IMAGE] = {"image", "IMAGE",
                   "root file system: host (this machine's programs, read-only), local/NAME "
                   "(imported) [host]; on a Docker Engine one of its images",
                   NULL, 0, false},
    [OPT_ENV] = {"env", "NAME[=VALUE]", "set a variable; without a value it is taken from here",
                 NULL, 'e', true},
    [OPT_CPU] = {"cpu", "N", "CPUs it may use: 2, 0.5 or 500m", NULL, 0, false},
    [OPT_MEMORY] = {"memory", "SIZE", "memory it may use: 512m, 2g", NULL, 'm', false},
    [OPT_PIDS] = {"pids", "N", "processes and threads it may have", NULL, 0, false},
    [OPT_DISK] =
        {"disk", "SIZE",
         "bytes it may write to its own file system: 1g (native sandboxes refuse it so far)", NULL,
         0, false},
    [OPT_TIMEOUT] = {"timeout", "TIME",
                     "kill the command after this time and exit with 124: 30s, 5m, 1h", NULL, 0,
                     false},
    [OPT_EXPIRE] = {"expire", "TIME",
                    "remove the sandbox by itself after this time, at least 60s [never]", NULL, 0,
                    false},
    [OPT_NETWORK] =
        {"network", "none|nat",
         "none: only its own loopback; nat: outgoing connections [none]; on a Docker Engine "
         "the daemon's docker.network_mode",
         networks, 0, false},
    [OPT_MOUNT] = {"mount", "HOST:PATH[:ro]",
                   "show a directory or file of this machine inside; ro = read-only", NULL, 'v',
                   true},
    [OPT_CWD] = {"cwd", "PATH", "working directory [the first mount's, else the image's]", NULL,
                 'w', false},
    [OPT_USER] = {"user", "UID[:GID]", "run as this user, by number", NULL, 'u', false},
    [OPT_INTERACTIVE] = {"interactive", NULL,
                         "pass the keyboard on (a pipe or file as stdin always is)", NULL, 'i',
                         false},
    [OPT_TTY] = {"tty", NULL, "give the command a terminal", NULL, 't', false},
    [OPT_LABEL] = {"label", "KEY=VALUE", "attach a label to the sandbox", NULL, 'l', true},
    [OPT_PRIVATE] = {"private", NULL, "use a daemon of its own even when one is running", NULL, 0,
                     false},
    [OPT_QUIET] = {"quiet", NULL, "print ids only", NULL, 'q', false},
    [OPT_STATE] = {"state", "STATE", "only sandboxes in this state", states, 0, true},
    [OPT_TAIL] = {"tail", "LINES", "how many lines from the end, up to 10000 [100]", NULL, 'n',
                  false},
    [OPT_FORCE] = {"force", NULL, "no complaint when there is nothing to remove", NULL, 'f', false},
    [OPT_ALL] = {"all", NULL, "every sandbox", NULL, 'a', false},
};

const enum option_id common_options[] = {OPT_HOST, OPT_JSON, OPT_HELP, N_OPTIONS};

const char *arg_value(const struct args *a, enum option_id id) {
    return a->values[id].n ? a->values[id].v[a->values[id].n - 1] : NULL;
}

bool arg_given(const struct args *a, enum option_id id) {
    return a->values[id].n > 0;
}

const char *const *arg_values(const struct args *a, enum option_id id) {
    return (const char *const *)a->values[id].v;
}

void args_done(struct args *a) {
    for (size_t i = 0; i < N_OPTIONS; i++)
        strv_done(&a->values[i]);
}

const struct command *command_find(char **argv, int argc, int *ret_skip) {
    for (size_t i = 0; i < n_commands && argc > 0; i++) {
        const char *name = commands[i].name, *blank = strchr(name, ' ');
        if (!blank && str_eq(name, argv[0])) {
            *ret_skip = 1;
            return &commands[i];
        }
        size_t n = blank ? (size_t)(blank - name) : 0;
        if (blank && argc > 1 && strlen(argv[0]) == n && strncmp(argv[0], name, n) == 0 &&
            str_eq(blank + 1, argv[1])) {
            *ret_skip = 2;
            return &commands[i];
        }
    }
    return NULL;
}

/* ---- one getopt_long run over a list of options ---- */

struct parser {
    enum option_id ids[N_OPTIONS];
    size_t n;
    struct option longs[N_OPTIONS + 1];
    char shorts[2 * N_OPTIONS + 3];
};

static void parser_add(struct parser *p, const enum option_id *ids) {
    for (; ids && *ids != N_OPTIONS; ids++)
        p->ids[p->n++] = *ids;
}

static void parser_build(struct parser *p, bool stop_at_word) {
    size_t s = 0;
    if (stop_at_word)
        p->shorts[s++] = '+';
    p->shorts[s++] = ':'; /* tells a missing value from an unknown option */
    for (size_t i = 0; i < p->n; i++) {
        const struct option_def *d = &option_defs[p->ids[i]];
        p->longs[i] = (struct option){d->name, d->arg ? required_argument : no_argument, NULL,
                                      1000 + (int)p->ids[i]};
        if (d->letter)
            p->shorts[s++] = d->letter;
        if (d->letter && d->arg)
            p->shorts[s++] = ':';
    }
}

/* Letters to change, add, drop or swap to get from one word to the other; words longer than 31 are
 * far from all. */
static size_t distance(const char *a, size_t na, const char *b) {
    size_t nb = strlen(b), d[32][32];
    if (na > 31 || nb > 31)
        return SIZE_MAX;
    for (size_t i = 0; i <= na; i++) {
        for (size_t k = 0; k <= nb; k++) {
            if (i == 0 || k == 0) {
                d[i][k] = i + k;
                continue;
            }
            size_t change = d[i - 1][k - 1] + (a[i - 1] != b[k - 1]);
            d[i][k] = MIN(MIN(d[i - 1][k], d[i][k - 1]) + 1, change);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = MIN(d[i][k], d[i - 2][k - 2] + 1);
        }
    }
    return d[na][nb];
}

/* Near enough to be meant: one slip in a short word, two in a longer one. */
static bool is_near(const char *given, size_t len, const char *name) {
    return distance(given, len, name) <= (len > 4 ? 2 : 1);
}

static const char *nearest_option(const struct parser *p, const char *name) {
    size_t len = strcspn(name, "=");
    for (size_t i = 0; i < p->n; i++)
        if (is_near(name, len, option_defs[p->ids[i]].name))
            return option_defs[p->ids[i]].name;
    return NULL;
}

static int unknown_option(const struct parser *p, const char *word, struct err *err) {
    if (!str_starts(word, "--"))
        return err_set(err, -EINVAL, "there is no option -%c", optopt);
    const char *near = nearest_option(p, word + 2);
    int len = (int)strcspn(word, "=");
    if (near)
        return err_set(err, -EINVAL, "there is no option %.*s; did you mean --%s?", len, word,
                       near);
    return err_set(err, -EINVAL, "there is no option %.*s", len, word);
}

static int check_choice(const struct option_def *d, const char *value, struct err *err) {
    _cleanup_buf_ struct buf list = BUF_INIT(1024);
    for (size_t i = 0; d->choices && d->choices[i]; i++) {
        if (str_ieq(d->choices[i], value))
            return 0;
        buf_printf(&list, "%s%s", i ? ", " : "", d->choices[i]);
    }
    return d->choices
               ? err_set(err, -EINVAL, "--%s is one of %s, not \"%s\"", d->name, list.data, value)
               : 0;
}

/* argv[0] is skipped. *ret_words: index of the first word that is no option. */
static int parser_run(struct parser *p, int argc, char **argv, struct args *a, bool *ret_help,
                      int *ret_words, struct err *err) {
    int r = 0;
    opterr = 0;
    optind = 0; /* GNU: start afresh */
    for (;;) {
        int at = optind ? optind : 1;
        int o = getopt_long(argc, argv, p->shorts, p->longs, NULL);
        if (o < 0)
            break;
        const char *word = at < argc ? argv[at] : "";
        if (o == '?' || o == ':') {
            int own = optopt >= 1000 ? optopt - 1000 : -1;
            if (r == 0 && o == ':')
                r = own >= 0 ? err_set(err, -EINVAL, "--%s needs a value (%s)",
                                       option_defs[own].name, option_defs[own].arg)
                             : err_set(err, -EINVAL, "-%c needs a value", optopt);
            else if (r == 0 && own >= 0)
                r = err_set(err, -EINVAL, "--%s takes no value", option_defs[own].name);
            else if (r == 0)
                r = unknown_option(
                    p, optind > 0 && argv[optind - 1][0] == '-' ? argv[optind - 1] : word, err);
            continue;
        }
        size_t i = 0;
        while (i < p->n && o != 1000 + (int)p->ids[i] && o != option_defs[p->ids[i]].letter)
            i++;
        enum option_id id = p->ids[i];
        const struct option_def *d = &option_defs[id];
        *ret_help = *ret_help || id == OPT_HELP;
        if (r == 0 && d->arg)
            r = check_choice(d, optarg, err);
        if (r == 0 && d->arg && !d->repeats && a->values[id].n)
            r = err_set(err, -EINVAL, "--%s was given twice", d->name);
        if (strv_add(&a->values[id], optarg ? optarg : "") < 0)
            return err_set(err, -ENOMEM, "out of memory");
    }
    *ret_words = optind;
    return *ret_help ? 0 : r;
}

static int unknown_command(char **argv, int argc, struct err *err) {
    size_t n = strlen(argv[0]);
    for (size_t i = 0; i < n_commands; i++) {
        const char *name = commands[i].name;
        if (strncmp(name, argv[0], n) != 0 || name[n] != ' ')
            continue;
        return argc > 1 && argv[1][0] != '-'
                   ? err_set(err, -EINVAL, "there is no command `cove %s %s`", argv[0], argv[1])
                   : err_set(err, -EINVAL, "`cove %s` needs one of its subcommands: ls, import, rm",
                             argv[0]);
    }
    for (size_t i = 0; i < n_commands; i++)
        if (is_near(argv[0], n, commands[i].name) ||
            (n > 1 && str_starts(commands[i].name, argv[0])))
            return err_set(err, -EINVAL, "there is no command `cove %s`; did you mean `cove %s`?",
                           argv[0], commands[i].name);
    return err_set(err, -EINVAL, "there is no command `cove %s`", argv[0]);
}

static int check_words(const struct args *a, struct err *err) {
    const struct command *c = a->cmd;
    if (a->n_words < c->min_words && !(arg_given(a, OPT_ALL)))
        return err_set(err, -EINVAL, "%s", c->missing);
    if (a->n_words > c->max_words)
        return c->max_words == 0
                   ? err_set(err, -EINVAL, "`cove %s` takes no \"%s\"", c->name, a->words[0])
                   : err_set(err, -EINVAL, "\"%s\" is one word too many", a->words[c->max_words]);
    return 0;
}

int args_parse(int argc, char **argv, struct args *ret, bool *ret_help, struct err *err) {
    struct parser before = {0}, own = {0};
    int words = 1, skip = 0;
    *ret = (struct args){0};
    *ret_help = false;
    parser_add(&before, common_options);
    parser_build(&before, true);
    int r = parser_run(&before, argc, argv, ret, ret_help, &words, err);
    if (r < 0 || words >= argc)
        return r;
    ret->cmd = command_find(argv + words, argc - words, &skip);
    if (!ret->cmd)
        return *ret_help ? 0 : unknown_command(argv + words, argc - words, err);

    parser_add(&own, ret->cmd->options);
    parser_add(&own, common_options);
    parser_build(&own, ret->cmd->passes_command);
    argc -= words + skip - 1;
    argv += words + skip - 1; /* its argv[0] is the last word of the command's name */
    r = parser_run(&own, argc, argv, ret, ret_help, &words, err);
    ret->words = (const char *const *)argv + words;
    ret->n_words = (size_t)(argc - words);
    if (r == 0 && !*ret_help)
        r = check_words(ret, err);
    return r;
}
