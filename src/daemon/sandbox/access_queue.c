/*
 * Renewals that a gateway asks for through a Redis list (see access.h). Owns the readers: each has
 * a connection of its own on which it waits for the next element (BRPOP), so that one that is slow
 * does not hold the others up. Best effort: an element that was taken is not given back. A server
 * that cannot be reached is told once and tried again every second; the proxy's own renewals do not
 * depend on it. Loop thread only.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/sandbox/access_priv.h"
#include "daemon/sandbox/internal.h"
#include "daemon/sandbox/redis.h"
#include "net/sock.h"

#define WAIT_S "5"       /* of one BRPOP */
#define SILENCE_MS 15000 /* no answer for so long: the connection is dead */
#define PAUSE_MS 1000    /* before the next try */
#define CONNECT_TIMEOUT_MS 5000
#define TOO_OLD_US ((int64_t)300 * 1000000)
#define MAX_READERS 1024

struct reader {
    struct access_queue *q;
    uv_timer_t timer; /* silence while connected, else the pause */
    struct sock_dial *dial;
    struct sock *sock;
    struct buf in;
    bool is_down;
    unsigned setup_left; /* answers to AUTH and SELECT that are still to come */
};

struct access_queue {
    struct access *a;
    struct redis_dsn dsn;
    char *key;
    char db[12];
    struct reader *readers;
    unsigned n, n_open; /* timers that are not closed */
    unsigned n_down;
};

static void connect_soon(struct reader *r);

/* ---- one element ---- */

static bool is_absent_or(const json_t *o, const char *key, bool (*is)(const json_t *)) {
    const json_t *v = json_object_get(o, key);
    return !v || json_is_null(v) || is(v);
}

static bool is_text(const json_t *v) {
    return json_is_string(v);
}

static bool is_int(const json_t *v) {
    return json_is_integer(v);
}

int access_intent_parse(const char *data, size_t len, struct access_intent *ret) {
    _cleanup_json_ json_t *o = json_parse(data, len, NULL);
    const char *id = json_str(o, "sandbox_id"), *at = json_str(o, "observed_at");

    if (str_is_empty(id) || !at || !str_copy(ret->id, sizeof ret->id, id) ||
        rfc3339_parse(at, &ret->observed_us) < 0 || !is_absent_or(o, "port", is_int) ||
        !is_absent_or(o, "request_uri", is_text) || !is_absent_or(o, "namespace", is_text))
        return -EINVAL;
    return 0;
}

static void take_intent(struct access_queue *q, const struct redis_text *t) {
    struct service *s = q->a->svc;
    struct access_intent in;

    if (access_intent_parse(t->data, t->len, &in) < 0)
        log_debug("a renewal intent is not valid", LOG_INT("bytes", t->len));
    else if (service_now(s) - in.observed_us > TOO_OLD_US)
        log_debug("a renewal intent is too old", LOG_STR("sandbox", in.id));
    else
        service_accessed(s, in.id);
}

/* ---- one connection ---- */

static void hang_up(struct reader *r) {
    if (r->dial)
        sock_dial_cancel(TAKE_PTR(r->dial));
    if (r->sock)
        sock_close(TAKE_PTR(r->sock), 0);
    buf_clear(&r->in);
}

/* text: of the server or ours, never a part of the address */
static void lost(struct reader *r, const char *text) {
    struct access_queue *q = r->q;

    hang_up(r);
    if (!r->is_down && q->n_down++ == 0)
        log_warn("the queue of renewal intents cannot be read, trying again every second",
                 LOG_STR("error", text));
    r->is_down = true;
    connect_soon(r);
}

static void on_silence(uv_timer_t *t) {
    lost(t->data, "the server does not answer");
}

static int send_command(struct reader *r, const char *const *words) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    int n = redis_command(&b, words);

    if (n == 0)
        n = sock_write(r->sock, b.data, b.len) < 0 ? -EPIPE : 0;
    if (b.data)
        explicit_bzero(b.data, b.len);
    return n;
}

static int wait_for_next(struct reader *r) {
    uv_timer_start(&r->timer, on_silence, SILENCE_MS, 0);
    return send_command(r, (const char *const[]){"BRPOP", r->q->key, WAIT_S, NULL});
}

/* false: the connection was given up */
static bool take_reply(struct reader *r, const struct redis_reply *reply) {
    struct access_queue *q = r->q;
    char text[160];

    if (reply->type == REDIS_FAULT) {
        _cleanup_free_ char *s = str_ndup(reply->text.data, reply->text.len);
        str_copy(text, sizeof text, s ? s : "refused");
        lost(r, text);
        return false;
    }
    if (r->setup_left > 0) {
        if (--r->setup_left > 0)
            return true;
    } else if (reply->type == REDIS_LIST && reply->n_items == 2 && reply->items[1].data) {
        take_intent(q, &reply->items[1]);
    } else if (reply->type != REDIS_NIL) {
        lost(r, "an answer that is none to BRPOP");
        return false;
    }
    if (r->is_down && --q->n_down == 0)
        log_info("the queue of renewal intents is read");
    r->is_down = false;
    if (wait_for_next(r) < 0) {
        lost(r, "the connection is broken");
        return false;
    }
    return true;
}

static void on_read(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct reader *r = ud;
    struct redis_reply reply;
    ssize_t used;

    if (len <= 0) {
        lost(r, len == 0 ? "the server has closed the connection" : "the connection is broken");
        return;
    }
    if (buf_append(&r->in, data, (size_t)len) < 0) {
        lost(r, "an answer that is too large");
        return;
    }
    while ((used = redis_reply_parse(r->in.data, r->in.len, &reply)) > 0) {
        if (!take_reply(r, &reply))
            return;
        buf_consume(&r->in, (size_t)used);
    }
    if (used < 0)
        lost(r, "an answer that is not of Redis, or too large");
}

static const struct sock_ops ops = {.on_read = on_read};

static void set_up(struct reader *r) {
    const struct access_queue *q = r->q;
    const char *user = q->dsn.user, *password = q->dsn.password;
    int e = 0;

    r->setup_left = 1;
    if (password && user)
        e = send_command(r, (const char *const[]){"AUTH", user, password, NULL});
    else if (password)
        e = send_command(r, (const char *const[]){"AUTH", password, NULL});
    r->setup_left += password != NULL;
    if (e == 0)
        e = send_command(r, (const char *const[]){"SELECT", q->db, NULL});
    uv_timer_start(&r->timer, on_silence, SILENCE_MS, 0);
    if (e < 0)
        lost(r, "the connection is broken");
    else
        sock_read_start(r->sock);
}

static void on_dialled(struct sock *s, int error, void *ud) {
    struct reader *r = ud;

    r->dial = NULL;
    if (!s) {
        lost(r, uv_strerror(error));
        return;
    }
    r->sock = s;
    sock_set_ops(s, &ops, r);
    set_up(r);
}

static void connect_now(struct reader *r) {
    const struct redis_dsn *d = &r->q->dsn;
    struct sock_addr to = {.unix_path = d->path, .host = d->host, .port = d->port};
    int e = sock_dial(r->q->a->svc->o.loop, &to, CONNECT_TIMEOUT_MS, on_dialled, r, &r->dial);

    if (e < 0)
        lost(r, uv_strerror(e));
}

static void on_pause_over(uv_timer_t *t) {
    connect_now(t->data);
}

static void connect_soon(struct reader *r) {
    uv_timer_start(&r->timer, on_pause_over, PAUSE_MS, 0);
}

/* ---- all of them ---- */

static void queue_free(struct access_queue *q) {
    redis_dsn_done(&q->dsn);
    free(q->key);
    free(q->readers);
    free(q);
}

static void on_closed(uv_handle_t *h) {
    struct reader *r = h->data;
    struct access_queue *q = r->q;

    buf_done(&r->in);
    if (--q->n_open == 0)
        queue_free(q);
}

int access_queue_open(struct access *a, struct err *err) {
    const struct renew_opts *o = &a->svc->o.renew;
    struct access_queue *q = calloc(1, sizeof *q);
    int r;

    if (!q)
        return err_set(err, -ENOMEM, "out of memory");
    q->a = a;
    q->n = MIN(MAX(o->redis_readers, 1), MAX_READERS);
    r = redis_dsn_parse(o->redis_dsn, &q->dsn, err);
    if (r == 0) {
        snprintf(q->db, sizeof q->db, "%u", q->dsn.db);
        q->key = strdup(o->redis_queue);
        q->readers = calloc(q->n, sizeof *q->readers);
        if (!q->key || !q->readers)
            r = err_set(err, -ENOMEM, "out of memory");
    }
    if (r < 0) {
        queue_free(q);
        return r;
    }
    a->queue = q;
    for (unsigned i = 0; i < q->n; i++) {
        struct reader *rd = &q->readers[i];
        rd->q = q;
        buf_init(&rd->in, 2 * REDIS_MAX_REPLY);
        uv_timer_init(a->svc->o.loop, &rd->timer);
        rd->timer.data = rd;
        q->n_open++;
        connect_now(rd);
    }
    return 0;
}

void access_queue_close(struct access *a) {
    struct access_queue *q = TAKE_PTR(a->queue);

    if (!q)
        return;
    for (unsigned i = 0; i < q->n; i++) {
        hang_up(&q->readers[i]);
        uv_close((uv_handle_t *)&q->readers[i].timer, on_closed);
    }
}
