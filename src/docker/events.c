/* The engine's events, one call that lasts. */
#include <errno.h>

#include "docker/internal.h"
#include "docker/lines.h"

static int take_events(struct json_lines *lines, const char *piece, size_t len,
                       int (*on_event)(const json_t *event, void *ud), void *ud, struct err *err) {
    for (;;) {
        _cleanup_json_ json_t *event = NULL;
        int r = json_lines_next(lines, &piece, &len, &event, err);

        if (r <= 0)
            return r;
        r = on_event(event, ud);
        if (r < 0)
            return err_sys(err, r, "an event of the Docker engine");
    }
}

int engine_events(struct engine *e, const json_t *filters, int64_t since_s,
                  void (*on_open)(void *ud), int (*on_event)(const json_t *event, void *ud),
                  void *ud, struct engine_cancel *cancel, struct err *err) {
    _cleanup_buf_ struct buf query = BUF_INIT((size_t)1 << 20);
    _cleanup_lines_ struct json_lines lines = {0};
    _cleanup_exchange_ struct exchange x = {0};
    struct request q = {.method = "GET",
                        .path = "/events",
                        .limit = limit_call(e->timeout_ms, cancel)}; /* until it is open */
    const char *piece;
    size_t len;
    int r;

    engine_status_set(0);
    if (since_s) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)since_s);
        engine_query_add(&query, "since", text);
    }
    if (engine_query_json(&query, "filters", filters) < 0 || !buf_ok(&query))
        return engine_oom(err);
    q.query = query.data;
    json_lines_init(&lines, ENGINE_MAX_LINE);
    r = exchange_begin(&x, e, &q, err);
    if (r < 0)
        return r;
    x.limit = limit_stream(-1, cancel);
    h1_response_drop_head(&x.response);
    if (on_open)
        on_open(ud);
    while ((r = exchange_next(&x, &piece, &len, err)) > 0) {
        r = take_events(&lines, piece, len, on_event, ud, err);
        if (r < 0)
            return r;
    }
    return r < 0 ? r : err_set(err, -ECONNRESET, "the Docker engine ended its events");
}
