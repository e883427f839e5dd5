/* See test-fake.h. */
#include "test-fake.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/path.h"
#include "base/test.h"
#include "net/h1_server.h"
#include "net/multipart.h"
#include "net/ws.h"

static char script[64]; /* first word of the last command */
static struct buf uploaded = BUF_INIT(1 << 20);
static struct ws *renewed; /* the command that ends with the third renewal */
static unsigned renewals;

static void respond(struct h1_req *r, int status, const char *body) {
    h1_respond(r, status, NULL, body, strlen(body));
}

/* ---- the agent's WebSocket ---- */

struct conn {
    struct ws *ws;
    size_t left; /* bytes of "big" still to send */
};

static void text(struct ws *w, const char *s) {
    ws_send(w, WS_TEXT, s, strlen(s));
}

static void output(struct ws *w, char kind, const char *s) {
    char frame[256];
    frame[0] = kind;
    size_t n = strlen(s);
    memcpy(frame + 1, s, n);
    ws_send(w, WS_BINARY, frame, n + 1);
}

/* Bytes i*7 of a counter, so that a lost or doubled piece shows. */
static void send_big(struct conn *c) {
    static uint64_t at;
    char frame[32769];
    while (c->left > 0) {
        size_t n = MIN(c->left, sizeof(frame) - 1);
        frame[0] = 1;
        for (size_t i = 0; i < n; i++)
            frame[1 + i] = (char)((at++ * 7) >> 3);
        c->left -= n;
        if (ws_send(c->ws, WS_BINARY, frame, n + 1) > (ssize_t)SOCK_HIGH_WATER)
            break;
    }
    if (c->left == 0) {
        output(c->ws, 2, "done\n");
        text(c->ws, "{\"type\":\"exit\",\"exit_code\":7}");
        ws_close(c->ws, 1000, "process exited");
    }
}

static void on_message(struct ws *w, enum ws_kind kind, const char *data, size_t len, void *ud) {
    if (kind == WS_BINARY && data[0] == 0 && str_eq(script, "echo")) {
        char *frame = malloc(len);
        memcpy(frame, data, len);
        frame[0] = 1;
        ws_send(w, WS_BINARY, frame, len);
        free(frame);
        return;
    }
    _cleanup_json_ json_t *j = kind == WS_TEXT ? json_parse(data, len, NULL) : NULL;
    const char *type = json_str(j, "type");
    if (str_eq(type, "eof") && str_eq(script, "echo")) {
        text(w, "{\"type\":\"exit\",\"exit_code\":0}");
        ws_close(w, 1000, "process exited");
    } else if (str_eq(type, "signal")) {
        text(w, "{\"type\":\"exit\",\"exit_code\":-1,\"signal\":\"SIGTERM\"}");
    } else if (str_eq(type, "resize")) {
        char line[64];
        snprintf(line, sizeof(line), "%lldx%lld", (long long)json_int(j, "cols", 0),
                 (long long)json_int(j, "rows", 0));
        output(w, 1, line);
        text(w, "{\"type\":\"exit\",\"exit_code\":0}");
    }
}

static void on_drain(struct ws *w, void *ud) {
    struct conn *c = ud;
    if (c->left > 0)
        send_big(c);
}

static void on_close(struct ws *w, int code, const char *reason, void *ud) {
    free(ud);
}

static void agent_socket(struct h1_req *r) {
    static const struct ws_ops ops = {
        .on_message = on_message, .on_drain = on_drain, .on_close = on_close};
    struct conn *c = calloc(1, sizeof(*c));
    if (str_eq(script, "refuse")) {
        respond(r, 409, "{\"code\":\"ALREADY_CONNECTED\",\"message\":\"somebody is there\"}");
        free(c);
        return;
    }
    if (ws_accept(r, NULL, &ops, c, &c->ws) < 0) {
        free(c);
        return;
    }
    if (str_eq(script, "refuse-late")) { /* as a proxy tells it */
        ws_close(c->ws, 1008, "The backend refused the handshake: HTTP 409 Conflict.");
        return;
    }
    if (str_eq(script, "absent")) {
        text(c->ws, "{\"type\":\"error\",\"error\":\"absent: there is no such "
                    "program\",\"code\":\"START_FAILED\",\"errno\":\"ENOENT\"}");
        ws_close(c->ws, 1011, "start failed");
        return;
    }
    text(c->ws, "{\"type\":\"connected\",\"session_id\":\"s-1\",\"mode\":\"pipe\"}");
    if (str_eq(script, "big")) {
        c->left = (size_t)20 << 20;
        send_big(c);
    } else if (str_eq(script, "lost")) {
        output(c->ws, 1, "ab");
        ws_send(c->ws, WS_BINARY, "\3\0\0\0\0\0\0\0\5xyz", 12);
    } else if (str_eq(script, "again")) {
        output(c->ws, 1, "abc");
        ws_send(c->ws, WS_BINARY, "\3\0\0\0\0\0\0\0\1bcde", 13);
        text(c->ws, "{\"type\":\"exit\",\"exit_code\":0}");
    } else if (str_eq(script, "renew")) {
        renewed = c->ws;
    } else if (str_eq(script, "drop")) {
        output(c->ws, 1, "ab");
        ws_close(c->ws, 1001, "going away");
    }
}

/* ---- files ---- */

static int on_part(const struct multipart_part *p, void *ud) {
    return 0;
}
static int on_part_data(const char *data, size_t len, void *ud) {
    return buf_append(&uploaded, data, len);
}
static int on_part_end(void *ud) {
    return buf_char(&uploaded, '|');
}

static void on_upload(struct h1_req *r, const char *data, size_t len, void *ud) {
    static const struct multipart_ops ops = {on_part, on_part_data, on_part_end};
    struct multipart *m = NULL;
    buf_clear(&uploaded);
    int e = multipart_new(h1_req_header(r, "Content-Type"), &ops, NULL, &m, NULL);
    if (e == 0)
        e = multipart_feed(m, data, len, NULL);
    if (e == 0)
        e = multipart_end(m, NULL);
    multipart_free(m);
    respond(r, e ? 400 : 200, e ? "{\"code\":\"INVALID_FILE\",\"message\":\"bad form\"}" : "");
}

/* /tree has a file, a file that is gone, and lies about what lies in it when asked for /evil */
static void files(struct h1_req *r, const char *path) {
    const char *query = h1_req_query(r);
    bool evil = query && strstr(query, "evil");
    if (strstr(path, "/files/info"))
        respond(r, 200,
                query && strstr(query, "absent")
                    ? ""
                    : "{\"x\":{\"type\":\"directory\",\"mode\":750,\"size\":0}}");
    else if (strstr(path, "/directories/list"))
        respond(r, 200,
                evil ? "[{\"path\":\"/evil/../../../tmp/"
                       "cove-escaped\",\"type\":\"file\",\"mode\":644,\"size\":2}]"
                     : "[{\"path\":\"/tree/a\",\"type\":\"file\",\"mode\":640,\"size\":2},"
                       "{\"path\":\"/tree/gone\",\"type\":\"file\",\"mode\":644,\"size\":2},"
                       "{\"path\":\"/tree/pipe\",\"type\":\"other\",\"mode\":644,\"size\":0}]");
    else if (query && strstr(query, "gone"))
        respond(r, 404, "{\"code\":\"FILE_NOT_FOUND\",\"message\":\"there is no /tree/gone\"}");
    else if (query && strstr(query, "uploaded"))
        h1_respond(r, 200, NULL, uploaded.data ? uploaded.data : "", uploaded.len);
    else
        respond(r, 200, "hi");
}

static void on_session(struct h1_req *r, const char *data, size_t len, void *ud) {
    _cleanup_json_ json_t *j = json_parse(data, len, NULL);
    const char *word = json_string_value(json_array_get(json_object_get(j, "argv"), 0));
    str_copy(script, sizeof(script), word ? word : "");
    respond(r, 201, "{\"session_id\":\"s-1\"}");
}

static void agent(struct h1_req *r, const char *path) {
    if (!str_eq(h1_req_header(r, "X-EXECD-ACCESS-TOKEN"), "secret"))
        respond(r, 401, "{\"error\":\"token\"}");
    else if (str_ends(path, "/pty"))
        h1_req_collect(r, 65536, on_session, NULL);
    else if (str_ends(path, "/ws"))
        agent_socket(r);
    else if (str_ends(path, "/files/upload"))
        h1_req_collect(r, 1 << 20, on_upload, NULL);
    else if (strstr(path, "/files/") || strstr(path, "/directories/"))
        files(r, path);
    else
        respond(r, 200, "");
}

/* ---- the server ---- */

#define BOX(id)                                                                           \
    "{\"id\":\"" id "\",\"image\":{\"uri\":\"host\"},\"status\":{\"state\":\"Running\"}," \
    "\"entrypoint\":[\"a\",\"b\"],"                                                       \
    "\"createdAt\":\"2026-01-02T03:04:05Z\"}"

static void list(struct h1_req *r) {
    if (h1_req_query(r) && strstr(h1_req_query(r), "page=2"))
        respond(r, 200, "{\"items\":[" BOX("cab-3") "],\"pagination\":{\"hasNextPage\":false}}");
    else
        respond(r, 200,
                "{\"items\":[" BOX("box-1") "," BOX(
                    "boy-2") "],\"pagination\":{\"hasNextPage\":true}}");
}

static void on_create(struct h1_req *r, const char *data, size_t len, void *ud) {
    _cleanup_buf_ struct buf b =
        BUF_INIT(65536); /* tells back what was asked, in the id's place of the message */
    buf_str(&b, "{\"id\":\"box-1\",\"status\":{\"state\":\"Running\",\"message\":");
    buf_json_str(&b, data, len);
    buf_str(&b,
            "},\"createdAt\":\"2026-01-02T03:04:05.5Z\",\"expiresAt\":\"2026-01-02T03:14:05Z\"}");
    h1_respond(r, 202, NULL, b.data, b.len);
}

static void on_renew(struct h1_req *r, const char *data, size_t len, void *ud) {
    _cleanup_json_ json_t *j = json_parse(data, len, NULL);
    respond(r, json_str(j, "expiresAt") ? 200 : 422, "{\"expiresAt\":\"2026-01-02T03:04:05Z\"}");
    if (json_str(j, "expiresAt") && ++renewals == 3 && renewed)
        text(renewed, "{\"type\":\"exit\",\"exit_code\":0}");
}

static void on_request(struct h1_req *r, void *ud) {
    const char *path = h1_req_path(r);
    if (str_starts(path, "/v1/sandboxes/box-1/proxy/44772/"))
        agent(r, path + strlen("/v1/sandboxes/box-1/proxy/44772"));
    else if (str_eq(path, "/v1/sandboxes/box-1/endpoints/44772"))
        respond(r, 200,
                "{\"endpoint\":\"elsewhere.example/"
                "x\",\"headers\":{\"X-EXECD-ACCESS-TOKEN\":\"secret\"}}");
    else if (str_eq(path, "/v1/sandboxes/box-1/renew-expiration"))
        h1_req_collect(r, 65536, on_renew, NULL);
    else if (str_eq(path, "/v1/sandboxes") && str_eq(h1_req_method(r), "POST"))
        h1_req_collect(r, 65536, on_create, NULL);
    else if (str_eq(path, "/v1/sandboxes"))
        list(r);
    else if (str_eq(path, "/v1/sandboxes/boy-2"))
        respond(r, 200, BOX("boy-2"));
    else if (str_eq(path, "/v1/sandboxes/cab-3"))
        respond(r, 200, BOX("cab-3"));
    else if (str_eq(path, "/v1/sandboxes/broken"))
        respond(r, 500, "<html>bad gateway</html>");
    else if (str_eq(path, "/v1/sandboxes/invalid"))
        respond(r, 422, "{\"detail\":[{\"msg\":\"Field required\"}]}");
    else if (str_eq(path, "/v1/sandboxes/hangs"))
        return; /* never answered */
    else if (str_eq(path, "/version"))
        respond(r, 200, "{\"version\":\"9.9\"}");
    else
        respond(
            r, 404,
            "{\"code\":\"DOCKER::SANDBOX_NOT_FOUND\",\"message\":\"There is no such sandbox.\"}");
}

static _noreturn_ void serve(const struct fake *f, int ready) {
    uv_loop_t loop;
    struct h1_server *s;
    const struct h1_server_opts o = {.on_request = on_request};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&loop);
    if (h1_server_new(&loop, &o, &s) < 0 || h1_server_listen_unix(s, f->socket, 0600, NULL) < 0)
        _exit(1);
    (void)!write(ready, "x", 1);
    close(ready);
    uv_run(&loop, UV_RUN_DEFAULT);
    _exit(0);
}

void fake_start(struct fake *f) {
    int p[2];
    char c;
    str_copy(f->dir, sizeof(f->dir), "/tmp/cove-test-client-XXXXXX");
    ASSERT(mkdtemp(f->dir));
    snprintf(f->socket, sizeof(f->socket), "%s/s", f->dir);
    snprintf(f->address, sizeof(f->address), "unix:%s", f->socket);
    ASSERT_OK(pipe(p));
    f->pid = fork();
    if (f->pid == 0) {
        close(p[0]);
        serve(f, p[1]);
    }
    close(p[1]);
    ASSERT_INT(read(p[0], &c, 1), 1);
    close(p[0]);
}

void fake_stop(struct fake *f) {
    kill(f->pid, SIGKILL);
    waitpid(f->pid, NULL, 0);
    unlink(f->socket);
    rmdir(f->dir);
}
