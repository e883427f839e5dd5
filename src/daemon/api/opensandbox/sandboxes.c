/* Create, list, get, delete, pause, resume, renew, metadata. Loop thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/opensandbox/bodies.h"

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
        if (json_object_size(sb->metadata) == 0 && !x->memo)
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
    struct err err = {0};
    json_t *detail = json_array();

    if (!parse_create(data, len, &rq, detail, &err)) {
        refuse_body(x, detail, &err);
        return;
    }
    json_decref(detail);
    h1_req_end_with_client(x->req); /* on_created must know whether somebody still waits */
    rq.is_operator = x->is_operator;
    if (rq.metadata)
        x->memo =
            strdup(""); /* remembers that a map was given: it is echoed even when it is empty */
    xch_hold(x);
    service_create(x->api->o.service, &rq, on_created, x);
}

void op_create(struct call *c) {
    xch_collect(c->x, create_body);
}

/* ---- get, list ---- */

void op_get(struct call *c) {
    struct sandbox *sb = service_get(c->x->api->o.service, c->m->params[0]);
    size_t len;

    if (!sb) {
        answer_not_found(c->x, c->m->params[0]);
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

const struct param list_params[] = {
    {.name = "state",
     .type = F_STRING,
     .is_repeated = true,
     .help = "Only sandboxes in one of these states, any case."},
    {.name = "metadata",
     .type = F_STRING,
     .help = "Pairs that must all be equal, form-encoded: k=v&k2=v2."},
    {.name = "page", .type = F_INT, .dflt = 1, .min = 1, .max = INT32_MAX},
    {.name = "pageSize", .type = F_INT, .dflt = 20, .min = 1, .max = PAGE_SIZE_MAX},
    {0},
};

/* false: answered already */
static bool read_list_query(struct xch *x, struct list_query *q) {
    _cleanup_json_ json_t *in = take_query(x, list_params);
    json_t *state;
    size_t i;

    if (!in)
        return false;
    q->page = json_int(in, "page", 1);
    q->page_size = json_int(in, "pageSize", 20);
    json_array_foreach(json_object_get(in, "state"), i, state) {
        q->filter.states |=
            parse_states(json_string_value(state)) | 1u << 31; /* an unknown word matches nothing */
    }
    const char *filter = json_str(in, "metadata");
    if (filter && *filter && !(q->metadata = parse_metadata_filter(filter))) {
        xch_error(x, 400, "INVALID_METADATA_FORMAT",
                  "Invalid metadata filter: expected form-encoded key=value pairs joined by '&'.");
        return false;
    }
    q->filter.metadata = q->metadata;
    return true;
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

const struct body_form renew_form = {"RenewSandboxExpirationRequest", &renew_schema};

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
    _cleanup_json_ json_t *in = take_body(x, &renew_form, data, len);

    if (!in)
        return;
    xch_hold(x);
    service_renew(x->api->o.service, x->memo, json_int(in, "expiresAt", 0), on_renewed, x);
}

bool keep_id(struct call *c) {
    c->x->memo = strdup(c->m->params[0]);
    if (!c->x->memo)
        xch_error(c->x, 500, CODE_UNKNOWN, "out of memory");
    return c->x->memo != NULL;
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

static const struct schema patch_schema = {
    .fields = (const struct field[]){
        {.name = "body", .type = F_NULLABLE_MAP, .flags = FIELD_REQUIRED},
        {0},
    }};
const struct body_form metadata_form = {"MetadataPatch", &patch_schema, .is_value = true};

static void patch_body(struct xch *x, const char *data, size_t len) {
    _cleanup_json_ json_t *in = take_body(x, &metadata_form, data, len);

    if (!in)
        return;
    xch_hold(x);
    service_patch_metadata(x->api->o.service, x->memo, json_object_get(in, "body"), on_patched, x);
}

void op_patch_metadata(struct call *c) {
    if (keep_id(c))
        xch_collect(c->x, patch_body);
}
