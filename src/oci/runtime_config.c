/*
 * Writer of the runtime's config.json (see runtime_config.h). Pure text building: no I/O except
 * getrlimit. One place knows what every sandbox has in common (defaults, standard mounts, masks).
 */
#include "oci/runtime_config.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

const char *const rt_bind_ro[] = {"bind", "ro", "nosuid", "nodev", NULL};
const char *const rt_bind_rw[] = {"bind", "rw", "nosuid", "nodev", NULL};

static const char *const default_masked[] = {"/proc/acpi",          "/proc/asound",
                                             "/proc/kcore",         "/proc/keys",
                                             "/proc/latency_stats", "/proc/timer_list",
                                             "/proc/timer_stats",   "/proc/sched_debug",
                                             "/proc/scsi",          "/proc/interrupts",
                                             "/proc/cmdline", /* the host's boot line */
                                             "/sys/firmware",       "/sys/devices/virtual/powercap",
                                             "/sys/kernel/debug",   NULL};
static const char *const default_readonly[] = {
    "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", NULL};
static const struct rt_rlimit default_rlimits[] = {{"RLIMIT_NOFILE", RLIMIT_NOFILE, 65536, 65536},
                                                   {"RLIMIT_CORE", RLIMIT_CORE, 0, 0}};
static const struct rt_namespace default_namespaces[] = {
    {"pid"}, {"ipc"}, {"uts"}, {"mount"}, {"cgroup"}};

#define SHM_DEFAULT ((uint64_t)64 << 20)

void runtime_config_init(struct runtime_config *c) {
    *c = (struct runtime_config){
        .cwd = "/",
        .root_path = "rootfs",
        .no_new_privs = true,
        .rlimits = default_rlimits,
        .n_rlimits = ARRAY_SIZE(default_rlimits),
        .standard_mounts = true,
        .shm_bytes = SHM_DEFAULT,
        .namespaces = default_namespaces,
        .n_namespaces = ARRAY_SIZE(default_namespaces),
        .masked_paths = default_masked,
        .readonly_paths = default_readonly,
    };
}

/* ---- checks: a string that JSON cannot carry unchanged would name another file -----------------
 */

static int check_str(const char *s, const char *field, struct err *err) {
    if (!s || !utf8_is_valid(s, strlen(s)))
        return err_set(err, -EINVAL, "%s is not valid UTF-8", field);
    return 0;
}

static int check_strs(const char *const *v, const char *field, struct err *err) {
    int r = 0;
    for (; r == 0 && v && *v; v++)
        r = check_str(*v, field, err);
    return r;
}

static int check_abs(const char *path, const char *field, struct err *err) {
    if (!path || path[0] != '/')
        return err_set(err, -EINVAL, "%s must be an absolute path", field);
    return check_str(path, field, err);
}

static bool has_namespace(const struct runtime_config *c, const char *type) {
    for (size_t i = 0; i < c->n_namespaces; i++)
        if (str_eq(c->namespaces[i].type, type))
            return true;
    return false;
}

static int check_mounts(const struct runtime_config *c, struct err *err) {
    int r = 0;

    for (size_t i = 0; r == 0 && i < c->n_mounts; i++) {
        const struct rt_mount *m = &c->mounts[i];
        r = check_abs(m->target, "a mount's target", err);
        if (r == 0 && (!m->type || !m->source))
            r = err_set(err, -EINVAL, "mount %s has no type or no source", m->target);
        if (r == 0)
            r = check_str(m->source, "a mount's source", err);
        if (r == 0 && str_eq(m->type, "bind") && (!m->source || m->source[0] != '/'))
            r = err_set(err, -EINVAL, "the source of bind mount %s must be an absolute path",
                        m->target);
        if (r == 0)
            r = check_strs(m->options, "a mount option", err);
    }
    return r;
}

static int check(const struct runtime_config *c, struct err *err) {
    int r;

    if (!c->args || !c->args[0])
        return err_set(err, -EINVAL, "args is empty");
    if (!c->caps)
        return err_set(err, -EINVAL, "caps is not set");
    if (str_is_empty(c->root_path))
        return err_set(err, -EINVAL, "root_path is empty");
    if (c->n_uid_map + c->n_gid_map > 0 && !has_namespace(c, "user"))
        return err_set(err, -EINVAL, "id mappings without a user namespace");
    if (c->hostname && !has_namespace(c, "uts"))
        return err_set(err, -EINVAL, "a hostname without a uts namespace would rename the host");
    r = check_strs(c->args, "args", err);
    if (r == 0)
        r = check_strs(c->env, "env", err);
    if (r == 0)
        r = check_abs(c->cwd, "cwd", err);
    if (r == 0 && c->hostname)
        r = check_str(c->hostname, "hostname", err);
    if (r == 0)
        r = check_str(c->root_path, "root_path", err);
    for (size_t i = 0; r == 0 && i < c->n_namespaces; i++)
        if (c->namespaces[i].path)
            r = check_abs(c->namespaces[i].path, "a namespace's path", err);
    for (const char *const *p = c->masked_paths; r == 0 && p && *p; p++)
        r = check_abs(*p, "a masked path", err);
    for (const char *const *p = c->readonly_paths; r == 0 && p && *p; p++)
        r = check_abs(*p, "a read-only path", err);
    return r < 0 ? r : check_mounts(c, err);
}

/* ---- writing ----------------------------------------------------------------------------------
 */

static void put_str(struct buf *b, const char *s) {
    buf_json_str(b, s, strlen(s));
}

/* "key":"value" with a separator in front when `comma`. */
static void put_pair(struct buf *b, bool comma, const char *key, const char *value) {
    buf_printf(b, "%s\"%s\":", comma ? "," : "", key);
    put_str(b, value);
}

static void put_array(struct buf *b, bool comma, const char *key, const char *const *v) {
    buf_printf(b, "%s\"%s\":[", comma ? "," : "", key);
    for (size_t i = 0; v && v[i]; i++) {
        if (i)
            buf_char(b, ',');
        put_str(b, v[i]);
    }
    buf_char(b, ']');
}

static void put_rlimits(const struct runtime_config *c, struct buf *b) {
    buf_str(b, ",\"rlimits\":[");
    for (size_t i = 0; i < c->n_rlimits; i++) {
        const struct rt_rlimit *l = &c->rlimits[i];
        struct rlimit own;
        uint64_t hard = l->hard;
        /* Raising a hard limit needs a capability that the daemon may not have: the runtime would
         * fail. */
        if (getrlimit((__rlimit_resource_t)l->resource, &own) == 0 && own.rlim_max != RLIM_INFINITY)
            hard = MIN(hard, (uint64_t)own.rlim_max);
        buf_str(b, i ? "," : "");
        buf_char(b, '{');
        put_pair(b, false, "type", l->type);
        buf_printf(b, ",\"soft\":%llu,\"hard\":%llu}", (unsigned long long)MIN(l->soft, hard),
                   (unsigned long long)hard);
    }
    buf_char(b, ']');
}

static void put_process(const struct runtime_config *c, struct buf *b) {
    static const char *const kinds[] = {"bounding", "effective", "permitted"};

    buf_str(b, "\"process\":{\"user\":{\"uid\":0,\"gid\":0}");
    put_array(b, true, "args", c->args);
    put_array(b, true, "env", c->env);
    put_pair(b, true, "cwd", c->cwd);
    buf_str(b, ",\"capabilities\":{");
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        put_array(b, i > 0, kinds[i], c->caps);
    buf_str(b, ",\"inheritable\":[],\"ambient\":[]}");
    put_rlimits(c, b);
    buf_printf(b, ",\"noNewPrivileges\":%s,\"oomScoreAdj\":%d}", c->no_new_privs ? "true" : "false",
               c->oom_score_adj);
}

static void put_mount(struct buf *b, bool comma, const struct rt_mount *m) {
    buf_str(b, comma ? ",{" : "{");
    put_pair(b, false, "destination", m->target);
    put_pair(b, true, "type", m->type);
    put_pair(b, true, "source", m->source);
    put_array(b, true, "options", m->options);
    buf_char(b, '}');
}

/* No /sys and no cgroup mount here (native-runtime.md 7.2, 8); devpts without gid=5, which may be
 * unmapped. */
static size_t put_standard_mounts(const struct runtime_config *c, struct buf *b) {
    char shm_size[40] = "size=";
    const char *const proc[] = {"nosuid", "noexec", "nodev", NULL};
    const char *const dev[] = {"nosuid", "strictatime", "mode=755", "size=65536k", NULL};
    const char *const pts[] = {"nosuid",        "noexec",    "newinstance",
                               "ptmxmode=0666", "mode=0620", NULL};
    const char *const shm[] = {"nosuid", "nodev", "noexec", "mode=1777", shm_size, NULL};
    const char *const mq[] = {"nosuid", "nodev", "noexec", NULL};
    const struct rt_mount mounts[] = {{"/proc", "proc", "proc", proc},
                                      {"/dev", "tmpfs", "tmpfs", dev},
                                      {"/dev/pts", "devpts", "devpts", pts},
                                      {"/dev/shm", "tmpfs", "shm", shm},
                                      {"/dev/mqueue", "mqueue", "mqueue", mq}};
    struct buf size = BUF_INIT(sizeof shm_size);

    buf_printf(&size, "size=%llu", (unsigned long long)c->shm_bytes);
    str_copy(shm_size, sizeof shm_size, size.data ? size.data : "size=67108864");
    buf_done(&size);
    for (size_t i = 0; i < ARRAY_SIZE(mounts); i++)
        put_mount(b, i > 0, &mounts[i]);
    return ARRAY_SIZE(mounts);
}

static void put_idmap(struct buf *b, const char *key, const struct rt_idmap *m, size_t n) {
    if (n == 0)
        return;
    buf_printf(b, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++)
        buf_printf(b, "%s{\"containerID\":%u,\"hostID\":%u,\"size\":%u}", i ? "," : "", m[i].inside,
                   m[i].outside, m[i].size);
    buf_char(b, ']');
}

static void put_linux(const struct runtime_config *c, struct buf *b) {
    buf_str(b, ",\"linux\":{\"namespaces\":[");
    for (size_t i = 0; i < c->n_namespaces; i++) {
        buf_str(b, i ? ",{" : "{");
        put_pair(b, false, "type", c->namespaces[i].type);
        if (c->namespaces[i].path)
            put_pair(b, true, "path", c->namespaces[i].path);
        buf_char(b, '}');
    }
    buf_char(b, ']');
    put_idmap(b, "uidMappings", c->uid_map, c->n_uid_map);
    put_idmap(b, "gidMappings", c->gid_map, c->n_gid_map);
    put_array(b, true, "maskedPaths", c->masked_paths);
    put_array(b, true, "readonlyPaths", c->readonly_paths);
    buf_char(b, '}');
}

int runtime_config_write(const struct runtime_config *c, struct buf *out, struct err *err) {
    size_t n = 0;
    int r = check(c, err);

    if (r < 0)
        return err_wrap(err, "runtime configuration");
    buf_str(out, "{\"ociVersion\":\"1.0.0\",");
    put_process(c, out);
    buf_str(out, ",\"root\":{");
    put_pair(out, false, "path", c->root_path);
    buf_printf(out, ",\"readonly\":%s}", c->root_readonly ? "true" : "false");
    if (c->hostname)
        put_pair(out, true, "hostname", c->hostname);
    buf_str(out, ",\"mounts\":[");
    if (c->standard_mounts)
        n = put_standard_mounts(c, out);
    for (size_t i = 0; i < c->n_mounts; i++)
        put_mount(out, n + i > 0, &c->mounts[i]);
    buf_char(out, ']');
    put_linux(c, out);
    if (c->seccomp_bpf_base64) {
        buf_str(out, ",\"annotations\":{");
        put_pair(out, false, "run.oci.seccomp_bpf_data", c->seccomp_bpf_base64);
        buf_char(out, '}');
    }
    buf_char(out, '}');
    if (!buf_ok(out))
        return err_set(err, -ENOBUFS, "runtime configuration is larger than %zu bytes",
                       out->max ? out->max : BUF_DEFAULT_MAX);
    return 0;
}
