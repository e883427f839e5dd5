/* Snapshots: create, get, list, delete. Loop thread. */
#include "daemon/sandbox/snapshots.h"

#include <errno.h>
#include <string.h>

#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"

#define PAGE_SIZE_MAX 200

static void set_text(json_t *o, const char *key, const char *value) {
    if (value)
        json_object_set_new(o, key, json_string(value));
}

static json_t *render(const struct snap_row *row) {
    json_t *status = json_pack("{s:s}", "state", snap_state_name(row->state));
    json_t *o = json_pack("{s:s,s:s}", "id", row->id, "sandboxId", row->sandbox_id);

    set_text(o, "name", row->name);
    set_text(status, "reason", row->reason);
    set_text(status, "message", row->message);
    if (row->changed_us)
        render_time(status, "lastTransitionAt", row->changed_us);
    json_object_set_new(o, "status", status);
    render_time(o, "createdAt", row->created_us);
    return o;
}

/* ---- create ---- */

static const struct schema create_schema = {
    .fields = (const struct field[]){
        {.name = "name", .type = F_STRING, .flags = FIELD_MIN, .min = 1},
        {0},
    }};

static void on_created(enum fault f, const struct err *err, const struct snap_row *row, void *ud) {
    struct xch *x = ud;

    if (f) {
        answer_fault(x, f, err);
    } else if (x->req) {
        x->extra_text = str_printf("/v1/snapshots/%s", row->id);
        if (x->extra_text)
            x->extra[x->n_extra++] = (struct h1_header){"Location", x->extra_text};
        xch_json(x, 202, render(row));
    }
    xch_release(x);
}

static void create_body(struct xch *x, const char *data, size_t len) {
    bool has_body = len > 0 && !(len == 4 && memcmp(data, "null", 4) == 0);
    json_t *detail = json_array();
    _cleanup_json_ json_t *in =
        has_body ? schema_check_body(&create_schema, data, len, detail) : json_object();

    if (!in) {
        xch_violations(x, detail);
        return;
    }
    json_decref(detail);
    xch_hold(x);
    service_snapshot_create(x->api->o.service, x->id, json_str(in, "name"), on_created, x);
}

void op_snapshot_create(struct call *c) {
    if (keep_id(c))
        xch_collect(c->x, create_body);
}

/* ---- get, delete ---- */

static void on_got(enum fault f, const struct err *err, const struct snap_row *row, void *ud) {
    struct xch *x = ud;
    if (f)
        answer_fault(x, f, err);
    else
        xch_json(x, 200, render(row));
    xch_release(x);
}

static void on_deleted(enum fault f, const struct err *err, const struct snap_row *row, void *ud) {
    struct xch *x = ud;
    if (f)
        answer_fault(x, f, err);
    else
        xch_empty(x, 204);
    xch_release(x);
}

void op_snapshot_get(struct call *c) {
    xch_hold(c->x);
    service_snapshot_get(c->x->api->o.service, c->m->params[0], on_got, c->x);
}

void op_snapshot_delete(struct call *c) {
    xch_hold(c->x);
    service_snapshot_delete(c->x->api->o.service, c->m->params[0], on_deleted, c->x);
}

/* ---- list ---- */

struct paging {
    struct xch *x;
    int64_t page, size;
};

static json_t *pagination(const struct paging *p, int64_t total) {
    int64_t pages = (total + p->size - 1) / p->size;
    return json_pack("{s:I,s:I,s:I,s:I,s:b}", "page", (json_int_t)p->page, "pageSize",
                     (json_int_t)p->size, "totalItems", (json_int_t)total, "totalPages",
                     (json_int_t)pages, "hasNextPage", p->page < pages);
}

static void on_listed(enum fault f, const struct err *err, const struct snap_page *page, void *ud) {
    struct paging *p = ud;
    struct xch *x = p->x;

    if (f) {
        answer_fault(x, f, err);
    } else {
        json_t *items = json_array();
        for (size_t i = 0; i < page->n; i++)
            json_array_append_new(items, render(&page->rows[i]));
        xch_json(x, 200,
                 json_pack("{s:o,s:o}", "items", items, "pagination", pagination(p, page->total)));
    }
    free(p);
    xch_release(x);
}

/* States are matched by their exact words; an unknown one matches nothing. */
static unsigned asked_states(const struct query *q) {
    unsigned states = 0;
    for (size_t i = 0; i < q->keys.n; i++)
        if (str_eq(q->keys.v[i], "state"))
            states |= 1u << snap_state_of(q->values.v[i]);
    return states;
}

static void list(struct xch *x, const struct query *raw, const struct paging *asked) {
    const char *sandbox = query_get(raw, "sandboxId");
    struct paging *p = malloc(sizeof *p);
    struct snap_query q = {
        .sandbox_id = str_is_empty(sandbox) ? NULL : sandbox,
        .name = query_get(raw, "name"),
        .states = asked_states(raw),
        .skip = (asked->page - 1) * asked->size,
        .max = asked->size,
    };

    if (!p) {
        xch_error(x, 500, CODE_UNKNOWN, "out of memory");
        return;
    }
    *p = *asked;
    xch_hold(x);
    service_snapshot_list(x->api->o.service, &q, on_listed, p);
}

void op_snapshot_list(struct call *c) {
    const char *text = h1_req_query(c->x->req);
    json_t *detail = json_array();
    struct paging p = {.x = c->x};
    struct query raw = {0};

    query_parse(text, text ? strlen(text) : 0, &raw);
    p.page = param_int("query", "page", query_get(&raw, "page"), 1, 1, INT32_MAX, detail);
    p.size =
        param_int("query", "pageSize", query_get(&raw, "pageSize"), 20, 1, PAGE_SIZE_MAX, detail);
    if (json_array_size(detail) > 0) {
        xch_violations(c->x, detail);
    } else {
        json_decref(detail);
        list(c->x, &raw, &p);
    }
    query_done(&raw);
}
