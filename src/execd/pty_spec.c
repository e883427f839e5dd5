/* Bodies of POST /pty (execd.md 4.1 and the members added to it). */
#include <errno.h>
#include <string.h>

#include "execd/body.h"
#include "execd/pty.h"

#define MAX_SIDE 10000

void pty_spec_done(struct pty_spec *s) {
    free(s->cwd);
    free(s->command);
    strv_done(&s->argv);
    strv_done(&s->env);
    *s = (struct pty_spec){0};
}

static int dup_if(const char *s, char **ret, struct err *err) {
    if (str_is_empty(s))
        return 0;
    *ret = strdup(s);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int parse_members(const json_t *j, struct pty_spec *s, struct err *err) {
    const char *cwd = NULL, *command = NULL;
    int r = body_str(j, "cwd", &cwd, err);

    if (r == 0)
        r = body_str(j, "command", &command, err);
    if (r == 0)
        r = body_strv(j, "argv", &s->argv, err);
    if (r == 0)
        r = body_env(j, "env", &s->env, err);
    if (r == 0)
        r = body_int(j, "uid", 0, UINT32_MAX, &s->uid, err);
    if (r == 0)
        r = body_int(j, "gid", 0, UINT32_MAX, &s->gid, err);
    if (r == 0)
        r = body_int(j, "cols", 1, MAX_SIDE, &s->cols, err);
    if (r == 0)
        r = body_int(j, "rows", 1, MAX_SIDE, &s->rows, err);
    if (r == 0 && s->gid >= 0 && s->uid < 0)
        r = err_set(err, -EINVAL, "gid needs uid");
    if (r == 0 && body_member(j, "argv") && (s->argv.n == 0 || !*s->argv.v[0]))
        r = err_set(err, -EINVAL, "argv must begin with the name of a program");
    if (r == 0 && s->argv.n > 0 && !str_is_empty(command))
        r = err_set(err, -EINVAL, "command and argv exclude each other");
    if (r == 0)
        r = dup_if(cwd, &s->cwd, err);
    return r == 0 ? dup_if(command, &s->command, err) : r;
}

int pty_spec_parse(const char *data, size_t len, struct pty_spec *ret, struct err *err) {
    struct pty_spec s = {.uid = -1, .gid = -1, .cols = 80, .rows = 24};
    _cleanup_json_ json_t *j = NULL;
    int r = body_parse(data, len, true, &j, err);

    if (r == 0)
        r = parse_members(j, &s, err);
    if (r < 0)
        pty_spec_done(&s);
    else
        *ret = s;
    return r;
}
