/* The words of an object-storage volume. Pure functions; any thread; the service's volumes.c calls
 * this. */
#include <errno.h>
#include <string.h>

#include "base/path.h"
#include "daemon/sandbox/ossfs.h"
#include "daemon/sandbox/volumes.h"

#define KEY_OPTIONS "oss_access_key"
#define NEVER ";&|`$()<>\r\n"

static bool is_bucket(const char *s) {
    size_t n = strlen(s);
    return str_is_dns_label(s) && n != 2 && n <= 63;
}

static bool has_control(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return true;
    return false;
}

static bool is_named(const char *part, size_t len, const char *name) {
    size_t n = strlen(name);
    return len >= n && strncasecmp(part, name, n) == 0 && (len == n || part[n] == '=');
}

/*
 * What a client may not choose: the source and the credentials are in other fields, and a value
 * that is a path would name a file of this host, which the program reads or writes as root. A path
 * need not look like one (the program's working directory may be the root), so options that take
 * files are refused by name too, as are those that borrow the machine's own credentials and those
 * that undo nosuid and nodev. One text can hold several options, parted by commas; a backslash
 * would hide a letter of a name from us, as the programs take it away.
 */
static bool is_option(const char *s) {
    static const char *const ours[] = {
        "url", "passwd_file", "oss_endpoint", "oss_bucket", "config", "conf", "c",
        /* files and folders */
        "use_cache", "tmpdir", "logfile", "log_dir", "log_file", "ahbe_conf", "mime", "cache_dir",
        "use_sse", "load_sse_c", "ssl_client_cert", "credlib", "credlib_opts",
        /* credentials of the machine */
        "ram_role", "iam_role", "ibm_iam_auth", "ecs", "credential_process", "profile",
        /* rights */
        "suid", "dev"};
    if (!*s || *s == '-' || has_control(s) || strpbrk(s, NEVER "\\ "))
        return false;
    for (size_t n; *s; s += n + (s[n] == ',')) {
        n = strcspn(s, ",");
        const char *eq = memchr(s, '=', n), *end = s + n;
        if (*s == '-' || strncasecmp(s, KEY_OPTIONS, strlen(KEY_OPTIONS)) == 0)
            return false;
        if (eq && eq + 1 < end &&
            (eq[1] == '~' || eq[1] == '.' || memchr(eq, '/', (size_t)(end - eq))))
            return false;
        for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
            if (is_named(s, n, ours[i]))
                return false;
    }
    return true;
}

/* They become lines of a file, in one form parted by colons. */
static bool is_credential(const char *s, const char *never) {
    return !str_is_empty(s) && !strpbrk(s, never);
}

static enum fault check_words(const struct oss_request *rq, const struct volume_request *v,
                              struct err *err) {
    if (!str_eq(rq->version, "1.0") && !str_eq(rq->version, "2.0"))
        return volume_fail(err, FAULT_OSS_VERSION, v, "ossfs.version must be '1.0' or '2.0'.");
    if (!rq->bucket || !is_bucket(rq->bucket))
        return volume_fail(err, FAULT_OSS_BUCKET, v,
                           "ossfs.bucket must be 3 to 63 lower-case letters, digits and '-'.");
    /* it becomes part of an option: a comma would begin another one */
    if (str_is_empty(rq->endpoint) || has_control(rq->endpoint) ||
        strpbrk(rq->endpoint, NEVER " ,\\"))
        return volume_fail(err, FAULT_OSS_ENDPOINT, v,
                           "ossfs.endpoint must not be empty, nor hold blanks, ',', '\\' or "
                           "characters of a shell.");
    for (size_t i = 0; i < rq->options.n; i++)
        if (!is_option(rq->options.v[i]))
            return volume_fail(
                err, FAULT_OSS_OPTION, v,
                "ossfs.options must be plain mount options: not empty, without a '-' in front, "
                "without blanks, '\\' and characters of a shell, naming neither source, "
                "credentials nor files of this host, nor suid and dev.");
    if (!is_credential(rq->key_id, ":\r\n") || !is_credential(rq->key_secret, "\r\n"))
        return volume_fail(err, FAULT_OSS_CREDENTIALS, v,
                           "ossfs.accessKeyId and ossfs.accessKeySecret must be given, in one line "
                           "each.");
    return FAULT_NONE;
}

enum fault ossfs_check(const char *root, const struct volume_request *v, struct err *err) {
    enum fault f = check_words(&v->oss, v, err);

    if (f)
        return f;
    if (root[0] != '/') {
        err_set(err, -EINVAL, "storage.ossfs_mount_root must be an absolute path.");
        return FAULT_OSS_ROOT;
    }
    if (v->sub_path && strpbrk(v->sub_path, NEVER))
        return volume_fail(err, FAULT_VOLUME_SUB_PATH, v,
                           "subPath must not hold characters of a shell.");
    return FAULT_NONE;
}
