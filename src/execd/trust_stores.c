/*
 * The stores of the image that are told of the guard's certificate (see trust.h): the system's, the
 * user's NSS database, and those of Java. Their own tools do it, run as argument vectors with
 * limits of time; a tool that is missing or fails costs a warning. As somebody else than root,
 * system files are reached through `sudo -n` where there is one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/spawn.h"
#include "execd/lookup.h"
#include "execd/trust.h"

#define PROGRAM_MS 30000
#define MAX_WORDS 1024 /* bytes of a program's output that an error shows */
#define MAX_STORES 16
#define MAX_DIR_ENTRIES 256
#define JAVA_PASSWORD "changeit" /* of every cacerts as it is shipped: not a secret */

/* ---- programs ---- */

bool trust_has(const struct trust *t, const char *program) {
    _cleanup_free_ char *path = NULL;
    return lookup_program(program, "/", &t->env, &path, NULL) == 0;
}

static void keep(struct buf *b, int *fd) {
    char chunk[4096];
    ssize_t n = read(*fd, chunk, sizeof chunk);

    if (n > 0)
        buf_append(b, chunk, MIN((size_t)n, b->max - b->len));
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        *fd = fd_close(*fd);
}

/* Until the program ended and its output is read; a child of its own may keep that open. */
static int follow(struct trust *t, int pidfd, int *out_fd, struct buf *out) {
    int64_t end = MIN(clock_mono_ms() + PROGRAM_MS, t->deadline);
    struct signalfd_siginfo info;
    bool ended = false;

    while (!ended || *out_fd >= 0) {
        struct pollfd p[3] = {
            {ended ? -1 : pidfd, POLLIN, 0}, {*out_fd, POLLIN, 0}, {t->signals, POLLIN, 0}};
        int64_t left = ended ? 0 : MAX(end - clock_mono_ms(), (int64_t)0);
        int n = poll(p, ARRAY_SIZE(p), (int)left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return ended ? 0 : -ETIMEDOUT;
        if (p[2].revents && read(t->signals, &info, sizeof info) == sizeof info) {
            t->caught = (int)info.ssi_signo;
            return -EINTR;
        }
        if (p[1].revents)
            keep(out, out_fd);
        if (p[0].revents)
            ended = true;
    }
    return 0;
}

static int judge(const char *name, int r, int wstatus, struct buf *words, struct err *err) {
    if (r == -ETIMEDOUT)
        return err_set(err, r, "%s did not end in time", name);
    if (r < 0)
        return err_sys(err, r, "%s", name);
    if (wstatus == 0)
        return 0;
    while (words->len &&
           (words->data[words->len - 1] == '\n' || words->data[words->len - 1] == ' '))
        words->data[--words->len] = '\0';
    return err_set(err, -EIO, "%s ended with %s %d%s%s", name,
                   WIFSIGNALED(wstatus) ? "signal" : "status",
                   WIFSIGNALED(wstatus) ? WTERMSIG(wstatus) : WEXITSTATUS(wstatus),
                   words->len ? ": " : "", words->len ? words->data : "");
}

int trust_run(struct trust *t, const char *const *argv, struct buf *out, struct err *err) {
    _cleanup_buf_ struct buf words = BUF_INIT(MAX_WORDS);
    struct spawn_opts o = SPAWN_OPTS_INIT;
    _cleanup_strv_ struct strv line = {0};
    _cleanup_free_ char *exe = NULL;
    int p[2], pidfd = -1, wstatus = 0, r;
    pid_t pid;

    if (t->caught)
        return err_set(err, -EINTR, "interrupted");
    r = lookup_program(argv[0], "/", &t->env, &exe, err);
    if (r < 0)
        return r;
    if (strv_add(&line, exe) < 0 || strv_copy(&line, argv + 1) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, -errno, "pipe");
    o.argv = (const char *const *)line.v;
    o.envp = (const char *const *)t->env.v;
    o.cwd = "/";
    o.stdout_fd = p[1];
    o.stderr_fd = out ? -1 : p[1];
    o.new_session = true;
    r = spawn_start(&o, &pid, &pidfd, err);
    close(p[1]);
    if (r == 0) {
        r = follow(t, pidfd, &p[0], out ? out : &words);
        if (r < 0)
            kill(-pid, SIGKILL);
        while (waitpid(pid, &wstatus, 0) < 0 && errno == EINTR)
            ;
        r = judge(argv[0], r, wstatus, &words, err);
    }
    fd_close(p[0]);
    fd_close(pidfd);
    return r;
}

static int run_as_root(struct trust *t, const char *const *argv, struct err *err) {
    static const char *const sudo[] = {"sudo", "-n", NULL};
    _cleanup_strv_ struct strv line = {0};

    if (geteuid() == 0)
        return trust_run(t, argv, NULL, err);
    if (strv_copy(&line, sudo) < 0 || strv_copy(&line, argv) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    return trust_run(t, (const char *const *)line.v, NULL, err);
}

static void warn(const char *msg, const struct err *err) {
    if (err->code != -EINTR)
        log_warn(msg, LOG_ERR(err));
}

/* ---- the system's store ---- */

static int place(struct trust *t, const char *dir, const char *file, struct err *err) {
    if (geteuid() == 0) {
        int r = path_mkdirs_at(AT_FDCWD, dir, 0755);
        if (r == 0)
            r = path_write_file_at(AT_FDCWD, file, t->pem, t->pem_len, 0644, false);
        return r < 0 ? err_sys(err, r, "%s", file) : 0;
    }
    const char *make[] = {"mkdir", "-p", dir, NULL}, *copy[] = {"cp", TRUST_CERT, file, NULL};
    int r = run_as_root(t, make, err);
    return r < 0 ? r : run_as_root(t, copy, err);
}

void trust_system_store(struct trust *t) {
    static const struct {
        const char *argv[3], *dir, *file;
    } ways[] = {
        {{"update-ca-certificates"},
         "/usr/local/share/ca-certificates",
         "/usr/local/share/ca-certificates/" TRUST_NAME "-ca.crt"},
        {{"update-ca-trust", "extract"},
         "/etc/pki/ca-trust/source/anchors",
         "/etc/pki/ca-trust/source/anchors/" TRUST_NAME "-ca.pem"},
    };
    struct err err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        if (!trust_has(t, ways[i].argv[0]))
            continue;
        int r = place(t, ways[i].dir, ways[i].file, &err);
        if (r == 0)
            r = run_as_root(t, ways[i].argv, &err);
        if (r < 0)
            warn("the system's certificate store was not changed", &err);
        return;
    }
    log_warn("the image has no tool for the system's certificate store");
}

/* ---- NSS ---- */

static int nss_import(struct trust *t, const char *dir, const char *db, struct err *err) {
    _cleanup_free_ char *file = path_join(dir, "cert9.db");
    const char *make[] = {"certutil", "-d", db, "-N", "--empty-password", NULL},
               *drop[] = {"certutil", "-d", db, "-D", "-n", TRUST_NAME, NULL},
               *add[] = {"certutil", "-d",       db,   "-A",       "-t", "C,,",
                         "-n",       TRUST_NAME, "-i", TRUST_CERT, NULL};
    int r;

    if (!file)
        return err_set(err, -ENOMEM, "out of memory");
    r = path_mkdirs_at(AT_FDCWD, dir, 0700);
    if (r < 0)
        return err_sys(err, r, "%s", dir);
    if (access(file, F_OK) < 0)
        r = trust_run(t, make, NULL, err);
    else
        (void)trust_run(t, drop, NULL, NULL); /* that of an earlier start may be another one */
    return r < 0 ? r : trust_run(t, add, NULL, err);
}

void trust_nss_store(struct trust *t) {
    const char *home = env_get(&t->env, "HOME");
    struct err err = {0};

    if (str_is_empty(home) || home[0] != '/' || !trust_has(t, "certutil"))
        return;
    _cleanup_free_ char *dir = path_join(home, ".pki/nssdb");
    _cleanup_free_ char *db = dir ? str_printf("sql:%s", dir) : NULL;
    if (db && nss_import(t, dir, db, &err) < 0)
        warn("the user's NSS database does not trust the certificate", &err);
}

/* ---- Java ---- */

char *trust_java_home(const char *program) {
    static const char *const tails[] = {"/jre/bin/java", "/bin/java"};

    for (size_t i = 0; i < ARRAY_SIZE(tails); i++)
        if (str_ends(program, tails[i]) && strlen(program) > strlen(tails[i]))
            return str_ndup(program, strlen(program) - strlen(tails[i]));
    return NULL;
}

static bool is_listed(const struct strv *list, const char *s) {
    for (size_t i = 0; i < list->n; i++)
        if (str_eq(list->v[i], s))
            return true;
    return false;
}

int trust_java_add(const char *home, struct strv *stores, struct strv *tools) {
    static const char *const layouts[] = {"lib/security/cacerts", "jre/lib/security/cacerts"},
                             *const own[] = {"bin/keytool", "jre/bin/keytool"};
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(layouts) && r == 0 && stores->n < MAX_STORES; i++) {
        _cleanup_free_ char *path = path_join(home, layouts[i]);
        _cleanup_free_ char *real = path ? realpath(path, NULL) : NULL;
        struct stat st;
        if (!real || stat(real, &st) < 0 || !S_ISREG(st.st_mode) || is_listed(stores, real))
            continue;
        _cleanup_free_ char *tool = NULL;
        for (size_t j = 0; j < ARRAY_SIZE(own) && !tool; j++) {
            tool = path_join(home, own[j]);
            if (tool && access(tool, X_OK) < 0)
                free(TAKE_PTR(tool));
        }
        r = strv_add(stores, real);
        if (r == 0)
            r = strv_add(tools, tool ? tool : "keytool");
    }
    return r;
}

static void add_children(const char *dir, struct strv *stores, struct strv *tools) {
    DIR *d = opendir(dir);
    struct dirent *e;

    for (int n = 0; d && n < MAX_DIR_ENTRIES && (e = readdir(d)); n++) {
        if (e->d_name[0] == '.' ||
            (e->d_type != DT_DIR && e->d_type != DT_LNK && e->d_type != DT_UNKNOWN))
            continue;
        _cleanup_free_ char *home = path_join(dir, e->d_name);
        if (home)
            (void)trust_java_add(home, stores, tools);
    }
    if (d)
        closedir(d);
}

static void find_java(const struct trust *t, struct strv *stores, struct strv *tools) {
    static const char *const places[] = {"/usr/lib/jvm",   "/usr/lib64/jvm", "/usr/java",
                                         "/opt/java",      "/opt",           "/usr/local",
                                         "/usr/local/java"},
                             *const in_home[] = {".sdkman/candidates/java", ".jdks"};
    const char *home = env_get(&t->env, "JAVA_HOME"), *user = env_get(&t->env, "HOME");
    _cleanup_free_ char *java = NULL, *real = NULL, *found = NULL;

    if (!str_is_empty(home) && home[0] == '/')
        (void)trust_java_add(home, stores, tools);
    if (lookup_program("java", "/", &t->env, &java, NULL) == 0)
        real = realpath(java, NULL);
    found = real ? trust_java_home(real) : NULL;
    if (found)
        (void)trust_java_add(found, stores, tools);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        add_children(places[i], stores, tools);
    for (size_t i = 0; i < ARRAY_SIZE(in_home) && !str_is_empty(user) && user[0] == '/'; i++) {
        _cleanup_free_ char *dir = path_join(user, in_home[i]);
        if (dir)
            add_children(dir, stores, tools);
    }
}

static int java_import(struct trust *t, const char *tool, const char *store, struct err *err) {
    const char *drop[] = {tool,  "-delete",    "-alias",      TRUST_NAME, "-keystore",
                          store, "-storepass", JAVA_PASSWORD, NULL},
               *add[] = {tool,         "-importcert", "-noprompt", "-trustcacerts", "-alias",
                         TRUST_NAME,   "-file",       TRUST_CERT,  "-keystore",     store,
                         "-storepass", JAVA_PASSWORD, NULL};
    bool own = access(store, W_OK) == 0;
    int r = own ? trust_run(t, add, NULL, err) : run_as_root(t, add, err);

    if (r != -EIO) /* else perhaps it has that of an earlier start */
        return r;
    r = own ? trust_run(t, drop, NULL, NULL) : run_as_root(t, drop, NULL);
    if (r < 0)
        return err->code; /* the first one's words */
    return own ? trust_run(t, add, NULL, err) : run_as_root(t, add, err);
}

void trust_java_stores(struct trust *t) {
    _cleanup_strv_ struct strv stores = {0}, tools = {0};

    find_java(t, &stores, &tools);
    for (size_t i = 0; i < MIN(stores.n, tools.n) && !t->caught; i++) {
        struct err err = {0};
        if (java_import(t, tools.v[i], stores.v[i], &err) < 0) {
            err_wrap(&err, "%s", stores.v[i]);
            warn("a Java key store does not trust the certificate", &err);
        }
    }
}
