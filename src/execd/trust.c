/*
 * The certificate step of bootstrap (see trust.h): the wait, the merged bundle, the variables.
 *
 * Everything blocks here: the agent serves nobody yet, and what it starts must find the variables
 * set. So TERM and INT are taken from a descriptor, which every wait polls: as PID 1 nothing else
 * would end us. The guard may live in another container and write into a volume; inotify tells of
 * it on the same kernel, and a look every second finds it where it does not.
 */
#include "execd/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "execd/env.h"

#define WAIT_MS 300000
#define LOOK_MS 1000
#define PROGRAMS_MS 120000 /* all of them together */
#define MAX_CERT ((size_t)1 << 20)
#define MAX_BUNDLE ((size_t)16 << 20)
#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

extern char **environ;

bool trust_is_wanted(const char *value) {
    static const char *const yes[] = {"1", "true", "yes", "on"};

    for (size_t i = 0; value && i < ARRAY_SIZE(yes); i++)
        if (str_ieq(value, yes[i]))
            return true;
    return false;
}

bool trust_pem_is_whole(const char *pem, size_t len) {
    static const char first[] = "-----BEGIN CERTIFICATE-----", last[] = "-----END CERTIFICATE-----";
    const char *p = memmem(pem, len, first, sizeof first - 1);

    return p && memmem(p, len - (size_t)(p - pem), last, sizeof last - 1);
}

int trust_merge(const char *base, size_t base_len, const char *pem, size_t pem_len,
                struct buf *ret) {
    if (base_len)
        buf_append(ret, base, base_len);
    if (base_len && base[base_len - 1] != '\n')
        buf_char(ret, '\n');
    buf_append(ret, pem, pem_len);
    if (pem_len && pem[pem_len - 1] != '\n')
        buf_char(ret, '\n');
    return buf_ok(ret) ? 0 : -ENOBUFS;
}

/* ---- the wait ---- */

/* Regular files only, and never blocking: whatever lies there was put there by others. */
static int read_regular(const char *path, size_t max, char **ret, size_t *ret_len) {
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if ((uint64_t)st.st_size > max)
        return -EFBIG;
    char *data = malloc((size_t)st.st_size + 1);
    if (!data)
        return -ENOMEM;
    ssize_t n = fd_read_full(fd, data, (size_t)st.st_size);
    if (n <= 0) {
        free(data);
        return n < 0 ? (int)n : -ENODATA;
    }
    data[n] = '\0';
    *ret = data;
    *ret_len = (size_t)n;
    return 0;
}

/* What is no certificate in PEM is taken once it did not change for a second: it is the guard's
 * business what it writes, but half of a file is of no use. */
struct settled {
    char *data;
    size_t len;
    int64_t since;
};

static bool look(struct settled *s) {
    char *data = NULL;
    size_t len = 0;

    if (read_regular(TRUST_CERT, MAX_CERT, &data, &len) < 0 || !data)
        return false;
    if (!s->data || s->len != len || memcmp(s->data, data, len) != 0)
        s->since = clock_mono_ms();
    free(s->data);
    s->data = data;
    s->len = len;
    return trust_pem_is_whole(data, len) || clock_mono_ms() - s->since >= LOOK_MS;
}

static void drain(int fd) {
    char events[4096];

    while (read(fd, events, sizeof events) > 0)
        ;
}

static int wait_for_certificate(struct trust *t) {
    _cleanup_close_ int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    int64_t end = clock_mono_ms() + WAIT_MS, now;
    struct settled s = {0};
    bool found, told = false;

    if (watch >= 0 &&
        inotify_add_watch(watch, TRUST_DIR, IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR) < 0)
        watch = fd_close(watch);
    while (!(found = look(&s)) && (now = clock_mono_ms()) < end && !t->caught) {
        struct pollfd p[2] = {{t->signals, POLLIN, 0}, {watch, POLLIN, 0}};
        struct signalfd_siginfo info;
        if (!told)
            log_info("waiting for the guard's certificate", LOG_STR("path", TRUST_CERT));
        told = true;
        (void)poll(p, ARRAY_SIZE(p), (int)MIN(end - now, (int64_t)LOOK_MS));
        if (p[1].revents)
            drain(watch);
        if (p[0].revents && read(t->signals, &info, sizeof info) == sizeof info)
            t->caught = (int)info.ssi_signo;
    }
    if (!found) {
        free(s.data);
        return t->caught ? -EINTR : -ETIMEDOUT;
    }
    t->pem = s.data;
    t->pem_len = s.len;
    return 0;
}

/* ---- bundle and variables ---- */

static int certifi_bundle(struct trust *t, char **ret, size_t *ret_len) {
    static const char *const pythons[] = {"python3", "python"};
    int r = -ENOENT;

    for (size_t i = 0; i < ARRAY_SIZE(pythons) && r < 0 && !t->caught; i++) {
        const char *argv[] = {pythons[i], "-c", "import certifi; print(certifi.where())", NULL};
        _cleanup_buf_ struct buf out = BUF_INIT(4096);
        if (trust_run(t, argv, &out, NULL) < 0 || !out.data)
            continue;
        out.data[strcspn(out.data, "\r\n")] = '\0';
        if (out.data[0] == '/')
            r = read_regular(out.data, MAX_BUNDLE, ret, ret_len);
    }
    return r;
}

static int base_bundle(struct trust *t, char **ret, size_t *ret_len) {
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora */
        "/etc/ssl/cert.pem",                                 /* Alpine */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* extracted */
    };
    int r = certifi_bundle(t, ret, ret_len);

    for (size_t i = 0; i < ARRAY_SIZE(places) && r < 0; i++)
        r = read_regular(places[i], MAX_BUNDLE, ret, ret_len);
    return r;
}

/* The file that programs are pointed at. Without a bundle to add to, that is the certificate; the
 * merged file is there all the same. */
static const char *write_merged(struct trust *t) {
    _cleanup_buf_ struct buf merged = BUF_INIT(MAX_BUNDLE + MAX_CERT + 2);
    _cleanup_free_ char *base = NULL;
    struct err err = {0};
    size_t len = 0;
    bool has_base = base_bundle(t, &base, &len) == 0;
    int r = trust_merge(base, has_base ? len : 0, t->pem, t->pem_len, &merged);

    if (!has_base)
        log_warn("the image has no certificate bundle: the guard's certificate is all there is");
    if (r == 0)
        r = path_write_file_at(AT_FDCWD, TRUST_MERGED, merged.data, merged.len, 0644, false);
    if (r < 0) {
        err_sys(&err, r, "%s", TRUST_MERGED);
        log_warn("the merged certificate bundle cannot be written", LOG_ERR(&err));
    }
    return r == 0 && has_base ? TRUST_MERGED : TRUST_CERT;
}

/* The first three are the contract's and override what the image or a request says; the others
 * spare tools with lists of their own, and an own value of theirs stays. */
static void set_variables(const char *bundle) {
    static const char *const more[] = {"CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT",
                                       "AWS_CA_BUNDLE"};

    setenv("NODE_EXTRA_CA_CERTS", TRUST_CERT, 1);
    setenv("REQUESTS_CA_BUNDLE", bundle, 1);
    setenv("SSL_CERT_FILE", bundle, 1);
    for (size_t i = 0; i < ARRAY_SIZE(more); i++)
        setenv(more[i], bundle, 0);
    setenv("DENO_CERT", TRUST_CERT, 0);
}

/* ---- all of it ---- */

static int prepare_env(struct strv *ret) {
    _cleanup_(env_done) struct env layers = {0};
    int r = env_init(&layers, environ);

    if (r < 0)
        return r;
    const char *path = env_get(&layers.daemon, "PATH");
    _cleanup_free_ char *wider =
        str_printf("%s%s" SYSTEM_PATH, path ? path : "", str_is_empty(path) ? "" : ":");
    r = wider ? env_set(&layers.daemon, "PATH", wider) : -ENOMEM;
    if (r == 0)
        r = strv_copy(ret, (const char *const *)layers.daemon.v);
    return r;
}

static void add_trust(struct trust *t) {
    int r = prepare_env(&t->env);

    if (r < 0) {
        log_warn("out of memory: the guard's certificate is not trusted");
        return;
    }
    t->deadline = clock_mono_ms() + PROGRAMS_MS;
    trust_system_store(t); /* before the bundle, which may be the one that this makes */
    const char *bundle = write_merged(t);
    set_variables(bundle);
    trust_nss_store(t);
    trust_java_stores(t);
    log_info("programs are pointed at the guard's certificate", LOG_STR("bundle", bundle));
}

int trust_set_up(void) {
    struct trust t = {.signals = -1};
    sigset_t ours, before;
    int r;

    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGINT);
    sigprocmask(SIG_BLOCK, &ours, &before);
    t.signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    r = wait_for_certificate(&t);
    if (r == 0)
        add_trust(&t);
    else if (r == -ETIMEDOUT)
        log_warn("the guard's certificate did not come: starting without trust in it",
                 LOG_STR("path", TRUST_CERT), LOG_INT("waited_s", WAIT_MS / 1000));
    free(t.pem);
    strv_done(&t.env);
    fd_close(t.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return t.caught;
}
