/*
 * Named volumes: directories of our own below <state_dir>/volumes/NAME, mounted like any host path
 * (ids are shifted in the mount, not on the disk). `data` is what sandboxes see, `mark.json` says
 * for which sandbox the volume was made. A volume appears and vanishes by a rename, so a killed
 * daemon leaves no half of one; the name of an unfinished one starts with a dot and is cleared away
 * at the next start. Any thread; a volume is removed only while no sandbox has it, under the
 * driver's lock, which also puts sandboxes into the table.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/path.h"
#include "daemon/driver/native/native_priv.h"

#define NAME_LEN_MAX 253
#define MARK_MAX 4096

/* Closed to everybody else on the host: below lie files as sandboxes made them, set-user-id
 * programs of the host's root among them. */
static int clear_unfinished(struct native *n) {
    int fd = openat(n->volumes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!d) {
        fd_close(fd);
        return -errno;
    }
    while ((e = readdir(d)))
        if (str_starts(e->d_name, ".new-"))
            trash_put_from(n->trash, n->volumes_fd, e->d_name);
    closedir(d);
    return 0;
}

int native_volumes_open(struct native *n, struct err *err) {
    _cleanup_free_ char *dir = path_join(n->state_dir, "volumes");
    int r = dir ? path_mkdirs_at(AT_FDCWD, dir, 0700) : -ENOMEM;

    if (r == 0) {
        n->volumes_dir = realpath(dir, NULL); /* mounts are opened without following links */
        n->volumes_fd = n->volumes_dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        r = n->volumes_fd < 0 || fchmod(n->volumes_fd, 0700) < 0 ? -errno : clear_unfinished(n);
    }
    return r < 0 ? err_sys(err, r, "directory of named volumes") : 0;
}

static int check_name(const char *name, struct err *err) {
    size_t len = strlen(name);

    if (len == 0 || len > NAME_LEN_MAX || name[0] == '.' || strchr(name, '/'))
        return err_set(err, -EINVAL,
                       "'%.80s' cannot be the name of a volume here: 1 to %d "
                       "characters, no '/', no '.' in front",
                       name, NAME_LEN_MAX);
    return 0;
}

static int fail(struct err *err, int r, const char *name, const char *what) {
    err_sys(err, r, "named volume %.200s cannot be %s", name, what);
    return r == -ENOSPC || r == -EDQUOT ? -ENOSPC : DRIVER_VOLUME_INSPECT;
}

/* Under a name of its own first; -EEXIST when somebody else was faster. */
static int make(struct native *n, const char *name, const char *created_for) {
    _cleanup_json_ json_t *mark = json_pack("{s:s}", "createdFor", created_for);
    _cleanup_buf_ struct buf text = BUF_INIT(MARK_MAX);
    _cleanup_close_ int dir = -1;
    char tmp[48], rnd[33];

    id_hex32(rnd);
    snprintf(tmp, sizeof tmp, ".new-%s", rnd);
    if (!mark || buf_json(&text, mark) < 0)
        return -ENOMEM;
    if (mkdirat(n->volumes_fd, tmp, 0700) < 0)
        return -errno;
    dir = openat(n->volumes_fd, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = dir < 0 || mkdirat(dir, "data", 0755) < 0 ? -errno : 0;
    if (r == 0)
        r = path_write_file_at(dir, "mark.json", text.data, text.len, 0600, false);
    if (r == 0 && renameat2(n->volumes_fd, tmp, n->volumes_fd, name, RENAME_NOREPLACE) < 0)
        r = -errno;
    if (r < 0)
        trash_put_from(n->trash, n->volumes_fd, tmp);
    return r;
}

static int look(struct native *n, const char *name, char **ret_data) {
    _cleanup_free_ char *rel = str_printf("%s/data", name);
    struct stat st;

    if (!rel || !(*ret_data = path_join(n->volumes_dir, rel)))
        return -ENOMEM;
    int r = fstatat(n->volumes_fd, rel, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
            : S_ISDIR(st.st_mode)                                     ? 0
                                                                      : -ENOTDIR;
    if (r < 0)
        free(TAKE_PTR(*ret_data));
    return r;
}

int native_volume_open(struct driver *d, const char *name, const char *create_for,
                       struct volume_info *ret, struct err *err) {
    struct native *n = native_of(d);
    bool created = false;
    char *data = NULL;
    int r = check_name(name, err);

    if (r < 0)
        return r;
    r = look(n, name, &data);
    if (r == -ENOENT && !create_for)
        return err_set(err, -ENOENT, "there is no volume %.200s", name);
    if (r == -ENOENT) {
        r = make(n, name, create_for);
        created = r == 0;
        if (r == 0 || r == -EEXIST)
            r = look(n, name, &data);
        if (r < 0)
            return fail(err, r, name, "made");
    }
    if (r < 0)
        return fail(err, r, name, "looked up");
    *ret = (struct volume_info){.driver = "local", .mountpoint = data, .created = created};
    return 0;
}

static bool is_ours(struct native *n, const char *name, const char *created_for) {
    _cleanup_free_ char *rel = str_printf("%s/mark.json", name), *text = NULL;
    size_t len;

    if (!rel || path_read_file_at(n->volumes_fd, rel, MARK_MAX, &text, &len) < 0)
        return false;
    _cleanup_json_ json_t *mark = json_parse(text, len, NULL);
    const char *owner = json_str(mark, "createdFor");
    return owner && (!created_for || strcmp(owner, created_for) == 0);
}

/* Under the lock. */
static const char *user_of(struct native *n, const char *name) {
    size_t at = 0;
    const char *id;
    void *value;

    while (map_next(n->boxes, &at, &id, &value)) {
        const struct box *b = value;
        for (size_t i = 0; i < b->volumes.n; i++)
            if (strcmp(b->volumes.v[i], name) == 0)
                return id;
    }
    return NULL;
}

int native_volume_remove(struct driver *d, const char *name, const char *created_for,
                         struct err *err) {
    struct native *n = native_of(d);
    int r = check_name(name, err);

    if (r < 0)
        return r;
    if (!is_ours(n, name, created_for))
        return 0;
    pthread_mutex_lock(&n->lock);
    const char *user = user_of(n, name);
    if (user)
        r = err_set(err, -EBUSY, "volume %.200s is in use by sandbox %s", name, user);
    else
        trash_put_from(n->trash, n->volumes_fd, name);
    pthread_mutex_unlock(&n->lock);
    return r;
}

int box_note_volumes(struct native *n, struct box *b, const struct sandbox_spec *spec) {
    size_t skip = strlen(n->volumes_dir);

    for (size_t i = 0; i < spec->n_mounts; i++) {
        const char *source = spec->mounts[i].source;
        if (!source || strncmp(source, n->volumes_dir, skip) != 0 || source[skip] != '/')
            continue;
        const char *name = source + skip + 1;
        char *copy = str_ndup(name, strcspn(name, "/"));
        int r = copy ? strv_take(&b->volumes, copy) : -ENOMEM;
        if (r < 0)
            return r;
    }
    return 0;
}
