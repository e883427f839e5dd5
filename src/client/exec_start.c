/*
 * Beginning and end of a command: makes the agent's session, upgrades to the WebSocket and waits
 * until the agent says that the command was started; at the end lets go of all of it, killing what
 * still runs.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "client/exec.h"
#include "net/url.h"

static json_t *session_body(const struct cove_exec_options *o, struct cove_error *err) {
    if (!o->argv || !o->argv[0] || !*o->argv[0]) {
        cerr_set(err, -EINVAL, "no command was given");
        return NULL;
    }
    _cleanup_json_ json_t *argv = strings_to_json(o->argv, "the argument", err);
    _cleanup_json_ json_t *env = argv ? pairs_to_json(o->env, "the variable", err) : NULL;
    if (!env)
        return NULL;
    json_t *body = json_pack("{s:O, s:O}", "argv", argv, "env", env);
    if (!body) {
        cerr_oom(err);
        return NULL;
    }
    if (o->cwd)
        json_object_set_new(body, "cwd", json_string(o->cwd));
    if (o->uid >= 0)
        json_object_set_new(body, "uid", json_integer(o->uid));
    if (o->gid >= 0)
        json_object_set_new(body, "gid", json_integer(o->gid));
    if (o->tty && o->cols && o->rows) {
        json_object_set_new(body, "cols", json_integer(o->cols));
        json_object_set_new(body, "rows", json_integer(o->rows));
    }
    return body;
}

static int make_session(struct cove_exec *x, const struct agent *agent, struct cove_error *err) {
    _cleanup_json_ json_t *body = session_body(&x->o, err), *answer = NULL;
    if (!body)
        return -EINVAL;
    _cleanup_buf_ struct buf text = BUF_INIT(RESPONSE_MAX);
    _cleanup_free_ char *target = agent_target(agent, "/pty", NULL, NULL);
    if (!target || buf_json(&text, body) < 0)
        return cerr_oom(err);
    struct transport_req rq = {.method = "POST",
                               .target = target,
                               .agent = agent,
                               .content_type = "application/json",
                               .body = text.data,
                               .body_len = text.len};
    int r = transport_json(x->c, &rq, &answer, "start the command", err);
    if (r < 0)
        return r;
    const char *id = json_str(answer, "session_id");
    if (str_is_empty(id) || !(x->session = url_encode(id, false)))
        return cerr_set(err, -EBADMSG,
                        "cannot start the command: the agent's answer has no session_id");
    return 0;
}

/* ---- the upgrade ---- */

static void on_response(struct h1_call *call, int status, const struct h1_header *h, size_t n,
                        int64_t len, void *ud) {
    struct cove_exec *x = ud;
    x->refused_status = status;
}

static void on_data(struct h1_call *call, const char *data, size_t len, void *ud) {
    struct cove_exec *x = ud;
    buf_append(&x->refused, data, len);
}

static void on_end(struct h1_call *call, int error, const struct err *e, void *ud) {
    struct cove_exec *x = ud;
    x->call = NULL;
    if (x->error)
        return;
    if (error < 0)
        x->error = transport_fail(x->c, error, e, &x->err);
    else
        x->error =
            cerr_from_response(&x->err, x->refused_status, x->refused.data ? x->refused.data : "",
                               x->refused.len, "start the command");
}

static const char *header_value(const struct h1_header *h, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (str_ieq(h[i].name, name))
            return h[i].value;
    return NULL;
}

static void on_upgrade(struct h1_call *call, const struct h1_header *headers, size_t n,
                       struct sock *s, void *ud) {
    struct cove_exec *x = ud;
    char want[29];
    x->call = NULL;
    ws_accept_value(x->ws_key, want);
    const char *got = header_value(headers, n, "Sec-WebSocket-Accept");
    if (!got || !str_eq(got, want)) {
        sock_close(s, 0);
        exec_fail(x, -EBADMSG, "the answer to the WebSocket handshake is not for this request");
        return;
    }
    int r = ws_client(s, &exec_ws_ops, x, &x->ws);
    if (r < 0)
        exec_fail(x, r, "cannot open the WebSocket");
    else
        ws_keepalive(x->ws, 30000, 90000);
}

static const struct h1_call_ops upgrade_ops = {
    .on_response = on_response, .on_data = on_data, .on_upgrade = on_upgrade, .on_end = on_end};

static int upgrade(struct cove_exec *x, const struct agent *agent, struct cove_error *err) {
    struct h1_header headers[TRANSPORT_HEADERS_MAX];
    int n = transport_headers(x->c, agent, NULL, headers);
    _cleanup_free_ char *target =
        str_printf("%s/pty/%s/ws?pty=%d", agent->prefix, x->session, x->o.tty ? 1 : 0);
    if (n < 0)
        return cerr_set(err, n, "the server asks for too many headers");
    if (!target)
        return cerr_oom(err);
    ws_make_key(x->ws_key);
    headers[n++] = (struct h1_header){"Connection", "Upgrade"};
    headers[n++] = (struct h1_header){"Upgrade", "websocket"};
    headers[n++] = (struct h1_header){"Sec-WebSocket-Version", "13"};
    headers[n++] = (struct h1_header){"Sec-WebSocket-Key", x->ws_key};
    headers[n] = (struct h1_header){NULL, NULL};
    struct h1_call_opts o = {.method = "GET",
                             .target = target,
                             .headers = headers,
                             .keep_upgrade = true,
                             .silence_timeout_ms = CONTROL_TIMEOUT_MS};
    transport_addr(x->c, &o.addr);
    int r = h1_call(&x->c->loop, &o, &upgrade_ops, x, &x->call);
    return r < 0 ? transport_fail(x->c, r, NULL, err) : 0;
}

/* ---- keeping the sandbox alive ---- */

static void renew_on_end(struct h1_call *call, int error, const struct err *e, void *ud) {
    struct cove_exec *x = ud;
    x->renew_call =
        NULL; /* a lost renewal is made up for by the next one: three fit into the time */
}

static const struct h1_call_ops renew_ops = {.on_end = renew_on_end};

static void on_renew(uv_timer_t *t) {
    struct cove_exec *x = t->data;
    if (x->renew_call)
        return;
    char when[RFC3339_SIZE], body[RFC3339_SIZE + 32];
    rfc3339_format(clock_wall_us() + (int64_t)x->o.renew_s * 1000000, when);
    int len = snprintf(body, sizeof(body), "{\"expiresAt\":\"%s\"}", when);
    struct h1_header headers[TRANSPORT_HEADERS_MAX];
    _cleanup_free_ char *id = id_encode(x->sandbox_id, NULL);
    _cleanup_free_ char *target = id ? str_printf("/v1/sandboxes/%s/renew-expiration", id) : NULL;
    if (!target || transport_headers(x->c, NULL, "application/json", headers) < 0)
        return;
    struct h1_call_opts o = {.method = "POST",
                             .target = target,
                             .headers = headers,
                             .body = body,
                             .body_length = len,
                             .silence_timeout_ms = CONTROL_TIMEOUT_MS};
    transport_addr(x->c, &o.addr);
    if (h1_call(&x->c->loop, &o, &renew_ops, x, &x->renew_call) < 0)
        x->renew_call = NULL;
}

/* ---- start and end ---- */

static int exec_init(struct cove_exec *x, const char *sandbox_id, struct cove_error *err) {
    uv_loop_t *loop = &x->c->loop;
    uv_timer_init(loop, &x->timer);
    uv_timer_init(loop, &x->renew_timer);
    x->timer.data = x->renew_timer.data = x;
    x->handles = 2;
    buf_init(&x->refused, 65536);
    x->sandbox_id = strdup(sandbox_id);
    if (!x->sandbox_id)
        return cerr_oom(err);
    bool fds = !x->o.on_output;
    int r = sink_open(&x->out, loop, fds ? x->o.stdout_fd : -1, exec_on_sink_change, x);
    if (r == 0)
        r = sink_open(&x->errs, loop, fds && !x->o.tty ? x->o.stderr_fd : -1, exec_on_sink_change,
                      x);
    if (r == 0)
        r = source_open(&x->in, loop, x->o.stdin_fd, &x->c->interrupted, exec_on_input, x);
    /* a resize or signal that was noted before a key was pressed goes before the key */
    return r < 0 ? cerr_sys(err, r, "cannot watch the standard streams") : 0;
}

static int wait_connected(struct cove_exec *x, struct cove_error *err) {
    while (!x->connected && !x->exited && !x->error) {
        if (client_take_interrupt(x->c))
            return cerr_set(err, -EINTR, "interrupted");
        uv_run(&x->c->loop, UV_RUN_ONCE);
    }
    if (x->connected || x->exited) /* what failed after the start is told by the wait */
        return 0;
    if (err)
        *err = x->err;
    return x->error;
}

int cove_exec_start(struct cove_client *c, const char *sandbox_id,
                    const struct cove_exec_options *opts, struct cove_exec **ret,
                    struct cove_error *err) {
    if (OPTIONS_ARE_BAD(opts))
        return cerr_set(err, -EINVAL, "the options do not begin with COVE_EXEC_OPTIONS_INIT");
    struct cove_exec *x = calloc(1, sizeof(*x));
    if (!x)
        return cerr_oom(err);
    x->c = c;
    OPTIONS_COPY(&x->o, opts);
    const struct agent *agent = NULL;
    int r = exec_init(x, sandbox_id, err);
    if (r == 0)
        r = agent_get(c, sandbox_id, &agent, err);
    if (r == 0)
        r = make_session(x, agent, err);
    if (r == 0)
        r = upgrade(x, agent, err);
    if (r == 0)
        r = wait_connected(x, err);
    if (r < 0) {
        cove_exec_free(x);
        return r;
    }
    source_start(&x->in);
    if (x->o.renew_s)
        uv_timer_start(&x->renew_timer, on_renew, (uint64_t)x->o.renew_s * 1000 / 3,
                       (uint64_t)x->o.renew_s * 1000 / 3);
    *ret = x;
    return 0;
}

/* Kills what still runs, and frees the agent's memory of it. Best effort: the sandbox may be gone.
 */
static void drop_session(struct cove_exec *x) {
    const struct agent *agent;
    if (!x->session || agent_get(x->c, x->sandbox_id, &agent, NULL) < 0)
        return;
    _cleanup_free_ char *target = str_printf("%s/pty/%s", agent->prefix, x->session);
    struct transport_req rq = {
        .method = "DELETE", .target = target, .agent = agent, .silence_ms = 10000};
    if (target)
        transport_ok(x->c, &rq, NULL, "end the command", NULL);
}

static void on_timer_closed(uv_handle_t *h) {
    struct cove_exec *x = h->data;
    x->handles--;
}

struct cove_exec *cove_exec_free(struct cove_exec *x) {
    if (!x)
        return NULL;
    if (x->call)
        h1_call_cancel(x->call);
    if (x->renew_call)
        h1_call_cancel(x->renew_call);
    if (x->ws)
        ws_free(x->ws);
    source_close(&x->in);
    sink_close(&x->out);
    sink_close(&x->errs);
    bool interrupted = client_take_interrupt(x->c); /* not meant for this clean-up */
    drop_session(x);
    if (interrupted)
        cove_client_interrupt(x->c);
    uv_close((uv_handle_t *)&x->timer, on_timer_closed);
    uv_close((uv_handle_t *)&x->renew_timer, on_timer_closed);
    while (x->handles > 0)
        uv_run(&x->c->loop, UV_RUN_NOWAIT);
    buf_done(&x->refused);
    free(x->session);
    free(x->sandbox_id);
    free(x);
    return NULL;
}
