/*
 * How the agent gets into a container (lifecycle.md 4.3). Ours is one static program that serves as
 * agent and, under the name bootstrap.sh, as launcher, so that any image will do; an operator may
 * configure an execd image instead. Two ways for either:
 *
 *   bound    the engine sees our files: they are mounted read-only. Costs nothing per create.
 *   copied   else: an archive is unpacked in the container before its start.
 */
#include "daemon/driver/docker/agent_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"

static char *find_program(const char *libexec) {
    const char *env = getenv("COVE_LIBEXEC");
    char self[PATH_MAX];

    if (libexec)
        return path_join(libexec, "cove-execd");
    if (!str_is_empty(env))
        return path_join(env, "cove-execd");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return NULL;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    return str_printf("%s/../lib/cove/cove-execd", self);
}

int docker_agent_new(struct docker *k, struct docker_agent **ret, struct err *err) {
    struct docker_agent *g = calloc(1, sizeof *g);
    _cleanup_free_ char *state = realpath(k->config.state_dir, NULL);

    if (!g)
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->fetching, NULL);
    pthread_mutex_init(&g->probing, NULL);
    list_init(&g->archives);
    g->program = find_program(k->config.libexec_dir);
    g->dir = path_join(state ? state : k->config.state_dir, "agent");
    if (!g->dir) {
        docker_agent_free(g);
        return err_set(err, -ENOMEM, "out of memory");
    }
    /* the engine's own words would come at the first create only */
    if (!k->config.execd_image && (!g->program || access(g->program, R_OK) < 0))
        log_warn("the agent's program cannot be read: creates will fail",
                 LOG_STR("path", g->program ? g->program : "?"));
    *ret = g;
    return 0;
}

struct docker_agent *docker_agent_free(struct docker_agent *g) {
    if (!g)
        return NULL;
    list_foreach_safe (it, &g->archives)
        archive_free(list_entry(it, struct archive, node));
    free(g->program);
    free(g->dir);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->fetching);
    pthread_mutex_destroy(&g->probing);
    free(g);
    return NULL;
}

/* ---- the way of one create ---- */

static enum archive_kind kind_of(const struct docker *k) {
    return k->config.execd_image ? ARCHIVE_IMAGE : ARCHIVE_OWN;
}

int agent_way(struct docker *k, const char *image, const char *platform, struct agent_way *ret,
              struct err *err) {
    struct archive *a;
    int r = archive_get(k, kind_of(k), platform, binds_possible(k, image), &a, err);

    if (r < 0)
        return r;
    *ret = (struct agent_way){.archive = a, .binds = (const char *const *)a->binds.v};
    return 0;
}

void agent_way_done(struct docker *k, struct agent_way *w) {
    if (w->archive)
        archive_put(k, w->archive);
    *w = (struct agent_way){.archive = NULL};
}

bool agent_way_failed(struct docker *k, struct agent_way *w, const char *why) {
    struct docker_agent *g = k->agent;

    if (!w->binds || (!strstr(why, RUNTIME_DIR "/") && !strstr(why, g->dir)))
        return false;
    pthread_mutex_lock(&g->lock);
    g->binds_known = -1;
    pthread_mutex_unlock(&g->lock);
    log_warn("a container cannot run the bound agent: it is copied from now on",
             LOG_STR("error", why));
    agent_way_done(k, w);
    return true;
}

/* ---- copied ---- */

struct reader {
    const struct buf *tar;
    size_t at;
};

static ssize_t read_tar(void *data, size_t size, void *ud) {
    struct reader *r = ud;
    size_t n = MIN(size, r->tar->len - r->at);

    if (n)
        memcpy(data, r->tar->data + r->at, n);
    r->at += n;
    return (ssize_t)n;
}

static int put(struct docker *k, const char *container, const char *path, const struct buf *tar,
               struct err *err) {
    struct reader from = {.tar = tar};
    return engine_archive_put(k->engine, container, path, (int64_t)tar->len, read_tar, &from, err);
}

static int copy_failed(int code, struct err *err) {
    err_wrap(err, "copying the agent into the container");
    if (err)
        err->code = code;
    return code;
}

/* An engine may make a directory that is missing on the way closed to others than root. */
static int make_opt(struct docker *k, const char *container, struct err *err) {
    _cleanup_buf_ struct buf tar = BUF_INIT(4096);
    int r = tar_dir(&tar, "opt", 0755);

    if (r == 0)
        r = tar_end(&tar);
    return r < 0 ? err_sys(err, r, "archive") : put(k, container, "/", &tar, err);
}

static int put_in_opt(struct docker *k, const char *container, const struct buf *tar,
                      struct err *err) {
    int r = put(k, container, "/opt", tar, err);

    if (r == -ENOENT) { /* the image has none */
        r = make_opt(k, container, err);
        if (r == 0)
            r = put(k, container, "/opt", tar, err);
    }
    return r < 0 ? copy_failed(DRIVER_AGENT_COPY, err) : 0;
}

int agent_inject(struct docker *k, const char *container, const char *platform, struct agent_way *w,
                 struct err *err) {
    if (w->binds)
        return 0;
    if (!w->archive) { /* the binds were given up meanwhile */
        int r = archive_get(k, kind_of(k), platform, false, &w->archive, err);
        if (r < 0)
            return r;
    }
    return put_in_opt(k, container, &w->archive->tar, err);
}

int agent_inject_windows(struct docker *k, const char *container, struct err *err) {
    struct archive *a;

    if (!k->config.execd_image)
        return err_set(err, -EINVAL,
                       "platform.os windows needs runtime.execd_image, which has the agent for "
                       "Windows");
    int r = archive_get(k, ARCHIVE_WINDOWS, "", false, &a, err);
    if (r < 0)
        return r;
    r = put(k, container, "/", &a->tar, err);
    archive_put(k, a);
    return r < 0 ? copy_failed(DRIVER_BOOTSTRAP, err) : 0;
}

/* ---- what earlier daemons left ---- */

static void collect_helpers(struct docker *k) {
    _cleanup_json_ json_t *list = NULL,
                          *filters = json_pack("{s:[s,o]}", "label", LABEL_HELPER,
                                               json_sprintf("%s=%s", LABEL_INSTANCE, k->instance));
    struct err err = {0};
    json_t *c;
    size_t i;

    if (!filters || engine_container_list(k->engine, true, filters, &list, &err) < 0)
        return;
    json_array_foreach(list, i, c) {
        const char *id = json_str(c, "Id");
        /* a helper is no sandbox, whatever its labels say */
        if (!id || json_str(json_object_get(c, "Labels"), LABEL_ID))
            continue;
        if (engine_container_remove(k->engine, id, true, &err) == 0)
            log_info("removed a helper container that was left", LOG_STR("container", id));
    }
}

void agent_collect(struct docker *k) {
    collect_helpers(k);
    binds_collect(k);
}
