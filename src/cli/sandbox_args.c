/* See sandbox_args.h. */
#include "cli/sandbox_args.h"

#include <errno.h>
#include <string.h>

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
    if (!s.o.network)
        s.o.network = "none";
    if (!s.o.cwd && s.o.n_mounts > 0)
        s.o.cwd = s.mounts[0].target;
    *ret = s;
    return 0;
}
