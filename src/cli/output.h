/* What the commands print: tables, errors with advice, a line of progress. */
#pragma once

#include "base/json.h"
#include "cli/cli.h"

struct table {
    const char *const *heads;
    size_t n_cols;
    struct strv cells; /* row by row */
};
void table_init(struct table *t, const char *const *heads, size_t n_cols);
void table_add(struct table *t, const char *cell);
void table_print(const struct table *t, FILE *out); /* no trailing blanks */
void table_done(struct table *t);

/* JSON text for programs: compact on one line when `out` is no terminal, else indented. */
void print_json(const json_t *j, FILE *out);
/* Parses `text` (of the library) and prints it so. */
void print_json_text(const char *text, FILE *out);

/*
 * "cove: message", and a line of advice when there is one; with --json one object
 * {"error":{"message","code","advice"}}. Both to stderr. Returns `status`.
 */
int fail(const struct args *a, int status, const struct cove_error *err);
int fail_text(const struct args *a, int status, const char *fmt, ...) _printf_(3, 4);
int fail_err(const struct args *a, int status, const struct err *err);
/* Tells what did not work and goes on. */
void warn(const char *fmt, ...) _printf_(1, 2);
/* What to do about it, or NULL. For the tests. */
const char *advice_for(const struct cove_error *err);

/*
 * A line on stderr that tells what is being waited for, when stderr is a terminal and it takes
 * longer than a moment. Its thread writes nothing else and is gone after progress_end().
 */
void progress_begin(const char *what);
void progress_bytes(uint64_t done, uint64_t total); /* from cove's callbacks; ends up in the line */
void progress_end(void);                            /* clears the line; harmless without a begin */
