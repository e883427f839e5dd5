/*
 * The image store behind worker jobs (see images.h). An upload arrives through a pipe and is
 * spooled to an unnamed file of the store's file system first: archives of several layers must be
 * rewound. Loop thread, but for the run functions and on_store_progress.
 */
#include "daemon/sandbox/images.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "daemon/sandbox/work.h"
#include "oci/store.h"

#define PROGRESS_INTERVAL_US 100000

struct images {
    struct store *store;
    struct service *service;
};

/* ---- layers that nothing needs ---- */

struct collect_job {
    struct job job;
    struct images *im;
};

/* What a killed import has already published, and what was in use when its image went. */
static void run_collect(struct job *j) {
    struct images *im = container_of(j, struct collect_job, job)->im;
    _cleanup_strv_ struct strv layers = {0};
    struct err err = {0};
    size_t freed = 0;
    int r = service_layers_in_use(im->service, &layers);

    if (r == 0)
        r = store_gc(im->store, (const char *const *)layers.v, &freed, &err);
    if (r < 0)
        log_warn("image layers not collected", LOG_ERR(&err));
    else if (freed > 0)
        log_info("image layers collected", LOG_INT("layers", freed));
}

static void collect_done(struct job *j) {
    free(container_of(j, struct collect_job, job));
}

void images_collect(struct images *im) {
    struct collect_job *c = calloc(1, sizeof *c);

    if (!c)
        return; /* the next start will */
    c->im = im;
    c->job.run = run_collect;
    c->job.done = collect_done;
    service_submit(im->service, &c->job);
}

int images_open(const char *dir, const char *state_dir, struct service *s, struct images **ret,
                struct err *err) {
    const struct store_opts so = {.user_dir = state_dir};
    struct images *im = calloc(1, sizeof *im);

    if (!im)
        return err_set(err, -ENOMEM, "out of memory");
    im->service = s;
    int r = store_open(dir, &so, &im->store, err);
    if (r < 0) {
        free(im);
        return r;
    }
    *ret = im;
    return 0;
}

void images_close(struct images *im) {
    if (!im)
        return;
    store_free(im->store);
    free(im);
}

static void add_time(json_t *o, const char *key, int64_t us) {
    char text[RFC3339_SIZE];
    if (us <= 0)
        return;
    rfc3339_format(us, text);
    json_object_set_new(o, key, json_string(text));
}

static json_t *image_to_json(const struct image *img) {
    json_t *o = json_pack("{s:s,s:s,s:I,s:I,s:s,s:s}", "reference", img->reference, "id", img->id,
                          "sizeBytes", (json_int_t)img->size_bytes, "layers",
                          (json_int_t)img->n_layers, "os", img->os, "arch", img->arch);
    add_time(o, "createdAt", img->created_us);
    add_time(o, "importedAt", img->imported_us);
    return o;
}

/* ---- list and removal ---- */

struct simple_job {
    struct job job;
    struct images *im;
    char *reference;
    json_t *body;
    int code;
    struct err err;
    images_cb cb;
    void *ud;
};

static void simple_done(struct job *j) {
    struct simple_job *s = container_of(j, struct simple_job, job);
    s->cb(s->code, &s->err, s->body, s->ud);
    json_decref(s->body);
    free(s->reference);
    free(s);
}

static void run_list(struct job *j) {
    struct simple_job *s = container_of(j, struct simple_job, job);
    struct image *all = NULL;
    size_t n = 0;

    s->code = store_list(s->im->store, &all, &n, &s->err);
    if (s->code < 0)
        return;
    s->body = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(s->body, image_to_json(&all[i]));
    image_list_free(all, n);
}

static void run_remove(struct job *j) {
    struct simple_job *s = container_of(j, struct simple_job, job);
    _cleanup_strv_ struct strv layers = {0};

    s->code = service_layers_in_use(s->im->service, &layers);
    if (s->code == 0)
        s->code = store_remove(s->im->store, s->reference, (const char *const *)layers.v, &s->err);
    else
        err_sys(&s->err, s->code, "layers in use");
}

static void begin(struct images *im, const char *reference, void (*run)(struct job *), images_cb cb,
                  void *ud) {
    struct simple_job *s = calloc(1, sizeof *s);
    struct err err = {0};

    if (s && reference)
        s->reference = strdup(reference);
    if (!s || (reference && !s->reference)) {
        free(s);
        err_set(&err, -ENOMEM, "out of memory");
        cb(-ENOMEM, &err, NULL, ud);
        return;
    }
    s->im = im;
    s->cb = cb;
    s->ud = ud;
    s->job.run = run;
    s->job.done = simple_done;
    service_submit(im->service, &s->job);
}

void images_list(struct images *im, images_cb cb, void *ud) {
    begin(im, NULL, run_list, cb, ud);
}

static bool is_used(struct images *im, const char *reference) {
    struct sandbox_filter all = {0};
    struct sandbox *page[64];
    size_t total = 1, n;

    for (size_t skip = 0; skip < total; skip += n) {
        n = service_list(im->service, &all, skip, ARRAY_SIZE(page), page, &total);
        for (size_t i = 0; i < n; i++)
            if (strcmp(page[i]->spec.image, reference) == 0)
                return true;
        if (n == 0)
            break;
    }
    return false;
}

void images_remove(struct images *im, const char *reference, images_cb cb, void *ud) {
    struct err err = {0};

    if (is_used(im, reference)) {
        err_set(&err, -EBUSY, "image %s is used by a sandbox", reference);
        cb(-EBUSY, &err, NULL, ud);
        return;
    }
    begin(im, reference, run_remove, cb, ud);
}

/* ---- import ---- */

struct import_job {
    struct job job;
    struct images *im;
    char *reference, *path;
    int fd, cancel_fd;
    void (*on_progress)(const struct images_progress *, void *);
    images_cb cb;
    void *ud;
    int64_t last_progress_us; /* the worker's */
    json_t *body;
    int code;
    struct err err;
};

struct progress_job {
    struct job job;
    struct import_job *of;
    struct images_progress p;
};

/* Posts arrive in order and before the import's own end: `of` is still there. */
static void progress_done(struct job *j) {
    struct progress_job *p = container_of(j, struct progress_job, job);
    p->of->on_progress(&p->p, p->of->ud);
    free(p);
}

static void on_store_progress(const struct store_progress *sp, void *ud) {
    struct import_job *i = ud;
    int64_t now = clock_mono_us();

    if (!i->on_progress || now - i->last_progress_us < PROGRESS_INTERVAL_US)
        return;
    struct progress_job *p = calloc(1, sizeof *p);
    if (!p)
        return;
    i->last_progress_us = now;
    p->of = i;
    p->p = (struct images_progress){
        .layer = sp->layer, .layers = sp->layers, .bytes = sp->bytes, .entries = sp->entries};
    str_copy(p->p.phase, sizeof p->p.phase, sp->phase);
    p->job.done = progress_done;
    service_post(i->im->service, &p->job);
}

/* The upload as a file that can be rewound. */
static int spool(struct import_job *i) {
    char block[65536];
    int fd = openat(store_fd(i->im->store), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_sys(&i->err, -errno, "spool file");
    for (;;) {
        ssize_t n = read(i->fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        int r = n < 0 ? -errno : n > 0 ? fd_write_full(fd, block, (size_t)n) : 0;
        if (r < 0) {
            fd_close(fd);
            return err_sys(&i->err, r, "spooling the upload");
        }
        if (n == 0)
            break;
    }
    lseek(fd, 0, SEEK_SET);
    fd_close(i->fd);
    i->fd = fd;
    return 0;
}

static bool is_cancelled(const struct import_job *i) {
    uint64_t n;
    return read(i->cancel_fd, &n, sizeof n) == sizeof n;
}

static int open_source(struct import_job *i) {
    if (!i->path) {
        int r = spool(i);
        if (r == 0 && is_cancelled(i))
            r = err_set(&i->err, -ECANCELED, "the upload was cut off");
        return r;
    }
    i->fd = open(i->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return i->fd < 0 ? err_sys(&i->err, -errno, "cannot read %s", i->path) : 0;
}

static void run_import(struct job *j) {
    struct import_job *i = container_of(j, struct import_job, job);
    struct store_import_opts o = STORE_IMPORT_OPTS_INIT;
    struct image img = {0};

    i->code = open_source(i);
    if (i->code < 0)
        return;
    o.reference = i->reference;
    o.progress = on_store_progress;
    o.ud = i;
    o.cancel_fd = i->cancel_fd;
    i->code = store_import(i->im->store, i->fd, &o, &img, &i->err);
    if (i->code == 0)
        i->body = image_to_json(&img);
    image_done(&img);
}

static void import_free(struct import_job *i) {
    fd_close(i->fd);
    fd_close(i->cancel_fd);
    json_decref(i->body);
    free(i->reference);
    free(i->path);
    free(i);
}

static void import_done(struct job *j) {
    struct import_job *i = container_of(j, struct import_job, job);
    if (i->code == 0)
        log_info("image imported", LOG_STR("image", i->reference));
    i->cb(i->code, &i->err, i->body, i->ud);
    import_free(i);
}

struct import_job *images_import(struct images *im, const struct images_import *o) {
    struct err err = {0};
    struct import_job *i = calloc(1, sizeof *i);

    if (!i) {
        fd_close(o->path ? -1 : o->fd);
        err_set(&err, -ENOMEM, "out of memory");
        o->cb(-ENOMEM, &err, NULL, o->ud);
        return NULL;
    }
    i->im = im;
    i->fd = o->path ? -1 : o->fd;
    i->reference = strdup(o->reference);
    i->path = o->path ? strdup(o->path) : NULL;
    i->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    i->on_progress = o->on_progress;
    i->cb = o->cb;
    i->ud = o->ud;
    int r = store_check_local_name(o->reference, &err);
    if (r == 0 && (!i->reference || i->cancel_fd < 0 || (o->path && !i->path)))
        r = err_set(&err, -ENOMEM, "out of memory");
    if (r < 0) {
        import_free(i);
        o->cb(r, &err, NULL, o->ud);
        return NULL;
    }
    i->job.run = run_import;
    i->job.done = import_done;
    service_submit(im->service, &i->job);
    return i;
}

void images_import_cancel(struct import_job *j) {
    uint64_t one = 1;
    if (write(j->cancel_fd, &one, sizeof one) < 0)
        log_debug("an import cannot be cancelled");
}
