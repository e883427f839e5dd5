/*
 * Files of a container as tar streams. Both directions move in fixed pieces: while the engine does
 * not take more, the source is not asked; while the sink does not return, the engine is not read.
 */
#include <errno.h>

#include "docker/internal.h"

static int archive_address(const char *id, const char *where, struct buf *path, struct buf *query,
                           struct err *err) {
    int r = engine_path(path, "/containers/", id, "/archive", err);

    if (r < 0)
        return r;
    return engine_query_add(query, "path", where) < 0 ? engine_oom(err) : 0;
}

int engine_archive_put(struct engine *e, const char *id, const char *path, int64_t length,
                       engine_read_cb from, void *ud, struct err *err) {
    _cleanup_buf_ struct buf address = BUF_INIT(8192), query = BUF_INIT(32768),
                             rest = BUF_INIT(65536);
    _cleanup_exchange_ struct exchange x = {0};
    struct request q = {.method = "PUT",
                        .from = from,
                        .ud = ud,
                        .length = length,
                        .content_type = "application/x-tar",
                        .limit = limit_stream(e->timeout_ms, NULL)};
    int r = archive_address(id, path, &address, &query, err);

    engine_status_set(0);
    if (r < 0)
        return r;
    q.path = address.data;
    q.query = query.data;
    r = exchange_begin(&x, e, &q, err);
    return r < 0 ? r : exchange_collect(&x, &rest, err);
}

int engine_archive_get(struct engine *e, const char *id, const char *path, engine_write_cb to,
                       void *ud, struct err *err) {
    _cleanup_buf_ struct buf address = BUF_INIT(8192), query = BUF_INIT(32768);
    _cleanup_exchange_ struct exchange x = {0};
    struct request q = {.method = "GET", .limit = limit_stream(e->timeout_ms, NULL)};
    const char *piece;
    size_t len;
    int r = archive_address(id, path, &address, &query, err);

    engine_status_set(0);
    if (r < 0)
        return r;
    q.path = address.data;
    q.query = query.data;
    r = exchange_begin(&x, e, &q, err);
    if (r < 0)
        return r;
    while ((r = exchange_next(&x, &piece, &len, err)) > 0) {
        r = to(piece, len, ud);
        if (r < 0)
            return err_sys(err, r, "taking what the Docker engine sends");
    }
    return r;
}
