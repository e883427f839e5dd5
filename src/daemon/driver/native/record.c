/*
 * What the driver writes down about a sandbox: <state_dir>/sandboxes/<key>/record.json, replaced as
 * a whole. It must survive a dead daemon, not a dead machine (what it describes dies with that), so
 * it is not synced. The record holds no secrets.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/path.h"
#include "daemon/driver/native/native_priv.h"

#define RECORD_MAX (256 << 10)

static const char *const state_names[] = {"creating", "running", "exited", "removing"};

int box_record_write(struct native *n, const struct box *b) {
    _cleanup_json_ json_t *layers = json_array(), *volumes = json_array(), *j = NULL;
    _cleanup_buf_ struct buf text = BUF_INIT(RECORD_MAX);
    char path[SANDBOX_ID_MAX + 32];

    for (size_t i = 0; i < b->layers.n; i++)
        json_array_append_new(layers, json_string(b->layers.v[i]));
    for (size_t i = 0; i < b->volumes.n; i++)
        json_array_append_new(volumes, json_string(b->volumes.v[i]));
    j = json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:O, s:O}", "version", 1, "id",
                  b->id, "state", state_names[b->state], "slot", b->has_slot ? (int)b->slot : -1,
                  "net", b->net == NET_NAT ? "nat" : "none", "boot_id", n->boot_id, "pid",
                  (int)b->pid, "start_ticks", (json_int_t)b->start_ticks, "started_us",
                  (json_int_t)b->started_us, "layers", layers, "volumes", volumes);
    if (!j || buf_json(&text, j) < 0)
        return -ENOMEM;
    snprintf(path, sizeof path, "%s/record.json", b->key);
    return path_write_file_at(n->sandboxes_fd, path, text.data, text.len, 0600, false);
}

static int read_list(const json_t *list, struct strv *ret) {
    const json_t *v;
    size_t i;

    json_array_foreach(list, i, v) {
        if (json_is_string(v) && strv_add(ret, json_string_value(v)) < 0)
            return -ENOMEM;
    }
    return 0;
}

int box_record_read(struct native *n, const char *key, struct box **ret, bool *ret_same_boot) {
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *j = NULL;
    char path[SANDBOX_ID_MAX + 32];
    size_t len, i;
    int r;

    snprintf(path, sizeof path, "%s/record.json", key);
    r = path_read_file_at(n->sandboxes_fd, path, RECORD_MAX, &text, &len);
    if (r < 0)
        return r;
    j = json_parse(text, len, NULL);
    const char *id = json_str(j, "id"), *state = json_str(j, "state");
    if (!id || strlen(id) > SANDBOX_ID_MAX || json_int(j, "version", 0) != 1)
        return -EBADMSG;
    _cleanup_(box_freep) struct box *b = box_new(id, key);
    if (!b)
        return -ENOMEM;
    for (i = 0; i < ARRAY_SIZE(state_names); i++)
        if (str_eq(state, state_names[i]))
            b->state = (enum box_state)i;
    b->has_slot = json_int(j, "slot", -1) >= 0;
    b->slot = b->has_slot ? (unsigned)json_int(j, "slot", 0) : 0;
    b->net = str_eq(json_str(j, "net"), "nat") ? NET_NAT : NET_NONE;
    b->pid = (pid_t)json_int(j, "pid", 0);
    b->start_ticks = (uint64_t)json_int(j, "start_ticks", 0);
    b->started_us = json_int(j, "started_us", 0);
    if (read_list(json_object_get(j, "layers"), &b->layers) < 0 ||
        read_list(json_object_get(j, "volumes"), &b->volumes) < 0)
        return -ENOMEM;
    *ret_same_boot = str_eq(json_str(j, "boot_id"), n->boot_id);
    *ret = TAKE_PTR(b);
    return 0;
}

int process_start_ticks(pid_t pid, uint64_t *ret) {
    _cleanup_free_ char *text = NULL;
    char path[40];
    int r;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    r = path_read_file_at(AT_FDCWD, path, 4096, &text, NULL);
    if (r < 0)
        return r;
    char *p = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p)
        return -EPROTO;
    *ret = strtoull(p + 1, NULL, 10);
    return 0;
}

void box_read_exit(struct native *n, struct box *b) {
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *j = NULL;
    struct cgroup_usage usage;
    char path[SANDBOX_ID_MAX + 32];
    size_t len;

    b->exit_code = 128 + 9; /* an agent that left nothing was killed */
    b->finished_us = clock_wall_us();
    snprintf(path, sizeof path, "%s/exit.json", b->key);
    if (path_read_file_at(n->sandboxes_fd, path, 4096, &text, &len) == 0)
        j = json_parse(text, len, NULL);
    if (j) {
        int64_t code = json_int(j, "code", 0), sig = json_int(j, "signal", 0);
        b->exit_code = sig > 0 ? 128 + (int)sig : (int)code;
        b->finished_us = json_int(j, "finished_us", b->finished_us);
    }
    b->oom_killed = b->exit_code == 128 + 9 && cgroups_usage(n->cgroups, b->key, &usage) == 0 &&
                    usage.oom_kills > 0;
}
