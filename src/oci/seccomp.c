/*
 * Security profiles and base filters (see seccomp.h). The rules come from containers-common's
 * profile, reduced by what a sandbox never needs; the result is cached as raw BPF in the image
 * store.
 *
 * Invariants: a rule that does not apply to the profile's capabilities is left out before
 * compiling; the reductions win over the source, whatever it allows; anything not understood in the
 * source is an error. Cache files are named by everything that went into them, so they are never
 * stale.
 */
#include "oci/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/path.h"
#include "base/str.h"

#define RULES_VERSION "1" /* change it with any change of what this file makes of a source */
#define SOURCE_MAX ((size_t)4 << 20)
#define BPF_INSTRUCTION_BYTES 8
#define BPF_MAX_BYTES (4096 * BPF_INSTRUCTION_BYTES) /* the kernel's limit */
#define CACHE_DIR "seccomp"

/* ---- profiles ----------------------------------------------------------------------------------
 */

#define CAPS_DEFAULT                                                                      \
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",              \
        "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", \
        "CAP_SYS_CHROOT"

static const char *const caps_strict[] = {
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", NULL};
static const char *const caps_default[] = {CAPS_DEFAULT, NULL};
static const char *const caps_docker[] = {CAPS_DEFAULT, "CAP_AUDIT_WRITE", "CAP_NET_RAW", NULL};
static const char *const caps_docker_userns[] = {CAPS_DEFAULT, "CAP_AUDIT_WRITE", "CAP_NET_RAW",
                                                 "CAP_MKNOD", NULL};

static const char *const profile_names[] = {"strict", "default", "docker", "nested"};

int security_profile_parse(const char *name, enum security_profile *ret, struct err *err) {
    for (size_t i = 0; i < ARRAY_SIZE(profile_names); i++) {
        if (str_eq(name, profile_names[i])) {
            *ret = (enum security_profile)i;
            return 0;
        }
    }
    return err_set(err, -EINVAL,
                   "unknown security profile \"%.100s\": use strict, default, docker or nested",
                   name ? name : "");
}

const char *security_profile_name(enum security_profile p) {
    return (size_t)p < ARRAY_SIZE(profile_names) ? profile_names[p] : "unknown";
}

int security_profile_caps(enum security_profile p, bool userns, const char *const **ret,
                          struct err *err) {
    switch (p) {
    case PROFILE_STRICT:
        *ret = caps_strict;
        return 0;
    case PROFILE_DOCKER:
        *ret = userns ? caps_docker_userns : caps_docker;
        return 0;
    case PROFILE_NESTED:
        if (!userns)
            return err_set(err, -EOPNOTSUPP, "security profile \"nested\" needs user namespaces");
        *ret = caps_default;
        return 0;
    case PROFILE_DEFAULT:
        *ret = caps_default;
        return 0;
    }
    return err_set(err, -EINVAL, "unknown security profile %d", (int)p);
}

/* ---- reductions --------------------------------------------------------------------------------
 */

/* Answered with EPERM in every profile. */
static const char *const never[] = {"acct",
                                    "add_key",
                                    "bpf",
                                    "fanotify_init",
                                    "io_uring_enter",
                                    "io_uring_register",
                                    "io_uring_setup",
                                    "kexec_file_load",
                                    "kexec_load",
                                    "keyctl",
                                    "name_to_handle_at",
                                    "open_by_handle_at",
                                    "perf_event_open",
                                    "quotactl",
                                    "quotactl_fd",
                                    "reboot",
                                    "request_key",
                                    "swapoff",
                                    "swapon",
                                    "syslog",
                                    "userfaultfd",
                                    "vhangup",
                                    NULL};
/* Answered with EPERM unless sandboxes are to run sandboxes of their own. clone and clone3 are not
 * here: the agent needs clone3 to start processes in their cgroups, and its own filter restricts
 * what it starts. */
static const char *const not_nested[] = {
    "fsconfig",  "fsmount",    "fsopen", "fspick", "mount",   "mount_setattr", "move_mount",
    "open_tree", "pivot_root", "setns",  "umount", "umount2", "unshare",       NULL};

static bool in_list(const char *const *list, const char *s) {
    for (; *list; list++)
        if (str_eq(*list, s))
            return true;
    return false;
}

static bool is_reduced(enum security_profile p, const char *syscall_name) {
    return in_list(never, syscall_name) ||
           (p != PROFILE_NESTED && in_list(not_nested, syscall_name));
}

/* ---- compiling ----------------------------------------------------------------------------------
 */

static int parse_action(const json_t *rule, uint32_t *ret, struct err *err) {
    const char *action = json_str(rule, "action");

    if (str_eq(action, "SCMP_ACT_ALLOW"))
        *ret = SCMP_ACT_ALLOW;
    else if (str_eq(action, "SCMP_ACT_ERRNO"))
        *ret = SCMP_ACT_ERRNO((uint16_t)json_int(rule, "errnoRet", EPERM));
    else
        return err_set(err, -EINVAL, "unknown action \"%.60s\"", action ? action : "");
    return 0;
}

static int parse_args(const json_t *rule, struct scmp_arg_cmp ret[6], unsigned *ret_n,
                      struct err *err) {
    static const struct {
        const char *name;
        enum scmp_compare op;
    } ops[] = {{"SCMP_CMP_NE", SCMP_CMP_NE},
               {"SCMP_CMP_LT", SCMP_CMP_LT},
               {"SCMP_CMP_LE", SCMP_CMP_LE},
               {"SCMP_CMP_EQ", SCMP_CMP_EQ},
               {"SCMP_CMP_GE", SCMP_CMP_GE},
               {"SCMP_CMP_GT", SCMP_CMP_GT},
               {"SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ}};
    const json_t *args = json_object_get(rule, "args"), *a;
    size_t i, k;

    *ret_n = 0;
    json_array_foreach(args, i, a) {
        int64_t index = json_int(a, "index", -1);
        for (k = 0; k < ARRAY_SIZE(ops) && !str_eq(json_str(a, "op"), ops[k].name);)
            k++;
        if (index < 0 || index > 5 || i >= 6 || k == ARRAY_SIZE(ops))
            return err_set(err, -EINVAL, "a rule's argument is not understood");
        ret[i] = (struct scmp_arg_cmp){.arg = (unsigned)index,
                                       .op = ops[k].op,
                                       .datum_a = (scmp_datum_t)json_int(a, "value", 0),
                                       .datum_b = (scmp_datum_t)json_int(a, "valueTwo", 0)};
        *ret_n = (unsigned)i + 1;
    }
    return 0;
}

static const char *arch_name(void) {
    switch (seccomp_arch_native()) {
    case SCMP_ARCH_X86_64:
        return "amd64";
    case SCMP_ARCH_AARCH64:
        return "arm64";
    case SCMP_ARCH_RISCV64:
        return "riscv64";
    default:
        return "unknown";
    }
}

static bool has_string(const json_t *array, const char *s) {
    const json_t *v;
    size_t i;

    json_array_foreach(array, i, v) {
        if (str_eq(json_string_value(v), s))
            return true;
    }
    return false;
}

static bool any_cap(const json_t *array, const char *const *caps) {
    for (; *caps; caps++)
        if (has_string(array, *caps))
            return true;
    return false;
}

static bool all_caps(const json_t *array, const char *const *caps) {
    const json_t *v;
    size_t i;

    json_array_foreach(array, i, v) {
        if (!json_is_string(v) || !in_list(caps, json_string_value(v)))
            return false;
    }
    return true;
}

/* Does a rule of the source apply to this architecture and these capabilities? */
static bool applies(const json_t *rule, const char *const *caps) {
    const json_t *inc = json_object_get(rule, "includes"), *exc = json_object_get(rule, "excludes");
    const json_t *arches = json_object_get(inc, "arches");

    if (json_array_size(arches) > 0 && !has_string(arches, arch_name()))
        return false;
    if (has_string(json_object_get(exc, "arches"), arch_name()))
        return false;
    return all_caps(json_object_get(inc, "caps"), caps) &&
           !any_cap(json_object_get(exc, "caps"), caps);
}

static int add_rule(scmp_filter_ctx ctx, uint32_t action, const char *name, unsigned n,
                    const struct scmp_arg_cmp *args, struct err *err) {
    int nr = seccomp_syscall_resolve_name(name);

    if (nr < 0)
        return 0; /* not on this architecture */
    int r = seccomp_rule_add_array(ctx, action, nr, n, args);
    if (r == -EACCES || r == -EEXIST)
        return 0; /* what the default says anyway, or said before */
    return r < 0 ? err_sys(err, r, "rule for %s", name) : 0;
}

static int add_source_rule(scmp_filter_ctx ctx, enum security_profile p, const json_t *rule,
                           struct err *err) {
    struct scmp_arg_cmp args[6];
    const json_t *name;
    uint32_t action = SCMP_ACT_ERRNO(EPERM);
    unsigned n = 0;
    size_t i;
    int r = parse_action(rule, &action, err);

    if (r == 0)
        r = parse_args(rule, args, &n, err);
    if (r < 0)
        return r;
    json_array_foreach(json_object_get(rule, "names"), i, name) {
        const char *s = json_string_value(name);
        if (!s)
            return err_set(err, -EINVAL, "a rule's name is no string");
        if (!is_reduced(p, s))
            r = add_rule(ctx, action, s, n, args, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_rules(scmp_filter_ctx ctx, enum security_profile p, const char *const *caps,
                     const json_t *source, struct err *err) {
    const json_t *rule, *rules = json_object_get(source, "syscalls");
    size_t i;
    int r = 0;

    if (json_array_size(rules) == 0)
        return err_set(err, -EINVAL, "it has no \"syscalls\"");
    json_array_foreach(rules, i, rule) {
        if (applies(rule, caps))
            r = add_source_rule(ctx, p, rule, err);
        if (r < 0)
            return r;
    }
    for (size_t k = 0; r == 0 && never[k]; k++)
        r = add_rule(ctx, SCMP_ACT_ERRNO(EPERM), never[k], 0, NULL, err);
    for (size_t k = 0; r == 0 && p != PROFILE_NESTED && not_nested[k]; k++)
        r = add_rule(ctx, SCMP_ACT_ERRNO(EPERM), not_nested[k], 0, NULL, err);
    return r;
}

static int export_bpf(scmp_filter_ctx ctx, void **ret, size_t *ret_bytes, struct err *err) {
    _cleanup_close_ int fd = memfd_create("seccomp", MFD_CLOEXEC);
    _cleanup_free_ void *bpf = NULL;
    int r = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);

    if (r < 0)
        return err_sys(err, r, "exporting the filter");
    off_t size = lseek(fd, 0, SEEK_END);
    if (size <= 0 || size > BPF_MAX_BYTES || size % BPF_INSTRUCTION_BYTES ||
        lseek(fd, 0, SEEK_SET) < 0)
        return err_set(err, -E2BIG, "the filter is %lld bytes, the kernel takes %d",
                       (long long)size, BPF_MAX_BYTES);
    bpf = malloc((size_t)size);
    if (!bpf)
        return err_set(err, -ENOMEM, "out of memory");
    r = fd_read_full(fd, bpf, (size_t)size);
    if (r != size)
        return err_sys(err, r < 0 ? r : -EIO, "exporting the filter");
    *ret = TAKE_PTR(bpf);
    *ret_bytes = (size_t)size;
    return 0;
}

static int compile(const char *text, size_t len, enum security_profile p, const char *const *caps,
                   void **ret, size_t *ret_bytes, struct err *err) {
    _cleanup_json_ json_t *source = json_parse(text, len, err);
    int r;

    if (!source)
        return -EINVAL;
    if (!str_eq(json_str(source, "defaultAction"), "SCMP_ACT_ERRNO"))
        return err_set(err, -EINVAL, "its default action is not SCMP_ACT_ERRNO");
    /* Default ENOSYS: programs fall back when they meet a system call that is newer than the
     * profile. */
    scmp_filter_ctx ctx =
        seccomp_init(SCMP_ACT_ERRNO((uint16_t)json_int(source, "defaultErrnoRet", ENOSYS)));
    if (!ctx)
        return err_set(err, -ENOMEM, "out of memory");
    r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
    if (r == 0)
        r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (r < 0)
        err_sys(err, r, "libseccomp");
    else
        r = add_rules(ctx, p, caps, source, err);
    if (r == 0)
        r = export_bpf(ctx, ret, ret_bytes, err);
    seccomp_release(ctx);
    return r;
}

/* ---- cache
 * --------------------------------------------------------------------------------------- */

static int hash_key(const char *text, size_t len, enum security_profile p, bool userns,
                    char ret[65]) {
    const struct scmp_version *v = seccomp_version();
    unsigned char d[EVP_MAX_MD_SIZE];
    char extra[128];
    unsigned n = 0;
    EVP_MD_CTX *md = EVP_MD_CTX_new();

    snprintf(extra, sizeof extra, "%s %s %s %d libseccomp %u.%u.%u\n", RULES_VERSION, arch_name(),
             security_profile_name(p), userns, v->major, v->minor, v->micro);
    bool ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) &&
              EVP_DigestUpdate(md, extra, strlen(extra)) && EVP_DigestUpdate(md, text, len) &&
              EVP_DigestFinal_ex(md, d, &n) && n == 32;
    EVP_MD_CTX_free(md);
    if (!ok)
        return -EIO;
    hex_encode(d, n, ret);
    return 0;
}

/* 1 = found. A file of an impossible size is not believed. */
static int read_cache(int store_fd, const char *file, struct seccomp_filter *f) {
    char *data;
    size_t len;

    if (path_read_file_at(store_fd, file, BPF_MAX_BYTES, &data, &len) < 0)
        return 0;
    if (len == 0 || len % BPF_INSTRUCTION_BYTES) {
        free(data);
        return 0;
    }
    f->bpf = data;
    f->bpf_bytes = len;
    return 1;
}

static int write_cache(int store_fd, const char *file, const struct seccomp_filter *f,
                       struct err *err) {
    /* Under the folder's lock: store_open() removes what killed writers left, and must not meet a
     * living one. */
    int r = path_mkdirs_at(store_fd, CACHE_DIR, 0700);
    _cleanup_close_ int dir = openat(store_fd, CACHE_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && (dir < 0 || flock(dir, LOCK_EX) < 0))
        r = -errno;
    if (r == 0)
        r = path_write_file_at(store_fd, file, f->bpf, f->bpf_bytes, 0600, true);
    return r < 0 ? err_sys(err, r, "seccomp cache") : 0;
}

void seccomp_filter_done(struct seccomp_filter *f) {
    free(f->bpf);
    free(f->bpf_base64);
    *f = (struct seccomp_filter){0};
}

int seccomp_base_filter(int store_fd, const char *source, enum security_profile p, bool userns,
                        struct seccomp_filter *ret, struct err *err) {
    _cleanup_(seccomp_filter_done) struct seccomp_filter f = {0};
    _cleanup_free_ char *text = NULL;
    const char *const *caps = NULL;
    char file[sizeof CACHE_DIR + 80];
    size_t len = 0;

    if (!source)
        source = SECCOMP_SOURCE;
    int r = security_profile_caps(p, userns, &caps, err);
    if (r < 0)
        return r;
    r = path_read_file_at(AT_FDCWD, source, SOURCE_MAX, &text, &len);
    if (r == -ENOENT)
        return err_set(
            err, r,
            "%s is missing: install the package golang-github-containers-common (it ships the "
            "seccomp profile)",
            source);
    if (r < 0)
        return err_sys(err, r, "%s", source);
    r = hash_key(text, len, p, userns, f.hash);
    if (r < 0)
        return err_sys(err, r, "sha256");
    snprintf(file, sizeof file, CACHE_DIR "/%s.bpf", f.hash);
    if (!read_cache(store_fd, file, &f)) {
        r = compile(text, len, p, caps, &f.bpf, &f.bpf_bytes, err);
        if (r < 0)
            return err_wrap(err, "%s", source);
        r = write_cache(store_fd, file, &f, err);
        if (r < 0)
            return r;
    }
    f.bpf_base64 = base64_encode(f.bpf, f.bpf_bytes);
    if (!f.bpf_base64)
        return err_set(err, -ENOMEM, "out of memory");
    *ret = f;
    f = (struct seccomp_filter){0};
    return 0;
}
