/*
 * Running cove-unpack (see unpack_main.c for its contract) and reading what it says. What it says
 * is believed no further than a program that parsed hostile bytes may be: lines are bounded, values
 * checked, its end is enforced.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/path.h"
#include "base/spawn.h"
#include "oci/store_internal.h"

#define LINE_MAX_BYTES 65536
#define STDERR_MAX_BYTES 4096
#define END_WAIT_MS 10000 /* from the end of its output to its exit */

void unpack_report_done(struct unpack_report *r) {
    json_decref(r->skipped);
    r->skipped = NULL;
}

static int find_helper(struct store *s, char **ret) {
    const char *dir = getenv("COVE_LIBEXEC");
    char exe[4096];

    if (s->unpack_path) {
        *ret = strdup(s->unpack_path);
    } else if (!str_is_empty(dir)) {
        *ret = path_join(dir, "cove-unpack");
    } else {
        ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
        if (n < 0)
            return -errno;
        exe[n] = 0;
        char *slash = strrchr(exe, '/');
        if (slash)
            *slash = 0;
        *ret = str_printf("%s/../lib/cove/cove-unpack", exe);
    }
    return *ret ? 0 : -ENOMEM;
}

struct child {
    const struct unpack_job *job;
    const struct store_import_opts *opts;
    struct unpack_report *report;
    int out, errs, pidfd;
    pid_t pid;
    struct buf line, text;
    bool has_result;
    struct err err; /* as the child reported it */
};

static void child_done(struct child *c) {
    if (c->pid > 0) {
        kill(c->pid, SIGKILL);
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    fd_close(c->out);
    fd_close(c->errs);
    fd_close(c->pidfd);
    buf_done(&c->line);
    buf_done(&c->text);
}

static int start(struct store *s, struct child *c, struct err *err) {
    _cleanup_free_ char *helper = NULL;
    char bytes[24], entries[24];
    int out[2] = {-1, -1}, errs[2] = {-1, -1};
    int keep[2] = {c->job->dest_fd, c->job->lock_fd};
    struct spawn_opts o = SPAWN_OPTS_INIT;
    int r = find_helper(s, &helper);

    if (r < 0)
        return err_sys(err, r, "finding cove-unpack");
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)s->max_layer_bytes);
    snprintf(entries, sizeof entries, "%llu", (unsigned long long)s->max_entries);
    const char *const argv[] = {helper, "--mode",        c->job->mode, "--max-bytes",
                                bytes,  "--max-entries", entries,      NULL};
    const char *const envp[] = {"PATH=/usr/bin:/bin", NULL};
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(errs, O_CLOEXEC) < 0) {
        r = err_sys(err, -errno, "pipe");
    } else {
        o.argv = argv;
        o.envp = envp;
        o.stdin_fd = c->job->in_fd;
        o.stdout_fd = out[1];
        o.stderr_fd = errs[1];
        o.keep_fds = keep;
        o.n_keep = ARRAY_SIZE(keep);
        r = spawn_start(&o, &c->pid, &c->pidfd, err);
    }
    fd_close(out[1]);
    fd_close(errs[1]);
    c->out = out[0];
    c->errs = errs[0];
    return r;
}

static void take_progress(struct child *c, const json_t *j) {
    struct store_progress p = {
        .phase = c->job->phase,
        .layer = c->job->layer,
        .layers = c->job->layers,
        .bytes = (uint64_t)json_int(j, "bytes", 0),
        .entries = (uint64_t)json_int(j, "entries", 0),
    };
    if (c->opts->progress)
        c->opts->progress(&p, c->opts->ud);
}

static int take_result(struct child *c, const json_t *j, struct err *err) {
    struct unpack_report *r = c->report;
    const char *diff = json_str(j, "diffId"), *digest = json_str(j, "digest"),
               *format = json_str(j, "format");

    if (format) {
        str_copy(r->format, sizeof r->format, format);
    } else {
        if (!store_is_hex64(diff) || !digest || (*digest && !store_is_hex64(digest)))
            return err_set(err, -EPROTO, "cove-unpack: bad result");
        str_copy(r->diff_id, sizeof r->diff_id, diff);
        str_copy(r->digest, sizeof r->digest, digest);
        r->bytes = (uint64_t)json_int(j, "bytes", 0);
        r->entries = (uint64_t)json_int(j, "entries", 0);
        json_decref(r->skipped);
        r->skipped = json_incref(json_object_get(j, "skipped"));
    }
    c->has_result = true;
    return 0;
}

static int take_line(struct child *c, const char *line, size_t len, struct err *err) {
    _cleanup_json_ json_t *j = json_parse(line, len, NULL);
    const char *type = json_str(j, "type");

    if (str_eq(type, "progress")) {
        take_progress(c, j);
    } else if (str_eq(type, "result")) {
        return take_result(c, j, err);
    } else if (str_eq(type, "error")) {
        int64_t code = json_int(j, "errno", EIO);
        const char *text = json_str(j, "message");
        err_set(&c->err, code > 0 && code < 4096 ? (int)-code : -EIO, "%s",
                text ? text : "unpacking failed");
    } else {
        return err_set(err, -EPROTO, "cove-unpack: unknown line");
    }
    return 0;
}

static int read_lines(struct child *c, struct err *err) {
    char chunk[8192], *nl;
    ssize_t n = read(c->out, chunk, sizeof chunk);
    int r = 0;

    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : err_sys(err, -errno, "cove-unpack");
    if (n == 0) {
        c->out = fd_close(c->out);
        return 0;
    }
    if (buf_append(&c->line, chunk, (size_t)n) < 0)
        return err_set(err, -EPROTO, "cove-unpack: a line is longer than %d bytes", LINE_MAX_BYTES);
    while (r == 0 && c->line.len && (nl = memchr(c->line.data, '\n', c->line.len))) {
        size_t len = (size_t)(nl - c->line.data);
        r = take_line(c, c->line.data, len, err);
        buf_consume(&c->line, len + 1);
    }
    return r;
}

static void read_stderr(struct child *c) {
    char chunk[1024];
    ssize_t n = read(c->errs, chunk, sizeof chunk);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0)
        c->errs = fd_close(c->errs);
    else
        buf_append(&c->text, chunk, MIN((size_t)n, c->text.max - c->text.len));
}

/* Until its output ends, then until it does. */
static int follow(struct child *c, struct err *err) {
    while (true) {
        bool talking = c->out >= 0;
        struct pollfd p[4] = {{c->out, POLLIN, 0},
                              {c->errs, POLLIN, 0},
                              {c->opts->cancel_fd, POLLIN, 0},
                              {talking ? -1 : c->pidfd, POLLIN, 0}};
        int n = poll(p, ARRAY_SIZE(p), talking ? -1 : END_WAIT_MS);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, -errno, "poll");
        if (n == 0)
            return err_set(err, -ETIMEDOUT, "cove-unpack did not end within %d ms", END_WAIT_MS);
        if (p[2].revents)
            return err_set(err, -ECANCELED, "canceled");
        if (p[1].revents)
            read_stderr(c);
        int r = p[0].revents ? read_lines(c, err) : 0;
        if (r < 0)
            return r;
        if (p[3].revents)
            return 0;
    }
}

static int judge(struct child *c, struct err *err) {
    int st = 0;

    while (waitpid(c->pid, &st, 0) < 0 && errno == EINTR)
        ;
    c->pid = 0;
    if (WIFEXITED(st) && WEXITSTATUS(st) == 0 && c->has_result)
        return 0;
    if (c->err.code)
        return err_set(err, c->err.code, "%s", err_text(&c->err));
    if (WIFSIGNALED(st) && WTERMSIG(st) == SIGSYS)
        return err_set(err, -EINVAL,
                       "the unpacker did something that is not allowed and was stopped");
    if (WIFSIGNALED(st))
        return err_set(err, -EINVAL, "the unpacker died of signal %d", WTERMSIG(st));
    while (c->text.len && c->text.data[c->text.len - 1] == '\n')
        c->text.data[--c->text.len] = 0;
    return err_set(err, -EIO, "the unpacker ended with status %d%s%.500s", WEXITSTATUS(st),
                   c->text.len ? ": " : "", c->text.len ? c->text.data : "");
}

int store_run_unpack(struct store *s, const struct unpack_job *job,
                     const struct store_import_opts *opts, struct unpack_report *ret,
                     struct err *err) {
    struct unpack_report report = {0};
    _cleanup_(child_done) struct child c = {.job = job,
                                            .opts = opts,
                                            .report = &report,
                                            .out = -1,
                                            .errs = -1,
                                            .pidfd = -1,
                                            .line = BUF_INIT(LINE_MAX_BYTES),
                                            .text = BUF_INIT(STDERR_MAX_BYTES)};
    int r = start(s, &c, err);

    if (r == 0)
        r = follow(&c, err);
    if (r == 0)
        r = judge(&c, err);
    if (r < 0) {
        unpack_report_done(&report);
        return r;
    }
    *ret = report;
    return 0;
}
