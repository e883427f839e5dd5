/*
 * The programs that mount object storage (lifecycle.md §4.11): their command lines and files, and
 * what the kernel says is mounted. Secrets are only ever in a file that nobody else can open and
 * that is gone as soon as the program has ended. Blocking; any thread; ossfs.c decides when.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/crash.h"
#include "base/id.h"
#include "base/log.h"
#include "base/path.h"
#include "base/spawn.h"
#include "daemon/sandbox/ossfs.h"

#define FILE_PREFIX "opensandbox-ossfs-inline-"
#define OURS \
    "c07e" /* hexadecimal, as the rest of the name: tells ours from those of other servers */
#define MOUNTINFO "/proc/self/mountinfo"
#define MOUNTINFO_MAX ((size_t)16 << 20)

static bool is_v1(const struct oss_request *rq) {
    return str_eq(rq->version, "1.0");
}

char *oss_endpoint_url(const char *endpoint) {
    return strstr(endpoint, "://") ? strdup(endpoint) : str_printf("https://%s", endpoint);
}

static int command_v1(const struct oss_mount *m, const char *file, struct strv *ret) {
    _cleanup_free_ char *url = oss_endpoint_url(m->rq->endpoint);
    int r;

    if (!url || strv_add(ret, "ossfs") < 0)
        return -ENOMEM;
    r = m->prefix[0] ? strv_addf(ret, "%s:/%s", m->rq->bucket, m->prefix)
                     : strv_add(ret, m->rq->bucket);
    if (r < 0 || strv_add(ret, m->path) < 0 || strv_add(ret, "-o") < 0 ||
        strv_addf(ret, "url=%s", url) < 0 || strv_add(ret, "-o") < 0 ||
        strv_addf(ret, "passwd_file=%s", file) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < m->rq->options.n; i++)
        if (strv_add(ret, "-o") < 0 || strv_add(ret, m->rq->options.v[i]) < 0)
            return -ENOMEM;
    return 0;
}

int oss_command(const struct oss_mount *m, const char *file, struct strv *ret) {
    if (is_v1(m->rq))
        return command_v1(m, file, ret);
    return strv_add(ret, "ossfs2") < 0 || strv_add(ret, "mount") < 0 ||
                   strv_add(ret, m->path) < 0 || strv_add(ret, "-c") < 0 || strv_add(ret, file) < 0
               ? -ENOMEM
               : 0;
}

char *oss_file_text(const struct oss_mount *m) {
    const struct oss_request *rq = m->rq;
    struct buf b = BUF_INIT(64 << 10);
    _cleanup_free_ char *url = oss_endpoint_url(rq->endpoint);
    int r;

    if (is_v1(rq))
        return str_printf("%s:%s:%s\n", rq->bucket, rq->key_id, rq->key_secret);
    r = !url ? -ENOMEM
             : buf_printf(&b,
                          "--oss_endpoint=%s\n--oss_bucket=%s\n--oss_access_key_id=%s\n"
                          "--oss_access_key_secret=%s\n",
                          url, rq->bucket, rq->key_id, rq->key_secret);
    if (r >= 0 && m->prefix[0])
        r = buf_printf(&b, "--oss_bucket_prefix=%s/\n", m->prefix);
    for (size_t i = 0; i < rq->options.n && r >= 0; i++)
        r = buf_printf(&b, "--%s\n", rq->options.v[i]);
    char *text = r < 0 ? NULL : strdup(b.data);
    if (b.data)
        explicit_bzero(b.data, b.len);
    buf_done(&b);
    return text;
}

/*
 * A file of its own name that did not exist, readable by nobody else. Locked as long as the program
 * may read it: what a killed daemon leaves is not, and is removed at the next start.
 */
static int write_file(const struct oss_mount *m, const char *file, int *ret_fd, struct err *err) {
    char *text = oss_file_text(m);
    int fd = text ? open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    int r = !text ? -ENOMEM : fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;

    if (r == 0)
        r = fd_write_full(fd, text, strlen(text));
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
    if (r == 0) {
        *ret_fd = fd;
        return 0;
    }
    if (fd >= 0)
        unlink(file);
    fd_close(fd);
    return err_sys(err, r, "credential file of ossfs");
}

static void sweep_one(int dir, const char *name) {
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(dir, name, 0) == 0)
        log_info("removed a credential file of ossfs that was left", LOG_STR("file", name));
}

void oss_sweep_files(const char *temp_dir) {
    int fd = open(temp_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!d) {
        fd_close(fd);
        return;
    }
    while ((e = readdir(d)))
        if (str_starts(e->d_name, FILE_PREFIX OURS))
            sweep_one(fd, e->d_name);
    closedir(d);
}

/* One line for a client: what the program complained about last. */
static void tidy(char *s) {
    size_t n = strlen(s);

    while (n && strchr(" \t\r\n", s[n - 1]))
        s[--n] = '\0';
    for (; *s; s++)
        if (*s == '\n' || *s == '\r')
            *s = ' ';
}

static int run(const char *const *argv, int timeout_ms, struct err *err) {
    struct spawn_result res;
    int r = spawn_run(argv, NULL, 4096, timeout_ms, &res, err);

    if (r == -ETIMEDOUT)
        err_set(err, r, "%s did not end within %d s and was killed", argv[0], timeout_ms / 1000);
    if (r < 0)
        return r;
    if (res.status != 0) {
        tidy(res.errs);
        r = err_set(err, -EIO, "%s failed with status %d: %.600s", argv[0], res.status, res.errs);
    }
    spawn_result_done(&res);
    return r;
}

int oss_run_mount(const struct oss_mount *m, struct err *err) {
    struct strv argv = {0};
    char id[33];
    int fd = -1;

    id_hex32(id);
    _cleanup_free_ char *file =
        str_printf("%s/" FILE_PREFIX OURS "%s%s", m->temp_dir, id, is_v1(m->rq) ? "" : ".conf");
    int r = file ? oss_command(m, file, &argv) : -ENOMEM;
    if (r < 0)
        r = err_set(err, r, "out of memory");
    else
        r = write_file(m, file, &fd, err);
    if (r == 0) {
        crash_point("oss-file");
        r = run((const char *const *)argv.v, m->timeout_ms, err);
        if (unlink(file) < 0)
            log_error("a credential file of ossfs stays", LOG_STR("file", file));
    }
    fd_close(fd);
    strv_done(&argv);
    return r;
}

int oss_run_unmount(const char *path, int timeout_ms, struct err *err) {
    const char *const fuse[] = {"fusermount", "-u", path, NULL}, *const plain[] = {"umount", path,
                                                                                   NULL};

    if (run(fuse, timeout_ms, err) == 0)
        return 0;
    return run(plain, timeout_ms, err);
}

/* ---- what is mounted ---- */

/* The kernel writes blanks and the like as \ooo. */
static void unescape(char *s) {
    char *to = s;

    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

static char *mount_point(char *line) {
    char *at = line, *end;

    for (int field = 0; field < 4; field++) {
        at = strchr(at, ' ');
        if (!at)
            return NULL;
        at++;
    }
    end = strchr(at, ' ');
    if (!end)
        return NULL;
    *end = '\0';
    unescape(at);
    return at;
}

/* Is there a mount at path, or (with above) at one of its parents below root? The kernel's table
 * is read instead of asking the file system: a dead one would not answer. */
static int look(const char *root, const char *path, bool above) {
    _cleanup_free_ char *text = NULL;
    size_t skip = root ? strlen(root) : 0;
    char *save = NULL;
    int r = path_read_file_at(AT_FDCWD, MOUNTINFO, MOUNTINFO_MAX, &text, NULL);

    if (r < 0)
        return r;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *at = mount_point(line);
        size_t n = at ? strlen(at) : 0;
        if (!at)
            continue;
        if (strcmp(at, path) == 0)
            return 1;
        if (above && n > skip && strncmp(at, path, n) == 0 && path[n] == '/')
            return 1;
    }
    return 0;
}

int oss_is_mounted(const char *path) {
    return look(NULL, path, false);
}

int oss_is_inside_mount(const char *root, const char *path) {
    return look(root, path, true);
}
