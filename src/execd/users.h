/*
 * Accounts and groups, read straight from the image's /etc/passwd and /etc/group: no NSS, nothing
 * cached beyond one struct users (which a request holds while it works). A missing file is an empty
 * one.
 */
#pragma once

#include "base/str.h"

struct users {
    char *passwd, *group; /* whole files, at most 4 MiB each */
    size_t passwd_len, group_len;
};

struct user_entry { /* points into struct users; not NUL-terminated */
    const char *name, *home, *shell;
    size_t name_len, home_len, shell_len;
    uid_t uid;
    gid_t gid;
};

void users_load(struct users *u, const char *etc_dir); /* NULL = "/etc" */
void users_done(struct users *u);

int users_by_uid(const struct users *u, uid_t uid, struct user_entry *ret); /* 0 or -ENOENT */
int users_by_name(const struct users *u, const char *name, struct user_entry *ret);
int users_gid_by_name(const struct users *u, const char *name, gid_t *ret);
/* Supplementary groups of an account, `gid` first; at most 1024. *ret is malloc'd. */
int users_groups(const struct users *u, const struct user_entry *e, gid_t gid, gid_t **ret,
                 size_t *ret_n);
/* Name, else the number, for display; malloc'd. */
char *users_uid_text(const struct users *u, uid_t uid);
char *users_gid_text(const struct users *u, gid_t gid);
/* "nobody"/"nogroup" are 65534 where the image does not name them; decimal ids are accepted. 0 or
 * -ENOENT. */
int users_resolve_owner(const struct users *u, const char *name, uid_t *ret);
int users_resolve_group(const struct users *u, const char *name, gid_t *ret);
