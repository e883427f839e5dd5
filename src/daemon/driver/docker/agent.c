/*
 * How the agent gets into a container (lifecycle.md 4.3). One static program serves as agent and,
 * under the name bootstrap.sh, as launcher, so that any image will do. Two ways:
 *
 *   bound    the engine sees our files: a copy in the state directory, named by its content, is
 *            mounted read-only under both names. Costs nothing per create.
 *   copied   else, and for a configured execd image: an archive is unpacked in the container
 *            before its start.
 *
 * That the engine sees our files is not assumed: the first create has it read a file of random
 * content back to us. Copies stay while a container is bound to them, since the engine needs them
 * again when it restarts one.
 */
#include "daemon/driver/docker/agent_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/log.h"
#include "base/path.h"
#include "net/sha1.h"

#define PROGRAM_MAX ((size_t)64 << 20)
#define NONCE 32

#if defined(__x86_64__)
#define OUR_PLATFORM "linux/amd64"
#elif defined(__aarch64__)
#define OUR_PLATFORM "linux/arm64"
#else
#define OUR_PLATFORM ""
#endif

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
    buf_init(&g->tar_opt, PROGRAM_MAX + (1 << 16));
    buf_init(&g->tar_root, PROGRAM_MAX + (1 << 16));
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
    list_foreach_safe (it, &g->archives) {
        struct archive *a = list_entry(it, struct archive, node);
        buf_done(&a->tar);
        free(a);
    }
    buf_done(&g->tar_opt);
    buf_done(&g->tar_root);
    free(g->program);
    free(g->dir);
    free(g->bind_text[0]);
    free(g->bind_text[1]);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->fetching);
    pthread_mutex_destroy(&g->probing);
    free(g);
    return NULL;
}

/* ---- our own program ---- */

static int read_program(struct docker_agent *g, char **ret, size_t *ret_len, struct err *err) {
    int r =
        g->program ? path_read_file_at(AT_FDCWD, g->program, PROGRAM_MAX, ret, ret_len) : -ENOENT;

    if (r == 0)
        return 0;
    err_sys(err, r, "reading the agent %s", g->program ? g->program : "cove-execd");
    if (err)
        err->code = DRIVER_AGENT_COPY;
    return DRIVER_AGENT_COPY;
}

/* Under `probing`. Both names are one file: the second costs nothing. */
static int make_tar(struct buf *b, bool with_opt, const void *program, size_t len) {
    const char *p = with_opt ? "opt/opensandbox" : "opensandbox";
    char agent[64], launcher[64];
    int r = with_opt ? tar_dir(b, "opt", 0755) : 0;

    snprintf(agent, sizeof agent, "%s/execd", p);
    snprintf(launcher, sizeof launcher, "%s/bootstrap.sh", p);
    if (r == 0)
        r = tar_dir(b, p, 0755);
    if (r == 0)
        r = tar_file(b, agent, 0755, program, len);
    if (r == 0)
        r = tar_link(b, launcher, 0755, agent);
    return r < 0 ? r : tar_end(b);
}

/* The archive for /opt, or for / of an image without it; made once, then only read. */
static int own_tar(struct docker_agent *g, bool with_opt, const struct buf **ret, struct err *err) {
    struct buf *b = with_opt ? &g->tar_root : &g->tar_opt;
    _cleanup_free_ char *program = NULL;
    size_t len;
    int r = 0;

    pthread_mutex_lock(&g->probing);
    if (b->len == 0) {
        r = read_program(g, &program, &len, err);
        if (r == 0 && make_tar(b, with_opt, program, len) < 0) {
            buf_done(b);
            r = err_set(err, DRIVER_AGENT_COPY, "out of memory for the agent's archive");
        }
    }
    pthread_mutex_unlock(&g->probing);
    *ret = b;
    return r;
}

/* ---- bound ---- */

/* STATE/agent/HASH/execd, unless it is there already. */
static int write_copy(struct docker_agent *g, char **ret, struct err *err) {
    _cleanup_free_ char *program = NULL, *dir = NULL, *path = NULL;
    unsigned char hash[20];
    struct stat st;
    size_t len;
    int r = read_program(g, &program, &len, err);

    if (r < 0)
        return r;
    sha1(program, len, hash);
    hex_encode(hash, sizeof hash, g->version);
    dir = path_join(g->dir, g->version);
    path = dir ? path_join(dir, "execd") : NULL;
    if (!path)
        return err_set(err, -ENOMEM, "out of memory");
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (size_t)st.st_size == len) {
        *ret = TAKE_PTR(path);
        return 0;
    }
    r = path_mkdirs_at(AT_FDCWD, dir, 0755);
    if (r == 0)
        r = path_write_file_at(AT_FDCWD, path, program, len, 0755, true);
    if (r < 0)
        return err_sys(err, r, "copying the agent to %s", dir);
    *ret = TAKE_PTR(path);
    return 0;
}

static int append(const void *data, size_t len, void *ud) {
    return buf_append(ud, data, len);
}

/* Does the engine read back what we wrote? 0 = yes. */
static int read_back(struct docker *k, const char *image, const char *file, const char *nonce,
                     struct err *err) {
    _cleanup_buf_ struct buf raw = BUF_INIT(64 << 10);
    _cleanup_free_ char *helper = NULL;
    _cleanup_json_ json_t *body = json_pack(
        "{s:s, s:[s], s:{s:s,s:s}, s:{s:s, s:[{s:s,s:s,s:s,s:b}]}}", "Image", image, "Cmd", "/none",
        "Labels", LABEL_HELPER, "probe", LABEL_INSTANCE, k->instance, "HostConfig", "NetworkMode",
        "none", "Mounts", "Type", "bind", "Source", file, "Target", "/cove-probe", "ReadOnly", 1);
    struct err ignored = {0};
    char name[64], hex[33];
    const void *data;
    size_t len;

    id_hex32(hex);
    snprintf(name, sizeof name, "cove-probe-%s", hex);
    int r = body ? engine_container_create(k->engine, name, NULL, body, &helper, err) : -ENOMEM;
    if (r < 0)
        return r;
    r = engine_archive_get(k->engine, helper, "/cove-probe", append, &raw, err);
    if (r == 0)
        r = tar_first_file(raw.data, raw.len, &data, &len);
    if (r == 0 && (len != NONCE || memcmp(data, nonce, NONCE) != 0))
        r = err_set(err, -EIO, "the file has another content there");
    if (engine_container_remove(k->engine, helper, true, &ignored) < 0)
        log_warn("a helper container is left", LOG_STR("container", helper), LOG_ERR(&ignored));
    return r;
}

static int probe(struct docker *k, const char *image, struct err *err) {
    struct docker_agent *g = k->agent;
    _cleanup_free_ char *file = NULL;
    char nonce[NONCE + 1];
    int r = path_mkdirs_at(AT_FDCWD, g->dir, 0755);

    id_hex32(nonce);
    file = str_printf("%s/probe-%.16s", g->dir, nonce);
    if (!file)
        return -ENOMEM;
    if (r == 0)
        r = path_write_file_at(AT_FDCWD, file, nonce, NONCE, 0644, false);
    if (r < 0)
        return err_sys(err, r, "writing %s", file);
    r = read_back(k, image, file, nonce, err);
    unlink(file);
    return r;
}

/* An engine that did not answer is asked again by the next create. */
static int judge(int r) {
    if (r == 0)
        return 1;
    return r == -EHOSTUNREACH || r == -ETIMEDOUT || r == -ECONNRESET || r == -ENOENT ? 0 : -1;
}

static int set_binds(struct docker_agent *g, const char *copy) {
    g->bind_text[0] = str_printf("%s:" RUNTIME_DIR "/execd:ro", copy);
    g->bind_text[1] = str_printf("%s:" RUNTIME_DIR "/bootstrap.sh:ro", copy);
    g->binds[0] = g->bind_text[0];
    g->binds[1] = g->bind_text[1];
    return g->bind_text[0] && g->bind_text[1] ? 0 : -ENOMEM;
}

/* Under `probing`. 1, 0 or -1, see binds_known. */
static int find_out(struct docker *k, const char *image) {
    struct docker_agent *g = k->agent;
    _cleanup_free_ char *copy = NULL;
    struct err err = {0};

    if (k->config.execd_image || !engine_is_unix(k->engine) || strchr(g->dir, ':'))
        return -1;
    int r = write_copy(g, &copy, &err);
    int known = r < 0 ? -1 : judge(r = probe(k, image, &err));
    if (known > 0 && !g->bind_text[0] && set_binds(g, copy) < 0)
        known = 0;
    if (known > 0)
        log_info("the engine sees our files: the agent is bound, not copied",
                 LOG_STR("path", copy));
    else
        log_info("the engine does not see our files: the agent is copied into each container",
                 LOG_ERR(&err));
    return known;
}

const char *const *agent_binds(struct docker *k, const char *image) {
    struct docker_agent *g = k->agent;
    int known;

    pthread_mutex_lock(&g->lock);
    known = g->binds_known;
    pthread_mutex_unlock(&g->lock);
    if (known == 0) {
        pthread_mutex_lock(&g->probing);
        pthread_mutex_lock(&g->lock);
        known = g->binds_known;
        pthread_mutex_unlock(&g->lock);
        if (known == 0)
            known = find_out(k, image);
        pthread_mutex_lock(&g->lock);
        g->binds_known = known;
        pthread_mutex_unlock(&g->lock);
        pthread_mutex_unlock(&g->probing);
    }
    return known > 0 ? g->binds : NULL;
}

bool agent_binds_failed(struct docker *k, const char *why) {
    struct docker_agent *g = k->agent;

    if (!strstr(why, RUNTIME_DIR "/") && !strstr(why, g->dir))
        return false;
    pthread_mutex_lock(&g->lock);
    g->binds_known = -1;
    pthread_mutex_unlock(&g->lock);
    log_warn("containers cannot run the bound agent: it is copied from now on",
             LOG_STR("error", why));
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

static int inject_own(struct docker *k, const char *container, struct err *err) {
    const char *engine = pulls_engine_platform(k);
    const struct buf *tar;

    if (*engine && *OUR_PLATFORM && !str_eq(engine, OUR_PLATFORM))
        return err_set(err, DRIVER_AGENT_COPY,
                       "the engine's machine is %s and our agent is for %s: configure "
                       "runtime.execd_image",
                       engine, OUR_PLATFORM);
    int r = own_tar(k->agent, false, &tar, err);
    if (r < 0)
        return r;
    r = put(k, container, "/opt", tar, err);
    if (r == -ENOENT) { /* an image without /opt: one that is made on the way would be closed */
        r = own_tar(k->agent, true, &tar, err);
        if (r < 0)
            return r;
        r = put(k, container, "/", tar, err);
    }
    return r < 0 ? copy_failed(DRIVER_AGENT_COPY, err) : 0;
}

static int make_opt(struct docker *k, const char *container, struct err *err) {
    _cleanup_buf_ struct buf tar = BUF_INIT(4096);
    int r = tar_dir(&tar, "opt", 0755);

    if (r == 0)
        r = tar_end(&tar);
    return r < 0 ? err_sys(err, r, "archive") : put(k, container, "/", &tar, err);
}

int agent_inject(struct docker *k, const char *container, const char *platform, struct err *err) {
    struct archive *a;

    if (!k->config.execd_image)
        return inject_own(k, container, err);
    int r = archive_get(k, platform, false, &a, err);
    if (r < 0)
        return r;
    r = put(k, container, "/opt", &a->tar, err);
    if (r == -ENOENT) {
        r = make_opt(k, container, err);
        if (r == 0)
            r = put(k, container, "/opt", &a->tar, err);
    }
    archive_put(k, a);
    return r < 0 ? copy_failed(DRIVER_AGENT_COPY, err) : 0;
}

int agent_inject_windows(struct docker *k, const char *container, struct err *err) {
    struct archive *a;

    if (!k->config.execd_image)
        return err_set(err, -EINVAL,
                       "platform.os windows needs runtime.execd_image, which has the "
                       "agent for Windows");
    int r = archive_get(k, "", true, &a, err);
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

/* Is a container bound to a file in this directory? */
static bool is_in_use(const json_t *containers, const char *dir) {
    json_t *c, *m;
    size_t i, j;

    json_array_foreach(containers, i, c) {
        json_array_foreach(json_object_get(c, "Mounts"), j, m) {
            const char *source = json_str(m, "Source");
            if (source && str_starts(source, dir) && source[strlen(dir)] == '/')
                return true;
        }
    }
    return false;
}

/* Copies of older programs that no container needs any more, and rests of probes. */
static void collect_copies(struct docker *k) {
    struct docker_agent *g = k->agent;
    _cleanup_json_ json_t *containers = NULL;
    struct err err = {0};
    struct dirent *e;
    DIR *d = opendir(g->dir);

    if (!d)
        return;
    if (engine_container_list(k->engine, true, NULL, &containers, &err) < 0) {
        closedir(d);
        return;
    }
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        _cleanup_free_ char *path = path_join(g->dir, e->d_name);
        if (path && !is_in_use(containers, path))
            (void)path_remove_tree_at(AT_FDCWD, path);
    }
    closedir(d);
}

void agent_collect(struct docker *k) {
    collect_helpers(k);
    collect_copies(k);
}
