/*
 * The OTLP exporter (see otlp.h). One call at a time: an interval that finds the last one still
 * under way does nothing. What is sent is cumulative, so a lost export loses nothing. Owns its
 * timer, its call and copies of everything from the environment; header values may be secrets and
 * stay out of the log.
 */
#include "daemon/telemetry/otlp.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/telemetry/telemetry.h"
#include "net/h1_client.h"
#include "net/url.h"

#define DEFAULT_ADDRESS "http://localhost:4318"
#define METRICS_PATH "/v1/metrics"
#define TIMEOUT_MS 10000
#define HEADERS_MAX 16
#define MAX_BODY ((size_t)16 << 20)

struct otlp {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct h1_call *call; /* NULL = none under way */
    char *host, *target, *authority;
    uint16_t port;
    unsigned timeout_ms;
    json_t *resource;
    struct strv names, values; /* of extra headers */
    int status;
    bool is_failing;
};

/* ---- where and how ---- */

static const char *first_set(const char *a, const char *b) {
    const char *s = getenv(a);
    return str_is_empty(s) && b ? getenv(b) : s;
}

static char *trimmed(const char *s) {
    s += strspn(s, " \t");
    size_t n = strlen(s);
    while (n && strchr(" \t", s[n - 1]))
        n--;
    return str_ndup(s, n);
}

/* The address of the metrics signal; malloc'd. */
static char *choose_url(const char *configured) {
    const char *signal = getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
               *base = getenv("OTEL_EXPORTER_OTLP_ENDPOINT");

    if (configured && configured[strspn(configured, " \t")])
        return trimmed(configured);
    if (!str_is_empty(signal))
        return trimmed(signal);
    if (str_is_empty(base))
        base = DEFAULT_ADDRESS;
    size_t n = strlen(base);
    while (n && base[n - 1] == '/')
        n--;
    return str_printf("%.*s%s", (int)n, base, METRICS_PATH);
}

static int parse_url(struct otlp *x, const char *url, struct err *err) {
    if (str_starts(url, "https://"))
        return err_set(err, -EINVAL,
                       "otel: the collector's address needs TLS, which this exporter has not: "
                       "point it to a local collector over http");
    if (!str_starts(url, "http://"))
        return err_set(err, -EINVAL, "otel: the collector's address must begin with http://");
    const char *s = url + strlen("http://");
    size_t n = strcspn(s, "/?#");
    _cleanup_free_ char *authority = str_ndup(s, n);
    const char *path = s[n] && strcmp(s + n, "/") != 0 ? s + n : METRICS_PATH;
    uint64_t port = 80;

    if (!authority)
        return err_set(err, -ENOMEM, "out of memory");
    x->authority = strdup(authority);
    x->target = strdup(path);
    char *host = authority, *colon = strrchr(authority, ':');
    if (host[0] == '[') {
        char *end = strchr(++host, ']');
        if (!end)
            return err_set(err, -EINVAL, "otel: the collector's address is malformed");
        *end = '\0';
        colon = end[1] == ':' ? end + 1 : NULL;
    }
    if (colon && (str_to_u64(colon + 1, &port) < 0 || port < 1 || port > 65535))
        return err_set(err, -EINVAL, "otel: the collector's port is none");
    if (colon)
        *colon = '\0';
    if (!*host || path[0] != '/')
        return err_set(err, -EINVAL, "otel: the collector's address is malformed");
    x->host = strdup(host);
    x->port = (uint16_t)port;
    return x->host && x->target && x->authority ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* "a=b,c=d", percent-encoded values, into cb; pairs that are none are left out. */
static int each_pair(const char *text, int (*cb)(struct otlp *x, char *key, char *value),
                     struct otlp *x) {
    int r = 0;

    while (text && *text && r == 0) {
        size_t n = strcspn(text, ",");
        _cleanup_free_ char *pair = str_ndup(text, n);
        char *eq = pair ? strchr(pair, '=') : NULL;
        if (eq) {
            char *key, *value = NULL;
            *eq = '\0';
            key = trimmed(pair);
            _cleanup_free_ char *raw = trimmed(eq + 1);
            if (key && *key && raw && url_decode(raw, strlen(raw), &value) == 0)
                r = cb(x, key, value);
            free(value);
            free(key);
        }
        text += n + (text[n] == ',');
    }
    return r;
}

static int add_resource(struct otlp *x, char *key, char *value) {
    return json_object_set_new(x->resource, key, json_string(value)) < 0 ? -ENOMEM : 0;
}

static int add_header(struct otlp *x, char *key, char *value) {
    if (x->names.n == HEADERS_MAX)
        return 0;
    return strv_add(&x->names, key) < 0 || strv_add(&x->values, value) < 0 ? -ENOMEM : 0;
}

static int read_environment(struct otlp *x, const char *service_name) {
    const char *time =
        first_set("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
    uint64_t ms;

    x->timeout_ms =
        time && str_to_u64(time, &ms) == 0 && ms > 0 && ms < 3600000 ? (unsigned)ms : TIMEOUT_MS;
    x->resource = json_object();
    if (!x->resource || each_pair(getenv("OTEL_RESOURCE_ATTRIBUTES"), add_resource, x) < 0 ||
        json_object_set_new(x->resource, "service.name", json_string(service_name)) < 0 ||
        json_object_set_new(x->resource, "service.version", json_string(COVE_VERSION)) < 0)
        return -ENOMEM;
    return each_pair(first_set("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"),
                     add_header, x);
}

/* ---- one export ---- */

static void on_response(struct h1_call *c, int status, const struct h1_header *headers, size_t n,
                        int64_t length, void *ud) {
    ((struct otlp *)ud)->status = status;
}

/* The first failure of a row is worth a line, and so is its end. */
static void note(struct otlp *x, const char *why) {
    if (why && !x->is_failing)
        log_warn("metrics cannot be exported", LOG_STR("why", why), LOG_STR("host", x->host));
    if (!why && x->is_failing)
        log_info("metrics are exported again");
    x->is_failing = why != NULL;
}

static void on_end(struct h1_call *c, int error, const struct err *err, void *ud) {
    struct otlp *x = ud;
    char text[64] = "";

    x->call = NULL;
    if (!error && x->status / 100 != 2) {
        _cleanup_free_ char *s = str_printf("the collector answered %d", x->status);
        str_copy(text, sizeof text, s ? s : "refused");
    }
    note(x, error ? err_text(err) : *text ? text : NULL);
}

static const struct h1_call_ops ops = {.on_response = on_response, .on_end = on_end};

static void on_timer(uv_timer_t *timer) {
    struct otlp *x = timer->data;
    struct h1_header headers[HEADERS_MAX + 3] = {{"Content-Type", "application/json"},
                                                 {"Host", x->authority}};
    _cleanup_buf_ struct buf body = BUF_INIT(MAX_BODY);
    _cleanup_json_ json_t *j = x->call ? NULL : telemetry_otlp(x->resource);

    if (!j || buf_json(&body, j) < 0)
        return;
    for (size_t i = 0; i < x->names.n; i++)
        headers[2 + i] = (struct h1_header){x->names.v[i], x->values.v[i]};
    struct h1_call_opts o = {
        .addr = {.host = x->host, .port = x->port},
        .method = "POST",
        .target = x->target,
        .headers = headers,
        .body = body.data,
        .body_length = (int64_t)body.len,
        .connect_timeout_ms = x->timeout_ms,
        .silence_timeout_ms = x->timeout_ms,
    };
    x->status = 0;
    if (h1_call(x->loop, &o, &ops, x, &x->call) < 0) {
        x->call = NULL;
        note(x, "the request cannot be made");
    }
}

/* ---- life ---- */

static void release(struct otlp *x) {
    for (size_t i = 0; i < x->values.n; i++)
        explicit_bzero(x->values.v[i], strlen(x->values.v[i]));
    strv_done(&x->names);
    strv_done(&x->values);
    json_decref(x->resource);
    free(x->host);
    free(x->target);
    free(x->authority);
    free(x);
}

static void on_closed(uv_handle_t *h) {
    release(h->data);
}

void otlp_free(struct otlp *x) {
    if (!x)
        return;
    if (x->call)
        h1_call_cancel(x->call);
    uv_close((uv_handle_t *)&x->timer, on_closed);
}

int otlp_new(const struct otlp_opts *o, struct otlp **ret, struct err *err) {
    struct otlp *x = calloc(1, sizeof *x);
    _cleanup_free_ char *url = choose_url(o->endpoint);
    int r;

    if (!x || !url) {
        free(x);
        return err_set(err, -ENOMEM, "out of memory");
    }
    x->loop = o->loop;
    r = parse_url(x, url, err);
    if (r == 0 && read_environment(x, o->service_name) < 0)
        r = err_set(err, -ENOMEM, "out of memory");
    if (r < 0) {
        release(x);
        return r;
    }
    uv_timer_init(o->loop, &x->timer);
    x->timer.data = x;
    uv_timer_start(&x->timer, on_timer, o->interval_ms, o->interval_ms);
    uv_unref((uv_handle_t *)&x->timer);
    *ret = x;
    return 0;
}
