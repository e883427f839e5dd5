/* Argument vectors through the tables: what is understood, and what people are told otherwise. */
#include <string.h>

#include "base/test.h"
#include "cli/cli.h"

#define MAX_ARGS 16

/* Splits at blanks; '_' stands for an empty argument. */
static int parse(const char *line, char *store, size_t size, struct args *a, bool *help,
                 struct err *err) {
    static char *argv[MAX_ARGS + 1];
    int argc = 0;
    ASSERT(str_copy(store, size, line));
    for (char *p = store; *p && argc < MAX_ARGS;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = '\0';
    }
    for (int i = 0; i < argc; i++)
        if (str_eq(argv[i], "_"))
            *argv[i] = '\0';
    argv[argc] = NULL;
    return args_parse(argc, argv, a, help, err);
}

static void join_words(const struct args *a, char *ret, size_t size) {
    size_t n = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < a->n_words; i++)
        n += (size_t)snprintf(ret + n, size - n, "%s%s", i ? "|" : "", a->words[i]);
}

TEST(understood) {
    static const struct {
        const char *line, *command, *words;
        enum option_id id;
        const char *value; /* of id; NULL = not given */
    } cases[] = {
        {"cove run ls", "run", "ls", OPT_IMAGE, NULL},
        {"cove run -- ls -l", "run", "ls|-l", OPT_TTY, NULL},
        {"cove run ls -l --image x", "run", "ls|-l|--image|x", OPT_IMAGE, NULL},
        {"cove run --image local/x sh -c true", "run", "sh|-c|true", OPT_IMAGE, "local/x"},
        {"cove run --image=local/x -- ls", "run", "ls", OPT_IMAGE, "local/x"},
        {"cove run -it -- bash", "run", "bash", OPT_TTY, ""},
        {"cove run -m512m -e A=1 -eB=2 -- env", "run", "env", OPT_MEMORY, "512m"},
        {"cove run -e A=1 -eB=2 -- env", "run", "env", OPT_ENV, "B=2"},
        {"cove run --network none x", "run", "x", OPT_NETWORK, "none"},
        {"cove --host unix:/x ps", "ps", "", OPT_HOST, "unix:/x"},
        {"cove --json ps -q", "ps", "", OPT_JSON, ""},
        {"cove ps --host=unix:/x", "ps", "", OPT_HOST, "unix:/x"},
        {"cove exec box ls", "exec", "box|ls", OPT_TTY, NULL},
        {"cove exec -i box -- ls -i", "exec", "box|--|ls|-i", OPT_INTERACTIVE, ""},
        {"cove cp a box:/b --json", "cp", "a|box:/b", OPT_JSON, ""},
        {"cove cp -- -a box:/b", "cp", "-a|box:/b", OPT_JSON, NULL},
        {"cove image ls -q", "image ls", "", OPT_QUIET, ""},
        {"cove image import x.tar y", "image import", "x.tar|y", OPT_QUIET, NULL},
        {"cove rm --all", "rm", "", OPT_ALL, ""},
        {"cove rm a -f b", "rm", "a|b", OPT_FORCE, ""},
        {"cove create", "create", "", OPT_EXPIRE, NULL},
        {"cove create --expire 1h -- node x.js --json", "create", "node|x.js|--json", OPT_EXPIRE,
         "1h"},
        {"cove logs --tail 5 box", "logs", "box", OPT_TAIL, "5"},
        {"cove run --cwd _ ls", "run", "ls", OPT_CWD, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char store[256], words[256];
        struct args a;
        struct err err = {0};
        bool help;
        if (parse(cases[i].line, store, sizeof(store), &a, &help, &err) < 0)
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].line, err.msg);
        join_words(&a, words, sizeof(words));
        const char *value = arg_value(&a, cases[i].id);
        if (!a.cmd || !str_eq(a.cmd->name, cases[i].command) || !str_eq(words, cases[i].words) ||
            !str_eq(value, cases[i].value))
            test_fail(__FILE__, __LINE__, "%s: command %s, words \"%s\", value %s", cases[i].line,
                      a.cmd ? a.cmd->name : "none", words, value ? value : "none");
        args_done(&a);
    }
}

TEST(refused_with_a_reason) {
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"cove rnu ls", "did you mean `cove run`"},
        {"cove imag", "there is no command"},
        {"cove image", "needs one of its subcommands"},
        {"cove image frobnicate", "no command `cove image frobnicate`"},
        {"cove --frob ps", "no option --frob"},
        {"cove run --memroy 5 ls", "did you mean --memory"},
        {"cove run --mem 5", "say which command"},
        {"cove run -X ls", "no option -X"},
        {"cove run --image", "--image needs a value (IMAGE)"},
        {"cove run -e", "-e needs a value"},
        {"cove run --tty=yes ls", "--tty takes no value"},
        {"cove run", "say which command to run"},
        {"cove run --", "say which command to run"},
        {"cove run --network bridge ls", "--network is one of none, nat"},
        {"cove run --image a --image b ls", "--image was given twice"},
        {"cove ps extra", "takes no \"extra\""},
        {"cove ps --state Sleeping", "--state is one of Pending, Running"},
        {"cove exec", "in which sandbox"},
        {"cove exec box", "in which sandbox"},
        {"cove cp a", "name a source and a target"},
        {"cove cp a b c", "\"c\" is one word too many"},
        {"cove rm", "say which sandbox"},
        {"cove logs", "say which sandbox"},
        {"cove image import a", "name the archive and the image"},
        {"cove completion", "for which shell"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char store[256];
        struct args a;
        struct err err = {0};
        bool help;
        int r = parse(cases[i].line, store, sizeof(store), &a, &help, &err);
        if (r == 0 || !strstr(err.msg, cases[i].why))
            test_fail(__FILE__, __LINE__, "%s: r %d, \"%s\" does not say \"%s\"", cases[i].line, r,
                      err.msg, cases[i].why);
        args_done(&a);
    }
}

TEST(help_wins_over_mistakes) {
    static const char *const lines[] = {"cove run --help",      "cove --help",
                                        "cove exec -h",         "cove cp --bogus --help",
                                        "cove image ls --help", "cove --help run"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        char store[256];
        struct args a;
        bool help = false;
        struct err err = {0};
        if (parse(lines[i], store, sizeof(store), &a, &help, &err) < 0 || !help)
            test_fail(__FILE__, __LINE__, "%s: %s", lines[i], err.msg);
        args_done(&a);
    }
}

static char *text_of(void (*print)(const struct command *, FILE *), const struct command *c,
                     const char *shell) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    ASSERT(f);
    if (print)
        print(c, f);
    else
        ASSERT_OK(completion_print(shell, f));
    fclose(f);
    return text;
}

TEST(every_command_teaches) {
    for (size_t i = 0; i < n_commands; i++) {
        const struct command *c = &commands[i];
        _cleanup_free_ char *help = text_of(help_command, c, NULL);
        if (!strstr(help, "Usage: cove ") || !strstr(help, "Examples:\n  ") ||
            !strstr(help, c->summary))
            test_fail(__FILE__, __LINE__, "the help of %s lacks a part", c->name);
        ASSERT(c->min_words == 0 || c->missing);
        ASSERT(c->usage_status == EXIT_USAGE || c->usage_status == EXIT_COVE);
        for (const enum option_id *id = c->options; *id != N_OPTIONS; id++)
            if (!strstr(help, option_defs[*id].name) || !option_defs[*id].help)
                test_fail(__FILE__, __LINE__, "the help of %s leaves out --%s", c->name,
                          option_defs[*id].name);
    }
}

TEST(completion_knows_every_option) {
    for (size_t s = 0; completion_shells[s]; s++) {
        _cleanup_free_ char *script = text_of(NULL, NULL, completion_shells[s]);
        for (size_t i = 0; i < N_OPTIONS; i++)
            if (!strstr(script, option_defs[i].name))
                test_fail(__FILE__, __LINE__, "%s: --%s is missing", completion_shells[s],
                          option_defs[i].name);
    }
    ASSERT(completion_print("csh", stderr) < 0);
}

TEST_MAIN()
