/*
 * The Windows profile (lifecycle.md 4.12): a Linux container that runs a Windows guest. Its limits
 * go to the guest by variables, its agent comes through a volume that the guest's set-up reads.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

const char *const windows_devices[] = {"/dev/kvm", "/dev/net/tun", NULL};

int windows_check_devices(const struct sandbox_spec *spec, struct err *err) {
    _cleanup_buf_ struct buf missing = BUF_INIT(256);

    if (!is_windows(spec))
        return 0;
    for (size_t i = 0; windows_devices[i]; i++)
        if (access(windows_devices[i], F_OK) < 0)
            buf_printf(&missing, "%s%s", missing.len ? ", " : "", windows_devices[i]);
    if (missing.len == 0)
        return 0;
    return err_set(err, -EINVAL,
                   "The Windows profile needs devices that this host does not have: %s.",
                   missing.data);
}

/* Whole G of an amount, rounded up; 0 = it is none. Only M and T units are converted: G, GB and Gi
 * mean the guest's own G. */
uint64_t windows_gigabytes(const char *text) {
    char *end;

    if (!text)
        return 0;
    text += strspn(text, " \t");
    if (*text < '0' || *text > '9')
        return 0;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || n > UINT64_MAX / 2048)
        return 0;
    char unit = (char)(*end & ~0x20);
    if (unit == 'G')
        return n;
    if (unit == 'T')
        return n * 1024;
    if (unit == 'M')
        return (n + 1023) / 1024;
    if (unit == 'K')
        return (n + (1 << 20) - 1) >> 20;
    return (n + (1 << 30) - 1) >> 30; /* bytes */
}

/* Whole CPUs of an amount, rounded up; 0 = it is none. */
unsigned windows_cpus(const char *text) {
    char *end;
    double n = text ? strtod(text, &end) : 0;

    if (text && *end == 'm')
        n /= 1000;
    return isfinite(n) && n > 0 && n < 100000 ? (unsigned)ceil(n) : 0;
}

static bool has_port(const char *list, const char *port) {
    size_t n = strlen(port);

    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
        const char *word = p + strspn(p, " \t");
        size_t len = strcspn(word, ", \t");
        if (len == n && strncmp(word, port, n) == 0)
            return true;
    }
    return false;
}

/* The user's ports first, then those of ours that are missing. */
static int set_ports(struct strv *env) {
    static const char *const ours[] = {"44772", "8080", "3389", "8006"};
    _cleanup_buf_ struct buf list = BUF_INIT(64 << 10);
    const char *given = env_get(env, "USER_PORTS");

    for (const char *p = given ? given : ""; *p; p += strcspn(p, ","), p += *p == ',') {
        const char *word = p + strspn(p, " \t");
        size_t len = strcspn(word, ", \t");
        if (len)
            buf_printf(&list, "%s%.*s", list.len ? "," : "", (int)len, word);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        if (!has_port(list.data ? list.data : "", ours[i]))
            buf_printf(&list, "%s%s", list.len ? "," : "", ours[i]);
    return buf_ok(&list) ? env_set(env, "USER_PORTS", list.data) : -ENOMEM;
}

static int set_amount(struct strv *env, const char *key, uint64_t n, const char *unit) {
    char text[32];

    if (n == 0)
        return 0;
    snprintf(text, sizeof text, "%llu%s", (unsigned long long)n, unit);
    return env_set(env, key, text);
}

int windows_environment(const struct sandbox_spec *spec, struct strv *env) {
    static const char *const disk_keys[] = {"disk", "storage", "ephemeral-storage"};
    const char *disk = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(disk_keys) && !disk; i++)
        disk = json_str(spec->limits, disk_keys[i]);
    int r = set_amount(env, "CPU_CORES", windows_cpus(json_str(spec->limits, "cpu")), "");
    if (r == 0)
        r = set_amount(env, "RAM_SIZE", windows_gigabytes(json_str(spec->limits, "memory")), "G");
    if (r == 0)
        r = set_amount(env, "DISK_SIZE", windows_gigabytes(disk), "G");
    return r < 0 ? r : set_ports(env);
}

void windows_remove_volume(struct docker *k, const char *sandbox_id) {
    char name[SANDBOX_ID_MAX + 32];
    struct err err = {0};

    snprintf(name, sizeof name, OEM_VOLUME_FORMAT, sandbox_id);
    int r = engine_volume_remove(k->engine, name, true, &err);
    if (r < 0 && r != -ENOENT)
        log_warn("a Windows volume is left", LOG_STR("volume", name), LOG_ERR(&err));
}
