/* FileInfo objects (see fileinfo.h). */
#include "execd/fileinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"

static const char *type_of(mode_t mode) {
    if (S_ISREG(mode))
        return "file";
    if (S_ISDIR(mode))
        return "directory";
    return S_ISLNK(mode) ? "symlink" : "other";
}

/* Permission bits as decimal digits that read like octal: 0644 -> 644. */
static int mode_digits(mode_t mode) {
    return (int)((mode >> 6 & 7) * 100 + (mode >> 3 & 7) * 10 + (mode & 7));
}

static int64_t to_us(const struct statx_timestamp *t) {
    return t->tv_sec * 1000000 + t->tv_nsec / 1000;
}

int fileinfo_get(const char *path, const struct users *u, json_t **ret, struct err *err) {
    struct statx sx;
    char modified[RFC3339_SIZE], created[RFC3339_SIZE];

    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &sx) < 0)
        return err_sys(err, -errno, "%s", path);
    rfc3339_format(to_us(&sx.stx_mtime), modified);
    rfc3339_format(to_us(sx.stx_mask & STATX_BTIME ? &sx.stx_btime : &sx.stx_ctime), created);
    _cleanup_free_ char *owner = users_uid_text(u, sx.stx_uid),
                        *group = users_gid_text(u, sx.stx_gid);
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    if (!owner || !group || buf_json_str(&text, path, strlen(path)) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    /* A name may hold any bytes; its repaired text is what JSON can carry. */
    json_t *shown = json_loads(text.data, JSON_DECODE_ANY, NULL);
    *ret = json_pack("{s:o, s:s, s:I, s:s, s:s, s:s, s:s, s:i}", "path", shown, "type",
                     type_of(sx.stx_mode), "size", (json_int_t)sx.stx_size, "modified_at", modified,
                     "created_at", created, "owner", owner, "group", group, "mode",
                     mode_digits(sx.stx_mode));
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}
