/*
 * The native driver's table of operations and its life cycle (see native.h). What takes more than a
 * few lines lives beside: create.c, remove.c, recover.c, watch.c.
 *
 * The driver's lock guards the map of sandboxes and the fields others read; it is never held over
 * anything that blocks for long. The service makes sure that only one call at a time works on an
 * id.
 */
#include "daemon/driver/native/native_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/path.h"
#include "daemon/driver/native/nat.h"

#define FREEZE_TIMEOUT_MS 5000
#define LOG_READ_MAX ((size_t)8 << 20)

#ifdef COVE_CRASH_POINTS
const char *const native_crash_points[] = {
    "create-check",   "create-slot",    "create-recorded", "create-dirs",
    "create-cgroup",  "create-network", "create-config",   "create-launch",
    "create-claim",   "create-commit",  "remove-recorded", "remove-killed",
    "remove-runtime", "remove-cgroup",  "remove-trash",    NULL,
};
#else
const char *const native_crash_points[] = {NULL};
#endif

struct box *box_new(const char *id, const char *key) {
    struct box *b = calloc(1, sizeof *b);

    if (!b)
        return NULL;
    str_copy(b->id, sizeof b->id, id);
    str_copy(b->key, sizeof b->key, key);
    b->netns_fd = b->pidfd = -1;
    return b;
}

struct box *box_free(struct box *b) {
    if (!b)
        return NULL;
    fd_close(b->netns_fd);
    fd_close(b->pidfd);
    strv_done(&b->layers);
    strv_done(&b->volumes);
    free(b);
    return NULL;
}

void box_info(const struct box *b, struct instance_info *ret) {
    *ret = (struct instance_info){.exit_code = b->exit_code,
                                  .oom_killed = b->oom_killed,
                                  .started_us = b->started_us,
                                  .finished_us = b->finished_us};
    str_copy(ret->id, sizeof ret->id, b->id);
    ret->state = b->state == BOX_EXITED ? INST_EXITED : b->paused ? INST_PAUSED : INST_RUNNING;
}

struct box *native_find(struct native *n, const char *id) {
    return map_get(n->boxes, id);
}

/* A sandbox that others may see, or NULL. Under the lock. */
static struct box *find_visible(struct native *n, const char *id) {
    struct box *b = native_find(n, id);
    return b && (b->state == BOX_RUNNING || b->state == BOX_EXITED) ? b : NULL;
}

static int not_found(const char *id, struct err *err) {
    return err_set(err, -ENOENT, "there is no sandbox %s", id);
}

static int set_frozen(struct driver *d, const char *id, bool frozen, struct err *err) {
    struct native *n = native_of(d);
    char key[SANDBOX_ID_MAX + 1] = "";
    int r = 0;

    pthread_mutex_lock(&n->lock);
    struct box *b = find_visible(n, id);
    if (!b)
        r = -ENOENT;
    else if (b->state != BOX_RUNNING || b->paused == frozen)
        r = -EALREADY;
    else
        str_copy(key, sizeof key, b->key);
    pthread_mutex_unlock(&n->lock);
    if (r == -ENOENT)
        return not_found(id, err);
    if (r < 0)
        return err_set(err, r, "the sandbox is not %s", frozen ? "running" : "paused");
    r = cgroups_freeze(n->cgroups, key, frozen, FREEZE_TIMEOUT_MS, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&n->lock);
    b->paused = frozen && b->state == BOX_RUNNING;
    pthread_mutex_unlock(&n->lock);
    return 0;
}

static int op_pause(struct driver *d, const char *id, struct err *err) {
    return set_frozen(d, id, true, err);
}

static int op_resume(struct driver *d, const char *id, struct err *err) {
    return set_frozen(d, id, false, err);
}

static int op_inspect(struct driver *d, const char *id, struct instance_info *ret,
                      struct err *err) {
    struct native *n = native_of(d);

    pthread_mutex_lock(&n->lock);
    struct box *b = find_visible(n, id);
    if (b)
        box_info(b, ret);
    pthread_mutex_unlock(&n->lock);
    return b ? 0 : not_found(id, err);
}

static int op_list(struct driver *d, struct instance_info **ret, size_t *ret_n, struct err *err) {
    struct native *n = native_of(d);
    size_t at = 0, k = 0;
    const char *id;
    void *value;

    pthread_mutex_lock(&n->lock);
    struct instance_info *v = calloc(map_size(n->boxes) + 1, sizeof *v);
    while (v && map_next(n->boxes, &at, &id, &value)) {
        const struct box *b = value;
        if (b->state == BOX_RUNNING || b->state == BOX_EXITED)
            box_info(b, &v[k++]);
    }
    pthread_mutex_unlock(&n->lock);
    if (!v)
        return err_set(err, -ENOMEM, "out of memory");
    *ret = v;
    *ret_n = k;
    return 0;
}

static int op_layers_in_use(struct driver *d, struct strv *ret) {
    struct native *n = native_of(d);
    size_t at = 0;
    void *value;
    int r = 0;

    pthread_mutex_lock(&n->lock);
    while (r == 0 && map_next(n->boxes, &at, NULL, &value))
        r = strv_copy(ret, (const char *const *)((const struct box *)value)->layers.v);
    pthread_mutex_unlock(&n->lock);
    return r;
}

static int op_address(struct driver *d, const char *id, uint16_t port, struct target *ret) {
    struct native *n = native_of(d);
    int r = -ENOENT;

    pthread_mutex_lock(&n->lock);
    struct box *b = find_visible(n, id);
    if (b && b->netns_fd > 0) {
        *ret =
            (struct target){.addr = {.host = "127.0.0.1", .port = port, .netns_fd = b->netns_fd}};
        r = 0;
    }
    pthread_mutex_unlock(&n->lock);
    return r;
}

/* The part of text that holds the last n lines. */
static const char *last_lines(const char *text, size_t len, unsigned n) {
    const char *p = text + len;

    if (p > text && p[-1] == '\n')
        p--;
    while (p > text && (p[-1] != '\n' || --n > 0))
        p--;
    return n == 0 && *p == '\n' ? p + 1 : p;
}

/* The output is kept as it came, without times: timestamps and since_us have no effect. */
static int op_logs(struct driver *d, const char *id, unsigned tail, bool timestamps,
                   int64_t since_us, char **ret, struct err *err) {
    struct native *n = native_of(d);
    char path[SANDBOX_ID_MAX + 32] = "";
    _cleanup_free_ char *text = NULL;
    size_t len;

    pthread_mutex_lock(&n->lock);
    struct box *b = find_visible(n, id);
    if (b)
        snprintf(path, sizeof path, "%s/output.log", b->key);
    pthread_mutex_unlock(&n->lock);
    if (!*path)
        return not_found(id, err);
    int r = path_read_file_at(n->sandboxes_fd, path, LOG_READ_MAX, &text, &len);
    if (r < 0)
        return err_sys(err, r == -ENOENT ? -EIO : r, "reading the sandbox's output");
    const char *from = tail ? last_lines(text, len, tail) : text + len;
    *ret = str_ndup(from, (size_t)(text + len - from));
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static json_t *op_capabilities(struct driver *d) {
    struct native *n = native_of(d);
    json_t *limits = json_array();

    if (cgroups_has(n->cgroups, CG_CPU))
        json_array_append_new(limits, json_string("cpu"));
    if (cgroups_has(n->cgroups, CG_MEMORY))
        json_array_append_new(limits, json_string("memory"));
    if (cgroups_has(n->cgroups, CG_PIDS))
        json_array_append_new(limits, json_string("pids"));
    return json_pack("{s:s, s:[s, s], s:o, s:b, s:b, s:b, s:b, s:b, s:s, s:b, s:s}", "driver",
                     "native", "net", "none", "nat", "limits", limits, "pause", true, "mounts",
                     true, "named_volumes", true, "snapshot", false, "pull", false, "cgroups",
                     cgroups_layout(n->cgroups), "userns", n->config.userns, "profile",
                     security_profile_name(n->config.profile));
}

static void op_free(struct driver *d) {
    struct native *n = native_of(d);
    size_t at = 0, left = 0;
    const char *id;
    void *value;

    n->warm = warm_free(n->warm);
    n->parked = stock_free(n->parked);
    n->watch = watch_free(n->watch);
    if (n->boxes)
        left = map_size(n->boxes);
    n->nat = native_nat_free(n->nat, left > 0);
    while (n->boxes && map_next(n->boxes, &at, &id, &value))
        box_free(value);
    n->boxes = map_free(n->boxes);
    n->launcher = launcher_free(n->launcher);
    n->netns_pool = stock_free(n->netns_pool);
    n->trash = trash_free(n->trash);
    n->slots = slots_free(n->slots);
    n->cgroups = cgroups_free(n->cgroups);
    n->store = store_free(n->store);
    seccomp_filter_done(&n->seccomp);
    fd_close(n->agent_fd);
    fd_close(n->runtime_fd);
    fd_close(n->sandboxes_fd);
    fd_close(n->volumes_fd);
    free(n->volumes_dir);
    fd_close(n->state_lock);
    strv_done(&n->dns);
    free(n->state_dir);
    free(n->run_dir);
    free(n->agent_path);
    free(n->runtime);
    free(n->runtime_root);
    free(n->mount_point);
    free(n->subnet);
    free(n->warm_image);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->nat_lock);
    sem_destroy(&n->launching);
    free(n);
}

const struct driver_ops native_ops = {
    .name = "native",
    .create = native_create,
    .remove = native_remove,
    .pause = op_pause,
    .resume = op_resume,
    .inspect = op_inspect,
    .list = op_list,
    .layers_in_use = op_layers_in_use,
    .address = op_address,
    .logs = op_logs,
    .capabilities = op_capabilities,
    .ensure_image = native_ensure_image,
    .volume_open = native_volume_open,
    .volume_remove = native_volume_remove,
    .recover = native_recover,
    .free = op_free,
};
