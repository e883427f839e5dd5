/*
 * GET /files/download (execd.md 5.6). Opening and reading happen on a worker in pieces of 256 KiB,
 * the next one only when the client took the last. Invariants: the length that was announced is
 * sent exactly, or the connection is cut; files whose size says nothing (/proc) go chunked to their
 * end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "execd/agent.h"
#include "execd/errors.h"
#include "execd/expand.h"
#include "execd/handlers.h"
#include "execd/range.h"
#include "execd/work.h"
#include "net/url.h"

#define PIECE ((size_t)256 << 10)

struct download {
    struct agent *agent;
    struct h1_req *req; /* NULL: the client is gone */
    struct work work;
    bool busy, started;
    char *path, *range;        /* range: header, NULL = none */
    int64_t if_modified_since; /* -1 = not given */
    bool by_lines;
    struct line_range lines;

    /* worker's side while busy */
    int fd, error;
    struct stat st;
    uint64_t pos, left; /* next byte; how many are to come, UINT64_MAX = to the end */
    struct buf piece;
    bool at_end;
    struct err err;
};

static void download_free(struct download *d) {
    fd_close(d->fd);
    buf_done(&d->piece);
    free(d->path);
    free(d->range);
    free(d);
}

/* ---- worker ---- */

static int open_file(struct download *d) {
    d->fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (d->fd < 0 || fstat(d->fd, &d->st) < 0)
        return err_sys(&d->err, -errno, "%s", d->path);
    if (S_ISDIR(d->st.st_mode))
        return err_set(&d->err, -EISDIR, "%s is a directory", d->path);
    if (!S_ISREG(d->st.st_mode) && !S_ISCHR(d->st.st_mode))
        return err_set(&d->err, -EINVAL, "%s is not a regular file", d->path);
    return 0;
}

/* The next bytes of the file, at most `max`; 0 at its end. */
static ssize_t read_some(struct download *d, char *ret, size_t max) {
    ssize_t n;

    do {
        n = S_ISREG(d->st.st_mode) ? pread(d->fd, ret, max, (off_t)d->pos) : read(d->fd, ret, max);
    } while (n < 0 && errno == EINTR);
    if (n > 0)
        d->pos += (uint64_t)n;
    return n < 0 ? -errno : n;
}

static int fill_bytes(struct download *d) {
    int r = buf_reserve(&d->piece, PIECE);

    while (r == 0 && d->piece.len < PIECE && d->left > 0) {
        ssize_t n = read_some(d, d->piece.data + d->piece.len, MIN(PIECE - d->piece.len, d->left));
        if (n < 0)
            return (int)n;
        if (n == 0) {
            d->at_end = true;
            return d->left == UINT64_MAX ? 0 : -EIO; /* it became shorter than announced */
        }
        d->piece.len += (size_t)n;
        if (d->left != UINT64_MAX)
            d->left -= (uint64_t)n;
    }
    d->at_end = d->left == 0;
    return r;
}

/* A file of one piece is read before its length is announced: on some file systems sizes are only
 * estimates. */
static int read_small(struct download *d) {
    d->left = (uint64_t)d->st.st_size;
    int r = fill_bytes(d);
    if (r == -EIO && d->at_end)
        r = 0;
    d->st.st_size = (off_t)d->piece.len;
    d->at_end = true;
    return r < 0 ? err_sys(&d->err, r, "%s", d->path) : 0;
}

static void run_open(void *ud) {
    struct download *d = ud;

    d->error = open_file(d);
    if (d->error == 0 && S_ISREG(d->st.st_mode) && d->st.st_size > 0 &&
        d->st.st_size <= (off_t)PIECE && !d->by_lines && !d->range)
        d->error = read_small(d);
}

static int fill_lines(struct download *d) {
    char *raw = malloc(PIECE);
    int r = raw ? 0 : -ENOMEM;

    while (r == 0 && !d->at_end && d->piece.len < PIECE) {
        ssize_t n = read_some(d, raw, PIECE);
        if (n > 0)
            r = line_range_feed(&d->lines, raw, (size_t)n, &d->piece);
        else
            r = (int)n;
        d->at_end = n == 0 || d->lines.done;
    }
    free(raw);
    return r;
}

static void run_fill(void *ud) {
    struct download *d = ud;

    d->error = d->by_lines ? fill_lines(d) : fill_bytes(d);
    if (d->error < 0)
        err_sys(&d->err, d->error, "%s", d->path);
}

/* ---- loop ---- */

static void start_work(struct download *d, void (*run)(void *), void (*done)(void *)) {
    d->busy = true;
    if (work_start(d->agent->loop, &d->work, run, done, d) == 0)
        return;
    d->busy = false;
    if (h1_is_started(d->req))
        h1_abort(d->req);
    else
        reply_error(d->req, 500, ERR_RUNTIME, "no worker for the download");
}

static void on_filled(void *ud) {
    struct download *d = ud;
    static const struct h1_header text[] = {{"Content-Type", "text/plain; charset=utf-8"},
                                            {NULL, NULL}};
    struct h1_req *r = d->req;

    d->busy = false;
    if (!r) {
        download_free(d);
        return;
    }
    if (d->error < 0 && h1_is_started(r)) {
        h1_abort(r);
    } else if (d->error < 0) {
        reply_errno(r, d->error, &d->err);
    } else if (d->by_lines && d->at_end && !h1_is_started(r)) {
        h1_respond(r, 200, text, d->piece.data, d->piece.len);
    } else {
        if (!h1_is_started(r))
            h1_start(r, 200, text, -1);
        bool last = d->at_end;
        ssize_t queued = h1_write(r, d->piece.data, d->piece.len);
        buf_clear(&d->piece);
        if (queued >= 0 && last)
            h1_end(r);
        else if (queued >= 0 && queued <= (ssize_t)SOCK_HIGH_WATER)
            start_work(d, run_fill, on_filled);
    }
}

static void on_drain(struct h1_req *r, void *ud) {
    struct download *d = ud;
    if (!d->busy && !d->at_end)
        start_work(d, run_fill, on_filled);
}

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct download *d = ud;

    d->req = NULL;
    if (!d->busy)
        download_free(d);
}

/* attachment; filename="…": percent-encoded where it is not plain ASCII, quoted pairs inside. */
static char *disposition(const char *path) {
    const char *base = path_base(path);
    _cleanup_buf_ struct buf b = BUF_INIT(64 << 10);
    bool plain = true;

    for (const char *p = base; *p; p++)
        plain &= *p >= ' ' && (unsigned char)*p < 0x7f;
    if (!plain) {
        _cleanup_free_ char *enc = url_encode(base, false);
        return enc ? str_printf("attachment; filename=\"%s\"; filename*=UTF-8''%s", enc, enc)
                   : NULL;
    }
    buf_str(&b, "attachment; filename=\"");
    for (const char *p = base; *p; p++) {
        if (*p == '"' || *p == '\\')
            buf_char(&b, '\\');
        buf_char(&b, *p);
    }
    buf_char(&b, '"');
    return buf_take(&b, NULL);
}

static void refuse_range(struct download *d) {
    char size[48];

    snprintf(size, sizeof size, "bytes */%llu", (unsigned long long)d->st.st_size);
    const struct h1_header headers[] = {{"Content-Range", size}, {NULL, NULL}};
    reply_error_with(d->req, 416, headers, ERR_UNKNOWN, "the range cannot be satisfied");
}

static void send_head(struct download *d, int status, uint64_t start, uint64_t last,
                      int64_t length) {
    char modified[40], range[80];
    _cleanup_free_ char *name = disposition(d->path);

    http_date_format(d->st.st_mtim.tv_sec, modified);
    snprintf(range, sizeof range, "bytes %llu-%llu/%llu", (unsigned long long)start,
             (unsigned long long)last, (unsigned long long)d->st.st_size);
    struct h1_header headers[] = {{"Content-Type", "application/octet-stream"},
                                  {"Accept-Ranges", "bytes"},
                                  {"Last-Modified", modified},
                                  {"Content-Disposition", name ? name : "attachment"},
                                  {status == 206 ? "Content-Range" : NULL, range},
                                  {NULL, NULL}};
    h1_start(d->req, status, headers, length);
}

/* Status and extent of a byte download. False: answered. */
static bool begin_bytes(struct download *d) {
    bool sized = S_ISREG(d->st.st_mode) && d->st.st_size > 0;
    uint64_t start = 0, last = 0;

    d->left = UINT64_MAX;
    if (!sized && !d->range) { /* /proc and devices: the end is where it is */
        send_head(d, 200, 0, 0, -1);
        return true;
    }
    switch (range_parse(d->range, sized ? (uint64_t)d->st.st_size : 0, &start, &last)) {
    case RANGE_BAD:
        refuse_range(d);
        return false;
    case RANGE_PART:
        d->pos = start;
        d->left = last - start + 1;
        send_head(d, 206, start, last, (int64_t)d->left);
        return true;
    default:
        d->left = (uint64_t)d->st.st_size;
        if (d->if_modified_since >= d->st.st_mtim.tv_sec) {
            h1_respond(d->req, 304, NULL, NULL, 0);
            return false;
        }
        send_head(d, 200, 0, 0, d->st.st_size);
        return true;
    }
}

static void on_opened(void *ud) {
    struct download *d = ud;

    d->busy = false;
    if (!d->req) {
        download_free(d);
        return;
    }
    if (d->error == -EINVAL || d->error == -EISDIR)
        reply_error(d->req, 400, ERR_FILE, "%s", err_text(&d->err));
    else if (d->error < 0)
        reply_errno(d->req, d->error, &d->err);
    else if (!d->by_lines && !begin_bytes(d))
        return;
    else if (d->piece.len > 0)
        on_filled(d);
    else
        start_work(d, run_fill, on_filled);
}

/* offset and limit: 0 = neither given, 1 = by lines, -EINVAL with a text. */
static int parse_lines(const struct query *q, struct download *d, struct err *err) {
    const char *offset = query_get(q, "offset"), *limit = query_get(q, "limit");
    uint64_t first = 1, count = UINT64_MAX;

    if (!offset && !limit)
        return 0;
    if (!str_is_empty(offset) &&
        (str_to_u64(offset, &first) < 0 || first == 0 || first > INT64_MAX))
        return err_set(err, -EINVAL, "offset must be the number of a line, from 1");
    if (!str_is_empty(limit) && (str_to_u64(limit, &count) < 0 || count == 0 || count > INT64_MAX))
        return err_set(err, -EINVAL, "limit must be a number of lines, at least 1");
    if (d->range)
        return err_set(err, -EINVAL, "offset and limit exclude a Range header");
    line_range_init(&d->lines, first, count);
    d->by_lines = true;
    return 1;
}

static int prepare(struct download *d, const struct query *q, const char *path, struct err *err) {
    _cleanup_strv_ struct strv env = {0};
    const char *range = h1_req_header(d->req, "Range");
    int r = env_build(&d->agent->env, NULL, &env);

    if (r < 0)
        return err_sys(err, r, "environment");
    if (range && !(d->range = strdup(range)))
        return err_set(err, -ENOMEM, "out of memory");
    if (http_date_parse(h1_req_header(d->req, "If-Modified-Since"), &d->if_modified_since) < 0)
        d->if_modified_since = -1;
    r = parse_lines(q, d, err);
    return r < 0 ? r : expand_file_path(path, &env, false, &d->path, err);
}

HANDLER(handle_files_download) {
    static const struct h1_req_ops ops = {.on_drain = on_drain, .on_close = on_close};
    const char *raw = h1_req_query(r), *path;
    struct download *d = calloc(1, sizeof *d);
    struct err err = {0};
    struct query q = {0};
    int e = d ? query_parse(raw, raw ? strlen(raw) : 0, &q) : -ENOMEM;

    if (e < 0) {
        free(d);
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
        return;
    }
    *d = (struct download){.agent = ud, .req = r, .fd = -1};
    buf_init(&d->piece, 4 * PIECE);
    path = query_get(&q, "path");
    if (!str_is_empty(path))
        e = prepare(d, &q, path, &err);
    if (str_is_empty(path) || e < 0) {
        download_free(d);
        if (str_is_empty(path))
            reply_error(r, 400, ERR_QUERY, "query parameter path is missing");
        else
            reply_error(r, e == -EINVAL ? 400 : 500, e == -EINVAL ? ERR_BODY : ERR_RUNTIME, "%s",
                        err_text(&err));
    } else {
        h1_req_set_ops(r, &ops, d);
        start_work(d, run_open, on_opened);
    }
    query_done(&q);
}
