/*
 * What both implementations of the snapshot repository share (see snapdb.h): words for states,
 * texts for times and restore records, and the filter of a list. Pure functions, any thread.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "daemon/store/snapdb_priv.h"

static const char *const names[] = {
    [SNAP_CREATING] = "Creating", [SNAP_READY] = "Ready",   [SNAP_FAILED] = "Failed",
    [SNAP_DELETING] = "Deleting", [SNAP_OTHER] = "Unknown",
};

const char *snap_state_name(enum snap_state s) {
    return names[s];
}

enum snap_state snap_state_of(const char *name) {
    for (enum snap_state s = SNAP_CREATING; s < SNAP_OTHER; s++)
        if (str_eq(names[s], name))
            return s;
    return SNAP_OTHER;
}

void snap_row_done(struct snap_row *r) {
    free(r->id);
    free(r->sandbox_id);
    free(r->name);
    free(r->description);
    free(r->space);
    free(r->image);
    free(r->backend);
    free(r->reason);
    free(r->message);
    memset(r, 0, sizeof *r);
}

void snap_page_done(struct snap_page *p) {
    for (size_t i = 0; i < p->n; i++)
        snap_row_done(&p->rows[i]);
    free(p->rows);
    memset(p, 0, sizeof *p);
}

void snap_time_format(int64_t us, char ret[SNAP_TIME_SIZE]) {
    rfc3339_format(us, ret);
    size_t n = strlen(ret);
    if (n && ret[n - 1] == 'Z')
        str_copy(ret + n - 1, SNAP_TIME_SIZE - n + 1, "+00:00");
}

int64_t snap_time_parse(const char *text) {
    int64_t us;
    return text && rfc3339_parse(text, &us) == 0 ? us : 0;
}

char *snap_restore_format(const char *backend, const char *image) {
    _cleanup_json_ json_t *o = json_pack("{s:s?,s:s?}", "backend", backend, "image", image);
    return o ? json_dumps(o, JSON_SORT_KEYS | JSON_ENSURE_ASCII) : NULL;
}

static int copy_member(const json_t *o, const char *key, char **ret) {
    const char *s = json_str(o, key);
    if (s && !(*ret = strdup(s)))
        return -ENOMEM;
    return 0;
}

int snap_restore_parse(const char *text, struct snap_row *row) {
    _cleanup_json_ json_t *o = json_parse(text, strlen(text), NULL);
    int r;

    if (!json_is_object(o))
        return -EINVAL;
    if ((r = copy_member(o, "backend", &row->backend)) < 0)
        return r;
    return copy_member(o, "image", &row->image);
}

size_t snap_where(const struct snap_query *q, struct buf *out,
                  const char *ret_values[SNAP_MAX_PARAMS]) {
    const char *word = " WHERE ";
    size_t n = 0;

    if (q->sandbox_id) {
        ret_values[n++] = q->sandbox_id;
        buf_printf(out, "%ssource_sandbox_id=$%zu", word, n);
        word = " AND ";
    }
    if (q->name) {
        ret_values[n++] = q->name;
        buf_printf(out, "%sname=$%zu", word, n);
        word = " AND ";
    }
    if (q->states) {
        buf_printf(out, "%sstate IN (", word);
        size_t first = n;
        for (enum snap_state s = SNAP_CREATING; s < SNAP_OTHER; s++) {
            if (!(q->states & 1u << s))
                continue;
            ret_values[n++] = names[s];
            buf_printf(out, "%s$%zu", n - first > 1 ? "," : "", n);
        }
        buf_str(out, n == first ? "NULL)" : ")"); /* only words that no row has */
    }
    return n;
}

int snapdb_insert(struct snapdb *db, const struct snap_row *row, struct err *err) {
    return db->ops->insert(db, row, err);
}

int snapdb_get(struct snapdb *db, const char *id, struct snap_row *ret, struct err *err) {
    return db->ops->get(db, id, ret, err);
}

int snapdb_change(struct snapdb *db, const char *id, enum snap_state from,
                  const struct snap_change *c, struct err *err) {
    return db->ops->change(db, id, from, c, err);
}

int snapdb_remove(struct snapdb *db, const char *id, enum snap_state from, struct err *err) {
    return db->ops->remove(db, id, from, err);
}

int snapdb_list(struct snapdb *db, const struct snap_query *q, struct snap_page *ret,
                struct err *err) {
    return db->ops->list(db, q, ret, err);
}

void snapdb_close(struct snapdb *db) {
    if (db)
        db->ops->free(db);
}
