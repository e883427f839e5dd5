/*
 * Files that the engine mounts into containers: copies in STATE/agent/HASH, named by their content,
 * so that an upgrade changes none that a container is bound to. They stay while a container needs
 * them, since the engine mounts them again when it restarts one.
 *
 * That the engine sees our files is not assumed: it has to read a file of random content back to
 * us.
 */
#include "daemon/driver/docker/agent_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/log.h"
#include "base/path.h"
#include "net/sha1.h"

#define NONCE 32
#define DOUBTS_MAX 5

/* ---- does it see them? ---- */

static int append(const void *data, size_t len, void *ud) {
    return buf_append(ud, data, len);
}

static int read_file(struct docker *k, const char *container, const char *nonce, struct err *err) {
    _cleanup_buf_ struct buf raw = BUF_INIT(64 << 10);
    const void *data;
    size_t len;
    int r = engine_archive_get(k->engine, container, "/cove-probe", append, &raw, err);

    if (r == 0)
        r = tar_first_file(raw.data, raw.len, &data, &len);
    else if (r != -ENOENT)
        r = -EAGAIN;
    if (r == 0 && (len != NONCE || memcmp(data, nonce, NONCE) != 0))
        r = err_set(err, -EIO, "the file has another content there");
    return r;
}

/* As a mount, not a bind: for a bind the engine would make a directory in the place of a source
 * that it does not see. */
static int read_back(struct docker *k, const char *image, const char *file, const char *nonce,
                     struct err *err) {
    _cleanup_free_ char *helper = NULL;
    _cleanup_json_ json_t *body = json_pack(
        "{s:s, s:[s], s:{s:s,s:s}, s:{s:s, s:[{s:s,s:s,s:s,s:b}]}}", "Image", image, "Cmd", "/none",
        "Labels", LABEL_HELPER, "probe", LABEL_INSTANCE, k->instance, "HostConfig", "NetworkMode",
        "none", "Mounts", "Type", "bind", "Source", file, "Target", "/cove-probe", "ReadOnly", 1);
    struct err ignored = {0};
    char name[64], hex[33];

    id_hex32(hex);
    snprintf(name, sizeof name, "sandbox-execd-probe-%s", hex);
    int r = body ? engine_container_create(k->engine, name, NULL, body, &helper, err) : -ENOMEM;
    if (r < 0) /* a source that is not there is a bad request; anything else says nothing */
        return r == -EINVAL ? -ENOENT : -EAGAIN;
    r = read_file(k, helper, nonce, err);
    if (engine_container_remove(k->engine, helper, true, &ignored) < 0)
        log_warn("a helper container is left", LOG_STR("container", helper), LOG_ERR(&ignored));
    return r;
}

/* 0 yes; -EAGAIN not to be told now; else no. */
static int probe(struct docker *k, const char *image, struct err *err) {
    const char *dir = k->agent->dir;
    char nonce[NONCE + 1];
    int r = path_mkdirs_at(AT_FDCWD, dir, 0755);

    id_hex32(nonce);
    _cleanup_free_ char *file = str_printf("%s/probe-%.16s", dir, nonce);
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

/* Under `probing`. When it cannot be told, the next create asks again: 0, a few times. */
static int find_out(struct docker *k, const char *image) {
    struct err err = {0};

    if (!engine_is_unix(k->engine) || strchr(k->agent->dir, ':'))
        return -1;
    int r = probe(k, image, &err);
    if (r == -EAGAIN && ++k->agent->doubts < DOUBTS_MAX)
        return 0;
    if (r < 0)
        log_info("the engine does not see our files: the agent is copied into each container",
                 LOG_ERR(&err));
    else
        log_info("the engine sees our files: the agent is bound, not copied",
                 LOG_STR("dir", k->agent->dir));
    return r < 0 ? -1 : 1;
}

static int known(struct docker_agent *g) {
    pthread_mutex_lock(&g->lock);
    int v = g->binds_known;
    pthread_mutex_unlock(&g->lock);
    return v;
}

bool binds_possible(struct docker *k, const char *image) {
    struct docker_agent *g = k->agent;
    int v = known(g);

    if (v)
        return v > 0;
    pthread_mutex_lock(&g->probing);
    v = known(g);
    if (v == 0) {
        v = find_out(k, image);
        pthread_mutex_lock(&g->lock);
        g->binds_known = v;
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&g->probing);
    return v > 0;
}

/* ---- copies ---- */

static int write_one(const char *dir, const char *name, unsigned mode, const void *data, size_t len,
                     struct strv *binds) {
    _cleanup_free_ char *path = path_join(dir, name);
    struct stat st;
    int r = 0;

    if (!path)
        return -ENOMEM;
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size != len)
        r = path_write_file_at(AT_FDCWD, path, data, len, mode, true);
    return r < 0 ? r : strv_addf(binds, "%s:" RUNTIME_DIR "/%s:ro", path, name);
}

int binds_write(struct docker *k, struct archive *a, struct err *err) {
    unsigned char hash[20];
    char hex[41];

    sha1(a->tar.data, a->tar.len, hash);
    hex_encode(hash, sizeof hash, hex);
    _cleanup_free_ char *dir = path_join(k->agent->dir, hex);
    int r = dir ? path_mkdirs_at(AT_FDCWD, dir, 0755) : -ENOMEM;
    for (size_t i = 0; i < a->n_parts && r == 0; i++)
        r = write_one(dir, a->parts[i].name, a->parts[i].mode, a->tar.data + a->parts[i].at,
                      a->parts[i].len, &a->binds);
    if (r == 0)
        return 0;
    strv_done(&a->binds);
    return err_sys(err, r, "copying the agent to %s", dir ? dir : k->agent->dir);
}

/* ---- what earlier daemons left ---- */

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

void binds_collect(struct docker *k) {
    _cleanup_json_ json_t *containers = NULL;
    const char *dir = k->agent->dir;
    struct dirent *e;
    DIR *d = opendir(dir);

    if (!d)
        return;
    if (engine_container_list(k->engine, true, NULL, &containers, NULL) < 0) {
        closedir(d);
        return;
    }
    while ((e = readdir(d))) {
        _cleanup_free_ char *path = e->d_name[0] == '.' ? NULL : path_join(dir, e->d_name);
        if (path && !is_in_use(containers, path))
            (void)path_remove_tree_at(AT_FDCWD, path);
    }
    closedir(d);
}
