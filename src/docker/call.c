/* JSON calls over an exchange, and the few calls about the engine itself. */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "docker/internal.h"

int engine_oom(struct err *err) {
    return err_set(err, -ENOMEM, "out of memory");
}

static int read_answer(struct exchange *x, size_t max, json_t **ret, struct err *err) {
    _cleanup_buf_ struct buf body = BUF_INIT(max);
    struct err why;
    json_t *j;
    int r = exchange_collect(x, &body, err);

    if (r < 0)
        return r;
    if (!ret)
        return 0;
    if (!body.len) {
        *ret = json_null();
        return 0;
    }
    j = json_parse(body.data, body.len, &why);
    if (!j)
        return err_set(err, -EBADMSG, "the Docker engine's answer is no JSON: %s", why.msg);
    *ret = j;
    return 0;
}

int engine_request(struct engine *e, const struct engine_call *c, json_t **ret_json,
                   struct err *err) {
    _cleanup_buf_ struct buf body = BUF_INIT(ENGINE_MAX_ANSWER);
    _cleanup_exchange_ struct exchange x = {0};
    struct request q = {
        .method = c->method,
        .path = c->path,
        .query = c->query,
        .registry_auth = c->registry_auth,
        .limit = limit_call(c->timeout_ms ? c->timeout_ms : e->timeout_ms, c->cancel),
    };
    int r;

    engine_status_set(0);
    if (c->body) {
        r = buf_json(&body, c->body);
        if (r < 0)
            return err_set(err, r, "the request to the Docker engine cannot be written as JSON");
        q.body = body.data;
        q.body_len = body.len;
    }
    r = exchange_begin(&x, e, &q, err);
    if (r < 0)
        return r;
    return read_answer(&x, c->max_answer ? c->max_answer : ENGINE_MAX_ANSWER, ret_json, err);
}

int engine_do(struct engine *e, const char *method, const char *path, const struct buf *query,
              const json_t *body, json_t **ret, struct err *err) {
    struct engine_call c = {
        .method = method, .path = path, .query = query ? query->data : NULL, .body = body};

    if (query && !buf_ok(query))
        return engine_oom(err);
    return engine_request(e, &c, ret, err);
}

int engine_answer_id(const json_t *answer, const char *key, char **ret, struct err *err) {
    const char *id = json_str(answer, key);

    if (str_is_empty(id))
        return err_set(err, -EBADMSG, "the Docker engine's answer has no %s", key);
    if (!ret)
        return 0;
    *ret = strdup(id);
    return *ret ? 0 : engine_oom(err);
}

int engine_info(struct engine *e, json_t **ret, struct err *err) {
    return engine_do(e, "GET", "/info", NULL, NULL, ret, err);
}
