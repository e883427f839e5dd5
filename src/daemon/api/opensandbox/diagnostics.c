/*
 * Diagnostics for people (plain text) and, with `scope`, the stable JSON form. Secrets never
 * appear: variables whose name smells of one are masked. Loop thread.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/api/opensandbox/dialect.h"
#include "daemon/api/schema.h"

#define TEXT "text/plain; charset=utf-8"
#define SCOPE_LOG_LINES 100
#define SCOPE_EVENT_LINES 50
#define MAX_TEXT ((size_t)8 << 20)

struct diag_query {
    bool has_scope;
    char scope[32];
    int64_t tail, limit;
};

/* ---- texts ---- */

static bool is_secret_name(const char *name, size_t len) {
    static const char *const words[] = {"SECRET", "TOKEN", "PASSWORD", "KEY"};
    char upper[128];

    len = MIN(len, sizeof upper - 1);
    for (size_t i = 0; i < len; i++)
        upper[i] = (char)toupper((unsigned char)name[i]);
    upper[len] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strstr(upper, words[i]))
            return true;
    return false;
}

static void line_time(struct buf *b, const char *label, int64_t us) {
    char text[RFC3339_SIZE];
    if (!us)
        return;
    rfc3339_format(us, text);
    buf_printf(b, "%-12s%s\n", label, text);
}

static void write_environment(struct buf *b, const struct sandbox *sb) {
    buf_str(b, "\nEnvironment:\n");
    for (size_t i = 0; i < sb->spec.env.n; i++) {
        const char *entry = sb->spec.env.v[i];
        size_t n = strcspn(entry, "=");
        if (is_secret_name(entry, n))
            buf_printf(b, "  %.*s=***\n", (int)n, entry);
        else
            buf_printf(b, "  %s\n", entry);
    }
}

static void write_resources(struct buf *b, const struct sandbox_spec *s) {
    if (!s->cpu_millis && !s->memory_bytes && !s->pids && !s->disk_bytes)
        return;
    buf_str(b, "\nResources:\n");
    if (s->cpu_millis)
        buf_printf(b, "  cpu: %.2f cores\n", (double)s->cpu_millis / 1000.0);
    if (s->memory_bytes)
        buf_printf(b, "  memory: %llu MiB\n", (unsigned long long)(s->memory_bytes >> 20));
    if (s->pids)
        buf_printf(b, "  pids: %llu\n", (unsigned long long)s->pids);
    if (s->disk_bytes)
        buf_printf(b, "  disk: %llu MiB\n", (unsigned long long)(s->disk_bytes >> 20));
}

static void write_inspect(struct buf *b, struct api *a, const struct sandbox *sb) {
    const struct sandbox_spec *s = &sb->spec;
    enum sandbox_state st = sandbox_state_of(sb);
    const char *key;
    json_t *v;

    buf_printf(b, "%-12s%s\n%-12s%s\n%-12s%s\n", "ID:", s->id, "Image:", s->image,
               "Driver:", service_driver_name(a->o.service));
    buf_printf(b, "%-12s%s\n%-12s%s\n%-12s%s\n", "Status:", render_state(st),
               "Running:", st == SB_RUNNING || st == SB_PAUSED ? "true" : "false",
               "Paused:", st == SB_PAUSED ? "true" : "false");
    buf_printf(b, "%-12s%s\n%-12s%d\n", "OOMKilled:", sb->oom_killed ? "true" : "false",
               "ExitCode:", sb->exit_code);
    line_time(b, "Created:", sb->created_us);
    line_time(b, "Started:", sb->started_us);
    line_time(b, "Finished:", sb->finished_us);
    line_time(b, "Expires:", sb->expires_us);
    write_resources(b, s);
    buf_printf(b, "\nNetwork:\n  mode: %s\n", s->net == NET_NAT ? "nat" : "none");
    for (size_t i = 0; i < s->n_mounts; i++)
        buf_printf(b, "%s  %s -> %s (%s)\n", i ? "" : "\nMounts:\n", s->mounts[i].source,
                   s->mounts[i].target, s->mounts[i].read_only ? "ro" : "rw");
    if (json_object_size(sb->metadata))
        buf_str(b, "\nMetadata:\n");
    json_object_foreach(sb->metadata, key, v) {
        buf_printf(b, "  %s: %s\n", key, json_string_value(v));
    }
    write_environment(b, sb);
}

/* Returns the number of lines. */
static int64_t write_events(struct buf *b, const struct sandbox *sb, int64_t limit) {
    char at[RFC3339_SIZE];
    int64_t n = 0;

#define EVENT(us, ...)              \
    if (n < limit) {                \
        rfc3339_format(us, at);     \
        buf_printf(b, "%s  ", at);  \
        buf_printf(b, __VA_ARGS__); \
        buf_char(b, '\n');          \
        n++;                        \
    }
    EVENT(sb->created_us, "created  sandbox %s from %s", sb->spec.id, sb->spec.image)
    EVENT(sb->started_us, "started")
    if (sb->oom_killed)
        EVENT(sb->finished_us, "oom  out of memory")
    if (sb->state == SB_TERMINATED || sb->state == SB_FAILED)
        EVENT(sb->finished_us, "ended  exit code %d", sb->exit_code)
    if (sb->state == SB_LOST)
        EVENT(sb->changed_us, "lost  the machine or its runtime was restarted")
    if (sb->state == SB_PAUSED)
        EVENT(sb->changed_us, "paused")
#undef EVENT
    if (n <= 2 && n < limit)
        buf_str(b, "(no notable events)\n");
    return n;
}

/* ---- queries and shared answers ---- */

static bool read_query(struct call *c, const char *tail_name, int64_t tail, int64_t limit,
                       const char *limit_name, struct diag_query *ret) {
    struct query raw = {0};
    const char *text = h1_req_query(c->x->req), *scope;
    json_t *detail = json_array();

    query_parse(text, text ? strlen(text) : 0, &raw);
    ret->tail = param_int("query", tail_name, query_get(&raw, tail_name), tail, 1, 10000, detail);
    ret->limit = param_int("query", limit_name, query_get(&raw, limit_name), limit, 1, 500, detail);
    scope = query_get(&raw, "scope");
    if (scope) {
        ret->has_scope = true;
        str_copy(ret->scope, sizeof ret->scope, scope);
    }
    query_done(&raw);
    if (json_array_size(detail) > 0) {
        xch_violations(c->x, detail);
        return false;
    }
    json_decref(detail);
    return true;
}

/* Trims and lowers q->scope; false: not one of the two, answered. */
static bool check_scope(struct xch *x, struct diag_query *q, const char *kind, const char *own) {
    char clean[sizeof q->scope];
    size_t n = 0;

    for (const char *p = q->scope + strspn(q->scope, " \t"); *p; p++)
        clean[n++] = (char)tolower((unsigned char)*p);
    while (n && strchr(" \t", clean[n - 1]))
        n--;
    clean[n] = '\0';
    if (strcmp(clean, own) != 0 && strcmp(clean, "all") != 0) {
        xch_error(x, 400, "DIAGNOSTICS_SCOPE_UNSUPPORTED",
                  "Unsupported %s diagnostics scope '%s'. Supported scopes: %s, all.", kind,
                  q->scope, own);
        return false;
    }
    str_copy(q->scope, sizeof q->scope, clean);
    return true;
}

static struct sandbox *find(struct call *c) {
    struct err err = {0};
    struct sandbox *sb = service_get(c->x->api->o.service, c->m->params[0]);

    if (!sb) {
        err_set(&err, -ENOENT, "Sandbox %.100s not found.", c->m->params[0]);
        answer_fault(c->x, FAULT_NOT_FOUND, &err);
    }
    return sb;
}

static void answer_scope(struct xch *x, const char *id, const char *kind, const char *scope,
                         const char *content, bool truncated, const char *warning) {
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:s,s:I}", "sandboxId", id, "kind", kind, "scope",
                  scope, "delivery", "inline", "contentType", TEXT, "truncated", truncated,
                  "content", content, "contentLength", (json_int_t)strlen(content));
    if (o && strcmp(scope, "all") == 0)
        json_object_set_new(o, "warnings", json_pack("[s]", warning));
    xch_json(x, 200, o);
}

static void deprecated(struct xch *x) {
    x->extra[x->n_extra++] = (struct h1_header){"Deprecation", "true"};
}

/* Valid UTF-8: every bad byte becomes U+FFFD. */
static char *to_utf8(const char *s) {
    struct buf b = BUF_INIT(MAX_TEXT);
    size_t len = strlen(s);

    for (size_t i = 0; i < len;) {
        int n = utf8_next(s + i, len - i);
        if (n > 0)
            buf_append(&b, s + i, (size_t)n);
        else
            buf_str(&b, "\xef\xbf\xbd");
        i += n > 0 ? (size_t)n : 1;
    }
    char *r = buf_take(&b, NULL);
    buf_done(&b);
    return r;
}

/* ---- logs ---- */

struct logs_call {
    struct xch *x;
    struct diag_query q;
    char id[SANDBOX_ID_MAX + 1];
};

/* Start of the last n lines; *ret_more: there were others before. */
static const char *last_lines(const char *s, int64_t n, bool *ret_more) {
    const char *p = s + strlen(s);
    if (p > s && p[-1] == '\n')
        p--;
    while (p > s && !(p[-1] == '\n' && --n <= 0))
        p--;
    *ret_more = p > s;
    return p;
}

static void on_logs(enum fault f, const struct err *err, const char *text, void *ud) {
    struct logs_call *l = ud;
    struct xch *x = l->x;

    if (f) {
        answer_fault(x, f, err);
    } else {
        _cleanup_free_ char *clean = to_utf8(text);
        bool more = false;
        const char *shown = clean ? clean : "(log too large)\n";
        if (l->q.has_scope)
            shown = last_lines(shown, SCOPE_LOG_LINES, &more);
        if (!*shown)
            shown = "(no logs)";
        if (l->q.has_scope) {
            answer_scope(
                x, l->id, "logs", l->q.scope, shown, more,
                "The current backend only contributes sandbox container logs to the all scope.");
        } else {
            deprecated(x);
            xch_respond(x, 200, TEXT, shown, strlen(shown));
        }
    }
    xch_release(x);
    free(l);
}

static void begin_logs(struct call *c, const struct diag_query *q, unsigned tail, text_cb cb) {
    struct logs_call *l = calloc(1, sizeof *l);

    if (!l) {
        xch_error(c->x, 500, CODE_UNKNOWN, "out of memory");
        return;
    }
    l->x = c->x;
    l->q = *q;
    str_copy(l->id, sizeof l->id, c->m->params[0]);
    xch_hold(c->x);
    service_logs(c->x->api->o.service, l->id, &(struct log_query){.tail = tail}, cb, l);
}

void op_logs(struct call *c) {
    struct diag_query q = {0};

    if (!read_query(c, "tail", 100, 50, "limit", &q) ||
        (q.has_scope && !check_scope(c->x, &q, "logs", "container")))
        return;
    begin_logs(c, &q, q.has_scope ? SCOPE_LOG_LINES + 1 : (unsigned)q.tail, on_logs);
}

/* ---- inspect, events, summary ---- */

static void answer_text(struct xch *x, struct buf *b) {
    if (buf_ok(b))
        xch_respond(x, 200, TEXT, b->data, b->len);
    else
        xch_error(x, 500, CODE_UNKNOWN, "out of memory");
}

void op_inspect(struct call *c) {
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_TEXT);
    struct sandbox *sb = find(c);

    if (sb) {
        write_inspect(&b, c->x->api, sb);
        answer_text(c->x, &b);
    }
}

void op_events(struct call *c) {
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_TEXT);
    struct diag_query q = {0};

    if (!read_query(c, "tail", 100, 50, "limit", &q) ||
        (q.has_scope && !check_scope(c->x, &q, "events", "runtime")))
        return;
    struct sandbox *sb = find(c);
    if (!sb)
        return;
    write_events(&b, sb, q.has_scope ? SCOPE_EVENT_LINES : q.limit);
    if (q.has_scope) {
        answer_scope(c->x, sb->spec.id, "events", q.scope, b.data ? b.data : "", false,
                     "The current backend only contributes runtime events to the all scope.");
        return;
    }
    deprecated(c->x);
    answer_text(c->x, &b);
}

static void rule(struct buf *b, char ch, int n) {
    for (int i = 0; i < n; i++)
        buf_char(b, ch);
    buf_char(b, '\n');
}

static void on_summary(enum fault f, const struct err *err, const char *text, void *ud) {
    struct logs_call *l = ud;
    struct xch *x = l->x;
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_TEXT);
    struct sandbox *sb = service_get(x->api->o.service, l->id);

    if (f == FAULT_NOT_FOUND || !sb) {
        answer_fault(x, FAULT_NOT_FOUND, err);
    } else {
        rule(&b, '=', 72);
        buf_printf(&b, "Sandbox %s\n", l->id);
        rule(&b, '=', 72);
        buf_str(&b, "\nINSPECT\n");
        rule(&b, '-', 40);
        write_inspect(&b, x->api, sb);
        buf_str(&b, "\nEVENTS\n");
        rule(&b, '-', 40);
        write_events(&b, sb, l->q.limit);
        buf_printf(&b, "\nLOGS (last %lld lines)\n", (long long)l->q.tail);
        rule(&b, '-', 40);
        _cleanup_free_ char *clean = f ? NULL : to_utf8(text);
        buf_printf(&b, "%s\n",
                   f                 ? "[error: the log could not be read]"
                   : clean && *clean ? clean
                                     : "(no logs)");
        answer_text(x, &b);
    }
    xch_release(x);
    free(l);
}

void op_summary(struct call *c) {
    struct diag_query q = {0};

    if (read_query(c, "tail", 50, 20, "event_limit", &q))
        begin_logs(c, &q, (unsigned)q.tail, on_summary);
}
