/*
 * See stream.h. The loop around cove_exec_wait(): signals and the time limit interrupt it, and are
 * acted upon here. With --json the output becomes one JSON object per line, the last one has
 * "exit_code".
 */
#include "cli/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/path.h"
#include "cli/output.h"
#include "cli/term.h"
#include "cli/option_values.h"

struct stream {
    const struct stream_opts *o;
    struct strv env;
    int64_t uid, gid;
    uint64_t timeout_ms; /* 0 = none */
    bool tty, raw;
    int64_t deadline_ms, started_us;
    struct cove_exec *exec;
};

static int stream_parse(struct stream *s, struct err *err) {
    const struct args *a = s->o->args;
    const char *const *env = arg_values(a, OPT_ENV);
    int r = 0;
    s->uid = s->gid = -1;
    for (size_t i = 0; r == 0 && env && env[i]; i++)
        r = parse_env(env[i], &s->env, err);
    if (r == 0 && arg_given(a, OPT_USER))
        r = parse_user(arg_value(a, OPT_USER), &s->uid, &s->gid, err);
    if (r == 0 && arg_given(a, OPT_TIMEOUT))
        r = parse_time(arg_value(a, OPT_TIMEOUT), &s->timeout_ms, err);
    s->tty = arg_given(a, OPT_TTY);
    if (r == 0 && s->tty && arg_given(a, OPT_JSON))
        r = err_set(err, -EINVAL,
                    "--tty and --json exclude each other: a terminal's output is not for programs");
    return r;
}

int stream_check(const struct args *a) {
    const struct stream_opts o = {.args = a};
    struct stream s = {.o = &o};
    struct err err = {0};
    int r = stream_parse(&s, &err);
    strv_done(&s.env);
    return r < 0 ? fail_err(a, EXIT_COVE, &err) : 0;
}

/* One line per piece of output; what is not UTF-8 goes as base64. */
static int json_output(enum cove_stream stream, const void *data, size_t len, void *ud) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    buf_printf(&b, "{\"type\":\"%s\",", stream == COVE_STDERR ? "stderr" : "stdout");
    if (utf8_is_valid(data, len) && !memchr(data, 0, len)) {
        buf_str(&b, "\"data\":");
        buf_json_str(&b, data, len);
    } else {
        _cleanup_free_ char *coded = base64_encode(data, len);
        buf_printf(&b, "\"base64\":\"%s\"", coded ? coded : "");
    }
    buf_str(&b, "}\n");
    return buf_ok(&b) ? fd_write_full(STDOUT_FILENO, b.data, b.len) : -ENOMEM;
}

static bool stdin_is_wanted(const struct args *a) {
    return fcntl(STDIN_FILENO, F_GETFD) >= 0 &&
           (!isatty(STDIN_FILENO) || arg_given(a, OPT_INTERACTIVE) || arg_given(a, OPT_TTY));
}

static int stream_start(struct stream *s, struct cove_client *c, const char *sandbox_id,
                        struct cove_error *err) {
    const struct args *a = s->o->args;
    struct cove_exec_options x = COVE_EXEC_OPTIONS_INIT;
    const char *term = getenv("TERM");
    if (s->tty && !str_is_empty(term) && !env_get(&s->env, "TERM"))
        env_set(&s->env, "TERM", term);
    x.argv = s->o->argv;
    x.env = (const char *const *)s->env.v;
    x.cwd = s->o->cwd;
    x.uid = s->uid;
    x.gid = s->gid;
    x.tty = s->tty;
    if (s->tty)
        term_size(&x.cols, &x.rows);
    x.stdin_fd = stdin_is_wanted(a) ? STDIN_FILENO : -1;
    x.stdout_fd = STDOUT_FILENO;
    x.stderr_fd = STDERR_FILENO;
    x.on_output = arg_given(a, OPT_JSON) ? json_output : NULL;
    x.renew_s = s->o->renew_s;
    return cove_exec_start(c, sandbox_id, &x, &s->exec, err);
}

static const char *signal_name(int sig) {
    return sig == SIGINT ? "SIGINT" : sig == SIGTERM ? "SIGTERM" : "SIGHUP";
}

/* After an interrupt: *ret_status is set when the wait must end. */
static bool handle_signals(struct stream *s, int *ret_status) {
    unsigned short cols, rows;
    if (signals_resized() && s->tty && term_size(&cols, &rows))
        cove_exec_resize(s->exec, cols, rows);
    int sig = signals_taken();
    if (!sig)
        return false;
    if (s->o->forward_signals && sig != SIGHUP && signals_ints() < 2) {
        cove_exec_signal(s->exec, signal_name(sig));
        return false;
    }
    *ret_status = 128 + sig;
    return true;
}

static int stream_wait(struct stream *s) {
    const struct args *a = s->o->args;
    for (;;) {
        struct cove_exit done;
        struct cove_error err = {0};
        int status = 0;
        int64_t left = s->timeout_ms ? s->deadline_ms - clock_mono_ms() : 0;
        if (s->timeout_ms && left <= 0)
            left = 1;
        int r = cove_exec_wait(s->exec, (unsigned)left, &done, &err);
        if (r == 0) {
            if (arg_given(a, OPT_JSON)) {
                printf("{\"type\":\"exit\",\"exit_code\":%d,", done.code);
                if (done.signal[0])
                    printf("\"signal\":\"%s\",", done.signal);
                printf("\"duration_ms\":%lld}\n",
                       (long long)(clock_mono_us() - s->started_us) / 1000);
            }
            return done.code;
        }
        if (r == -EINTR) {
            if (handle_signals(s, &status))
                return status;
            continue;
        }
        term_restore();
        if (r == -ETIMEDOUT)
            return fail_text(a, EXIT_TIMEOUT, "the command was killed: it ran longer than %s",
                             arg_value(a, OPT_TIMEOUT));
        if (r == -EPIPE)
            return 128 + SIGPIPE;
        return fail(a, EXIT_COVE, &err);
    }
}

static int start_status(const struct args *a, int r, const struct cove_error *err) {
    if (r == -EINTR) {
        int sig = signals_taken();
        return 128 + (sig ? sig : SIGINT);
    }
    bool started = !str_eq(err->kind, "START_FAILED");
    return fail(a,
                started        ? EXIT_COVE
                : r == -ENOENT ? EXIT_NOT_FOUND
                : r == -EACCES ? EXIT_NOT_EXECUTABLE
                               : EXIT_COVE,
                err);
}

int stream_command(struct cove_client *c, const char *sandbox_id, const struct stream_opts *o) {
    struct stream s = {.o = o};
    struct err e = {0};
    struct cove_error err = {0};
    int status, r = stream_parse(&s, &e);
    if (r < 0) {
        strv_done(&s.env);
        return fail_err(o->args, EXIT_COVE, &e);
    }
    s.started_us = clock_mono_us();
    s.deadline_ms = clock_mono_ms() + (int64_t)s.timeout_ms;
    if (s.tty && isatty(STDIN_FILENO))
        term_raw(); /* before the first byte of output */
    r = stream_start(&s, c, sandbox_id, &err);
    status = r < 0 ? 0 : stream_wait(&s);
    term_restore();
    if (r < 0)
        status = start_status(o->args, r, &err);
    else
        cove_exec_free(s.exec);
    strv_done(&s.env);
    return status;
}
