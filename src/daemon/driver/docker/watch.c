/*
 * The thread that follows the engine's events and keeps the index true: exits, pauses and removals
 * by other hands, new addresses after a start. When the stream breaks (the engine was stopped or
 * restarted) it connects again with growing pauses, and on every new stream it compares the whole
 * index with the engine's list, since nothing that happened in between is told.
 *
 * Only boxes that are in the index already are touched: entering one is the business of creates and
 * of the start-up. Changes are reported through driver.events from this thread, without the lock.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/log.h"

#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 5000

struct docker_watch {
    struct docker *k;
    pthread_t thread;
    struct engine_cancel *cancel;
    int stop; /* eventfd: wakes the pause between two streams */
    json_t *filters;
    bool is_open; /* of the present stream; this thread only */
    /* outcome of the first try, for docker_watch_new */
    pthread_mutex_t lock;
    pthread_cond_t first_cond;
    bool first_done;
    int first_result;
    struct err first_err;
};

static void report(struct docker *k, enum instance_state old, int64_t old_started,
                   const struct instance_info *now) {
    bool same = old == now->state && old_started == now->started_us;

    if (same || now->state == INST_UNKNOWN || now->state == INST_PENDING)
        return;
    if (old == INST_PENDING && now->state == INST_RUNNING)
        return; /* the start that its create waits for */
    log_debug("a sandbox's container changed", LOG_STR("sandbox", now->id),
              LOG_INT("state", now->state), LOG_INT("exit_code", now->exit_code));
    if (k->driver.events.on_change)
        k->driver.events.on_change(now, k->driver.events.ud);
}

/* The container is not there any more, or ended with nobody left to tell the details. */
static void note_end(struct docker *k, const char *id, const char *container,
                     enum instance_state state, int exit_code) {
    struct instance_info now = {0};
    enum instance_state old = INST_GONE;

    pthread_mutex_lock(&k->lock);
    struct box *b = docker_find(k, id);
    if (b && str_eq(b->container, container) && b->info.state != INST_GONE) {
        old = b->info.state;
        b->info.state = state;
        b->address = NULL;
        if (old != INST_EXITED) {
            b->info.exit_code = exit_code;
            b->info.finished_us = clock_wall_us();
        }
        now = b->info;
    }
    pthread_mutex_unlock(&k->lock);
    if (*now.id)
        report(k, old, now.started_us, &now);
}

static int64_t started_of(struct docker *k, const char *id) {
    pthread_mutex_lock(&k->lock);
    const struct box *b = docker_find(k, id);
    int64_t us = b ? b->info.started_us : 0;
    pthread_mutex_unlock(&k->lock);
    return us;
}

/* A look-up, or with a query a list, that the end of the driver cuts short, should the engine hang.
 */
static int ask(struct docker_watch *w, const char *path, const char *query, json_t **ret,
               struct err *err) {
    const struct engine_call c = {.method = "GET",
                                  .path = path,
                                  .query = query,
                                  .max_answer = query ? ENGINE_MAX_LIST : 0,
                                  .cancel = w->cancel};
    return engine_request(w->k->engine, &c, ret, err);
}

/* Looks at one container again. -ENOENT: it is gone. */
static int look_again(struct docker_watch *w, const char *id, const char *container,
                      struct err *err) {
    struct docker *k = w->k;
    _cleanup_json_ json_t *inspect = NULL;
    _cleanup_buf_ struct buf path = BUF_INIT(1024);
    int64_t started = started_of(k, id);
    enum instance_state old;
    struct instance_info now;

    buf_str(&path, "/containers/");
    engine_escape(&path, container);
    buf_str(&path, "/json");
    if (!buf_ok(&path))
        return err_set(err, -ENOMEM, "out of memory");
    int r = ask(w, path.data, NULL, &inspect, err);
    if (r < 0)
        return r;
    if (docker_index_refresh(k, inspect, &old, &now))
        report(k, old, started, &now);
    return 0;
}

/* Is it one of ours, and not being removed by ourselves? The address goes with the container: the
 * next one may get it. */
static bool is_followed(struct docker *k, const char *id, const char *container, bool ends) {
    pthread_mutex_lock(&k->lock);
    struct box *b = id ? docker_find(k, id) : NULL;
    bool ours = b && str_eq(b->container, container);
    if (ours && ends)
        b->address = NULL;
    bool followed = ours && !b->is_leaving;
    pthread_mutex_unlock(&k->lock);
    return followed;
}

static int on_event(const json_t *event, void *ud) {
    struct docker_watch *w = ud;
    struct docker *k = w->k;
    const json_t *actor = json_object_get(event, "Actor"),
                 *attributes = json_object_get(actor, "Attributes");
    const char *action = json_str(event, "Action"), *container = json_str(actor, "ID"),
               *id = json_str(attributes, LABEL_ID), *code = json_str(attributes, "exitCode");
    bool ends = str_eq(action, "die") || str_eq(action, "destroy");
    struct err err = {0};
    uint64_t exit_code;
    int r;

    if (!container || !is_followed(k, id, container, ends))
        return 0;
    if (str_eq(action, "destroy")) {
        note_end(k, id, container, INST_GONE, 0);
        return 0;
    }
    r = look_again(w, id, container, &err);
    if (r == -ECANCELED)
        return r;
    if (r < 0 && str_eq(action, "die")) {
        if (!code || str_to_u64(code, &exit_code) < 0 || exit_code > 255)
            exit_code = 255;
        note_end(k, id, container, INST_EXITED, (int)exit_code);
    } else if (r < 0 && r != -ENOENT) {
        log_warn("cannot look at a container after an event", LOG_STR("sandbox", id),
                 LOG_STR("event", action), LOG_ERR(&err));
    }
    return 0;
}

/* ---- after a gap ---- */

struct seen {
    char id[SANDBOX_ID_MAX + 1], container[80];
    enum instance_state state;
};

static int copy_index(struct docker *k, struct seen **ret, size_t *ret_n) {
    size_t at = 0, n = 0;
    void *value;

    pthread_mutex_lock(&k->lock);
    struct seen *v = calloc(map_size(k->boxes) + 1, sizeof *v);
    while (v && map_next(k->boxes, &at, NULL, &value)) {
        const struct box *b = value;
        if (b->info.state == INST_GONE || b->is_leaving)
            continue;
        str_copy(v[n].id, sizeof v[n].id, b->id);
        str_copy(v[n].container, sizeof v[n].container, b->container);
        v[n++].state = b->info.state;
    }
    pthread_mutex_unlock(&k->lock);
    *ret = v;
    *ret_n = n;
    return v ? 0 : -ENOMEM;
}

/* Engine id -> entry of its list of containers. */
static int list_by_id(struct docker_watch *w, json_t **ret, struct err *err) {
    _cleanup_json_ json_t *list = NULL;
    _cleanup_buf_ struct buf query = BUF_INIT(1024);
    json_t *by_id = json_object(), *c;
    size_t i;

    engine_query_add(&query, "all", "1");
    engine_query_add(&query, "filters", "{\"label\":[\"" LABEL_ID "\"]}");
    int r = by_id && buf_ok(&query) ? ask(w, "/containers/json", query.data, &list, err)
                                    : err_set(err, -ENOMEM, "out of memory");

    json_array_foreach(list, i, c) {
        const char *container = json_str(c, "Id");
        if (container)
            json_object_set(by_id, container, c);
    }
    if (r < 0)
        json_decref(by_id);
    else
        *ret = by_id;
    return r;
}

static void resync(struct docker_watch *w) {
    struct docker *k = w->k;
    _cleanup_free_ struct seen *v = NULL;
    _cleanup_json_ json_t *by_id = NULL;
    struct err err = {0};
    size_t n = 0;
    /* the index first: what is entered later is in a later event */
    int r = copy_index(k, &v, &n);

    if (r == 0 && n > 0)
        r = list_by_id(w, &by_id, &err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        const json_t *c = json_object_get(by_id, v[i].container);
        if (!c) {
            note_end(k, v[i].id, v[i].container, INST_GONE, 0);
            continue;
        }
        if (v[i].state == INST_EXITED && str_eq(json_str(c, "State"), "exited"))
            continue;
        r = look_again(w, v[i].id, v[i].container, &err);
        r = r == -ENOENT ? 0 : r;
    }
    if (r < 0)
        log_warn("cannot compare sandboxes with the engine", LOG_ERR(&err));
}

/* ---- the thread ---- */

static void note_first(struct docker_watch *w, int result, const struct err *err) {
    pthread_mutex_lock(&w->lock);
    if (!w->first_done) {
        w->first_done = true;
        w->first_result = result;
        if (err)
            w->first_err = *err;
        pthread_cond_signal(&w->first_cond);
    }
    pthread_mutex_unlock(&w->lock);
}

static void on_open(void *ud) {
    struct docker_watch *w = ud;

    w->is_open = true;
    if (w->first_done)
        log_info("following the engine's events again");
    resync(w);
    note_first(w, 0, NULL);
}

/* false: the driver is ending */
static bool wait_ms(struct docker_watch *w, int ms) {
    struct pollfd p = {.fd = w->stop, .events = POLLIN};
    return poll(&p, 1, ms) <= 0;
}

static void *run(void *arg) {
    struct docker_watch *w = arg;
    int pause = PAUSE_MIN_MS;

    for (;;) {
        struct err err = {0};
        w->is_open = false;
        int r = engine_events(w->k->engine, w->filters, 0, on_open, on_event, w, w->cancel, &err);
        if (engine_cancel_fired(w->cancel))
            return NULL;
        if (!w->first_done) {
            note_first(w, r < 0 ? r : -ECONNRESET, &err);
            return NULL;
        }
        if (w->is_open) {
            pause = PAUSE_MIN_MS;
            log_warn("the engine's events ended, connecting again", LOG_ERR(&err));
        }
        if (!wait_ms(w, pause))
            return NULL;
        pause = MIN(pause * 2, PAUSE_MAX_MS);
    }
}

static int start(struct docker_watch *w, struct err *err) {
    int r = engine_cancel_new(&w->cancel);

    w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->filters = json_pack("{s:[s], s:[s], s:[s,s,s,s,s,s]}", "type", "container", "label",
                           LABEL_ID, "event", "start", "die", "pause", "unpause", "destroy", "oom");
    if (r < 0 || w->stop < 0 || !w->filters)
        return err_set(err, -ENOMEM, "cannot set up the engine's events");
    r = -pthread_create(&w->thread, NULL, run, w);
    return r < 0 ? err_sys(err, r, "cannot start the thread for the engine's events") : 0;
}

static void watch_done(struct docker_watch *w) {
    if (w->cancel)
        engine_cancel_free(w->cancel);
    fd_close(w->stop);
    json_decref(w->filters);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->first_cond);
    free(w);
}

/* Returns when the first stream is established: from then on no change is missed. */
int docker_watch_new(struct docker *k, struct docker_watch **ret, struct err *err) {
    struct docker_watch *w = calloc(1, sizeof *w);

    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    w->k = k;
    w->stop = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->first_cond, NULL);
    int r = start(w, err);
    if (r < 0) {
        watch_done(w);
        return r;
    }
    pthread_mutex_lock(&w->lock);
    while (!w->first_done)
        pthread_cond_wait(&w->first_cond, &w->lock);
    r = w->first_result;
    if (r < 0 && err)
        *err = w->first_err;
    pthread_mutex_unlock(&w->lock);
    if (r < 0) {
        pthread_join(w->thread, NULL);
        watch_done(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct docker_watch *docker_watch_free(struct docker_watch *w) {
    if (!w)
        return NULL;
    engine_cancel_fire(w->cancel);
    eventfd_write(w->stop, 1);
    pthread_join(w->thread, NULL);
    watch_done(w);
    return NULL;
}
