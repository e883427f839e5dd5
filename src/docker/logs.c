/* The output of a container: the last bytes of it, as text. */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "docker/demux.h"
#include "docker/internal.h"

#define MAX_LOGS ((size_t)32 << 20)
#define SLACK ((size_t)64 << 10) /* kept above the maximum, so that not every piece moves all */

struct tail {
    struct buf text;
    size_t max;
    struct demux demux;
    bool is_raw; /* a terminal's: no frames */
};

static int keep(struct tail *t, const char *s, size_t n, struct err *err) {
    if (n > t->max) {
        s += n - t->max;
        n = t->max;
    }
    if (buf_append(&t->text, s, n) < 0)
        return engine_oom(err);
    if (t->text.len > t->max + SLACK)
        buf_consume(&t->text, t->text.len - t->max);
    return 0;
}

static int take(struct tail *t, const char *data, size_t len, struct err *err) {
    if (t->is_raw)
        return keep(t, data, len, err);
    for (;;) {
        const char *piece;
        size_t n;
        int which, r = demux_next(&t->demux, &data, &len, SIZE_MAX, &which, &piece, &n, err);

        if (r <= 0)
            return r;
        if (which == DEMUX_SYSTEM)
            return engine_words(err, -EREMOTEIO, piece, n);
        r = keep(t, piece, n, err);
        if (r < 0)
            return r;
    }
}

/* The last t->max bytes as valid UTF-8 without NUL. */
static int as_text(struct tail *t, char **ret) {
    _cleanup_buf_ struct buf out = BUF_INIT(3 * t->max + 16);
    const char *s = t->text.data;
    size_t left = t->text.len;

    if (left > t->max) {
        s += left - t->max;
        left = t->max;
    }
    while (left) {
        int n = *s ? utf8_next(s, left) : 0;
        if (n > 0)
            buf_append(&out, s, (size_t)n);
        else
            buf_str(&out, "\xef\xbf\xbd");
        n = MAX(n, 1);
        s += n;
        left -= (size_t)n;
    }
    /* Replacements are longer than what they stand for. One for a character that the cut went
     * through falls off again here. */
    if (out.len > t->max) {
        size_t cut = out.len - t->max;
        while (cut < out.len && ((unsigned char)out.data[cut] & 0xc0) == 0x80)
            cut++;
        buf_consume(&out, cut);
    }
    *ret = buf_take(&out, NULL);
    return *ret ? 0 : -ENOMEM;
}

static int has_terminal(struct engine *e, const char *id, bool *ret, struct err *err) {
    _cleanup_json_ json_t *inspect = NULL;
    int r = engine_container_inspect(e, id, &inspect, err);

    if (r >= 0)
        *ret = json_bool(json_object_get(inspect, "Config"), "Tty", false);
    return r;
}

static int logs_address(const char *id, unsigned tail, bool timestamps, int64_t since_us,
                        struct buf *path, struct buf *query, struct err *err) {
    int r = engine_path(path, "/containers/", id, "/logs", err);

    if (r < 0)
        return r;
    buf_str(query, "stdout=1&stderr=1");
    if (tail)
        buf_printf(query, "&tail=%u", tail);
    if (timestamps)
        buf_str(query, "&timestamps=1");
    if (since_us > 0)
        buf_printf(query, "&since=%lld.%06lld", (long long)(since_us / 1000000),
                   (long long)(since_us % 1000000));
    return buf_ok(query) ? 0 : engine_oom(err);
}

int engine_container_logs(struct engine *e, const char *id, unsigned tail, bool timestamps,
                          int64_t since_us, size_t max, char **ret, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192), query = BUF_INIT(256);
    _cleanup_exchange_ struct exchange x = {0};
    struct request q = {.method = "GET", .limit = limit_call(e->timeout_ms, NULL)};
    struct tail t = {.max = MIN(max, MAX_LOGS)};
    const char *piece;
    size_t len;
    int r;

    engine_status_set(0);
    r = logs_address(id, tail, timestamps, since_us, &path, &query, err);
    if (r >= 0)
        r = has_terminal(e, id, &t.is_raw, err);
    if (r < 0)
        return r;
    q.path = path.data;
    q.query = query.data;
    r = exchange_begin(&x, e, &q, err);
    if (r < 0)
        return r;
    buf_init(&t.text, 2 * t.max + SLACK);
    while (r >= 0 && (r = exchange_next(&x, &piece, &len, err)) > 0)
        r = take(&t, piece, len, err);
    if (r >= 0 && as_text(&t, ret) < 0)
        r = engine_oom(err);
    buf_done(&t.text);
    return r < 0 ? r : 0;
}
