/*
 * The engine: options and environment, the pool of kept connections, the version of the API. The
 * lock guards version and pool and is never held across I/O. Everything else in struct engine does
 * not change after engine_new().
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "docker/internal.h"

/* ---- options ---- */

static const char *env_text(const char *name) {
    const char *s = getenv(name);
    return str_is_empty(s) ? NULL : s;
}

/* "1.41", also "v1.41" -> 41 */
static int parse_version(const char *s, unsigned *ret) {
    uint64_t minor;

    if (*s == 'v')
        s++;
    if (!str_starts(s, "1.") || str_to_u64(s + 2, &minor) < 0 || minor > 999)
        return -EINVAL;
    *ret = (unsigned)minor;
    return 0;
}

/* The folder of certificates: *ret NULL = there is none and none was asked for. */
static int cert_dir(const struct engine_opts *o, char **ret, struct err *err) {
    const char *dir = o->cert_dir ? o->cert_dir : env_text("DOCKER_CERT_PATH");
    const char *home = env_text("HOME");
    _cleanup_free_ char *own = NULL, *ca = NULL;

    if (dir) {
        *ret = strdup(dir);
        return *ret ? 0 : engine_oom(err);
    }
    own = home ? str_printf("%s/.docker", home) : NULL;
    ca = home ? str_printf("%s/.docker/ca.pem", home) : NULL;
    if (home && (!own || !ca))
        return engine_oom(err);
    *ret = ca && access(ca, F_OK) == 0 ? TAKE_PTR(own) : NULL;
    return 0;
}

static int init(struct engine *e, const struct engine_opts *o, struct err *err) {
    const char *host = o->host ? o->host : env_text("DOCKER_HOST");
    const char *version = env_text("DOCKER_API_VERSION");
    bool verify = o->tls_verify < 0 ? env_text("DOCKER_TLS_VERIFY") != NULL : o->tls_verify > 0;
    _cleanup_free_ char *dir = NULL;
    int r;

    e->timeout_ms = o->timeout_ms ? o->timeout_ms : 180000;
    e->user_agent = strdup(o->user_agent ? o->user_agent : "cove/" COVE_VERSION);
    if (!e->user_agent)
        return engine_oom(err);
    if (version) {
        if (parse_version(version, &e->version) < 0 || e->version < ENGINE_API_MIN ||
            e->version > ENGINE_API_MAX)
            return err_set(err, -EINVAL, "DOCKER_API_VERSION is not a version from 1.%d to 1.%d",
                           ENGINE_API_MIN, ENGINE_API_MAX);
        e->version_is_fixed = true;
    }
    r = engine_address_parse(host ? host : "unix:///var/run/docker.sock", verify, &e->address, err);
    if (r < 0 || !e->address.tls)
        return r;
    r = cert_dir(o, &dir, err);
    return r < 0 ? r : tls_context_new(dir, &e->tls, err);
}

int engine_new(const struct engine_opts *o, struct engine **ret, struct err *err) {
    static const struct engine_opts none = {.tls_verify = -1};
    struct engine *e = calloc(1, sizeof *e);
    int r;

    if (!e)
        return engine_oom(err);
    pthread_mutex_init(&e->lock, NULL);
    r = init(e, o ? o : &none, err);
    if (r < 0) {
        engine_free(e);
        return r;
    }
    *ret = e;
    return 0;
}

struct engine *engine_free(struct engine *e) {
    if (!e)
        return NULL;
    while (e->idle) {
        struct conn *c = e->idle;
        e->idle = c->next;
        conn_free(c);
    }
    SSL_CTX_free(e->tls);
    engine_address_done(&e->address);
    pthread_mutex_destroy(&e->lock);
    free(e->user_agent);
    free(e);
    return NULL;
}

const char *engine_host(const struct engine *e) {
    return e->address.host_text;
}

bool engine_is_unix(const struct engine *e) {
    return e->address.path != NULL;
}

/* ---- pool ---- */

/* Cuts what has been idle for too long off the end; the caller closes it, without the lock. */
static struct conn *cut_old(struct engine *e, int64_t now) {
    struct conn **at = &e->idle, *old;

    while (*at && now - (*at)->idle_since_ms < ENGINE_IDLE_MS)
        at = &(*at)->next;
    old = *at;
    *at = NULL;
    for (struct conn *c = old; c; c = c->next)
        e->n_idle--;
    return old;
}

static void free_list(struct conn *c) {
    while (c) {
        struct conn *next = c->next;
        conn_free(c);
        c = next;
    }
}

struct conn *pool_take(struct engine *e, bool changes) {
    int64_t now = clock_mono_ms();
    struct conn *c, *old;

    pthread_mutex_lock(&e->lock);
    old = cut_old(e, now);
    c = e->idle;
    if (c && changes && now - c->idle_since_ms > ENGINE_IDLE_CHANGE_MS)
        c = NULL;
    if (c) {
        e->idle = c->next;
        e->n_idle--;
    }
    pthread_mutex_unlock(&e->lock);
    free_list(old);
    if (!c)
        return NULL;
    c->next = NULL;
    if (!conn_is_quiet(c)) /* ended meanwhile; the others are older: a new one it is */
        return conn_free(c);
    return c;
}

void pool_give(struct engine *e, struct conn *c) {
    struct conn *old;

    c->was_kept = true;
    c->idle_since_ms = clock_mono_ms();
    pthread_mutex_lock(&e->lock);
    old = cut_old(e, c->idle_since_ms);
    if (e->n_idle < ENGINE_MAX_IDLE) {
        c->next = e->idle;
        e->idle = c;
        e->n_idle++;
        c = NULL;
    }
    pthread_mutex_unlock(&e->lock);
    free_list(old);
    conn_free(c);
}

/* ---- version ---- */

void engine_version_forget(struct engine *e) {
    pthread_mutex_lock(&e->lock);
    if (!e->version_is_fixed)
        e->version = 0;
    pthread_mutex_unlock(&e->lock);
}

/* Asks the engine; *ret_engine: the minor version it speaks itself. */
static int ask_version(struct engine *e, const struct limit *l, unsigned *ret_engine,
                       struct err *err) {
    struct request q = {.method = "GET", .path = "/_ping", .without_version = true, .limit = *l};
    _cleanup_exchange_ struct exchange x = {0};
    _cleanup_buf_ struct buf rest = BUF_INIT(4096);
    const char *text;
    int r = exchange_begin(&x, e, &q, err);

    if (r < 0)
        return r;
    text = exchange_header(&x, "Api-Version");
    if (!text || parse_version(text, ret_engine) < 0)
        return err_set(err, -EBADMSG, "what listens at %s names no API version of a Docker engine",
                       e->address.host_text);
    return exchange_collect(&x, &rest, err);
}

static int negotiate(struct engine *e, const struct limit *l, unsigned *ret, struct err *err) {
    unsigned theirs = 0, use;
    int r = ask_version(e, l, &theirs, err);

    if (r < 0)
        return r;
    if (theirs < ENGINE_API_MIN)
        return err_set(err, -EOPNOTSUPP,
                       "the Docker engine speaks API 1.%u, at least 1.%d is needed", theirs,
                       ENGINE_API_MIN);
    use = MIN(theirs, ENGINE_API_MAX);
    pthread_mutex_lock(&e->lock);
    if (!e->version_is_fixed)
        e->version = use;
    use = e->version;
    pthread_mutex_unlock(&e->lock);
    *ret = use;
    return 0;
}

int engine_version(struct engine *e, const struct limit *l, unsigned *ret, struct err *err) {
    unsigned v;

    pthread_mutex_lock(&e->lock);
    v = e->version;
    pthread_mutex_unlock(&e->lock);
    if (!v)
        return negotiate(e, l, ret, err);
    *ret = v;
    return 0;
}

int engine_ping(struct engine *e, char ret_version[16], struct err *err) {
    struct limit l = limit_call(e->timeout_ms, NULL);
    unsigned v = 0;
    int r = negotiate(e, &l, &v, err);

    if (r < 0)
        return r;
    if (ret_version)
        snprintf(ret_version, 16, "1.%u", v);
    return 0;
}
