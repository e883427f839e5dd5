/* Validation of POST /command bodies (execd.md 2.1). */
#include <errno.h>
#include <string.h>

#include "execd/body.h"
#include "execd/command.h"

void command_spec_done(struct command_spec *s) {
    free(s->command);
    free(s->cwd);
    strv_done(&s->argv);
    strv_done(&s->envs);
    *s = (struct command_spec){0};
}

static int parse_what(const json_t *j, struct command_spec *s, struct err *err) {
    const char *text = NULL;
    bool has_command = body_has(j, "command"), has_argv = body_has(j, "argv");
    int r = body_str(j, "command", &text, err);

    if (r == 0)
        r = body_strv(j, "argv", &s->argv, err);
    if (r < 0)
        return r;
    /* A null member of the kind clients send for "unset" does not count. */
    has_command = has_command && body_member(j, "command");
    has_argv = has_argv && body_member(j, "argv");
    if (has_command == has_argv)
        return err_set(err, -EINVAL, "exactly one of command and argv must be given");
    if (has_command && str_is_empty(text))
        return err_set(err, -EINVAL, "command must not be empty");
    if (has_argv && (s->argv.n == 0 || !*s->argv.v[0]))
        return err_set(err, -EINVAL, "argv must begin with the name of a program");
    if (text && !(s->command = strdup(text)))
        return err_set(err, -ENOMEM, "out of memory");
    return 0;
}

static int parse_members(const json_t *j, struct command_spec *s, struct err *err) {
    const char *cwd = NULL;
    int r = parse_what(j, s, err);

    if (r == 0)
        r = body_str(j, "cwd", &cwd, err);
    if (r == 0)
        r = body_bool(j, "background", &s->background, err);
    if (r == 0)
        r = body_int(j, "timeout", 0, INT64_MAX / 2000, &s->timeout_ms, err);
    if (r == 0)
        r = body_int(j, "uid", 0, UINT32_MAX, &s->uid, err);
    if (r == 0)
        r = body_int(j, "gid", 0, UINT32_MAX, &s->gid, err);
    if (r == 0)
        r = body_env(j, "envs", &s->envs, err);
    if (r == 0 && s->gid >= 0 && s->uid < 0)
        r = err_set(err, -EINVAL, "gid needs uid");
    if (r == 0 && cwd && !(s->cwd = strdup(cwd)))
        r = err_set(err, -ENOMEM, "out of memory");
    return r;
}

int command_spec_parse(const char *data, size_t len, struct command_spec *ret, struct err *err) {
    struct command_spec s = {.uid = -1, .gid = -1};
    _cleanup_json_ json_t *j = NULL;
    int r = body_parse(data, len, false, &j, err);

    if (r == 0)
        r = parse_members(j, &s, err);
    if (r < 0)
        command_spec_done(&s);
    else
        *ret = s;
    return r;
}
