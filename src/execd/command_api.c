/* HTTP handlers of /command: run, interrupt, status, logs (execd.md 2.1, 2.9 to 2.11). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "execd/body.h"
#include "execd/command_stream.h"
#include "execd/errors.h"
#include "execd/handlers.h"
#include "net/url.h"

#define MAX_LOG_ANSWER ((size_t)16 << 20)

static void on_run_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    _cleanup_(command_spec_done) struct command_spec spec = {0};
    struct err err = {0};
    int e = command_spec_parse(data, len, &spec, &err);

    if (e == -ENOMEM)
        reply_error(r, 500, ERR_RUNTIME, "%s", err_text(&err));
    else if (e < 0)
        reply_error(r, 400, ERR_BODY, "%s", err_text(&err));
    else
        stream_run(ud, r, &spec);
}

HANDLER(handle_command_run) {
    h1_req_collect(r, MAX_JSON_BODY, on_run_body, ud);
}

/* ---- interrupt ---- */

struct stop_request {
    struct command_waiter waiter;
    struct h1_req *req; /* NULL: the client did not wait */
};

static void on_stopped(struct command_waiter *w, bool gone) {
    struct stop_request *s = container_of(w, struct stop_request, waiter);

    if (!s->req)
        free(s);
    else if (gone)
        reply_empty(s->req); /* on_close frees */
    else
        reply_error(s->req, 500, ERR_RUNTIME, "the command does not end, not even by SIGKILL");
}

static void on_stop_closed(struct h1_req *r, bool completed, void *ud) {
    struct stop_request *s = ud;

    s->req = NULL;
    if (list_is_empty(&s->waiter.node))
        free(s);
}

HANDLER(handle_command_stop) {
    static const struct h1_req_ops ops = {.on_close = on_stop_closed};
    const char *raw = h1_req_query(r), *id;
    struct agent *a = ud;
    struct query q;

    if (query_parse(raw, raw ? strlen(raw) : 0, &q) < 0) {
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
        return;
    }
    id = query_get(&q, "id");
    struct command *c = id ? commands_find(a->commands, id) : NULL;
    struct stop_request *s = c && c->running ? calloc(1, sizeof *s) : NULL;
    if (str_is_empty(id)) {
        reply_error(r, 400, ERR_QUERY, "query parameter id is missing");
    } else if (!s) {
        reply_error(r, 500, ERR_RUNTIME, "no running command has the id %s", id);
    } else {
        s->req = r;
        s->waiter.cb = on_stopped;
        list_init(&s->waiter.node);
        h1_req_set_ops(r, &ops, s);
        command_interrupt(c, &s->waiter);
    }
    query_done(&q);
}

/* ---- status and logs ---- */

HANDLER(handle_command_status) {
    struct agent *a = ud;
    struct command *c = commands_find(a->commands, m->params[0]);
    char ts[RFC3339_SIZE];
    _cleanup_buf_ struct buf b = BUF_INIT(0);

    if (!c) {
        reply_error(r, 404, ERR_BODY, "no command has the id %s", m->params[0]);
        return;
    }
    rfc3339_format(c->started_us, ts);
    buf_printf(&b, "{\"id\":\"%s\",\"content\":", c->id);
    buf_json_str(&b, c->content, strlen(c->content));
    buf_printf(&b, ",\"running\":%s,\"started_at\":\"%s\"", c->running ? "true" : "false", ts);
    if (!c->running) {
        rfc3339_format(c->finished_us, ts);
        buf_printf(&b, ",\"exit_code\":%d,\"finished_at\":\"%s\"", c->exit_code, ts);
        if (c->error) {
            buf_str(&b, ",\"error\":");
            buf_json_str(&b, c->error, strlen(c->error));
        }
    }
    buf_char(&b, '}');
    static const struct h1_header json[] = {{"Content-Type", "application/json; charset=utf-8"},
                                            {NULL, NULL}};
    h1_respond(r, 200, json, b.data, b.len);
}

/* Length without a UTF-8 sequence that is cut off at the end; its rest comes with the next read. */
static size_t whole_text(const char *s, size_t len) {
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char ch = (unsigned char)s[len - back];
        if ((ch & 0xc0) == 0x80)
            continue;
        return ch >= 0xc0 && utf8_next(s + len - back, back) == -1 ? len - back : len;
    }
    return len;
}

static ssize_t read_log(const struct command *c, uint64_t *cursor, char *ret, size_t max) {
    size_t have = 0;
    uint64_t pos = *cursor;

    while (have < max) {
        ssize_t n = spool_read(&c->log, &pos, ret + have, max - have);
        if (n < 0)
            return n;
        if (have == 0)
            *cursor = pos; /* moved into the range that is kept */
        if (n == 0)
            break;
        have += (size_t)n;
        pos += (uint64_t)n;
    }
    return (ssize_t)have;
}

HANDLER(handle_command_logs) {
    struct agent *a = ud;
    struct command *c = commands_find(a->commands, m->params[0]);
    const char *raw = h1_req_query(r), *text;
    uint64_t cursor = 0;
    char tail[32];
    struct query q;

    if (!c || !c->background) {
        reply_error(r, 400, ERR_BODY, "no background command has the id %s", m->params[0]);
        return;
    }
    if (query_parse(raw, raw ? strlen(raw) : 0, &q) == 0) {
        text = query_get(&q, "cursor");
        if (text && str_to_u64(text, &cursor) < 0)
            cursor = 0;
        query_done(&q);
    }
    cursor = MIN(cursor, c->log.end);
    size_t max = MIN(MAX_LOG_ANSWER, c->log.end - MAX(cursor, spool_start(&c->log)));
    _cleanup_free_ char *body = malloc(max + 1);
    ssize_t n = body ? read_log(c, &cursor, body, max) : -ENOMEM;
    if (n < 0) {
        reply_error(r, 500, ERR_RUNTIME, "the log cannot be read: %s", strerrordesc_np((int)-n));
        return;
    }
    if (c->running)
        n = (ssize_t)whole_text(body, (size_t)n);
    snprintf(tail, sizeof tail, "%llu", (unsigned long long)cursor + (unsigned long long)n);
    struct h1_header headers[] = {{"Content-Type", "text/plain; charset=utf-8"},
                                  {"EXECD-COMMANDS-TAIL-CURSOR", tail},
                                  {NULL, NULL}};
    h1_respond(r, 200, headers, body, (size_t)n);
}
