/*
 * eng: the Engine client behind standard input and output, for test_engine.py. Each line in is a
 * JSON command, each answer one JSON line that carries its "seq". A command with "thread" runs on a
 * thread of its own and can be cancelled; others run one after the other.
 *
 *   eng {"host": "unix:///…", "cert_dir": "…", "tls_verify": 1, "timeout_ms": 5000}
 *
 *   {"op":"ping"}  {"op":"request","method":"GET","path":"/x"}  {"op":"create","name":…,"body":…}
 *   {"op":"start|stop|kill|remove|pause|resume|inspect|wait|logs|commit","id":…}  {"op":"list"}
 *   {"op":"image_inspect|image_remove|pull","ref":…}  {"op":"put|get","id":…,"path":…,"file":…}
 *   {"op":"exec","id":…,"body":…} -> {"exec":…}  {"op":"exec_start","exec":…,"tty":…} ->
 * {"stream":n}
 *   {"op":"read|write|end|close","stream":n}  {"op":"events","filters":…}
 * {"op":"cancel","target":seq}
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "docker/engine.h"

static struct engine *engine;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static int working;

/* A command that runs, so that it can be cancelled. */
struct job {
    json_t *q;
    struct engine_cancel *cancel;
    struct job *next;
};
static struct job *jobs;

#define MAX_STREAMS 64
static struct engine_stream *streams[MAX_STREAMS];

static void say(json_t *j) {
    char *text = json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII);

    pthread_mutex_lock(&lock);
    puts(text ? text : "{\"error\":\"cannot be written\"}");
    fflush(stdout);
    pthread_mutex_unlock(&lock);
    free(text);
    json_decref(j);
}

/* A line besides the answers: {"event": kind, "seq": of the command, "data": …} */
static void tell(const struct job *job, const char *kind, json_t *data) {
    say(json_pack("{s:s, s:O, s:o}", "event", kind, "seq", json_object_get(job->q, "seq"), "data",
                  data ? data : json_null()));
}

/* ---- files ---- */

struct file {
    int fd;
    int64_t bytes, stop_after; /* 0 = never */
};

static ssize_t from_file(void *buf, size_t size, void *ud) {
    struct file *f = ud;
    ssize_t n = read(f->fd, buf, size);

    f->bytes += n > 0 ? n : 0;
    if (f->stop_after && f->bytes > f->stop_after)
        return -EIO;
    return n < 0 ? -errno : n;
}

static int to_file(const void *data, size_t len, void *ud) {
    struct file *f = ud;

    f->bytes += (int64_t)len;
    if (f->stop_after && f->bytes > f->stop_after)
        return -ENOSPC;
    for (const char *p = data; len;) {
        ssize_t n = write(f->fd, p, len);
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int do_archive(const json_t *q, json_t *a, struct err *err) {
    bool put = str_eq(json_str(q, "op"), "put");
    struct file f = {.stop_after = json_int(q, "stop_after", 0)};
    const char *id = json_str(q, "id"), *path = json_str(q, "path");
    int r;

    f.fd = open(json_str(q, "file"), put ? O_RDONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_CLOEXEC,
                0600);
    if (f.fd < 0)
        return err_sys(err, -errno, "open");
    r = put ? engine_archive_put(engine, id, path, json_int(q, "length", -1), from_file, &f, err)
            : engine_archive_get(engine, id, path, to_file, &f, err);
    json_object_set_new(a, "bytes", json_integer(f.bytes));
    fd_close(f.fd);
    return r;
}

/* ---- containers ---- */

/* What a call gave out is added when it succeeded (by address: arguments have no order). */
static int set_json(json_t *a, const char *key, int r, json_t **j) {
    if (r >= 0)
        json_object_set_new(a, key, *j);
    return r;
}

static int set_text(json_t *a, const char *key, int r, char **text) {
    if (r < 0)
        return r;
    json_object_set_new(a, key, json_string(*text));
    free(*text);
    return r;
}

static int set_number(json_t *a, const char *key, int r, int64_t n) {
    if (r >= 0)
        json_object_set_new(a, key, json_integer(n));
    return r;
}

static int do_commit(const json_t *q, json_t *a, struct err *err) {
    const char *changes[16] = {0};
    char *id = NULL;
    size_t i;
    json_t *v;

    json_array_foreach(json_object_get(q, "changes"), i, v) {
        if (i + 1 < ARRAY_SIZE(changes))
            changes[i] = json_string_value(v);
    }
    return set_text(a, "id",
                    engine_container_commit(engine, json_str(q, "id"), json_str(q, "repo"),
                                            json_str(q, "tag"), json_object_get(q, "body"), changes,
                                            &id, err),
                    &id);
}

static int do_container(struct job *job, json_t *a, struct err *err) {
    const json_t *q = job->q;
    const char *op = json_str(q, "op"), *id = json_str(q, "id");
    json_t *j = NULL;
    char *text = NULL;
    int status = 0, r;

    if (str_eq(op, "create"))
        return set_text(a, "id",
                        engine_container_create(engine, json_str(q, "name"),
                                                json_str(q, "platform"), json_object_get(q, "body"),
                                                &text, err),
                        &text);
    if (str_eq(op, "start"))
        return engine_container_start(engine, id, err);
    if (str_eq(op, "stop"))
        return engine_container_stop(engine, id, (unsigned)json_int(q, "grace", 1), err);
    if (str_eq(op, "kill"))
        return engine_container_kill(engine, id, json_str(q, "signal"), err);
    if (str_eq(op, "remove"))
        return engine_container_remove(engine, id, json_bool(q, "force", true), err);
    if (str_eq(op, "pause") || str_eq(op, "resume"))
        return engine_container_pause(engine, id, str_eq(op, "resume"), err);
    if (str_eq(op, "inspect"))
        return set_json(a, "answer", engine_container_inspect(engine, id, &j, err), &j);
    if (str_eq(op, "list"))
        return set_json(a, "answer",
                        engine_container_list(engine, json_bool(q, "all", true),
                                              json_object_get(q, "filters"), &j, err),
                        &j);
    if (str_eq(op, "wait")) {
        r = engine_container_wait(engine, id, &status, job->cancel, err);
        return set_number(a, "status", r, status);
    }
    if (str_eq(op, "logs"))
        return set_text(a, "text",
                        engine_container_logs(engine, id, (unsigned)json_int(q, "tail", 0),
                                              json_bool(q, "timestamps", false),
                                              json_int(q, "since_us", 0),
                                              (size_t)json_int(q, "max", 1 << 20), &text, err),
                        &text);
    if (str_eq(op, "commit"))
        return do_commit(q, a, err);
    return -ENOSYS;
}

/* ---- images, volumes, networks ---- */

static void on_progress(const json_t *line, void *ud) {
    struct job *job = ud;

    if (json_bool(job->q, "progress", false))
        tell(job, "progress", json_deep_copy(line));
}

static int do_things(struct job *job, json_t *a, struct err *err) {
    const json_t *q = job->q;
    const char *op = json_str(q, "op"), *ref = json_str(q, "ref"), *name = json_str(q, "name");
    bool force = json_bool(q, "force", false);
    json_t *j = NULL;

    if (str_eq(op, "pull")) {
        struct engine_pull p = {.ref = ref,
                                .platform = json_str(q, "platform"),
                                .username = json_str(q, "username"),
                                .password = json_str(q, "password"),
                                .on_progress = on_progress,
                                .ud = job,
                                .cancel = job->cancel};
        return engine_image_pull(engine, &p, err);
    }
    if (str_eq(op, "image_inspect"))
        return set_json(a, "answer", engine_image_inspect(engine, ref, &j, err), &j);
    if (str_eq(op, "image_remove"))
        return engine_image_remove(engine, ref, force, err);
    if (str_eq(op, "volume_create"))
        return set_json(a, "answer",
                        engine_volume_create(engine, name, json_object_get(q, "labels"), &j, err),
                        &j);
    if (str_eq(op, "volume_inspect"))
        return set_json(a, "answer", engine_volume_inspect(engine, name, &j, err), &j);
    if (str_eq(op, "volume_list"))
        return set_json(a, "answer",
                        engine_volume_list(engine, json_object_get(q, "filters"), &j, err), &j);
    if (str_eq(op, "volume_remove"))
        return engine_volume_remove(engine, name, force, err);
    if (str_eq(op, "network_inspect"))
        return set_json(a, "answer", engine_network_inspect(engine, name, &j, err), &j);
    return -ENOSYS;
}

/* ---- execs ---- */

static int do_stream(const json_t *q, json_t *a, struct err *err) {
    const char *op = json_str(q, "op");
    struct engine_stream **s = &streams[json_int(q, "stream", 0) % MAX_STREAMS];
    char data[65536];
    int which = 0;
    ssize_t n;

    if (str_eq(op, "read")) {
        n = engine_stream_read(*s, &which, data, (size_t)json_int(q, "size", sizeof data),
                               (int)json_int(q, "timeout_ms", 20000), err);
        if (n < 0)
            return (int)n;
        json_object_set_new(a, "which", json_integer(which));
        char *text = base64_encode(data, (size_t)n);
        return set_text(a, "data", 0, &text);
    }
    if (str_eq(op, "write")) {
        const char *text = json_str(q, "data");
        int64_t times = json_int(q, "times", 1);
        int r = 0;
        while (r == 0 && times-- > 0)
            r = engine_stream_write(*s, text, strlen(text), err);
        return r;
    }
    if (str_eq(op, "end"))
        return engine_stream_end(*s);
    if (str_eq(op, "abort")) {
        engine_stream_abort(*s);
        return 0;
    }
    if (str_eq(op, "close")) {
        *s = engine_stream_free(*s);
        return 0;
    }
    return -ENOSYS;
}

static int do_exec(const json_t *q, json_t *a, struct err *err) {
    const char *op = json_str(q, "op"), *exec = json_str(q, "exec");
    char *text = NULL;
    bool running;
    int code, r;

    if (str_eq(op, "exec"))
        return set_text(
            a, "exec",
            engine_exec_create(engine, json_str(q, "id"), json_object_get(q, "body"), &text, err),
            &text);
    if (str_eq(op, "exec_start")) {
        int i = 0;
        while (streams[i])
            i++;
        r = engine_exec_start(engine, exec, json_bool(q, "tty", false), &streams[i], err);
        return set_number(a, "stream", r, i);
    }
    if (str_eq(op, "exec_inspect")) {
        r = engine_exec_inspect(engine, exec, &running, &code, err);
        if (r >= 0) {
            json_object_set_new(a, "running", json_boolean(running));
            json_object_set_new(a, "code", json_integer(code));
        }
        return r;
    }
    if (str_eq(op, "exec_resize"))
        return engine_exec_resize(engine, exec, (unsigned)json_int(q, "rows", 24),
                                  (unsigned)json_int(q, "cols", 80), err);
    return -ENOSYS;
}

/* ---- the rest ---- */

static void on_open(void *ud) {
    tell(ud, "open", NULL);
}

static int on_event(const json_t *event, void *ud) {
    struct job *job = ud;

    tell(job, "event", json_deep_copy(event));
    return str_eq(json_str(event, "Action"), json_str(job->q, "until")) ? -EINTR : 0;
}

static int do_bench(const json_t *q, json_t *a, struct err *err) {
    struct engine_call c = {.method = "GET", .path = json_str(q, "path")};
    int64_t n = json_int(q, "n", 1000), t0 = clock_mono_us();
    int r = 0;

    for (int64_t i = 0; i < n && r >= 0; i++)
        r = engine_request(engine, &c, NULL, err);
    return set_number(a, "us_each", r, (clock_mono_us() - t0) / n);
}

static int do_request(struct job *job, json_t *a, struct err *err) {
    const json_t *q = job->q;
    json_t *j = NULL;
    struct engine_call c = {.method = json_str(q, "method"),
                            .path = json_str(q, "path"),
                            .query = json_str(q, "query"),
                            .body = json_object_get(q, "body"),
                            .timeout_ms = (unsigned)json_int(q, "timeout_ms", 0),
                            .max_answer = (size_t)json_int(q, "max", 0),
                            .cancel = job->cancel};
    return set_json(a, "answer", engine_request(engine, &c, &j, err), &j);
}

static int do_cancel(const json_t *q) {
    int64_t target = json_int(q, "target", -1);
    int r = -ENOENT;

    pthread_mutex_lock(&lock);
    for (struct job *j = jobs; j; j = j->next) {
        if (json_int(j->q, "seq", -2) == target) {
            engine_cancel_fire(j->cancel);
            r = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static int dispatch(struct job *job, json_t *a, struct err *err) {
    const json_t *q = job->q;
    const char *op = json_str(q, "op");
    char version[16];
    json_t *j = NULL;
    int r;

    if (str_eq(op, "ping")) {
        r = engine_ping(engine, version, err);
        if (r >= 0)
            json_object_set_new(a, "version", json_string(version));
        return r;
    }
    if (str_eq(op, "info"))
        return set_json(a, "answer", engine_info(engine, &j, err), &j);
    if (str_eq(op, "request"))
        return do_request(job, a, err);
    if (str_eq(op, "put") || str_eq(op, "get"))
        return do_archive(q, a, err);
    if (str_eq(op, "events"))
        return engine_events(engine, json_object_get(q, "filters"), json_int(q, "since", 0),
                             on_open, on_event, job, job->cancel, err);
    if (str_eq(op, "bench"))
        return do_bench(q, a, err);
    if (str_eq(op, "cancel"))
        return do_cancel(q);
    r = do_container(job, a, err);
    if (r == -ENOSYS)
        r = do_things(job, a, err);
    if (r == -ENOSYS)
        r = do_exec(q, a, err);
    return r == -ENOSYS ? do_stream(q, a, err) : r;
}

static void run_job(struct job *job) {
    struct err err = {0};
    json_t *a = json_object();
    int r = dispatch(job, a, &err);

    json_object_set(a, "seq", json_object_get(job->q, "seq"));
    json_object_set_new(a, "ok", json_boolean(r >= 0));
    if (r < 0) {
        json_object_set_new(a, "error", json_string(strerrorname_np(-r)));
        json_object_set_new(a, "status", json_integer(engine_status()));
        json_object_set_new(a, "message", json_string(err_text(&err)));
    }
    pthread_mutex_lock(&lock);
    for (struct job **at = &jobs; *at; at = &(*at)->next) {
        if (*at == job) {
            *at = job->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    say(a);
    json_decref(job->q);
    engine_cancel_free(job->cancel);
    free(job);
}

static void *worker(void *ud) {
    run_job(ud);
    pthread_mutex_lock(&lock);
    working--;
    pthread_cond_broadcast(&idle);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void take_command(json_t *q) {
    struct job *job = calloc(1, sizeof *job);
    bool on_thread = json_bool(q, "thread", false);
    pthread_t t;

    job->q = q;
    if (engine_cancel_new(&job->cancel) < 0)
        exit(1);
    pthread_mutex_lock(&lock);
    job->next = jobs;
    jobs = job;
    working += on_thread;
    pthread_mutex_unlock(&lock);
    if (!on_thread) {
        run_job(job);
        return;
    }
    if (pthread_create(&t, NULL, worker, job) != 0)
        exit(1);
    pthread_detach(t);
}

int main(int argc, char **argv) {
    struct err err = {0};
    json_t *o = argc == 2 ? json_loads(argv[1], 0, NULL) : NULL;
    struct engine_opts opts = {.host = json_str(o, "host"),
                               .cert_dir = json_str(o, "cert_dir"),
                               .tls_verify = (int)json_int(o, "tls_verify", -1),
                               .timeout_ms = (unsigned)json_int(o, "timeout_ms", 0)};
    char *line = NULL;
    size_t size = 0;

    if (!o)
        return 2;
    if (engine_new(&opts, &engine, &err) < 0) {
        say(json_pack("{s:b, s:s, s:s}", "ok", 0, "error", strerrorname_np(-err.code), "message",
                      err.msg));
        json_decref(o);
        return 3;
    }
    say(json_pack("{s:b, s:s, s:b}", "ok", 1, "host", engine_host(engine), "unix",
                  engine_is_unix(engine)));
    while (getline(&line, &size, stdin) > 0) {
        json_t *q = json_loads(line, 0, NULL);
        if (!q)
            return 2;
        take_command(q);
    }
    pthread_mutex_lock(&lock);
    for (struct job *j = jobs; j; j = j->next)
        engine_cancel_fire(j->cancel);
    while (working)
        pthread_cond_wait(&idle, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < MAX_STREAMS; i++)
        engine_stream_free(streams[i]);
    engine_free(engine);
    json_decref(o);
    free(line);
    return 0;
}
