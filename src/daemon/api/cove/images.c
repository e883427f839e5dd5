/*
 * Image routes (see images.h). An upload is passed to the importing worker through a pipe: when the
 * pipe is full the client's body is not read. A client that goes away cancels its import. Loop
 * thread.
 */
#include "daemon/api/cove/images.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/path.h"
#include "daemon/sandbox/images.h"
#include "net/url.h"

struct import {
    struct xch *x;
    struct import_job *job;
    uv_poll_t poll;                     /* the pipe's write end, while it is full */
    bool has_poll, body_ended, is_over; /* is_over: the job has answered */
    int pipe_fd;
    char *held; /* bytes that did not fit */
    size_t held_len, held_at;
    bool as_lines, started;
    char *name, *path;
};

static void answer_error(struct xch *x, int code, const struct err *err) {
    static const struct {
        int code, status;
        const char *name;
    } table[] = {
        {-ENOENT, 404, "IMAGE::NOT_FOUND"},    {-EBUSY, 409, "IMAGE::IN_USE"},
        {-EINVAL, 400, "IMAGE::INVALID"},      {-EBADMSG, 400, "IMAGE::INVALID"},
        {-E2BIG, 400, "IMAGE::TOO_LARGE"},     {-EOPNOTSUPP, 400, "IMAGE::UNSUPPORTED"},
        {-ENOSPC, 507, "IMAGE::NO_SPACE"},     {-EACCES, 403, "IMAGE::FORBIDDEN"},
        {-ECANCELED, 499, "IMAGE::CANCELLED"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].code == code) {
            xch_error(x, table[i].status, table[i].name, "%s", err_text(err));
            return;
        }
    xch_error(x, 500, "IMAGE::FAILED", "%s", err_text(err));
}

static bool is_there(struct xch *x) {
    if (!x->api->o.images)
        xch_error(
            x, 501, "IMAGE::UNSUPPORTED",
            "The images of this runtime are its engine's: docker images, docker load or docker "
            "import, docker rmi.");
    return x->api->o.images != NULL;
}

/* ---- list, removal ---- */

static void on_list(int code, const struct err *err, const json_t *body, void *ud) {
    struct xch *x = ud;
    if (code < 0)
        answer_error(x, code, err);
    else
        xch_json(x, 200, json_pack("{s:O}", "items", body));
    xch_release(x);
}

void cove_images_list(struct xch *x) {
    if (!is_there(x))
        return;
    xch_hold(x);
    images_list(x->api->o.images, on_list, x);
}

static void on_removed(int code, const struct err *err, const json_t *body, void *ud) {
    struct xch *x = ud;
    if (code < 0)
        answer_error(x, code, err);
    else
        xch_empty(x, 204);
    xch_release(x);
}

void cove_images_remove(struct xch *x, const char *raw_name) {
    _cleanup_free_ char *name = NULL;

    if (!is_there(x))
        return;
    if (url_decode(raw_name, strlen(raw_name), &name) < 0) {
        xch_error(x, 400, "IMAGE::INVALID", "The name has a bad percent escape.");
        return;
    }
    xch_hold(x);
    images_remove(x->api->o.images, name, on_removed, x);
}

/* ---- import ---- */

static void import_free(struct import *im) {
    fd_close(im->pipe_fd);
    free(im->held);
    free(im->name);
    free(im->path);
    free(im);
}

static void on_poll_closed(uv_handle_t *h) {
    import_free(h->data);
}

/* The pipe's end is the end of the archive. */
static void close_pipe(struct import *im) {
    if (im->has_poll)
        uv_poll_stop(&im->poll);
    im->pipe_fd = fd_close(im->pipe_fd);
}

/* The exchange is answered or gone, and the job is over. */
static void finish(struct import *im) {
    struct xch *x = im->x;

    xch_take_events(x);
    if (im->has_poll) {
        uv_poll_stop(&im->poll);
        uv_close((uv_handle_t *)&im->poll, on_poll_closed);
    } else {
        import_free(im);
    }
    xch_release(x);
}

static void write_line(struct import *im, json_t *o) {
    _cleanup_buf_ struct buf b = BUF_INIT(65536);

    if (im->x->req && buf_json(&b, o) == 0 && buf_char(&b, '\n') == 0) {
        if (!im->started)
            h1_start(im->x->req, 200, xch_headers(im->x, "application/x-ndjson"), -1);
        im->started = true;
        h1_write(im->x->req, b.data, b.len);
    }
    json_decref(o);
}

static void on_progress(const struct images_progress *p, void *ud) {
    struct import *im = ud;
    if (im->as_lines && im->x->req)
        write_line(im, json_pack("{s:s,s:i,s:i,s:I,s:I}", "phase", p->phase, "layer", (int)p->layer,
                                 "layers", (int)p->layers, "bytes", (json_int_t)p->bytes, "entries",
                                 (json_int_t)p->entries));
}

static void on_imported(int code, const struct err *err, const json_t *body, void *ud) {
    struct import *im = ud;
    struct xch *x = im->x;

    im->is_over = true;
    if (im->as_lines && im->started) {
        if (code < 0)
            write_line(im, json_pack("{s:{s:s,s:s}}", "error", "code", "IMAGE::FAILED", "message",
                                     err_text(err)));
        else
            write_line(im, json_pack("{s:O}", "image", body));
        if (x->req)
            h1_end(x->req);
    } else if (code < 0) {
        answer_error(x, code, err);
    } else {
        xch_json(x, 201, json_incref((json_t *)body));
    }
    finish(im);
}

static void begin_job(struct import *im, const char *path, int fd) {
    struct images_import o = {
        .reference = im->name,
        .path = path,
        .fd = fd,
        .on_progress = on_progress,
        .cb = on_imported,
        .ud = im,
    };
    struct import_job *j = images_import(im->x->api->o.images, &o);
    if (j)
        im->job = j; /* else `im` is gone already */
}

/* ---- the upload ---- */

/* Writes what is held; true: all of it is out. */
static bool flush_held(struct import *im) {
    while (im->held_at < im->held_len) {
        ssize_t n = write(im->pipe_fd, im->held + im->held_at, im->held_len - im->held_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0) { /* the worker has given up: its answer comes */
            im->held_at = im->held_len;
            break;
        }
        im->held_at += (size_t)n;
    }
    free(im->held);
    im->held = NULL;
    im->held_len = im->held_at = 0;
    return true;
}

static void on_writable(uv_poll_t *h, int status, int events) {
    struct import *im = h->data;

    if (!flush_held(im))
        return;
    uv_poll_stop(h);
    if (im->body_ended)
        close_pipe(im);
    else if (im->x->req)
        h1_req_body_resume(im->x->req);
}

static void on_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    struct import *im = ud;

    if (im->pipe_fd < 0 || im->is_over)
        return;
    im->held = malloc(len);
    if (!im->held) {
        images_import_cancel(im->job);
        close_pipe(im);
        return;
    }
    memcpy(im->held, data, len);
    im->held_len = len;
    im->held_at = 0;
    if (flush_held(im))
        return;
    h1_req_body_pause(r);
    uv_poll_start(&im->poll, UV_WRITABLE, on_writable);
}

static void on_body_end(struct h1_req *r, void *ud) {
    struct import *im = ud;
    im->body_ended = true;
    if (!im->held)
        close_pipe(im);
}

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct import *im = ud;
    struct xch *x = im->x;

    if (!im->is_over) { /* the client has gone */
        images_import_cancel(im->job);
        close_pipe(im);
    }
    x->req = NULL;
    xch_release(x);
}

static const struct h1_req_ops upload_ops = {
    .on_body = on_body, .on_body_end = on_body_end, .on_close = on_close};

static int open_pipe(struct import *im, int *ret_read) {
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    im->pipe_fd = p[1];
    *ret_read = p[0];
    fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
    int r = fd_set_nonblock(p[1], true);
    if (r == 0)
        r = uv_poll_init(im->x->api->o.loop, &im->poll, p[1]);
    if (r < 0) {
        fd_close(p[0]);
        return r;
    }
    im->has_poll = true;
    im->poll.data = im;
    return 0;
}

static void begin_upload(struct import *im) {
    struct xch *x = im->x;
    int fd = -1, r = open_pipe(im, &fd);

    if (r < 0) {
        xch_error(x, 500, "IMAGE::FAILED", "no pipe for the upload");
        finish(im);
        return;
    }
    begin_job(im, NULL, fd);
    if (x->req && !h1_is_started(x->req)) { /* else it was refused, and `im` is going */
        h1_req_set_ops(x->req, &upload_ops, im);
        h1_req_body_start(x->req, 0);
    }
}

/* ---- import by path ---- */

static void path_close(struct h1_req *r, bool completed, void *ud) {
    struct import *im = ud;
    struct xch *x = im->x;
    if (!im->is_over)
        images_import_cancel(im->job);
    x->req = NULL;
    xch_release(x);
}

static void path_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    static const struct h1_req_ops ops = {.on_close = path_close};
    struct import *im = ud;
    struct err err = {0};
    _cleanup_json_ json_t *in = json_parse(data, len, &err);
    const char *path = json_str(in, "path");

    if (!path || path[0] != '/') {
        xch_error(im->x, 400, "IMAGE::INVALID", "The body must be {\"path\": \"/absolute/path\"}.");
        finish(im);
        return;
    }
    struct xch *x = im->x;
    begin_job(im, path, -1);
    if (x->req && !h1_is_started(x->req))
        h1_req_set_ops(x->req, &ops, im);
}

static bool is_json(const struct xch *x) {
    const char *type = h1_req_header(x->req, "Content-Type");
    return type && strncasecmp(type, "application/json", strlen("application/json")) == 0;
}

void cove_images_import(struct xch *x) {
    struct query q = {0};
    const char *raw = h1_req_query(x->req), *accept = h1_req_header(x->req, "Accept");

    if (!is_there(x))
        return;
    if (is_json(x) && !x->is_operator) {
        xch_error(x, 403, "IMAGE::FORBIDDEN",
                  "Only root on the Unix socket may name a path of this machine.");
        return;
    }
    query_parse(raw, raw ? strlen(raw) : 0, &q);
    const char *name = query_get(&q, "name");
    struct import *im = calloc(1, sizeof *im);
    if (!im || !name || !(im->name = strdup(name))) {
        xch_error(x, name ? 500 : 400, name ? "IMAGE::FAILED" : "IMAGE::INVALID",
                  name ? "out of memory" : "The query must have ?name=local/NAME.");
        free(im);
        query_done(&q);
        return;
    }
    query_done(&q);
    im->x = x;
    im->pipe_fd = -1;
    im->as_lines = accept && strstr(accept, "application/x-ndjson");
    xch_hold(x);
    if (is_json(x))
        h1_req_collect(x->req, 65536, path_body, im);
    else
        begin_upload(im);
}
