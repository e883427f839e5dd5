/*
 * Agents ready for use (lifecycle.md 4.3): our own program, or the files of the execd image that
 * the operator configured, which are read once per platform from a container that is made and never
 * started. One fetch at a time. What is bound needs no memory; archives that are copied are kept,
 * all together bounded by AGENT_CACHE_MAX.
 *
 * The helper container carries LABEL_HELPER, so that agent_collect() finds what a killed daemon
 * left.
 */
#include "daemon/driver/docker/agent_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/crash.h"
#include "base/id.h"
#include "base/log.h"
#include "base/path.h"

#if defined(__x86_64__)
#define OUR_PLATFORM "linux/amd64"
#elif defined(__aarch64__)
#define OUR_PLATFORM "linux/arm64"
#else
#define OUR_PLATFORM ""
#endif

/* Files are unpacked below this directory of the archive. */
#define LINUX_DIR "opensandbox"
#define WINDOWS_DIR "oem"

struct part {
    const char *from, *name;
    unsigned mode;
    bool optional;
    int code; /* when it is missing */
};

static const struct part linux_parts[] = {
    {"/execd", "execd", 0755, false, DRIVER_AGENT_COPY},
    {"/bootstrap.sh", "bootstrap.sh", 0755, false, DRIVER_BOOTSTRAP},
    {"/usr/local/bin/bwrap", "bwrap", 0755, true, 0},
    {"/usr/local/libexec/opensandbox-session-gate", "opensandbox-session-gate", 0755, true, 0},
    {"/usr/local/libexec/opensandbox-launcher", "opensandbox-launcher", 0755, true, 0},
};
static const struct part windows_parts[] = {
    {"/install.bat", "install.bat", 0644, false, DRIVER_AGENT_COPY},
    {"/execd.exe", "execd.exe", 0644, false, DRIVER_AGENT_COPY},
};

/* ---- the cache ---- */

struct archive *archive_free(struct archive *a) {
    buf_done(&a->tar);
    strv_done(&a->binds);
    free(a);
    return NULL;
}

void archive_put(struct docker *k, struct archive *a) {
    struct docker_agent *g = k->agent;

    pthread_mutex_lock(&g->lock);
    bool is_last = --a->refs == 0;
    pthread_mutex_unlock(&g->lock);
    if (is_last)
        archive_free(a);
}

/* One whose files are bound is of no use for copying, and one that is to be copied was made before
 * it was known that the engine sees our files. */
static bool fits(const struct archive *a, const char *key, bool to_bind) {
    return str_eq(a->key, key) && (to_bind ? a->binds.n || a->is_unbindable : a->tar.len > 0);
}

static struct archive *cache_find(struct docker_agent *g, const char *key, bool to_bind) {
    struct archive *found = NULL;

    pthread_mutex_lock(&g->lock);
    list_foreach_safe (it, &g->archives) {
        struct archive *a = list_entry(it, struct archive, node);
        if (!fits(a, key, to_bind))
            continue;
        found = a;
        a->refs++;
        list_remove(&a->node);
        list_append(&g->archives, &a->node);
        break;
    }
    pthread_mutex_unlock(&g->lock);
    return found;
}

/* Under the lock. Those that nobody uses any more go to `out`. */
static void cache_remove(struct docker_agent *g, struct archive *old, struct list *out) {
    list_remove(&old->node);
    g->cached -= old->tar.len;
    if (--old->refs == 0)
        list_append(out, &old->node);
}

/* Takes the archive in, in the place of another of its key; the least recently used ones make room.
 */
static void cache_add(struct docker_agent *g, struct archive *a) {
    struct list out = LIST_INIT(out);

    pthread_mutex_lock(&g->lock);
    list_foreach_safe (it, &g->archives) {
        struct archive *old = list_entry(it, struct archive, node);
        if (str_eq(old->key, a->key))
            cache_remove(g, old, &out);
    }
    while (g->cached + a->tar.len > AGENT_CACHE_MAX && !list_is_empty(&g->archives))
        cache_remove(g, list_entry(g->archives.next, struct archive, node), &out);
    g->cached += a->tar.len;
    a->refs++;
    list_append(&g->archives, &a->node);
    pthread_mutex_unlock(&g->lock);
    list_foreach_safe (it, &out)
        archive_free(list_entry(it, struct archive, node));
}

/* ---- an archive grows ---- */

static int add_part(struct archive *a, const char *dir, const struct part *p, const void *data,
                    size_t len) {
    char path[64];

    snprintf(path, sizeof path, "%s/%s", dir, p->name);
    int r = tar_file(&a->tar, path, p->mode, data, len);
    if (r < 0)
        return r;
    size_t n = a->n_parts++;
    a->parts[n].name = p->name;
    a->parts[n].mode = p->mode;
    a->parts[n].len = len;
    a->parts[n].at = a->tar.len - (len + 511) / 512 * 512;
    return 0;
}

/* ---- our own ---- */

/* The launcher is the same file under another name. */
static int read_own(struct docker *k, struct archive *a, struct err *err) {
    const char *engine = pulls_engine_platform(k), *program = k->agent->program;
    const struct part agent = linux_parts[0];
    _cleanup_free_ char *data = NULL;
    size_t len;

    if (*engine && *OUR_PLATFORM && !str_eq(engine, OUR_PLATFORM))
        return err_set(err, DRIVER_AGENT_COPY,
                       "the engine's machine is %s and our agent is for %s: configure "
                       "runtime.execd_image",
                       engine, OUR_PLATFORM);
    int r = program ? path_read_file_at(AT_FDCWD, program, PART_MAX, &data, &len) : -ENOENT;
    if (r < 0) {
        err_sys(err, r, "reading the agent %s", program ? program : "cove-execd");
        if (err)
            err->code = DRIVER_AGENT_COPY;
        return DRIVER_AGENT_COPY;
    }
    r = tar_dir(&a->tar, LINUX_DIR, 0755);
    if (r == 0)
        r = add_part(a, LINUX_DIR, &agent, data, len);
    if (r == 0)
        r = tar_link(&a->tar, LINUX_DIR "/bootstrap.sh", 0755, LINUX_DIR "/execd");
    if (r == 0)
        r = tar_end(&a->tar);
    a->parts[1] = a->parts[0];
    a->parts[1].name = linux_parts[1].name;
    a->n_parts = 2;
    return r < 0 ? err_set(err, DRIVER_AGENT_COPY, "out of memory for the agent's archive") : 0;
}

/* ---- of an execd image ---- */

static int append(const void *data, size_t len, void *ud) {
    return buf_append(ud, data, len);
}

static int fetch_part(struct docker *k, const char *container, const struct part *p,
                      const char *dir, struct archive *a, struct err *err) {
    _cleanup_buf_ struct buf raw = BUF_INIT(PART_MAX);
    const char *image = k->config.execd_image;
    const void *data = NULL;
    size_t len = 0;
    int r = engine_archive_get(k->engine, container, p->from, append, &raw, err);

    if (r == 0) {
        r = tar_first_file(raw.data, raw.len, &data, &len);
        if (r < 0)
            err_set(err, r, "it is not a regular file");
    } else if (r == -ENOBUFS) {
        err_set(err, r, "it is larger than %zu MiB", PART_MAX >> 20);
    }
    if (r < 0 && p->optional) {
        log_warn("the execd image lacks an optional helper", LOG_STR("image", image),
                 LOG_STR("file", p->from), LOG_ERR(err));
        return 0;
    }
    if (r < 0) {
        err_wrap(err, "reading %s of the execd image %s", p->from, image);
        if (err)
            err->code = p->code;
        return p->code;
    }
    r = add_part(a, dir, p, data, len);
    return r < 0 ? err_set(err, DRIVER_AGENT_COPY, "the execd image %s is too large", image) : 0;
}

static int fetch_parts(struct docker *k, const char *container, bool windows, struct archive *a,
                       struct err *err) {
    const struct part *parts = windows ? windows_parts : linux_parts;
    size_t n = windows ? ARRAY_SIZE(windows_parts) : ARRAY_SIZE(linux_parts);
    const char *dir = windows ? WINDOWS_DIR : LINUX_DIR;
    int r = tar_dir(&a->tar, dir, 0755);

    for (size_t i = 0; i < n && r == 0; i++)
        r = fetch_part(k, container, &parts[i], dir, a, err);
    return r == 0 ? tar_end(&a->tar) : r;
}

static int helper_create(struct docker *k, const char *platform, char **ret, struct err *err) {
    _cleanup_json_ json_t *body =
        json_pack("{s:s, s:[s,s,s], s:{s:s,s:s}, s:{s:s}}", "Image", k->config.execd_image, "Cmd",
                  "tail", "-f", "/dev/null", "Labels", LABEL_HELPER, "agent", LABEL_INSTANCE,
                  k->instance, "HostConfig", "NetworkMode", "none");
    char name[64], uuid[37];
    int r;

    id_uuid(uuid);
    snprintf(name, sizeof name, "sandbox-execd-%s", uuid);
    r = body ? engine_container_create(k->engine, name, platform, body, ret, err)
             : err_set(err, -ENOMEM, "out of memory");
    if (r == -EOPNOTSUPP)
        return err_set(err, -EINVAL,
                       "The engine is too old for platform-aware container create, which the "
                       "temporary execd container needs.");
    if (r < 0) {
        err_wrap(err, "making a container of the execd image %s", k->config.execd_image);
        if (err)
            err->code = DRIVER_AGENT_START;
        return DRIVER_AGENT_START;
    }
    return 0;
}

/* Splits "linux/arm64"; false for "". */
static bool split(const char *platform, char os[32], char arch[32]) {
    return sscanf(platform, "%31[^/]/%31s", os, arch) == 2;
}

static int fetch(struct docker *k, const char *platform, bool windows, struct archive *a,
                 struct err *err) {
    char os[32], arch[32];
    bool known = split(platform, os, arch);
    const struct image_wish w = {
        .ref = k->config.execd_image, .os = known ? os : NULL, .arch = known ? arch : NULL};
    _cleanup_free_ char *helper = NULL;
    struct err ignored = {0};
    int r = pulls_ensure(k, &w, err);

    if (r == 0)
        r = helper_create(k, known ? platform : NULL, &helper, err);
    if (r < 0)
        return r;
    crash_point("agent-helper");
    r = fetch_parts(k, helper, windows, a, err);
    int removed = engine_container_remove(k->engine, helper, true, &ignored);
    if (removed < 0 && removed != -ENOENT)
        log_warn("a helper container is left", LOG_STR("container", helper), LOG_ERR(&ignored));
    return r;
}

/* ---- both ---- */

static int make(struct docker *k, enum archive_kind kind, const char *platform, const char *key,
                bool to_bind, struct archive **ret, struct err *err) {
    struct archive *a = calloc(1, sizeof *a);
    struct err why = {0};

    if (!a)
        return err_set(err, -ENOMEM, "out of memory");
    buf_init(&a->tar, AGENT_CACHE_MAX);
    str_copy(a->key, sizeof a->key, key);
    a->refs = 1;
    int r = kind == ARCHIVE_OWN ? read_own(k, a, err)
                                : fetch(k, platform, kind == ARCHIVE_WINDOWS, a, err);
    if (r < 0) {
        archive_free(a);
        return r;
    }
    if (to_bind && binds_write(k, a, &why) == 0) {
        buf_done(&a->tar);
    } else if (to_bind) {
        a->is_unbindable = true;
        log_warn("the agent cannot be bound, it is copied", LOG_ERR(&why));
    }
    cache_add(k->agent, a);
    *ret = a;
    return 0;
}

int archive_get(struct docker *k, enum archive_kind kind, const char *platform, bool to_bind,
                struct archive **ret, struct err *err) {
    struct docker_agent *g = k->agent;
    const char *key = kind == ARCHIVE_OWN       ? "own"
                      : kind == ARCHIVE_WINDOWS ? "windows"
                      : *platform               ? platform
                                                : "default";
    int r = 0;

    if ((*ret = cache_find(g, key, to_bind)))
        return 0;
    pthread_mutex_lock(&g->fetching);
    if (!(*ret = cache_find(g, key, to_bind))) /* the one before us may have fetched it */
        r = make(k, kind, platform, key, to_bind, ret, err);
    pthread_mutex_unlock(&g->fetching);
    return r;
}
