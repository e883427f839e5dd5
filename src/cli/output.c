/* See output.h. */
#include "cli/output.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

void table_init(struct table *t, const char *const *heads, size_t n_cols) {
    *t = (struct table){.heads = heads, .n_cols = n_cols};
}

void table_done(struct table *t) {
    strv_done(&t->cells);
}

/* Control characters of names that others chose must not reach the terminal. */
void table_add(struct table *t, const char *cell) {
    char *copy = strdup(str_is_empty(cell) ? "-" : cell);
    for (char *p = copy; p && *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    if (copy)
        strv_take(&t->cells, copy);
}

/* Code points, which is near enough to columns for names and commands. */
static size_t width(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

static void print_row(const struct table *t, const char *const *cells, const size_t *widths,
                      FILE *out) {
    for (size_t c = 0; c < t->n_cols; c++) {
        fputs(cells[c], out);
        if (c + 1 < t->n_cols)
            for (size_t n = width(cells[c]); n < widths[c] + 3; n++)
                fputc(' ', out);
    }
    fputc('\n', out);
}

void table_print(const struct table *t, FILE *out) {
    size_t *widths = calloc(t->n_cols, sizeof(*widths));
    if (!widths)
        return;
    for (size_t c = 0; c < t->n_cols; c++)
        widths[c] = width(t->heads[c]);
    for (size_t i = 0; i < t->cells.n; i++)
        widths[i % t->n_cols] = MAX(widths[i % t->n_cols], width(t->cells.v[i]));
    print_row(t, t->heads, widths, out);
    for (size_t i = 0; i + t->n_cols <= t->cells.n; i += t->n_cols)
        print_row(t, (const char *const *)t->cells.v + i, widths, out);
    free(widths);
}

void print_json(const json_t *j, FILE *out) {
    json_dumpf(j, out,
               isatty(fileno(out)) ? JSON_INDENT(2) | JSON_ENCODE_ANY
                                   : JSON_COMPACT | JSON_ENCODE_ANY);
    fputc('\n', out);
}

void print_json_text(const char *text, FILE *out) {
    _cleanup_json_ json_t *j = json_parse(text, strlen(text), NULL);
    if (j)
        print_json(j, out);
    else
        fprintf(out, "%s\n", text);
}

/* ---- errors ---- */

const char *advice_for(const struct cove_error *err) {
    if (err->http_status == 401)
        return "set OPEN_SANDBOX_API_KEY to the daemon's API key";
    if (err->http_status == 0 && strstr(err->message, "nothing listens at"))
        return "start the daemon (`coved`), or name another address with --host or COVE_HOST; "
               "`cove run` needs none";
    if (err->http_status == 0 && strstr(err->message, "no permission to use"))
        return "run cove as root, or as a member of the group that owns the socket";
    if (err->http_status == 404 && strstr(err->kind, "SANDBOX_NOT_FOUND"))
        return "`cove ps` lists the sandboxes";
    if (strstr(err->message, "private daemon") && err->code != -EINTR)
        return geteuid() != 0 ? "native sandboxes need root: use sudo, or a daemon that runs "
                                "(--host, COVE_HOST)"
                              : "`cove doctor` tells what is missing";
    return NULL;
}

static void print_error(const struct args *a, const char *message, const char *kind,
                        const char *advice) {
    progress_end();
    if (a && arg_given(a, OPT_JSON)) {
        _cleanup_json_ json_t *e = json_pack("{s:s}", "message", message);
        if (!str_is_empty(kind))
            json_object_set_new(e, "code", json_string(kind));
        if (advice)
            json_object_set_new(e, "advice", json_string(advice));
        _cleanup_json_ json_t *j = json_pack("{s:O}", "error", e);
        json_dumpf(j, stderr, JSON_COMPACT);
        fputc('\n', stderr);
        return;
    }
    fprintf(stderr, "cove: %s\n", message);
    if (advice)
        fprintf(stderr, "      %s\n", advice);
}

int fail(const struct args *a, int status, const struct cove_error *err) {
    print_error(a, err->message[0] ? err->message : strerror(-err->code), err->kind,
                advice_for(err));
    return status;
}

int fail_text(const struct args *a, int status, const char *fmt, ...) {
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    print_error(a, message, NULL, NULL);
    return status;
}

int fail_err(const struct args *a, int status, const struct err *err) {
    print_error(a, err_text(err), NULL, NULL);
    return status;
}

void warn(const char *fmt, ...) {
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    fprintf(stderr, "cove: %s\n", message);
}
