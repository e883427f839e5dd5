/*
 * Diagnostics for people (plain text) and, with `scope`, the stable JSON form. What there is to see
 * comes from the driver through the service; the words are in diagnostics_text.c. Loop thread.
 */
#include "daemon/api/opensandbox/diagnostics.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/api/opensandbox/bodies.h"

#define TEXT "text/plain; charset=utf-8"
#define SCOPE_LOG_LINES 100
#define SCOPE_EVENT_LINES 50
#define MAX_TEXT ((size_t)8 << 20)

#define TAIL(name_, dflt_) \
    { .name = name_, .type = F_INT, .dflt = dflt_, .min = 1, .max = 10000, .help = "Lines." }
#define LIMIT(name_, dflt_) \
    { .name = name_, .type = F_INT, .dflt = dflt_, .min = 1, .max = 500, .help = "Events." }
#define SCOPE(words) \
    { .name = "scope", .type = F_STRING, .help = "Asks for the JSON form: " words "." }

const struct param logs_params[] = {
    SCOPE("container or all"),
    TAIL("tail", 100),
    {.name = "since", .type = F_STRING, .help = "How far back: a number and s, m, h or d."},
    {.name = "container", .type = F_STRING, .help = "Ignored: a sandbox has one."},
    {0},
};
const struct param events_params[] = {SCOPE("runtime or all"), LIMIT("limit", 50), {0}};
const struct param inspect_params[] = {{0}};
const struct param summary_params[] = {TAIL("tail", 50), LIMIT("event_limit", 20), {0}};

/* One call under way. */
struct diag {
    struct xch *x;
    json_t *query, *details;
    char id[SANDBOX_ID_MAX + 1];
    char scope[32]; /* normalised; "" = the plain form */
    enum fault details_fault;
    struct err details_err;
    void (*then)(struct diag *d); /* what is done with the details */
};

static void diag_end(struct diag *d) {
    xch_release(d->x);
    json_decref(d->query);
    json_decref(d->details);
    free(d);
}

/* ---- queries and shared answers ---- */

/* Trims and lowers the scope; false: not one of the two, answered. */
static bool check_scope(struct xch *x, const char *asked, const char *kind, const char *own,
                        char *ret, size_t size) {
    const char *p = asked + strspn(asked, " \t\r\n");
    size_t n = strlen(p);

    while (n && strchr(" \t\r\n", p[n - 1]))
        n--;
    snprintf(ret, size, "%.*s", (int)MIN(n, size), p);
    for (char *c = ret; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    if (strcmp(ret, own) == 0 || strcmp(ret, "all") == 0)
        return true;
    xch_error(x, 400, "DIAGNOSTICS_SCOPE_UNSUPPORTED",
              "Unsupported %s diagnostics scope '%.200s'. Supported scopes: %s, all.", kind, asked,
              own);
    return false;
}

/* NULL: answered. kind and own scope NULL: no scopes here. */
static struct diag *diag_new(struct call *c, const struct param *params, const char *kind,
                             const char *own) {
    json_t *query = take_query(c->x, params);
    const char *scope = json_str(query, "scope");
    struct diag *d = query ? calloc(1, sizeof *d) : NULL;

    if (!query)
        return NULL;
    if (!d ||
        (scope && kind && own && !check_scope(c->x, scope, kind, own, d->scope, sizeof d->scope))) {
        if (!d)
            xch_error(c->x, 500, CODE_UNKNOWN, "out of memory");
        json_decref(query);
        free(d);
        return NULL;
    }
    d->x = c->x;
    d->query = query;
    str_copy(d->id, sizeof d->id, c->m->params[0]);
    xch_hold(c->x);
    return d;
}

/* The sandbox may have gone while the driver was asked. */
static const struct sandbox *sandbox_of(struct diag *d) {
    const struct sandbox *sb = service_get(d->x->api->o.service, d->id);

    if (!sb)
        answer_not_found(d->x, d->id);
    return sb;
}

static void on_details(enum fault f, const struct err *err, const json_t *details, void *ud) {
    struct diag *d = ud;

    d->details_fault = f;
    if (f && err)
        d->details_err = *err;
    d->details = json_incref((json_t *)details);
    d->then(d);
}

static void ask_details(struct diag *d, void (*then)(struct diag *d)) {
    d->then = then;
    service_describe(d->x->api->o.service, d->id, on_details, d);
}

/* false: answered */
static bool has_details(struct diag *d, const struct sandbox *sb) {
    if (d->details_fault) {
        answer_fault(d->x, d->details_fault, &d->details_err);
        return false;
    }
    if (!d->details)
        d->details = diag_own_details(sb);
    return true;
}

static void answer_scope(struct diag *d, const char *kind, const char *content, bool truncated,
                         const char *warning) {
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:s,s:I}", "sandboxId", d->id, "kind", kind, "scope",
                  d->scope, "delivery", "inline", "contentType", TEXT, "truncated", truncated,
                  "content", content, "contentLength", (json_int_t)strlen(content));
    if (o && strcmp(d->scope, "all") == 0)
        json_object_set_new(o, "warnings", json_pack("[s]", warning));
    xch_json(d->x, 200, o);
}

static void deprecated(struct xch *x) {
    x->extra[x->n_extra++] = (struct h1_header){"Deprecation", "true"};
}

static void answer_text(struct xch *x, struct buf *b) {
    if (buf_ok(b))
        xch_respond(x, 200, TEXT, b->data, b->len);
    else
        xch_error(x, 500, CODE_UNKNOWN, "out of memory");
}

/* ---- logs ---- */

/* Last lines of a log in good form; malloc'd. lines 0 = all that came. */
static char *shown_log(const char *raw, int64_t lines, bool *ret_truncated) {
    bool more = false, cut;
    const char *from = diag_last_bytes(raw, DIAG_MAX_LOG, &cut);

    if (lines)
        from = diag_last_lines(from, lines, &more);
    *ret_truncated = more || cut;
    return *from ? diag_to_utf8(from) : strdup("(no logs)");
}

static void on_logs(enum fault f, const struct err *err, const char *text, void *ud) {
    struct diag *d = ud;
    bool truncated;

    if (f) {
        answer_fault(d->x, f, err);
        diag_end(d);
        return;
    }
    _cleanup_free_ char *shown = shown_log(text, *d->scope ? SCOPE_LOG_LINES : 0, &truncated);
    if (!shown) {
        xch_error(d->x, 500, CODE_UNKNOWN, "out of memory");
    } else if (*d->scope) {
        answer_scope(
            d, "logs", shown, truncated,
            "The current backend only contributes sandbox container logs to the all scope.");
    } else {
        deprecated(d->x);
        xch_respond(d->x, 200, TEXT, shown, strlen(shown));
    }
    diag_end(d);
}

void op_logs(struct call *c) {
    struct diag *d = diag_new(c, logs_params, "logs", "container");

    if (!d)
        return;
    const char *since = *d->scope ? NULL : json_str(d->query, "since");
    struct log_query q = {
        .tail = *d->scope ? SCOPE_LOG_LINES + 1 : (unsigned)json_int(d->query, "tail", 100),
        .timestamps = true,
        .since_us = since ? clock_wall_us() - diag_parse_since(since) * 1000000 : 0,
    };
    service_logs(d->x->api->o.service, d->id, &q, on_logs, d);
}

/* ---- inspect, events ---- */

static void then_inspect(struct diag *d) {
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_TEXT);
    const struct sandbox *sb = sandbox_of(d);

    if (sb && has_details(d, sb)) {
        diag_put_inspect(&b, d->details, sb);
        answer_text(d->x, &b);
    }
    diag_end(d);
}

void op_inspect(struct call *c) {
    struct diag *d = diag_new(c, inspect_params, NULL, NULL);

    if (d)
        ask_details(d, then_inspect);
}

/* Ends the text after n lines; true: there were more. */
static bool cut_lines(struct buf *b, int n) {
    for (size_t i = 0; i < b->len; i++)
        if (b->data[i] == '\n' && --n == 0) {
            bool more = i + 1 < b->len;
            b->data[i + 1] = '\0';
            b->len = i + 1;
            return more;
        }
    return false;
}

static void then_events(struct diag *d) {
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_TEXT);
    const struct sandbox *sb = sandbox_of(d);

    if (sb && has_details(d, sb)) {
        diag_put_events(&b, d->details, sb,
                        *d->scope ? SCOPE_EVENT_LINES : json_int(d->query, "limit", 50));
        if (*d->scope && buf_ok(&b)) {
            bool more = cut_lines(&b, SCOPE_EVENT_LINES);
            answer_scope(d, "events", b.data, more,
                         "The current backend only contributes runtime events to the all scope.");
        } else {
            deprecated(d->x);
            answer_text(d->x, &b);
        }
    }
    diag_end(d);
}

void op_events(struct call *c) {
    struct diag *d = diag_new(c, events_params, "events", "runtime");

    if (d)
        ask_details(d, then_events);
}

/* ---- summary ---- */

static void rule(struct buf *b, char ch, int n) {
    for (int i = 0; i < n; i++)
        buf_char(b, ch);
    buf_char(b, '\n');
}

static void section(struct buf *b, const char *title) {
    buf_printf(b, "\n%s\n", title);
    rule(b, '-', 40);
}

static void on_summary_logs(enum fault f, const struct err *err, const char *text, void *ud) {
    struct diag *d = ud;
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_TEXT);
    const struct sandbox *sb = sandbox_of(d);
    char title[48];
    bool truncated;

    if (!sb) {
        diag_end(d);
        return;
    }
    if (!d->details && !d->details_fault)
        d->details = diag_own_details(sb);
    rule(&b, '=', 72);
    buf_printf(&b, "SANDBOX DIAGNOSTICS SUMMARY: %s\n", d->id);
    rule(&b, '=', 72);
    section(&b, "INSPECT");
    if (d->details)
        diag_put_inspect(&b, d->details, sb);
    else
        buf_str(&b, "[error: the runtime could not be asked]\n");
    section(&b, "EVENTS");
    if (d->details)
        diag_put_events(&b, d->details, sb, json_int(d->query, "event_limit", 20));
    else
        buf_str(&b, "[error: the runtime could not be asked]\n");
    snprintf(title, sizeof title, "LOGS (last %lld lines)",
             (long long)json_int(d->query, "tail", 50));
    section(&b, title);
    _cleanup_free_ char *shown = f ? NULL : shown_log(text, 0, &truncated);
    buf_printf(&b, "%s\n", shown ? shown : "[error: the log could not be read]");
    answer_text(d->x, &b);
    diag_end(d);
}

static void then_summary(struct diag *d) {
    struct log_query q = {.tail = (unsigned)json_int(d->query, "tail", 50), .timestamps = true};

    if (d->details_fault == FAULT_NOT_FOUND) {
        answer_fault(d->x, FAULT_NOT_FOUND, &d->details_err);
        diag_end(d);
        return;
    }
    service_logs(d->x->api->o.service, d->id, &q, on_summary_logs, d);
}

void op_summary(struct call *c) {
    struct diag *d = diag_new(c, summary_params, NULL, NULL);

    if (d)
        ask_details(d, then_summary);
}
