/*
 * The command line: one table of options, one of commands; parsing, help, completion and the checks
 * of the tests all read these two. A command's function gets parsed arguments and returns the exit
 * status.
 */
#pragma once

#include <stdio.h>

#include "base/err.h"
#include "base/str.h"
#include "cove/cove.h"

/* Exit statuses that are cove's own. */
enum {
    EXIT_FAILED = 1,    /* the request failed */
    EXIT_USAGE = 2,     /* the arguments cannot be understood */
    EXIT_TIMEOUT = 124, /* --timeout ended the command */
    EXIT_COVE = 125,    /* run, exec: cove itself failed */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
};

enum option_id {
    OPT_HELP,
    OPT_JSON,
    OPT_HOST,
    OPT_IMAGE,
    OPT_ENV,
    OPT_CPU,
    OPT_MEMORY,
    OPT_PIDS,
    OPT_DISK,
    OPT_TIMEOUT,
    OPT_EXPIRE,
    OPT_NETWORK,
    OPT_MOUNT,
    OPT_CWD,
    OPT_USER,
    OPT_INTERACTIVE,
    OPT_TTY,
    OPT_LABEL,
    OPT_PRIVATE,
    OPT_QUIET,
    OPT_STATE,
    OPT_TAIL,
    OPT_FORCE,
    OPT_ALL,
    N_OPTIONS /* also ends a command's list */
};

struct option_def {
    const char *name; /* long form */
    const char *arg;  /* name of its value in help; NULL = a switch */
    const char *help;
    const char *const *choices; /* fixed values, for completion and checks; NULL = free */
    char letter;                /* short form, 0 = none */
    bool repeats;
};
extern const struct option_def option_defs[N_OPTIONS];

/* What the words after the options are, for completion. */
enum word_kind {
    WORD_NONE,
    WORD_SANDBOX,
    WORD_COPY,
    WORD_FILE,
    WORD_IMAGE,
    WORD_PROGRAM,
    WORD_COMMAND,
    WORD_SHELL
};

struct args;
struct command {
    const char *name;              /* "run", "image ls" */
    const char *synopsis;          /* what follows the name */
    const char *summary;           /* one line of the overview */
    const char *about;             /* paragraphs */
    const char *examples;          /* lines: command, then what it does, "\n" between */
    const enum option_id *options; /* ended by N_OPTIONS; the common ones are added */
    unsigned min_words, max_words;
    const char *missing;            /* what to say when words are missing */
    enum word_kind word, next_word; /* of the first and of all others */
    bool passes_command;            /* words are a command: options end at the first word */
    int usage_status;
    int (*run)(const struct args *a);
};
extern const struct command commands[];
extern const size_t n_commands;
extern const enum option_id common_options[];

struct args {
    const struct command *cmd;
    struct strv values[N_OPTIONS]; /* in the order given; switches have one empty value per use */
    const char *const *words;      /* NULL-terminated */
    size_t n_words;
};
/* The last value given, or NULL. */
const char *arg_value(const struct args *a, enum option_id id);
bool arg_given(const struct args *a, enum option_id id);
/* All values, NULL-terminated; NULL when there are none. */
const char *const *arg_values(const struct args *a, enum option_id id);

/* ---- options.c ---- */
/* The command that argv names, and in *ret_skip how many words its name has; NULL = none such. */
const struct command *command_find(char **argv, int argc, int *ret_skip);
/*
 * argv: the program's whole vector; the words and values point into it. 0, or -EINVAL with a
 * sentence. With --help anywhere *ret_help is true and nothing else is checked.
 */
int args_parse(int argc, char **argv, struct args *ret, bool *ret_help, struct err *err);
void args_done(struct args *a);

/* ---- help.c, completion.c ---- */
void help_overview(FILE *out);
void help_command(const struct command *c, FILE *out);
/* The subcommands of a word such as "image"; false: it has none, nothing was printed. */
bool help_group(const char *word, FILE *out);
/* Prints the script; -EINVAL for a shell it does not know. */
int completion_print(const char *shell, FILE *out);
extern const char *const completion_shells[];

/* ---- the commands ---- */
int cmd_run(const struct args *a);
int cmd_create(const struct args *a);
int cmd_ps(const struct args *a);
int cmd_exec(const struct args *a);
int cmd_cp(const struct args *a);
int cmd_logs(const struct args *a);
int cmd_rm(const struct args *a);
int cmd_image_ls(const struct args *a);
int cmd_image_import(const struct args *a);
int cmd_image_rm(const struct args *a);
int cmd_doctor(const struct args *a);
int cmd_completion(const struct args *a);
int cmd_version(const struct args *a);
int cmd_help(const struct args *a);
