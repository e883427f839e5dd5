/* cove create, ps, logs, rm: one request each, and what people and programs see of the answer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/sandbox_args.h"

#define SHORT_ID 12

int cmd_create(const struct args *a) {
    struct sandbox_args sa;
    struct err e = {0};
    struct cove_error err = {0};
    if (sandbox_args_parse(a, daemon_is_local(a), true, &sa, &e) < 0)
        return fail_err(a, EXIT_USAGE, &e);
    sa.o.entrypoint = a->n_words ? a->words : NULL;
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_(cove_sandbox_freep) struct cove_sandbox *s = NULL;
    int status = EXIT_FAILED;
    if (c) {
        progress_begin("Creating the sandbox");
        int r = sandbox_args_fit(a, c, &sa, &err);
        if (r == 0)
            r = cove_sandbox_create(c, &sa.o, &s, &err);
        progress_end();
        status = r < 0 ? fail(a, EXIT_FAILED, &err) : 0;
    }
    sandbox_args_done(&sa);
    if (status == 0 && arg_given(a, OPT_JSON))
        print_json_text(cove_sandbox_json(s), stdout);
    else if (status == 0)
        printf("%s\n", cove_sandbox_id(s));
    return status;
}

/* ---- ps ---- */

static char *command_line(const struct cove_sandbox *s) {
    struct buf b = BUF_INIT(4096);
    const char *const *words = cove_sandbox_entrypoint(s);
    for (size_t i = 0; words[i] && b.len < 60; i++)
        buf_printf(&b, "%s%s", i ? " " : "", words[i]);
    if (b.len > 40) { /* cut between characters */
        size_t n = 37;
        while (n > 0 && (b.data[n] & 0xc0) == 0x80)
            n--;
        b.len = n;
        buf_str(&b, "...");
    }
    char *text = buf_take(&b, NULL);
    buf_done(&b);
    return text;
}

static void add_row(struct table *t, const struct cove_sandbox *s, int64_t now) {
    char id[SHORT_ID + 1], age[32], expires[40] = "never";
    str_copy(id, sizeof(id), cove_sandbox_id(s));
    format_age(now - cove_sandbox_created_us(s), age, sizeof(age));
    if (cove_sandbox_expires_us(s)) {
        char in[32];
        format_age(cove_sandbox_expires_us(s) - now, in, sizeof(in));
        snprintf(expires, sizeof(expires), "in %s", in);
    }
    _cleanup_free_ char *command = command_line(s);
    table_add(t, id);
    table_add(t, cove_sandbox_image(s));
    table_add(t, cove_sandbox_state(s));
    table_add(t, age);
    table_add(t, expires);
    table_add(t, command);
}

static void print_list_json(const struct cove_sandbox_list *l) {
    _cleanup_json_ json_t *all = json_array();
    for (size_t i = 0; i < cove_sandbox_list_size(l); i++) {
        const char *text = cove_sandbox_json(cove_sandbox_list_at(l, i));
        json_array_append_new(all, json_parse(text, strlen(text), NULL));
    }
    print_json(all, stdout);
}

int cmd_ps(const struct args *a) {
    static const char *const heads[] = {"SANDBOX", "IMAGE", "STATE", "AGE", "EXPIRES", "COMMAND"};
    struct cove_error err = {0};
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_(cove_sandbox_list_freep) struct cove_sandbox_list *l = NULL;
    if (!c)
        return EXIT_FAILED;
    if (cove_sandbox_list(c, arg_values(a, OPT_STATE), &l, &err) < 0)
        return fail(a, EXIT_FAILED, &err);
    if (arg_given(a, OPT_JSON)) {
        print_list_json(l);
        return 0;
    }
    struct table t;
    table_init(&t, heads, ARRAY_SIZE(heads));
    for (size_t i = 0; i < cove_sandbox_list_size(l); i++) {
        if (arg_given(a, OPT_QUIET))
            printf("%s\n", cove_sandbox_id(cove_sandbox_list_at(l, i)));
        else
            add_row(&t, cove_sandbox_list_at(l, i), clock_wall_us());
    }
    if (!arg_given(a, OPT_QUIET))
        table_print(&t, stdout);
    table_done(&t);
    return 0;
}

/* ---- logs, rm ---- */

int cmd_logs(const struct args *a) {
    struct cove_error err = {0};
    struct err e = {0};
    uint64_t tail = 100;
    if (arg_given(a, OPT_TAIL) &&
        parse_count(arg_value(a, OPT_TAIL), "--tail", 1, 10000, &tail, &e) < 0)
        return fail_err(a, EXIT_USAGE, &e);
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_free_ char *id = c ? resolve_sandbox(a, c, a->words[0]) : NULL, *text = NULL;
    if (!id)
        return EXIT_FAILED;
    if (cove_sandbox_logs(c, id, (unsigned)tail, &text, &err) < 0)
        return fail(a, EXIT_FAILED, &err);
    if (arg_given(a, OPT_JSON)) {
        _cleanup_buf_ struct buf b = BUF_INIT(0);
        buf_json_str(&b, text, strlen(text));
        printf("{\"id\":\"%s\",\"logs\":%s}\n", id, buf_ok(&b) && b.data ? b.data : "\"\"");
    } else if (*text) {
        fputs(text, stdout);
        if (!str_ends(text, "\n"))
            fputc('\n', stdout);
    }
    return 0;
}

static int remove_one(const struct args *a, struct cove_client *c, const char *word,
                      json_t *removed) {
    struct cove_error err = {0};
    _cleanup_(cove_sandbox_freep) struct cove_sandbox *s = NULL;
    int r = cove_sandbox_find(c, word, &s, &err);
    if (r == 0)
        r = cove_sandbox_delete(c, cove_sandbox_id(s), &err);
    if (r == -ENOENT && err.http_status != 0 && s) /* it ended by itself in between */
        r = 0;
    if (r == -ENOENT && arg_given(a, OPT_FORCE))
        return 0;
    if (r < 0)
        return fail(a, EXIT_FAILED, &err);
    json_array_append_new(removed, json_string(cove_sandbox_id(s)));
    if (!arg_given(a, OPT_JSON))
        printf("%s\n", cove_sandbox_id(s));
    return 0;
}

int cmd_rm(const struct args *a) {
    struct cove_error err = {0};
    int status = 0;
    if (arg_given(a, OPT_ALL) && a->n_words)
        return fail_text(a, EXIT_USAGE, "name sandboxes, or say --all, but not both");
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_(cove_sandbox_list_freep) struct cove_sandbox_list *l = NULL;
    _cleanup_json_ json_t *removed = json_array();
    if (!c)
        return EXIT_FAILED;
    if (arg_given(a, OPT_ALL) && cove_sandbox_list(c, NULL, &l, &err) < 0)
        return fail(a, EXIT_FAILED, &err);
    for (size_t i = 0; i < a->n_words; i++)
        status = remove_one(a, c, a->words[i], removed) ? EXIT_FAILED : status;
    for (size_t i = 0; l && i < cove_sandbox_list_size(l); i++)
        status = remove_one(a, c, cove_sandbox_id(cove_sandbox_list_at(l, i)), removed)
                     ? EXIT_FAILED
                     : status;
    if (arg_given(a, OPT_JSON))
        print_json(removed, stdout);
    return status;
}
