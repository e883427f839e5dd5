/* Calls on images. */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "docker/internal.h"
#include "docker/lines.h"

int engine_image_inspect(struct engine *e, const char *ref, json_t **ret, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(16384);
    int r = engine_image_path(&path, ref, "/json", err);

    return r < 0 ? r : engine_do(e, "GET", path.data, NULL, NULL, ret, err);
}

int engine_image_remove(struct engine *e, const char *ref, bool force, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(16384), query = BUF_INIT(64);
    int r = engine_image_path(&path, ref, "", err);

    if (r < 0)
        return r;
    if (force)
        engine_query_add(&query, "force", "1");
    return engine_do(e, "DELETE", path.data, &query, NULL, NULL, err);
}

/* ---- pull ---- */

/* Engines tell what a registry said in words only, and with a status of 500 or none. */
static int code_of_words(const char *text) {
    if (strstr(text, "not found") || strstr(text, "manifest unknown"))
        return -ENOENT;
    if (strstr(text, "unauthorized") || strstr(text, "denied") || strstr(text, "no basic auth"))
        return -EACCES;
    return -EREMOTEIO;
}

/* An error inside a stream whose status has long been 200. */
static int line_error(const json_t *line, struct err *err) {
    const char *text = json_str(json_object_get(line, "errorDetail"), "message");

    if (str_is_empty(text))
        text = json_str(line, "error");
    if (str_is_empty(text))
        return 0;
    return err_set(err, code_of_words(text), "%s", text);
}

static int take_lines(struct json_lines *lines, const char *piece, size_t len,
                      const struct engine_pull *p, struct err *err) {
    bool at_end = !piece;

    for (;;) {
        _cleanup_json_ json_t *line = NULL;
        int r = at_end ? json_lines_end(lines, &line, err)
                       : json_lines_next(lines, &piece, &len, &line, err);
        if (r <= 0)
            return r;
        r = line_error(line, err);
        if (r < 0)
            return r;
        if (p->on_progress)
            p->on_progress(line, p->ud);
    }
}

static int pull_query(const struct engine_pull *p, struct buf *query, struct err *err) {
    _cleanup_free_ char *repo = NULL, *tag = NULL;
    int r = engine_ref_split(p->ref, &repo, &tag);

    if (r == -EINVAL)
        return err_set(err, r, "\"%.200s\" is no image reference", p->ref);
    if (r < 0)
        return engine_oom(err);
    engine_query_add(query, "fromImage", repo);
    engine_query_add(query, "tag", tag);
    if (p->platform)
        engine_query_add(query, "platform", p->platform);
    return buf_ok(query) ? 0 : engine_oom(err);
}

static int pull(struct engine *e, const struct engine_pull *p, struct err *err) {
    _cleanup_buf_ struct buf query = BUF_INIT(65536);
    _cleanup_lines_ struct json_lines lines = {0};
    _cleanup_exchange_ struct exchange x = {0};
    _cleanup_(engine_wipep) char *auth = NULL;
    struct request q = {.method = "POST",
                        .path = "/images/create",
                        .limit = limit_stream(e->timeout_ms, p->cancel)};
    const char *piece;
    size_t len;
    int r = pull_query(p, &query, err);

    engine_status_set(0);
    if (r < 0)
        return r;
    if (p->username && engine_auth_header(p->ref, p->username, p->password, &auth) < 0)
        return engine_oom(err);
    q.query = query.data;
    q.registry_auth = auth;
    json_lines_init(&lines, ENGINE_MAX_LINE);
    r = exchange_begin(&x, e, &q, err);
    if (r < 0)
        return r;
    while ((r = exchange_next(&x, &piece, &len, err)) > 0) {
        r = take_lines(&lines, piece, len, p, err);
        if (r < 0)
            return r;
    }
    return r < 0 ? r : take_lines(&lines, NULL, 0, p, err);
}

int engine_image_pull(struct engine *e, const struct engine_pull *p, struct err *err) {
    struct err own = {0}, *to = err ? err : &own; /* the words decide */
    int r = pull(e, p, to);

    if (r == -EREMOTEIO)
        r = to->code = code_of_words(to->msg);
    return r;
}
