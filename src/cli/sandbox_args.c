/* See sandbox_args.h. */
#include "cli/sandbox_args.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "cli/output.h"

void sandbox_args_done(struct sandbox_args *s) {
    for (size_t i = 0; i < s->o.n_mounts; i++)
        mount_arg_done(&s->mounts[i]);
    free(s->mounts);
    free(s->cove_mounts);
    strv_done(&s->env);
    *s = (struct sandbox_args){0};
}

static int parse_mounts(const struct args *a, bool local_paths, struct sandbox_args *s,
                        struct err *err) {
    size_t n = a->values[OPT_MOUNT].n;
    s->mounts = calloc(n + 1, sizeof(*s->mounts));
    s->cove_mounts = calloc(n + 1, sizeof(*s->cove_mounts));
    if (!s->mounts || !s->cove_mounts)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        struct mount_arg *m = &s->mounts[i];
        int r = parse_mount(a->values[OPT_MOUNT].v[i], local_paths, m, err);
        if (r < 0)
            return r;
        s->cove_mounts[i] = (struct cove_mount){
            .source = m->source, .target = m->target, .read_only = m->read_only};
        s->o.n_mounts = i + 1;
        for (size_t k = 0; k < i; k++)
            if (str_eq(m->target, s->mounts[k].target))
                return err_set(err, -EINVAL, "two mounts have the same target %s", m->target);
    }
    s->o.mounts = s->cove_mounts;
    return 0;
}

static int parse_labels(const struct args *a, struct err *err) {
    for (size_t i = 0; i < a->values[OPT_LABEL].n; i++) {
        const char *label = a->values[OPT_LABEL].v[i], *eq = strchr(label, '=');
        if (!eq || eq == label)
            return err_set(err, -EINVAL, "\"%s\" is not a label: write KEY=VALUE", label);
    }
    return 0;
}

static int parse_limits(const struct args *a, struct cove_sandbox_options *o, struct err *err) {
    int r = 0;
    uint64_t ms = 0;
    if (arg_given(a, OPT_CPU))
        r = parse_cpu(arg_value(a, OPT_CPU), &o->cpu_millis, err);
    if (r == 0 && arg_given(a, OPT_MEMORY))
        r = parse_size(arg_value(a, OPT_MEMORY), &o->memory_bytes, err);
    if (r == 0 && arg_given(a, OPT_DISK))
        r = parse_size(arg_value(a, OPT_DISK), &o->disk_bytes, err);
    if (r == 0 && arg_given(a, OPT_PIDS))
        r = parse_count(arg_value(a, OPT_PIDS), "--pids", 1, 4194304, &o->pids, err);
    if (r == 0 && arg_given(a, OPT_EXPIRE))
        r = parse_time(arg_value(a, OPT_EXPIRE), &ms, err);
    if (r == 0 && arg_given(a, OPT_EXPIRE) && ms < 60000)
        r = err_set(err, -EINVAL, "--expire must be at least 60s");
    o->timeout_s = (uint32_t)(ms / 1000);
    return r;
}

int sandbox_args_parse(const struct args *a, bool local_paths, bool with_env,
                       struct sandbox_args *ret, struct err *err) {
    struct sandbox_args s = {.o = COVE_SANDBOX_OPTIONS_INIT};
    s.o.image = arg_value(a, OPT_IMAGE);
    s.o.network = arg_value(a, OPT_NETWORK);
    s.o.cwd = arg_value(a, OPT_CWD);
    s.o.metadata = arg_values(a, OPT_LABEL);
    int r = 0;
    if (s.o.image && !*s.o.image)
        r = err_set(err, -EINVAL,
                    "--image must name an image: host, or local/NAME (`cove image ls` lists them)");
    if (r == 0 && s.o.cwd && s.o.cwd[0] != '/')
        r = err_set(err, -EINVAL, "--cwd must be an absolute path inside the sandbox, not \"%s\"",
                    s.o.cwd);
    for (size_t i = 0; r == 0 && with_env && i < a->values[OPT_ENV].n; i++)
        r = parse_env(a->values[OPT_ENV].v[i], &s.env, err);
    if (r == 0)
        r = parse_limits(a, &s.o, err);
    if (r == 0)
        r = parse_labels(a, err);
    if (r == 0)
        r = parse_mounts(a, local_paths, &s, err);
    if (r < 0) {
        sandbox_args_done(&s);
        return r;
    }
    if (with_env)
        s.o.env = (const char *const *)s.env.v;
    if (!s.o.cwd && s.o.n_mounts > 0)
        s.o.cwd = s.mounts[0].target;
    *ret = s;
    return 0;
}

/* ---- what the daemon's driver does ---- */

static int refuse(struct cove_error *err, const char *driver, const char *what, const char *why) {
    *err = (struct cove_error){.code = -ENOTSUP};
    snprintf(err->message, sizeof(err->message), "%s%s (the daemon's driver: %s)", what, why,
             driver);
    return -ENOTSUP;
}

static bool honours(const json_t *create, const char *field) {
    return str_eq(json_str(create, field), "honoured");
}

static int check_honoured(const struct args *a, const json_t *create, const char *driver,
                          struct cove_error *err) {
    static const struct {
        enum option_id option;
        const char *field, *why;
    } fields[] = {
        {OPT_NETWORK, "extensions.cove.network",
         " is not for this daemon: its configuration has one network for all sandboxes"},
        {OPT_CWD, "extensions.cove.cwd", " is not for this daemon"},
        {OPT_PIDS, "resourceLimits.pids",
         " is not for this daemon: its configuration has one limit for all sandboxes"},
        {OPT_DISK, "resourceLimits.disk", " is not for this daemon: nothing would enforce it"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        char name[32];
        snprintf(name, sizeof(name), "--%s", option_defs[fields[i].option].name);
        if (arg_given(a, fields[i].option) && !honours(create, fields[i].field))
            return refuse(err, driver, name, fields[i].why);
    }
    return 0;
}

int sandbox_args_fit(const struct args *a, struct cove_client *c, struct sandbox_args *s,
                     struct cove_error *err) {
    char *text = NULL;
    int r = cove_client_capabilities(c, &text, err);
    if (r == -ENOENT) /* another server of this API: what it does not know it ignores */
        return 0;
    if (r < 0)
        return r;
    _cleanup_json_ json_t *j = json_parse(text, strlen(text), NULL);
    cove_free(text);
    const json_t *create = json_object_get(j, "create");
    const char *driver = json_str(j, "driver");
    if (!driver)
        driver = "unknown";
    if (!s->o.image && str_eq(driver, "docker"))
        return refuse(err, driver, "this daemon has no host image",
                      ": name an image of its engine, as in --image debian:12");
    if ((r = check_honoured(a, create, driver, err)) < 0)
        return r;
    if (!s->o.network && honours(create, "extensions.cove.network"))
        s->o.network = "none";
    return 0;
}
