/*
 * Client of cove-launch (see launcher.h). Every request brings its own answer socket, so callers
 * wait independently, no table of pending requests exists, and the death of cove-launch is an
 * end-of-file for all who wait. The lock covers the process and the control socket, never the
 * waiting.
 */
#include "daemon/driver/native/launcher.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/spawn.h"
#include "daemon/driver/native/fdmsg.h"
#include "daemon/driver/native/launch_proto.h"

#define ANSWER_MARGIN_MS \
    5000 /* cove-launch enforces the limit itself; this is for the case that it hangs */

struct launcher {
    pthread_mutex_t lock;
    char *program, *runtime, *cgroup2_path;
    int control;
    pid_t pid;
    int pidfd;
};

/* Ends cove-launch: it leaves at end-of-file of its socket. */
static void stop_locked(struct launcher *l) {
    l->control = fd_close(l->control);
    if (l->pidfd >= 0) {
        struct pollfd p = {.fd = l->pidfd, .events = POLLIN};
        if (poll(&p, 1, 2000) == 0)
            kill(l->pid, SIGKILL);
        waitpid(l->pid, NULL, 0);
        l->pidfd = fd_close(l->pidfd);
    }
}

static int start_locked(struct launcher *l, struct err *err) {
    const char *argv[] = {l->program, l->runtime, l->cgroup2_path, NULL};
    struct spawn_opts o = SPAWN_OPTS_INIT;
    int sv[2], size = 2 * LAUNCH_MSG_MAX, r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, -errno, "socketpair");
    setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    o.argv = argv;
    o.stderr_fd = 2;
    o.keep_fds = &sv[1];
    o.n_keep = 1;
    r = spawn_start(&o, &l->pid, &l->pidfd, err);
    fd_close(sv[1]);
    if (r < 0) {
        fd_close(sv[0]);
        return err_wrap(err, "starting %s", l->program);
    }
    l->control = sv[0];
    return 0;
}

int launcher_new(const struct launcher_opts *opts, struct launcher **ret, struct err *err) {
    _cleanup_(launcher_freep) struct launcher *l = calloc(1, sizeof *l);
    int r;

    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&l->lock, NULL);
    l->control = l->pidfd = -1;
    l->program = strdup(opts->program);
    l->runtime = strdup(opts->runtime);
    l->cgroup2_path = strdup(opts->cgroup2_path ? opts->cgroup2_path : "");
    if (!l->program || !l->runtime || !l->cgroup2_path)
        return err_set(err, -ENOMEM, "out of memory");
    r = start_locked(l, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(l);
    return 0;
}

struct launcher *launcher_free(struct launcher *l) {
    if (!l)
        return NULL;
    stop_locked(l);
    pthread_mutex_destroy(&l->lock);
    free(l->program);
    free(l->runtime);
    free(l->cgroup2_path);
    free(l);
    return NULL;
}

/* Sends, with one new start when cove-launch turns out to be dead. */
static int send_request(struct launcher *l, const struct buf *msg, const int *fds, size_t n_fds,
                        struct err *err) {
    int r = -EPIPE;

    pthread_mutex_lock(&l->lock);
    for (int tries = 0; tries < 2; tries++) {
        r = l->control >= 0 ? fdmsg_send(l->control, msg->data, msg->len, fds, n_fds) : -EPIPE;
        if (r != -EPIPE && r != -ECONNRESET)
            break;
        stop_locked(l);
        r = start_locked(l, err);
        if (r < 0)
            break;
        r = -EPIPE;
    }
    pthread_mutex_unlock(&l->lock);
    if (r < 0)
        return err_sys(err, -EIO, "talking to cove-launch (%s)", strerror(-r));
    return 0;
}

/* One request, one answer. *ret_answer: new reference. */
static int transact(struct launcher *l, json_t *request, const struct launch_fd *fds, size_t n_fds,
                    int timeout_ms, json_t **ret_answer, int *ret_fds, size_t *ret_n_fds,
                    struct err *err) {
    _cleanup_buf_ struct buf msg = BUF_INIT(LAUNCH_MSG_MAX);
    _cleanup_close_ int ours = -1, theirs = -1;
    _cleanup_json_ json_t *roles = json_array();
    int all[LAUNCH_FDS_MAX + 1], sv[2], r;
    char text[8192];
    ssize_t n;

    if (n_fds > LAUNCH_FDS_MAX)
        return err_set(err, -EINVAL, "too many mounts for one sandbox (at most %d descriptors)",
                       LAUNCH_FDS_MAX);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, -EIO, "socketpair (%s)", strerror(errno));
    ours = sv[0];
    all[0] = theirs = sv[1];
    for (size_t i = 0; i < n_fds; i++) {
        json_array_append_new(roles, json_string(fds[i].role));
        all[i + 1] = fds[i].fd;
    }
    json_object_set(request, "roles", roles);
    if (buf_json(&msg, request) < 0)
        return err_set(err, -EINVAL,
                       "the sandbox's plan exceeds %d bytes (too many layers or mounts)",
                       LAUNCH_MSG_MAX);
    r = send_request(l, &msg, all, n_fds + 1, err);
    if (r < 0)
        return r;
    theirs = fd_close(theirs);
    struct pollfd p = {.fd = ours, .events = POLLIN};
    int64_t deadline = clock_mono_ms() + timeout_ms;
    do
        r = poll(&p, 1, (int)MAX(deadline - clock_mono_ms(), 0));
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return err_set(err, -ETIMEDOUT, "cove-launch did not answer within %d ms", timeout_ms);
    n = fdmsg_recv(ours, text, sizeof text, ret_fds, ret_n_fds);
    if (n <= 0)
        return err_set(err, -EIO, "cove-launch died while it started the sandbox");
    *ret_answer = json_parse(text, (size_t)n, err);
    return *ret_answer ? 0 : err_wrap(err, "answer of cove-launch");
}

/* An answer that says what failed, as an error for the client. */
static int step_error(const json_t *a, struct err *err) {
    const char *step = json_str(a, "step"), *text = json_str(a, "text");
    int code = -(int)json_int(a, "errno", EIO);
    bool mount = str_starts(step, "mount of ");

    if (code != -ENOSPC && code != -ETIMEDOUT && code != -ESRCH && !(mount && code == -EINVAL))
        code = mount && code == -EBUSY ? -EINVAL : -EIO;
    return err_set(err, code, "%s failed: %s", step ? step : "launching", text ? text : "");
}

int launcher_launch(struct launcher *l, int64_t parked, json_t *plan, const struct launch_fd *fds,
                    size_t n_fds, struct launch_result *ret, struct err *err) {
    int timeout = (int)json_int(plan, "timeout_ms", LAUNCH_TIMEOUT_MS), got[2], r;
    _cleanup_json_ json_t *a = NULL;
    size_t n_got = ARRAY_SIZE(got);

    json_object_set_new(plan, "op", json_string("launch"));
    if (parked)
        json_object_set_new(plan, "parked", json_integer(parked));
    r = transact(l, plan, fds, n_fds, timeout + ANSWER_MARGIN_MS, &a, got, &n_got, err);
    if (parked)
        json_object_del(plan, "parked");
    if (r < 0)
        return r;
    if (n_got != 2 || !json_int(a, "pid", 0)) {
        while (n_got)
            fd_close(got[--n_got]);
        return step_error(a, err);
    }
    *ret = (struct launch_result){.pid = (pid_t)json_int(a, "pid", 0),
                                  .pidfd = got[0],
                                  .text_fd = got[1],
                                  .enter_us = json_int(a, "enter_us", 0),
                                  .mount_us = json_int(a, "mount_us", 0),
                                  .run_us = json_int(a, "run_us", 0)};
    return 0;
}

int launcher_park(struct launcher *l, unsigned userns, const struct launch_fd *fds, size_t n_fds,
                  int64_t *ret_parked, struct err *err) {
    _cleanup_json_ json_t *q = json_pack("{s:s, s:I}", "op", "park", "userns", (json_int_t)userns),
                          *a = NULL;
    size_t n_got = 0;
    int r = transact(l, q, fds, n_fds, LAUNCH_TIMEOUT_MS, &a, NULL, &n_got, err);

    if (r < 0)
        return r;
    *ret_parked = json_int(a, "parked", 0);
    return *ret_parked ? 0 : step_error(a, err);
}

void launcher_drop(struct launcher *l, int64_t parked) {
    _cleanup_json_ json_t *q = json_pack("{s:s, s:I}", "op", "drop", "parked", (json_int_t)parked),
                          *a = NULL;
    size_t n_got = 0;

    (void)transact(l, q, NULL, 0, 1000, &a, NULL, &n_got, NULL); /* no answer comes: end-of-file */
}

void launcher_text(int text_fd, char *ret, size_t size) {
    ssize_t n = text_fd < 0 ? 0 : pread(text_fd, ret, size - 1, 0);

    ret[n > 0 ? n : 0] = 0;
    n = (ssize_t)strlen(ret);
    while (n > 0 && (ret[n - 1] == '\n' || ret[n - 1] == ' '))
        ret[--n] = 0;
    for (char *p = ret; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            *p = ' ';
}
