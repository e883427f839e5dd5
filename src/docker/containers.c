/* Calls on containers, except their logs (logs.c), archives (archive.c) and execs (exec.c). */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "docker/internal.h"

int engine_container_create(struct engine *e, const char *name, const char *platform,
                            const json_t *body, char **ret_id, struct err *err) {
    _cleanup_buf_ struct buf query = BUF_INIT(8192);
    _cleanup_json_ json_t *answer = NULL;
    struct limit l = limit_call(e->timeout_ms, NULL);
    unsigned version = 0;
    int r;

    engine_status_set(0);
    if (platform) {
        r = engine_version(e, &l, &version, err);
        if (r < 0)
            return r;
        if (version < 41)
            return err_set(err, -EOPNOTSUPP,
                           "the Docker engine (API 1.%u) takes no platform when it creates a "
                           "container, API 1.41 is needed",
                           version);
        engine_query_add(&query, "platform", platform);
    }
    if (name)
        engine_query_add(&query, "name", name);
    r = engine_do(e, "POST", "/containers/create", &query, body, &answer, err);
    return r < 0 ? r : engine_answer_id(answer, "Id", ret_id, err);
}

/* POST or DELETE on /containers/ID/what with an optional query; 304 is success. */
static int act(struct engine *e, const char *id, const char *what, const struct buf *query,
               unsigned extra_ms, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    struct engine_call c = {.method = "POST",
                            .query = query ? query->data : NULL,
                            .timeout_ms = e->timeout_ms + extra_ms};
    int r = engine_path(&path, "/containers/", id, what, err);

    if (r < 0)
        return r;
    if (query && !buf_ok(query))
        return engine_oom(err);
    c.path = path.data;
    r = engine_request(e, &c, NULL, err);
    return r == -EALREADY ? 0 : r;
}

int engine_container_start(struct engine *e, const char *id, struct err *err) {
    return act(e, id, "/start", NULL, 0, err);
}

int engine_container_stop(struct engine *e, const char *id, unsigned grace_s, struct err *err) {
    _cleanup_buf_ struct buf query = BUF_INIT(64);

    buf_printf(&query, "t=%u", grace_s);
    return act(e, id, "/stop", &query, MIN(grace_s, 86400u) * 1000, err);
}

int engine_container_kill(struct engine *e, const char *id, const char *signal, struct err *err) {
    _cleanup_buf_ struct buf query = BUF_INIT(256);

    if (signal)
        engine_query_add(&query, "signal", signal);
    return act(e, id, "/kill", &query, 0, err);
}

int engine_container_pause(struct engine *e, const char *id, bool resume, struct err *err) {
    return act(e, id, resume ? "/unpause" : "/pause", NULL, 0, err);
}

int engine_container_inspect(struct engine *e, const char *id, json_t **ret, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    int r = engine_path(&path, "/containers/", id, "/json", err);

    return r < 0 ? r : engine_do(e, "GET", path.data, NULL, NULL, ret, err);
}

int engine_container_list(struct engine *e, bool all, const json_t *filters, json_t **ret,
                          struct err *err) {
    _cleanup_buf_ struct buf query = BUF_INIT((size_t)1 << 20);
    _cleanup_json_ json_t *answer = NULL;
    struct engine_call c = {
        .method = "GET", .path = "/containers/json", .max_answer = ENGINE_MAX_LIST};
    int r;

    if (all)
        engine_query_add(&query, "all", "1");
    if (engine_query_json(&query, "filters", filters) < 0 || !buf_ok(&query))
        return engine_oom(err);
    c.query = query.data;
    r = engine_request(e, &c, &answer, err);
    if (r < 0)
        return r;
    if (!json_is_array(answer))
        return err_set(err, -EBADMSG, "the Docker engine's list of containers is no list");
    *ret = TAKE_PTR(answer);
    return 0;
}

/* ---- waiting ---- */

/* The engine answers when the condition holds; -1: it has not been said what the status was. */
static int wait_for(struct engine *e, const char *id, const char *condition,
                    const struct limit *limit, int *ret_status, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192), query = BUF_INIT(256), body = BUF_INIT(65536);
    _cleanup_exchange_ struct exchange x = {0};
    _cleanup_json_ json_t *answer = NULL;
    struct request q = {.method = "POST", .limit = *limit};
    const char *failure;
    int r = engine_path(&path, "/containers/", id, "/wait", err);

    if (r < 0)
        return r;
    if (condition)
        engine_query_add(&query, "condition", condition);
    if (!buf_ok(&query))
        return engine_oom(err);
    q.path = path.data;
    q.query = query.data;
    r = exchange_begin(&x, e, &q, err);
    if (r >= 0)
        r = exchange_collect(&x, &body, err);
    if (r < 0)
        return r;
    answer = body.len ? json_parse(body.data, body.len, NULL) : NULL;
    failure = json_str(json_object_get(answer, "Error"), "Message");
    if (!str_is_empty(failure))
        return err_set(err, -EREMOTEIO, "%s", failure);
    if (!json_is_integer(json_object_get(answer, "StatusCode")))
        return err_set(err, -EBADMSG, "the Docker engine does not say how the container ended");
    *ret_status = (int)json_int(answer, "StatusCode", -1);
    return 0;
}

int engine_container_wait(struct engine *e, const char *id, int *ret_status,
                          struct engine_cancel *cancel, struct err *err) {
    struct limit l = limit_stream(-1, cancel), first = limit_call(e->timeout_ms, cancel);
    unsigned version;
    int status = 0, r;

    engine_status_set(0);
    r = engine_version(e, &first, &version, err); /* not for ever */
    if (r >= 0)
        r = wait_for(e, id, NULL, &l, &status, err);
    if (r >= 0)
        *ret_status = status;
    return r;
}

/* ---- removal ---- */

/* Somebody else removes it already: ends when it is gone, -EBUSY when that removal failed. */
static int wait_until_gone(struct engine *e, const char *id, const struct limit *l,
                           struct err *err) {
    int status, r = wait_for(e, id, "removed", l, &status, err);

    if (r == -ENOENT)
        return 0;
    if (r == -EREMOTEIO && engine_status() == 0)
        return -EBUSY;
    return r;
}

int engine_container_remove(struct engine *e, const char *id, bool force, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    struct engine_call c = {.method = "DELETE", .query = force ? "v=1&force=1" : "v=1"};
    struct limit l = limit_call(e->timeout_ms, NULL);
    int r = engine_path(&path, "/containers/", id, "", err);

    if (r < 0)
        return r;
    c.path = path.data;
    for (unsigned tries = 0;; tries++) {
        struct err local = {0}, *to = err ? err : &local; /* the message decides */

        int64_t left = limit_left_ms(&l);
        if (left == 0)
            return engine_failure(err, -ETIMEDOUT, "removing a container");
        c.timeout_ms = (unsigned)left;
        r = engine_request(e, &c, NULL, to);
        if (r != -EBUSY || !strstr(to->msg, "already in progress") || tries == 3)
            return r;
        r = wait_until_gone(e, id, &l, to);
        if (r != -EBUSY)
            return r;
    }
}

/* ---- commit ---- */

int engine_container_commit(struct engine *e, const char *id, const char *repo, const char *tag,
                            const json_t *config, const char *const *changes, char **ret_image_id,
                            struct err *err) {
    _cleanup_buf_ struct buf query = BUF_INIT((size_t)1 << 20);
    _cleanup_json_ json_t *answer = NULL;
    int r;

    engine_query_add(&query, "container", id);
    if (repo)
        engine_query_add(&query, "repo", repo);
    if (tag)
        engine_query_add(&query, "tag", tag);
    for (size_t i = 0; changes && changes[i]; i++)
        engine_query_add(&query, "changes", changes[i]);
    r = engine_do(e, "POST", "/commit", &query, config, &answer, err);
    return r < 0 ? r : engine_answer_id(answer, "Id", ret_image_id, err);
}
