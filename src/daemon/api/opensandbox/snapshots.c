/* Snapshots: create, get, list, delete. Loop thread. */
#include "daemon/sandbox/snapshots.h"

#include <errno.h>
#include <string.h>

#include "daemon/api/opensandbox/bodies.h"

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

const struct body_form snapshot_form = {"CreateSnapshotRequest", &create_schema,
                                        .is_optional = true};

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
    _cleanup_json_ json_t *in = take_body(x, &snapshot_form, data, len);

    if (!in)
        return;
    xch_hold(x);
    service_snapshot_create(x->api->o.service, x->memo, json_str(in, "name"), on_created, x);
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
static unsigned asked_states(const json_t *list) {
    unsigned states = 0;
    json_t *state;
    size_t i;

    json_array_foreach(list, i, state) {
        states |= 1u << snap_state_of(json_string_value(state));
    }
    return states;
}

const struct param snapshot_params[] = {
    {.name = "sandboxId", .type = F_STRING, .help = "Only those of this sandbox."},
    {.name = "name", .type = F_STRING, .help = "Only those of exactly this name."},
    {.name = "state",
     .type = F_STRING,
     .is_repeated = true,
     .help = "Only those in one of these states."},
    {.name = "page", .type = F_INT, .dflt = 1, .min = 1, .max = INT32_MAX},
    {.name = "pageSize", .type = F_INT, .dflt = 20, .min = 1, .max = PAGE_SIZE_MAX},
    {0},
};

void op_snapshot_list(struct call *c) {
    _cleanup_json_ json_t *in = take_query(c->x, snapshot_params);
    const char *sandbox = json_str(in, "sandboxId");
    struct paging *p = in ? malloc(sizeof *p) : NULL;

    if (!in)
        return;
    if (!p) {
        xch_error(c->x, 500, CODE_UNKNOWN, "out of memory");
        return;
    }
    *p = (struct paging){
        .x = c->x, .page = json_int(in, "page", 1), .size = json_int(in, "pageSize", 20)};
    struct snap_query q = {
        .sandbox_id = str_is_empty(sandbox) ? NULL : sandbox,
        .name = json_str(in, "name"),
        .states = asked_states(json_object_get(in, "state")),
        .skip = (p->page - 1) * p->size,
        .max = p->size,
    };
    xch_hold(c->x);
    service_snapshot_list(c->x->api->o.service, &q, on_listed, p);
}
