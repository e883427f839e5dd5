/*
 * The agent's file routes, one function each, and the two public calls that move the bytes of one
 * file. Uploads are streamed as multipart/form-data, downloads straight into a descriptor; memory
 * is bounded.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/path.h"
#include "client/files.h"
#include "net/url.h"

void transfer_init(struct transfer *t, struct cove_client *c, const char *id,
                   const struct cove_copy_options *o) {
    *t = (struct transfer){.c = c, .sandbox_id = id};
    OPTIONS_COPY(&t->o, o);
}

void transfer_skip(struct transfer *t, const char *path, const char *why) {
    if (t->o.on_skip)
        t->o.on_skip(path, why, t->o.ud);
}

static void transfer_add(struct transfer *t, size_t n) {
    t->done += n;
    if (t->o.on_progress)
        t->o.on_progress(t->done, t->total, t->o.ud);
}

int mode_to_digits(unsigned mode) {
    char text[16];
    uint64_t digits = 0;
    snprintf(text, sizeof(text), "%o", mode & 0777);
    str_to_u64(text, &digits);
    return (int)digits;
}

unsigned mode_from_digits(int64_t digits) {
    unsigned mode = 0;
    for (unsigned shift = 0; digits > 0 && shift < 9; digits /= 10, shift += 3)
        mode |= (unsigned)(digits % 10 & 7) << shift;
    return mode;
}

const char *child_name(const char *dir, const char *path) {
    size_t n = strlen(dir);
    while (n > 0 && dir[n - 1] == '/')
        n--;
    if (strncmp(path, dir, n) != 0 || path[n] != '/')
        return NULL;
    const char *name = path + n + 1;
    return !*name || strchr(name, '/') || str_eq(name, ".") || str_eq(name, "..") ? NULL : name;
}

/* ---- small routes ---- */

static int agent_call(struct transfer *t, const char *method, const char *path,
                      const char *query_value, const json_t *body, json_t **ret, const char *doing,
                      struct cove_error *err) {
    const struct agent *agent;
    int r = agent_get(t->c, t->sandbox_id, &agent, err);
    if (r < 0)
        return r;
    _cleanup_buf_ struct buf text = BUF_INIT(RESPONSE_MAX);
    _cleanup_free_ char *target =
        agent_target(agent, path, query_value ? "path" : NULL, query_value);
    if (!target || (body && buf_json(&text, body) < 0))
        return cerr_oom(err);
    struct transport_req rq = {.method = method,
                               .target = target,
                               .agent = agent,
                               .body = text.data,
                               .body_len = text.len,
                               .content_type = body ? "application/json" : NULL};
    return ret ? transport_json(t->c, &rq, ret, doing, err)
               : transport_ok(t->c, &rq, NULL, doing, err);
}

int remote_info_parse(const json_t *j, struct remote_info *ret) {
    const char *type = json_str(j, "type");
    *ret = (struct remote_info){.type = 'o',
                                .mode = mode_from_digits(json_int(j, "mode", 0)),
                                .size = (uint64_t)MAX(json_int(j, "size", 0), 0)};
    if (!type)
        return -EBADMSG;
    if (str_eq(type, "file"))
        ret->type = 'f';
    else if (str_eq(type, "directory"))
        ret->type = 'd';
    else if (str_eq(type, "symlink"))
        ret->type = 'l';
    return 0;
}

int remote_stat(struct transfer *t, const char *path, struct remote_info *ret,
                struct cove_error *err) {
    _cleanup_json_ json_t *j = NULL;
    int r = agent_call(t, "GET", "/files/info", path, NULL, &j, "look at the file", err);
    if (r < 0)
        return r;
    r = remote_info_parse(json_object_iter_value(json_object_iter(j)), ret);
    return r < 0 ? cerr_set(err, r, "cannot look at %s: the agent's answer describes no file", path)
                 : 0;
}

static int remote_permission(struct transfer *t, const char *route, const char *path, unsigned mode,
                             const char *doing, struct cove_error *err) {
    _cleanup_json_ json_t *body = json_object();
    json_t *permission = json_pack("{s:i}", "mode", mode_to_digits(mode));
    if (!body || json_object_set_new(body, path, permission) < 0)
        return cerr_set(err, -EINVAL, "cannot %s: the path is not valid UTF-8", doing);
    return agent_call(t, "POST", route, NULL, body, NULL, doing, err);
}

int remote_mkdir(struct transfer *t, const char *path, unsigned mode, struct cove_error *err) {
    return remote_permission(t, "/directories", path, mode, "make the directory", err);
}

int remote_chmod(struct transfer *t, const char *path, unsigned mode, struct cove_error *err) {
    return remote_permission(t, "/files/permissions", path, mode, "set permissions", err);
}

int remote_list(struct transfer *t, const char *path, json_t **ret, struct cove_error *err) {
    int r = agent_call(t, "GET", "/directories/list", path, NULL, ret, "list the directory", err);
    if (r < 0 || json_is_array(*ret))
        return r;
    json_decref(*ret);
    return cerr_set(err, -EBADMSG, "cannot list %s: the agent's answer is no list", path);
}

struct captured {
    struct buf out;
};

static int capture(enum cove_stream stream, const void *data, size_t len, void *ud) {
    struct captured *cap = ud;
    return stream == COVE_STDOUT ? buf_append(&cap->out, data, len) : 0;
}

int remote_run(struct transfer *t, const char *const *argv, char **ret_out, int *ret_code,
               struct cove_error *err) {
    struct captured cap = {.out = BUF_INIT(65536)};
    struct cove_exec_options o = COVE_EXEC_OPTIONS_INIT;
    o.argv = argv;
    o.on_output = capture;
    o.ud = &cap;
    struct cove_exec *x;
    struct cove_exit status;
    int r = cove_exec_start(t->c, t->sandbox_id, &o, &x, err);
    if (r < 0)
        return r;
    r = cove_exec_wait(x, 60000, &status, err);
    cove_exec_free(x);
    if (r == 0) {
        *ret_code = status.code;
        *ret_out = buf_take(&cap.out, NULL);
        r = *ret_out ? 0 : cerr_oom(err);
    }
    buf_done(&cap.out);
    return r;
}

/* ---- upload ---- */

struct upload {
    struct transfer *t;
    int fd;
    int64_t left; /* bytes of the file still to send; -1 = until its end */
    struct buf head, tail;
    size_t head_sent, tail_sent;
    bool file_done, shrank;
};

static size_t take(const struct buf *b, size_t *sent, void *out, size_t size) {
    size_t n = MIN(size, b->len - *sent);
    memcpy(out, b->data + *sent, n);
    *sent += n;
    return n;
}

static ssize_t upload_read(void *out, size_t size, void *ud) {
    struct upload *u = ud;
    if (u->head_sent < u->head.len)
        return (ssize_t)take(&u->head, &u->head_sent, out, size);
    if (!u->file_done) {
        size_t want = u->left >= 0 ? MIN(size, (size_t)u->left) : size;
        ssize_t n = want ? read(u->fd, out, want) : 0;
        if (n < 0)
            return -errno;
        if (n > 0) {
            if (u->left > 0)
                u->left -= n;
            transfer_add(u->t, (size_t)n);
            return n;
        }
        u->file_done = true;
        u->shrank = u->left > 0;
        if (u->shrank)
            return -EIO;
    }
    return (ssize_t)take(&u->tail, &u->tail_sent, out, size);
}

static int upload_parts(struct upload *u, const char *boundary, const char *path, unsigned mode) {
    _cleanup_json_ json_t *meta =
        json_pack("{s:s, s:i}", "path", path, "mode", mode_to_digits(mode));
    if (!meta)
        return -EINVAL;
    buf_printf(
        &u->head,
        "--%s\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\n"
        "Content-Type: application/json\r\n\r\n",
        boundary);
    buf_json(&u->head, meta);
    buf_printf(&u->head,
               "\r\n--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n"
               "Content-Type: application/octet-stream\r\n\r\n",
               boundary);
    buf_printf(&u->tail, "\r\n--%s--\r\n", boundary);
    return buf_ok(&u->head) && buf_ok(&u->tail) ? 0 : -ENOMEM;
}

/* Bytes from the present position to the end of a regular file; -1 = cannot be told. */
static int64_t bytes_left(int fd) {
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return -1;
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at < 0 || at > st.st_size ? -1 : st.st_size - at;
}

int remote_upload(struct transfer *t, int fd, const char *path, unsigned mode,
                  struct cove_error *err) {
    struct upload u = {
        .t = t, .fd = fd, .left = bytes_left(fd), .head = BUF_INIT(65536), .tail = BUF_INIT(4096)};
    const struct agent *agent;
    char boundary[33], type[80];
    id_hex32(boundary);
    snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", boundary);
    int r = agent_get(t->c, t->sandbox_id, &agent, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *target = agent_target(agent, "/files/upload", NULL, NULL);
    r = !target ? -ENOMEM : upload_parts(&u, boundary, path, mode ? mode : 0644);
    if (r < 0) {
        cerr_sys(err, r, "cannot upload to %.200s", path);
    } else {
        int64_t length = u.left < 0 ? -1 : (int64_t)(u.head.len + u.tail.len) + u.left;
        struct transport_req rq = {.method = "POST",
                                   .target = target,
                                   .agent = agent,
                                   .content_type = type,
                                   .read_body = upload_read,
                                   .body_length = length,
                                   .ud = &u,
                                   .silence_ms = UINT_MAX};
        r = transport_ok(t->c, &rq, NULL, "upload the file", err);
        if (r < 0 && u.shrank)
            cerr_set(err, r, "the file became shorter while it was being sent");
    }
    buf_done(&u.head);
    buf_done(&u.tail);
    return r;
}

int cove_file_upload(struct cove_client *c, const char *sandbox_id, int fd, const char *path,
                     unsigned mode, const struct cove_copy_options *o, struct cove_error *err) {
    struct transfer t;
    transfer_init(&t, c, sandbox_id, o);
    t.total = (uint64_t)MAX(bytes_left(fd), 0);
    return remote_upload(&t, fd, path, mode, err);
}

/* ---- download ---- */

struct download {
    struct transfer *t;
    int fd;
};

static int download_write(const char *data, size_t len, int64_t total, void *ud) {
    struct download *d = ud;
    int r = fd_write_full(d->fd, data, len);
    if (r == 0)
        transfer_add(d->t, len);
    return r;
}

int remote_download(struct transfer *t, const char *path, int fd, struct cove_error *err) {
    const struct agent *agent;
    int r = agent_get(t->c, t->sandbox_id, &agent, err);
    if (r < 0)
        return r;
    struct download d = {.t = t, .fd = fd};
    _cleanup_free_ char *target = agent_target(agent, "/files/download", "path", path);
    if (!target)
        return cerr_oom(err);
    struct transport_req rq = {
        .method = "GET", .target = target, .agent = agent, .on_body = download_write, .ud = &d};
    return transport_ok(t->c, &rq, NULL, "download the file", err);
}

int cove_file_download(struct cove_client *c, const char *sandbox_id, const char *path, int fd,
                       const struct cove_copy_options *o, struct cove_error *err) {
    struct transfer t;
    transfer_init(&t, c, sandbox_id, o);
    return remote_download(&t, path, fd, err);
}
