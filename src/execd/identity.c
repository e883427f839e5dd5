/* Identities of commands (see identity.h). Owns the group list. */
#include "execd/identity.h"

#include <errno.h>
#include <string.h>

#include "execd/users.h"

static int cmp_gid(const void *a, const void *b) {
    gid_t x = *(const gid_t *)a, y = *(const gid_t *)b;
    return x < y ? -1 : x > y;
}

/* The same set of groups, not counting the primary one. */
static bool groups_are_ours(const struct identity *id) {
    gid_t own[1024], *want;
    int n = getgroups(ARRAY_SIZE(own), own);
    size_t n_own = 0, n_want = 0;
    bool same;

    want = calloc(id->n_groups + 1, sizeof *want);
    if (n < 0 || !want) {
        free(want);
        return false;
    }
    for (int i = 0; i < n; i++)
        if (own[i] != id->gid)
            own[n_own++] = own[i];
    for (size_t i = 0; i < id->n_groups; i++)
        if (id->groups[i] != id->gid)
            want[n_want++] = id->groups[i];
    qsort(own, n_own, sizeof *own, cmp_gid);
    qsort(want, n_want, sizeof *want, cmp_gid);
    same = n_own == n_want && memcmp(own, want, n_own * sizeof *own) == 0;
    free(want);
    return same;
}

int identity_resolve(int64_t uid, int64_t gid, struct identity *ret) {
    _cleanup_(users_done) struct users u = {0};
    struct identity id = {.given = uid >= 0, .uid = (uid_t)uid};
    struct user_entry e;
    bool known;

    if (uid < 0) {
        *ret = id;
        return 0;
    }
    users_load(&u, NULL);
    known = users_by_uid(&u, id.uid, &e) == 0;
    id.gid = gid >= 0 ? (gid_t)gid : known ? e.gid : (gid_t)uid;
    if (known) {
        int r = users_groups(&u, &e, id.gid, &id.groups, &id.n_groups);
        if (r < 0)
            return r;
    }
    id.set = id.uid != geteuid() || id.gid != getegid();
    /* Both ids named and both ours: nothing changes. A uid alone stands for the whole account. */
    if (!id.set && gid < 0)
        id.set = !groups_are_ours(&id);
    *ret = id;
    return 0;
}

void identity_done(struct identity *id) {
    free(id->groups);
    *id = (struct identity){0};
}

void identity_apply(const struct identity *id, struct process_opts *o) {
    o->set_ids = id->set;
    o->uid = id->uid;
    o->gid = id->gid;
    o->groups = id->groups;
    o->n_groups = id->n_groups;
}
