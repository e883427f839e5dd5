/* Help texts, set from the two tables. */
#include <string.h>

#include "cli/cli.h"

#define HELP_COLUMN 28
#define HELP_WIDTH 96

void help_overview(FILE *out) {
    fputs("cove runs commands in sandboxes: isolated, limited, gone afterwards.\n"
          "\n"
          "  cove run -- python3 -c 'print(2 ** 64)'      one command in a sandbox of its own\n"
          "  cove run --mount .:/workspace -- make test   with the present directory, and nothing "
          "else of yours\n"
          "\n"
          "Commands:\n",
          out);
    for (size_t i = 0; i < n_commands; i++)
        fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].summary);
    fputs("\n"
          "`cove COMMAND --help` explains a command with examples. `cove doctor` checks this "
          "machine.\n",
          out);
}

/* Words of `text` in lines of HELP_WIDTH, the first one starting at HELP_COLUMN. */
static void print_wrapped(FILE *out, const char *text) {
    size_t at = HELP_COLUMN;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (at == HELP_COLUMN) {
            at += n;
        } else if (at + 1 + n > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN + n;
        } else {
            fputc(' ', out);
            at += n + 1;
        }
        fprintf(out, "%.*s", (int)n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void print_option(FILE *out, enum option_id id) {
    const struct option_def *d = &option_defs[id];
    char left[80];
    int n = d->letter ? snprintf(left, sizeof(left), "  -%c, --%s", d->letter, d->name)
                      : snprintf(left, sizeof(left), "      --%s", d->name);
    if (d->arg)
        n += snprintf(left + n, sizeof(left) - (size_t)n, " %s", d->arg);
    if (n + 2 > HELP_COLUMN)
        fprintf(out, "%s\n%*s", left, HELP_COLUMN, "");
    else
        fprintf(out, "%-*s", HELP_COLUMN, left);
    print_wrapped(out, d->help);
}

static void print_options(FILE *out, const enum option_id *ids) {
    for (; ids && *ids != N_OPTIONS; ids++)
        print_option(out, *ids);
}

static void print_indented(FILE *out, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        fprintf(out, "  %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

void help_command(const struct command *c, FILE *out) {
    fprintf(out, "cove %s: %s\n\nUsage: cove %s %s\n\n%s\nOptions:\n", c->name, c->summary, c->name,
            c->synopsis, c->about);
    print_options(out, c->options);
    print_options(out, common_options);
    fputs("\nExamples:\n", out);
    print_indented(out, c->examples);
}

bool help_group(const char *word, FILE *out) {
    size_t n = strlen(word), found = 0;
    for (size_t i = 0; i < n_commands; i++) {
        if (strncmp(commands[i].name, word, n) != 0 || commands[i].name[n] != ' ')
            continue;
        fprintf(out, "%s  %-14s %s\n", found++ ? "" : "Commands:\n", commands[i].name,
                commands[i].summary);
    }
    if (found)
        fprintf(out, "\n`cove %s SUBCOMMAND --help` explains one with examples.\n", word);
    return found > 0;
}

int cmd_help(const struct args *a) {
    int skip = 0;
    if (a->n_words == 0) {
        help_overview(stdout);
        return 0;
    }
    const struct command *c = command_find((char **)a->words, (int)a->n_words, &skip);
    if (c) {
        help_command(c, stdout);
        return 0;
    }
    if (help_group(a->words[0], stdout))
        return 0;
    fprintf(stderr, "cove: there is no command \"%s\"; `cove help` lists them\n", a->words[0]);
    return EXIT_USAGE;
}
