/* Create, list, get, delete, pause, resume, renew, metadata. Loop thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"

#define PAGE_SIZE_MAX 200

/* ---- create ---- */

/* "name;dur=1.2, ..." of the steps of a create. */
static void add_timing(struct xch *x, const struct step_times *steps) {
    _cleanup_buf_ struct buf b = BUF_INIT(4096);

    for (size_t i = 0; i < steps->n; i++)
        buf_printf(&b, "%s%s;dur=%.3f", i ? ", " : "", steps->t[i].name,
                   (double)steps->t[i].us / 1000.0);
    x->extra_text = buf_take(&b, NULL);
    if (x->extra_text && *x->extra_text)
        x->extra[x->n_extra++] = (struct h1_header){"Server-Timing", x->extra_text};
}

static void forget(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    if (f)
        log_warn("cannot remove a sandbox whose client has gone", LOG_ERR(err));
}

static void on_created(enum fault f, const struct err *err, struct sandbox *sb,
                       const struct step_times *steps, void *ud) {
    struct xch *x = ud;

    if (f) {
        answer_fault(x, f, err);
    } else if (x->req) {
        json_t *body = render_created(sb);
        json_object_set(body, "metadata", sb->metadata);
        if (json_object_size(sb->metadata) == 0 && !x->id)
            json_object_del(body, "metadata");
        add_timing(x, steps);
        xch_json(x, 202, body);
    } else if (!sb->expires_us) {
        /* nobody knows its name and nothing would ever end it */
        service_delete(x->api->o.service, sb->spec.id, forget, NULL);
    }
    xch_release(x);
}

static void create_body(struct xch *x, const char *data, size_t len) {
    struct create_request rq;
    json_t *detail = json_array();

    if (!parse_create(data, len, &rq, detail)) {
        xch_violations(x, detail);
        return;
    }
    json_decref(detail);
    h1_req_end_with_client(x->req); /* on_created must know whether somebody still waits */
    rq.is_operator = x->is_operator;
    if (rq.metadata)
        x->id = strdup(""); /* remembers that a map was given: it is echoed even when it is empty */
    xch_hold(x);
    service_create(x->api->o.service, &rq, on_created, x);
}

void op_create(struct call *c) {
    xch_collect(c->x, create_body);
}

/* ---- get, list ---- */

static void not_found(struct xch *x, const char *id) {
    struct err err = {0};
    err_set(&err, -ENOENT, "Sandbox %.100s not found.", id);
    answer_fault(x, FAULT_NOT_FOUND, &err);
}

void op_get(struct call *c) {
    struct sandbox *sb = service_get(c->x->api->o.service, c->m->params[0]);
    size_t len;

    if (!sb) {
        not_found(c->x, c->m->params[0]);
        return;
    }
    const char *text = render_sandbox(sb, &len);
    if (text)
        xch_json_text(c->x, 200, text, len);
    else
        xch_error(c->x, 500, CODE_UNKNOWN, "out of memory");
}

struct list_query {
    struct sandbox_filter filter;
    json_t *metadata;
    int64_t page, page_size;
};

/* false: answered already */
static bool read_list_query(struct xch *x, struct list_query *q) {
    struct query raw = {0};
    const char *text = h1_req_query(x->req);
    json_t *detail = json_array();
    bool malformed = false;

    query_parse(text, text ? strlen(text) : 0, &raw);
    q->page = param_int("query", "page", query_get(&raw, "page"), 1, 1, INT32_MAX, detail);
    q->page_size =
        param_int("query", "pageSize", query_get(&raw, "pageSize"), 20, 1, PAGE_SIZE_MAX, detail);
    for (size_t i = 0; i < raw.keys.n; i++)
        if (strcmp(raw.keys.v[i], "state") == 0)
            q->filter.states |=
                parse_states(raw.values.v[i]) | 1u << 31; /* an unknown word matches nothing */
    const char *filter = query_get(&raw, "metadata");
    if (filter && *filter) {
        q->metadata = parse_metadata_filter(filter);
        q->filter.metadata = q->metadata;
        malformed = !q->metadata;
    }
    query_done(&raw);
    if (json_array_size(detail) > 0) {
        xch_violations(x, detail);
        return false;
    }
    json_decref(detail);
    if (malformed)
        xch_error(x, 400, "INVALID_METADATA_FORMAT",
                  "Invalid metadata filter: expected form-encoded key=value pairs joined by '&'.");
    return !malformed;
}

static void add_pagination(struct buf *b, const struct list_query *q, size_t total) {
    int64_t pages = ((int64_t)total + q->page_size - 1) / q->page_size;
    buf_printf(
        b,
        "],\"pagination\":{\"page\":%lld,\"pageSize\":%lld,\"totalItems\":%zu,\"totalPages\":%lld,",
        (long long)q->page, (long long)q->page_size, total, (long long)pages);
    buf_printf(b, "\"hasNextPage\":%s}}", q->page < pages ? "true" : "false");
}

void op_list(struct call *c) {
    struct list_query q = {0};
    struct sandbox *page[PAGE_SIZE_MAX];
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    size_t total, len;

    if (!read_list_query(c->x, &q)) {
        json_decref(q.metadata);
        return;
    }
    size_t skip = (size_t)((q.page - 1) * q.page_size);
    size_t n =
        service_list(c->x->api->o.service, &q.filter, skip, (size_t)q.page_size, page, &total);
    buf_str(&b, "{\"items\":[");
    for (size_t i = 0; i < n; i++) {
        const char *text = render_sandbox(page[i], &len);
        if (!text)
            continue;
        if (i)
            buf_char(&b, ',');
        buf_append(&b, text, len);
    }
    add_pagination(&b, &q, total);
    json_decref(q.metadata);
    if (buf_ok(&b))
        xch_json_text(c->x, 200, b.data, b.len);
    else
        xch_error(c->x, 500, CODE_UNKNOWN, "out of memory");
}

/* ---- operations without a body ---- */

static void on_deleted(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    struct xch *x = ud;
    if (f)
        answer_fault(x, f, err);
    else
        xch_empty(x, 204);
    xch_release(x);
}

static void on_accepted(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    struct xch *x = ud;
    if (f)
        answer_fault(x, f, err);
    else
        xch_empty(x, 202);
    xch_release(x);
}

void op_delete(struct call *c) {
    xch_hold(c->x);
    service_delete(c->x->api->o.service, c->m->params[0], on_deleted, c->x);
}

void op_pause(struct call *c) {
    xch_hold(c->x);
    service_pause(c->x->api->o.service, c->m->params[0], on_accepted, c->x);
}

void op_resume(struct call *c) {
    xch_hold(c->x);
    service_resume(c->x->api->o.service, c->m->params[0], on_accepted, c->x);
}

/* ---- renew ---- */

static const struct schema renew_schema = {
    .fields = (const struct field[]){
        {.name = "expiresAt", .snake = "expires_at", .type = F_TIME, .flags = FIELD_REQUIRED},
        {0},
    }};

static void on_renewed(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    struct xch *x = ud;

    if (f) {
        answer_fault(x, f, err);
    } else {
        json_t *o = json_object();
        render_time(o, "expiresAt", sb->expires_us);
        xch_json(x, 200, o);
    }
    xch_release(x);
}

static void renew_body(struct xch *x, const char *data, size_t len) {
    json_t *detail = json_array();
    _cleanup_json_ json_t *in = schema_check_body(&renew_schema, data, len, detail);

    if (!in) {
        xch_violations(x, detail);
        return;
    }
    json_decref(detail);
    xch_hold(x);
    service_renew(x->api->o.service, x->id, json_int(in, "expiresAt", 0), on_renewed, x);
}

bool keep_id(struct call *c) {
    c->x->id = strdup(c->m->params[0]);
    if (!c->x->id)
        xch_error(c->x, 500, CODE_UNKNOWN, "out of memory");
    return c->x->id != NULL;
}

void op_renew(struct call *c) {
    if (keep_id(c))
        xch_collect(c->x, renew_body);
}

/* ---- metadata ---- */

static void on_patched(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    struct xch *x = ud;
    size_t len;

    if (f) {
        answer_fault(x, f, err);
    } else {
        const char *text = render_sandbox(sb, &len);
        if (text)
            xch_json_text(x, 200, text, len);
        else
            xch_error(x, 500, CODE_UNKNOWN, "out of memory");
    }
    xch_release(x);
}

/* The body itself is the map: checked as the one member of a wrapper. */
static const struct schema patch_schema = {
    .fields = (const struct field[]){
        {.name = "patch", .type = F_NULLABLE_MAP, .flags = FIELD_REQUIRED},
        {0},
    }};

static void patch_body(struct xch *x, const char *data, size_t len) {
    json_t *detail = json_array();
    json_t *in = schema_parse_body(data, len, detail);
    _cleanup_json_ json_t *loc = json_array();
    _cleanup_json_ json_t *wrapped = in ? json_pack("{s:o}", "patch", in) : NULL;
    _cleanup_json_ json_t *out = in ? schema_check(&patch_schema, wrapped, loc, detail) : NULL;

    if (json_array_size(detail) > 0) {
        size_t i;
        json_t *v;
        json_array_foreach(detail, i, v) { /* the body itself is the map */
            json_t *at = json_object_get(v, "loc");
            if (str_eq(json_string_value(json_array_get(at, 0)), "patch"))
                json_array_set_new(at, 0, json_string("body"));
        }
        xch_violations(x, detail);
        return;
    }
    json_decref(detail);
    xch_hold(x);
    service_patch_metadata(x->api->o.service, x->id, json_object_get(out, "patch"), on_patched, x);
}

void op_patch_metadata(struct call *c) {
    if (keep_id(c))
        xch_collect(c->x, patch_body);
}
