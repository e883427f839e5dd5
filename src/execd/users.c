/*
 * Parser of passwd and group files (see users.h). Malformed lines are passed over, as the C library
 * does. Owns the text of both files; entries point into it.
 */
#include "execd/users.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/path.h"

#define MAX_FILE ((size_t)4 << 20)
#define MAX_GROUPS 1024
#define MAX_FIELDS 7

struct field {
    const char *p;
    size_t len;
};

void users_load(struct users *u, const char *etc_dir) {
    int dir = open(etc_dir ? etc_dir : "/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    *u = (struct users){0};
    if (dir < 0)
        return;
    path_read_file_at(dir, "passwd", MAX_FILE, &u->passwd, &u->passwd_len);
    path_read_file_at(dir, "group", MAX_FILE, &u->group, &u->group_len);
    fd_close(dir);
}

void users_done(struct users *u) {
    free(u->passwd);
    free(u->group);
    *u = (struct users){0};
}

/* Splits the next line at *pos into at most `max` colon-separated fields; 0 at the end of the text.
 */
static size_t next_line(const char *text, size_t len, size_t *pos, struct field *f, size_t max) {
    while (text && *pos < len) {
        const char *p = text + *pos, *nl = memchr(p, '\n', len - *pos);
        const char *end = nl ? nl : text + len;
        size_t n = 0;
        *pos = (size_t)(end - text) + 1;
        if (p == end || *p == '#' || *p == '+' || *p == '-')
            continue;
        while (n < max) {
            const char *colon = n + 1 < max ? memchr(p, ':', (size_t)(end - p)) : NULL;
            f[n++] = (struct field){p, (size_t)((colon ? colon : end) - p)};
            if (!colon)
                break;
            p = colon + 1;
        }
        return n;
    }
    return 0;
}

static bool field_is(const struct field *f, const char *s) {
    return f->len == strlen(s) && memcmp(f->p, s, f->len) == 0;
}

static int field_id(const struct field *f, uint32_t *ret) {
    uint64_t v;
    if (str_to_u64n(f->p, f->len, &v) < 0 || v > UINT32_MAX)
        return -EINVAL;
    *ret = (uint32_t)v;
    return 0;
}

static int find_user(const struct users *u, const char *name, uid_t uid, struct user_entry *ret) {
    struct field f[MAX_FIELDS];
    size_t pos = 0, n;

    while ((n = next_line(u->passwd, u->passwd_len, &pos, f, MAX_FIELDS)) > 0) {
        uint32_t id, gid;
        if (n < 4 || field_id(&f[2], &id) < 0 || field_id(&f[3], &gid) < 0)
            continue;
        if (name ? !field_is(&f[0], name) : id != uid)
            continue;
        *ret = (struct user_entry){
            .name = f[0].p, .name_len = f[0].len, .uid = id, .gid = gid, .home = "", .shell = ""};
        if (n > 5) {
            ret->home = f[5].p;
            ret->home_len = f[5].len;
        }
        if (n > 6) {
            ret->shell = f[6].p;
            ret->shell_len = f[6].len;
        }
        return 0;
    }
    return -ENOENT;
}

int users_by_uid(const struct users *u, uid_t uid, struct user_entry *ret) {
    return find_user(u, NULL, uid, ret);
}

int users_by_name(const struct users *u, const char *name, struct user_entry *ret) {
    return find_user(u, name, 0, ret);
}

int users_gid_by_name(const struct users *u, const char *name, gid_t *ret) {
    struct field f[4];
    size_t pos = 0, n;

    while ((n = next_line(u->group, u->group_len, &pos, f, 4)) > 0)
        if (n >= 3 && field_is(&f[0], name) && field_id(&f[2], ret) == 0)
            return 0;
    return -ENOENT;
}

/* As a part of struct users. */
static int users_group_name(const struct users *u, gid_t gid, const char **ret, size_t *ret_len) {
    struct field f[4];
    size_t pos = 0, n;
    uint32_t id;

    while ((n = next_line(u->group, u->group_len, &pos, f, 4)) > 0) {
        if (n < 3 || field_id(&f[2], &id) < 0 || id != gid)
            continue;
        *ret = f[0].p;
        *ret_len = f[0].len;
        return 0;
    }
    return -ENOENT;
}

static bool has_member(const struct field *members, const char *name, size_t name_len) {
    const char *p = members->p, *end = p + members->len;

    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma ? comma : end;
        if ((size_t)(stop - p) == name_len && memcmp(p, name, name_len) == 0)
            return true;
        p = stop + 1;
    }
    return false;
}

int users_groups(const struct users *u, const struct user_entry *e, gid_t gid, gid_t **ret,
                 size_t *ret_n) {
    gid_t *list = calloc(MAX_GROUPS, sizeof *list);
    struct field f[4];
    size_t pos = 0, n, count = 0;
    uint32_t id;

    if (!list)
        return -ENOMEM;
    list[count++] = gid;
    while (count < MAX_GROUPS && (n = next_line(u->group, u->group_len, &pos, f, 4)) > 0) {
        bool seen = false;
        if (n < 4 || field_id(&f[2], &id) < 0 || !has_member(&f[3], e->name, e->name_len))
            continue;
        for (size_t i = 0; i < count; i++)
            seen |= list[i] == id;
        if (!seen)
            list[count++] = id;
    }
    *ret = list;
    *ret_n = count;
    return 0;
}

char *users_uid_text(const struct users *u, uid_t uid) {
    struct user_entry e;
    return users_by_uid(u, uid, &e) == 0 ? str_ndup(e.name, e.name_len) : str_printf("%u", uid);
}

char *users_gid_text(const struct users *u, gid_t gid) {
    const char *name;
    size_t len;
    return users_group_name(u, gid, &name, &len) == 0 ? str_ndup(name, len) : str_printf("%u", gid);
}

static int id_from_text(const char *name, const char *fallback, uint32_t *ret) {
    uint64_t v;

    if (str_to_u64(name, &v) == 0 && v < UINT32_MAX) {
        *ret = (uint32_t)v;
        return 0;
    }
    if (str_eq(name, fallback)) {
        *ret = 65534;
        return 0;
    }
    return -ENOENT;
}

int users_resolve_owner(const struct users *u, const char *name, uid_t *ret) {
    struct user_entry e;

    if (users_by_name(u, name, &e) == 0) {
        *ret = e.uid;
        return 0;
    }
    return id_from_text(name, "nobody", ret);
}

int users_resolve_group(const struct users *u, const char *name, gid_t *ret) {
    if (users_gid_by_name(u, name, ret) == 0)
        return 0;
    if (id_from_text(name, "nogroup", ret) == 0)
        return 0;
    return id_from_text(name, "nobody", ret);
}
