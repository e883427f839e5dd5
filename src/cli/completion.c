/*
 * Completion scripts, written from the two tables, so that they cannot fall behind. Ids of
 * sandboxes and names of images are asked from `cove ps -q` and `cove image ls -q` when the key is
 * pressed.
 */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"

const char *const completion_shells[] = {"bash", "zsh", "fish", NULL};

/* The first words of all names, each once. */
static bool is_first_of_group(size_t i) {
    size_t n = strcspn(commands[i].name, " ");
    for (size_t k = 0; k < i; k++)
        if (strcspn(commands[k].name, " ") == n &&
            strncmp(commands[k].name, commands[i].name, n) == 0)
            return false;
    return true;
}

static void print_first_words(FILE *out, const char *separator) {
    const char *s = "";
    for (size_t i = 0; i < n_commands; i++) {
        if (!is_first_of_group(i))
            continue;
        fprintf(out, "%s%.*s", s, (int)strcspn(commands[i].name, " "), commands[i].name);
        s = separator;
    }
}

/* ---- bash ---- */

static void bash_options(FILE *out, const enum option_id *ids) {
    for (; ids && *ids != N_OPTIONS; ids++) {
        fprintf(out, " --%s", option_defs[*ids].name);
        if (option_defs[*ids].letter)
            fprintf(out, " -%c", option_defs[*ids].letter);
    }
}

static const char *bash_words(enum word_kind k) {
    switch (k) {
    case WORD_SANDBOX:
        return "sandbox";
    case WORD_COPY:
        return "copy";
    case WORD_FILE:
        return "file";
    case WORD_IMAGE:
        return "image";
    case WORD_PROGRAM:
        return "program";
    case WORD_COMMAND:
        return "command";
    case WORD_SHELL:
        return "shell";
    default:
        return "nothing";
    }
}

static void bash_values(FILE *out) {
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option_def *d = &option_defs[i];
        if (!d->arg)
            continue;
        fprintf(out, "    --%s", d->name);
        if (d->letter)
            fprintf(out, "|-%c", d->letter);
        fputs(") ", out);
        if (i == OPT_IMAGE) {
            fputs("_cove_words image", out);
        } else if (i == OPT_MOUNT || i == OPT_CWD) {
            fputs("_cove_words file", out);
        } else if (i == OPT_ENV) {
            fputs("COMPREPLY=($(compgen -v -- \"$cur\"))", out);
        } else if (d->choices) {
            fputs("COMPREPLY=($(compgen -W '", out);
            for (size_t k = 0; d->choices[k]; k++)
                fprintf(out, "%s%s", k ? " " : "", d->choices[k]);
            fputs("' -- \"$cur\"))", out);
        } else {
            fputs(":", out);
        }
        fputs("; return;;\n", out);
    }
}

static void print_bash(FILE *out) {
    fputs("# bash completion of cove; written by `cove completion bash`\n"
          "_cove_words() {\n"
          "  case $1 in\n"
          "    sandbox) COMPREPLY=($(compgen -W \"$(cove ps -q 2>/dev/null)\" -- \"$cur\"));;\n"
          "    image) COMPREPLY=($(compgen -W \"host $(cove image ls -q 2>/dev/null)\" -- "
          "\"$cur\"));;\n"
          "    copy) COMPREPLY=($(compgen -f -- \"$cur\") $(compgen -S : -W \"$(cove ps -q "
          "2>/dev/null)\" -- \"$cur\"))\n"
          "      compopt -o filenames -o nospace;;\n"
          "    file) COMPREPLY=($(compgen -f -- \"$cur\")); compopt -o filenames;;\n"
          "    program) COMPREPLY=($(compgen -c -- \"$cur\"));;\n"
          "    shell) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$cur\"));;\n"
          "    command) COMPREPLY=($(compgen -W '",
          out);
    print_first_words(out, " ");
    fputs("' -- \"$cur\"));;\n"
          "  esac\n"
          "}\n"
          "_cove() {\n"
          "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} name= options= "
          "first= next= stop= i n=0\n"
          "  COMPREPLY=()\n"
          "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "    case ${COMP_WORDS[i]} in -*) ;; *) name=${COMP_WORDS[i]}; break;; esac\n"
          "  done\n"
          "  [ -n \"$name\" ] || { _cove_words command; return; }\n"
          "  case \"$name ${COMP_WORDS[i+1]}\" in\n",
          out);
    for (size_t i = 0; i < n_commands; i++) {
        const struct command *c = &commands[i];
        bool two = strchr(c->name, ' ');
        fprintf(out, "    '%s'%s) n=%d first=%s next=%s stop=%d; options='", c->name,
                two ? "" : "\\ *", two ? 1 : 0, bash_words(c->word), bash_words(c->next_word),
                c->passes_command);
        bash_options(out, c->options);
        bash_options(out, common_options);
        fputs("';;\n", out);
    }
    fputs("    *)", out);
    fputs(" COMPREPLY=($(compgen -W '", out);
    for (size_t i = 0; i < n_commands; i++)
        if (strchr(commands[i].name, ' '))
            fprintf(out, "%s ", strchr(commands[i].name, ' ') + 1);
    fputs("' -- \"$cur\")); return;;\n"
          "  esac\n"
          "  case $prev in\n",
          out);
    bash_values(out);
    fputs("  esac\n"
          "  local words=0\n"
          "  for ((i += n + 1; i < COMP_CWORD; i++)); do\n"
          "    case ${COMP_WORDS[i]} in -*) ;; *) words=$((words + 1));; esac\n"
          "  done\n"
          "  case $cur in -*) [ \"$stop$words\" = 11 ] || { COMPREPLY=($(compgen -W \"$options\" "
          "-- \"$cur\")); return; };; esac\n"
          "  if [ $words = 0 ]; then _cove_words $first; else _cove_words $next; fi\n"
          "}\n"
          "complete -F _cove cove\n",
          out);
}

/* ---- zsh ---- */

/* Inside '...[...]': no quote, bracket or colon may stay bare. */
static void zsh_text(FILE *out, const char *s) {
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\", *s))
            fprintf(out, "\\%c", *s);
        else
            fputc(*s, out);
    }
}

static const char *zsh_action(enum word_kind k) {
    switch (k) {
    case WORD_SANDBOX:
        return "sandbox:_cove_sandboxes";
    case WORD_COPY:
        return "file or sandbox:_cove_copy";
    case WORD_FILE:
        return "file:_files";
    case WORD_IMAGE:
        return "image:_cove_images";
    case WORD_PROGRAM:
        return "command:_command_names -e";
    case WORD_COMMAND:
        return "command:_cove_commands";
    case WORD_SHELL:
        return "shell:(bash zsh fish)";
    default:
        return "";
    }
}

static void zsh_option_spec(FILE *out, const struct option_def *d, enum option_id id,
                            const char *flag, const char *dash) {
    fprintf(out, " '%s%s%s%s[", d->repeats ? "*" : "", dash, flag, d->arg && dash[1] ? "=" : "");
    zsh_text(out, d->help);
    fputs("]", out);
    if (d->arg) {
        fputs(":", out);
        zsh_text(out, d->arg);
        fputs(":", out);
        if (id == OPT_IMAGE)
            fputs("_cove_images", out);
        else if (id == OPT_MOUNT || id == OPT_CWD)
            fputs("_files", out);
        for (size_t k = 0; d->choices && d->choices[k]; k++)
            fprintf(out, "%s%s%s", k ? " " : "(", d->choices[k], d->choices[k + 1] ? "" : ")");
    }
    fputs("'", out);
}

static void zsh_options(FILE *out, const enum option_id *ids) {
    for (; ids && *ids != N_OPTIONS; ids++) {
        const struct option_def *d = &option_defs[*ids];
        char letter[2] = {d->letter, '\0'};
        zsh_option_spec(out, d, *ids, d->name, "--");
        if (d->letter)
            zsh_option_spec(out, d, *ids, letter, "-");
    }
}

static void print_zsh(FILE *out) {
    fputs("#compdef cove\n"
          "# zsh completion of cove; written by `cove completion zsh`\n"
          "_cove_sandboxes() { compadd -- ${(f)\"$(cove ps -q 2>/dev/null)\"} }\n"
          "_cove_images() { compadd -- host ${(f)\"$(cove image ls -q 2>/dev/null)\"} }\n"
          "_cove_copy() { _files; compadd -S : -- ${(f)\"$(cove ps -q 2>/dev/null)\"} }\n"
          "_cove_commands() { compadd -- ",
          out);
    print_first_words(out, " ");
    fputs(" }\n"
          "_cove() {\n"
          "  if ((CURRENT == 2)); then _cove_commands; return; fi\n"
          "  local name=$words[2]\n"
          "  shift words; ((CURRENT--))\n"
          "  if [[ $name == image ]]; then\n"
          "    if ((CURRENT == 2)); then compadd -- ls import rm; return; fi\n"
          "    name=\"image $words[2]\"; shift words; ((CURRENT--))\n"
          "  fi\n"
          "  case $name in\n",
          out);
    for (size_t i = 0; i < n_commands; i++) {
        const struct command *c = &commands[i];
        fprintf(out, "    '%s') _arguments -s%s", c->name, c->passes_command ? " -A '-*'" : "");
        zsh_options(out, c->options);
        zsh_options(out, common_options);
        if (c->word != WORD_NONE)
            fprintf(out, " '1:%s'", zsh_action(c->word));
        if (c->next_word != WORD_NONE)
            fprintf(out, " '*:%s'", zsh_action(c->next_word));
        fputs(";;\n", out);
    }
    fputs("  esac\n"
          "}\n"
          "if [ \"$funcstack[1]\" = _cove ]; then _cove \"$@\"; else compdef _cove cove; fi\n",
          out);
}

/* ---- fish ---- */

static void fish_text(FILE *out, const char *s) {
    for (; *s; s++)
        fprintf(out, *s == '\'' || *s == '\\' ? "\\%c" : "%c", *s);
}

static void fish_options(FILE *out, const char *condition, const enum option_id *ids) {
    for (; ids && *ids != N_OPTIONS; ids++) {
        const struct option_def *d = &option_defs[*ids];
        fprintf(out, "complete -c cove -n '%s' -l %s", condition, d->name);
        if (d->letter)
            fprintf(out, " -s %c", d->letter);
        if (d->arg)
            fputs(*ids == OPT_MOUNT || *ids == OPT_CWD ? " -r -F" : " -x", out);
        if (*ids == OPT_IMAGE)
            fputs(" -a '(echo host; cove image ls -q 2>/dev/null)'", out);
        for (size_t k = 0; d->choices && d->choices[k]; k++)
            fprintf(out, "%s%s%s", k ? " " : " -a '", d->choices[k], d->choices[k + 1] ? "" : "'");
        fputs(" -d '", out);
        fish_text(out, d->help);
        fputs("'\n", out);
    }
}

static const char *fish_words(enum word_kind k) {
    switch (k) {
    case WORD_SANDBOX:
        return "-f -a '(cove ps -q 2>/dev/null)'";
    case WORD_COPY:
        return "-F -a '(cove ps -q 2>/dev/null | string replace -r \\$ :)'";
    case WORD_FILE:
        return "-F";
    case WORD_IMAGE:
        return "-f -a '(cove image ls -q 2>/dev/null)'";
    case WORD_PROGRAM:
        return "-F -a '(__fish_complete_command)'";
    case WORD_SHELL:
        return "-f -a 'bash zsh fish'";
    default:
        return NULL;
    }
}

static void print_fish(FILE *out) {
    fputs("# fish completion of cove; written by `cove completion fish`\n"
          "complete -c cove -f\n",
          out);
    for (size_t i = 0; i < n_commands; i++) {
        const struct command *c = &commands[i];
        const char *blank = strchr(c->name, ' ');
        int n = (int)strcspn(c->name, " ");
        char seen[160];
        if (is_first_of_group(i)) {
            fprintf(out, "complete -c cove -n __fish_use_subcommand -a %.*s -d '", n, c->name);
            fish_text(out, blank ? "images that sandboxes can start from" : c->summary);
            fputs("'\n", out);
        }
        if (blank) {
            fprintf(out,
                    "complete -c cove -n '__fish_seen_subcommand_from %.*s; and not "
                    "__fish_seen_subcommand_from ls import rm' -a %s -d '",
                    n, c->name, blank + 1);
            fish_text(out, c->summary);
            fputs("'\n", out);
            snprintf(seen, sizeof(seen),
                     "__fish_seen_subcommand_from %.*s; and __fish_seen_subcommand_from %s", n,
                     c->name, blank + 1);
        } else {
            snprintf(seen, sizeof(seen), "__fish_seen_subcommand_from %s", c->name);
        }
        fish_options(out, seen, c->options);
        fish_options(out, seen, common_options);
        if (fish_words(c->word))
            fprintf(out, "complete -c cove -n '%s' %s\n", seen, fish_words(c->word));
    }
}

int completion_print(const char *shell, FILE *out) {
    if (str_eq(shell, "bash"))
        print_bash(out);
    else if (str_eq(shell, "zsh"))
        print_zsh(out);
    else if (str_eq(shell, "fish"))
        print_fish(out);
    else
        return -EINVAL;
    return 0;
}

int cmd_completion(const struct args *a) {
    if (completion_print(a->words[0], stdout) == 0)
        return 0;
    fprintf(stderr, "cove: there are scripts for bash, zsh and fish, not for \"%s\"\n",
            a->words[0]);
    return EXIT_USAGE;
}
