/*
 * POST /files/upload (execd.md 5.5). The body is parsed and written on a worker, step by step: the
 * loop gathers bytes in one buffer while the worker has the other; the connection is paused while
 * both are full, so memory is bounded whatever the size. Invariant: the worker's half of the struct
 * is touched by the loop only between two steps.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/list.h"
#include "base/path.h"
#include "execd/agent.h"
#include "execd/body.h"
#include "execd/errors.h"
#include "execd/expand.h"
#include "execd/handlers.h"
#include "execd/target.h"
#include "execd/work.h"
#include "net/multipart.h"

#define FILL ((size_t)512 << 10) /* pause the client above */
#define MAX_METADATA ((size_t)1 << 20)

struct entry { /* one metadata part, or one file part that came before its metadata */
    struct list node;
    char *path;
    struct perm perm;
    int spooled; /* descriptor of the content */
};

enum part { PART_OTHER, PART_METADATA, PART_FILE };

struct upload {
    struct agent *agent;
    struct h1_req *req; /* NULL: the client is gone */
    struct buf filling; /* loop's side */
    bool paused, body_ended, busy, answered;
    struct work work;

    /* worker's side */
    struct multipart *parser;
    struct buf feeding, text;
    struct strv env;
    enum part part;
    struct list waiting_meta, waiting_files;
    size_t n_meta, n_files;
    struct entry *current; /* of the file part being written */
    struct target target;
    bool last_step, finished;
    int error;
    const char *code; /* of the envelope when error is a bad request */
    struct err err;
};

static void entry_free(struct entry *e) {
    if (!e)
        return;
    fd_close(e->spooled);
    perm_done(&e->perm);
    free(e->path);
    free(e);
}

static struct entry *first(struct list *l) {
    if (list_is_empty(l))
        return NULL;
    struct entry *e = list_entry(l->next, struct entry, node);
    list_remove(&e->node);
    return e;
}

static int bad(struct upload *u, const char *code, const char *text) {
    u->code = code;
    return err_set(&u->err, -EINVAL, "%s", text);
}

/* ---- worker: parts ---- */

static int parse_metadata(struct upload *u, struct entry *e) {
    _cleanup_json_ json_t *j = NULL;
    const char *path = NULL;
    int r = body_parse(u->text.data ? u->text.data : "", u->text.len, false, &j, &u->err);

    if (r == 0)
        r = body_str(j, "path", &path, &u->err);
    if (r == 0 && str_is_empty(path))
        r = err_set(&u->err, -EINVAL, "path is empty");
    if (r < 0) {
        u->code = ERR_FILE_METADATA;
        return err_wrap(&u->err, "metadata");
    }
    r = perm_parse(j, &e->perm, &u->err);
    if (r == 0)
        r = expand_file_path(path, &u->env, false, &e->path, &u->err);
    return r == -EINVAL ? err_set(&u->err, -EPROTO, "%s", err_text(&u->err))
                        : r; /* 500, not a bad form */
}

/* Content that waited for its metadata goes to its place now. */
static int place_spooled(struct upload *u, struct entry *meta, struct entry *file) {
    char chunk[32 << 10];
    off_t pos = 0;
    int r = target_open(&u->target, meta->path, &meta->perm, &u->err);

    while (r == 0) {
        ssize_t n = pread(file->spooled, chunk, sizeof chunk, pos);
        if (n <= 0)
            break;
        r = target_write(&u->target, chunk, (size_t)n, &u->err);
        pos += n;
    }
    if (r == 0)
        r = target_commit(&u->target, &meta->perm, &u->err);
    target_done(&u->target);
    return r;
}

static int end_metadata(struct upload *u) {
    struct entry *e = calloc(1, sizeof *e), *file;
    int r;

    if (!e)
        return err_set(&u->err, -ENOMEM, "out of memory");
    list_init(&e->node);
    e->spooled = -1;
    u->n_meta++;
    r = parse_metadata(u, e);
    buf_clear(&u->text);
    if (r == 0 && (file = first(&u->waiting_files))) {
        r = place_spooled(u, e, file);
        entry_free(file);
    } else if (r == 0) {
        list_append(&u->waiting_meta, &e->node);
        return 0;
    }
    entry_free(e);
    return r;
}

static int begin_file(struct upload *u) {
    u->n_files++;
    u->current = first(&u->waiting_meta);
    if (u->current)
        return target_open(&u->target, u->current->path, &u->current->perm, &u->err);
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(&u->err, -ENOMEM, "out of memory");
    list_init(&e->node);
    e->spooled = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (e->spooled < 0)
        e->spooled = memfd_create("cove-upload", MFD_CLOEXEC);
    u->current = e;
    return e->spooled < 0 ? err_sys(&u->err, -errno, "no place for content before its metadata")
                          : 0;
}

static int end_file(struct upload *u) {
    struct entry *e = TAKE_PTR(u->current);
    int r = 0;

    if (e->spooled >= 0) {
        list_append(&u->waiting_files, &e->node);
        return 0;
    }
    r = target_commit(&u->target, &e->perm, &u->err);
    target_done(&u->target);
    entry_free(e);
    return r;
}

static int on_part(const struct multipart_part *p, void *ud) {
    struct upload *u = ud;

    u->part = PART_OTHER;
    if (str_eq(p->name, "metadata"))
        u->part = PART_METADATA;
    else if (str_eq(p->name, "file"))
        u->part = PART_FILE;
    return u->part == PART_FILE ? begin_file(u) : 0;
}

static int on_part_data(const char *data, size_t len, void *ud) {
    struct upload *u = ud;

    if (u->part == PART_METADATA)
        return buf_append(&u->text, data, len) < 0
                   ? bad(u, ERR_FILE_METADATA, "metadata is longer than 1 MiB")
                   : 0;
    if (u->part != PART_FILE)
        return 0;
    if (u->current->spooled < 0)
        return target_write(&u->target, data, len, &u->err);
    int r = fd_write_full(u->current->spooled, data, len);
    return r < 0 ? err_sys(&u->err, r, "temporary file") : 0;
}

static int on_part_end(void *ud) {
    struct upload *u = ud;

    if (u->part == PART_METADATA)
        return end_metadata(u);
    return u->part == PART_FILE ? end_file(u) : 0;
}

static int check_counts(struct upload *u) {
    if (u->n_meta == 0)
        return bad(u, ERR_FILE_METADATA, "the form has no metadata part");
    if (u->n_files == 0)
        return bad(u, ERR_FILE_CONTENT, "the form has no file part");
    if (u->n_meta != u->n_files)
        return bad(u, ERR_FILE, "the numbers of metadata and file parts differ");
    return 0;
}

static void run_step(void *ud) {
    struct upload *u = ud;
    struct err form = {0};
    int r = multipart_feed(u->parser, u->feeding.data, u->feeding.len, &form);

    if (r == 0 && u->last_step)
        r = multipart_end(u->parser, &form);
    if (r < 0 && u->err.code == 0) { /* not from a part's handling: the form itself is bad */
        u->code = ERR_FILE;
        r = err_set(&u->err, -EINVAL, "%s", err_text(&form));
    } else if (r == 0 && u->last_step) {
        r = check_counts(u);
    }
    u->error = u->err.code ? u->err.code : r;
    u->finished = u->last_step || u->error < 0;
    buf_clear(&u->feeding);
    if (u->finished)
        target_done(&u->target);
}

/* ---- loop ---- */

static void upload_free(struct upload *u) {
    struct entry *e;

    while ((e = first(&u->waiting_meta)) || (e = first(&u->waiting_files)))
        entry_free(e);
    entry_free(u->current);
    target_done(&u->target);
    multipart_free(u->parser);
    strv_done(&u->env);
    buf_done(&u->filling);
    buf_done(&u->feeding);
    buf_done(&u->text);
    free(u);
}

static void answer(struct upload *u) {
    u->answered = true;
    if (!u->req)
        return;
    if (u->error == 0)
        reply_empty(u->req);
    else if (u->code && u->error == -EINVAL)
        reply_error(u->req, 400, u->code, "%s", err_text(&u->err));
    else
        reply_error(u->req, 500, ERR_RUNTIME, "%s", err_text(&u->err));
}

static void on_step_done(void *ud);

static void step(struct upload *u) {
    struct buf swap = u->feeding;

    if (u->busy || u->answered || (u->filling.len == 0 && !u->body_ended))
        return;
    u->feeding = u->filling;
    u->filling = swap;
    u->last_step = u->body_ended;
    u->busy = true;
    if (work_start(u->agent->loop, &u->work, run_step, on_step_done, u) < 0) {
        u->busy = false;
        u->error = err_set(&u->err, -EAGAIN, "no worker for the upload");
        answer(u);
    }
}

static void on_step_done(void *ud) {
    struct upload *u = ud;

    u->busy = false;
    if (!u->req) {
        upload_free(u);
        return;
    }
    if (u->finished) {
        answer(u);
        return;
    }
    if (u->paused) {
        u->paused = false;
        h1_req_body_resume(u->req);
    }
    step(u);
}

static void on_body(struct h1_req *r, const char *data, size_t len, void *ud) {
    struct upload *u = ud;

    if (u->answered)
        return;
    buf_append(&u->filling, data, len);
    if (u->filling.len > FILL && u->busy && !u->paused) {
        u->paused = true;
        h1_req_body_pause(r);
    }
    step(u);
}

static void on_body_end(struct h1_req *r, void *ud) {
    struct upload *u = ud;
    u->body_ended = true;
    step(u);
}

static void on_close(struct h1_req *r, bool completed, void *ud) {
    struct upload *u = ud;

    u->req = NULL;
    u->answered = true;
    if (!u->busy)
        upload_free(u);
}

HANDLER(handle_files_upload) {
    static const struct multipart_ops parts = {on_part, on_part_data, on_part_end};
    static const struct h1_req_ops ops = {
        .on_body = on_body, .on_body_end = on_body_end, .on_close = on_close};
    struct agent *a = ud;
    struct upload *u = calloc(1, sizeof *u);
    struct err err = {0};
    int e = u ? 0 : err_set(&err, -ENOMEM, "out of memory");

    if (u) {
        *u = (struct upload){.agent = a, .req = r, .target = TARGET_INIT};
        buf_init(&u->filling, 0);
        buf_init(&u->feeding, 0);
        buf_init(&u->text, MAX_METADATA);
        list_init(&u->waiting_meta);
        list_init(&u->waiting_files);
        const char *type = h1_req_header(r, "Content-Type");
        e = multipart_new(type ? type : "", &parts, u, &u->parser, &err);
    }
    if (e == 0 && (e = env_build(&a->env, NULL, &u->env)) < 0)
        err_sys(&err, e, "environment");
    if (e < 0) {
        if (u)
            upload_free(u);
        reply_error(r, e == -EINVAL ? 400 : 500, e == -EINVAL ? ERR_FILE : ERR_RUNTIME, "%s",
                    err_text(&err));
        return;
    }
    h1_req_set_ops(r, &ops, u);
    h1_req_body_start(r, 0);
}
