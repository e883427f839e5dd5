/*
 * The daemon's counters and their renderings (see telemetry.h). Owns all series; they live as long
 * as the process. Keys of requests are a route's address, a method's index and a status, so that
 * counting a request is one probe of a table, without a text compared or a byte allocated.
 */
#include "daemon/telemetry/telemetry.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "daemon/telemetry/engine_calls.h"
#include "daemon/telemetry/hist.h"

#define REQUEST_SLOTS 1024 /* a power of two */
#define REQUESTS_MAX 768
#define SDKS_MAX 64
#define STEPS_MAX 48

static const char *const methods[] = {"other", "GET",    "POST", "PUT",
                                      "PATCH", "DELETE", "HEAD", "OPTIONS"};
static const char *const op_names[N_TELEMETRY_OPS] = {"delete", "expire", "pause",
                                                      "resume", "renew",  "patch"};

struct request_series {
    const char *prefix, *route; /* route NULL = free */
    unsigned method, status;
    uint64_t bytes;
    struct hist hist;
};
struct sdk_series {
    char language[24], version[24];
    bool ok;
    struct hist hist;
};
struct step_series {
    const char *name;
    uint64_t n, us;
};

static struct {
    struct request_series requests[REQUEST_SLOTS];
    size_t n_requests;
    struct request_series beyond; /* what found no slot */
    struct hist creates[2];       /* by success */
    struct step_series steps[STEPS_MAX];
    size_t n_steps;
    uint64_t ops[N_TELEMETRY_OPS][2];
    struct sdk_series sdks[SDKS_MAX];
    size_t n_sdks;
    int64_t since_us; /* wall clock */
} t;

__attribute__((constructor)) static void begin(void) {
    t.since_us = clock_wall_us();
}

void telemetry_reset(void) {
    memset(&t, 0, sizeof t);
    engine_calls_reset();
    begin();
}

/* ---- counting ---- */

static unsigned method_index(const char *method) {
    for (unsigned i = 1; i < ARRAY_SIZE(methods); i++)
        if (strcmp(methods[i], method) == 0)
            return i;
    return 0;
}

static struct request_series *find_request(const char *prefix, const char *route, unsigned method,
                                           unsigned status) {
    size_t at = ((uintptr_t)route >> 3) * 31 + (uintptr_t)prefix + method * 7 + status;

    for (;; at++) {
        struct request_series *s = &t.requests[at & (REQUEST_SLOTS - 1)];
        if (!s->route && t.n_requests >= REQUESTS_MAX)
            return &t.beyond;
        if (!s->route) {
            t.n_requests++;
            *s = (struct request_series){prefix, route, method, status, 0, {{0}, 0, 0}};
        }
        if (s->route == route && s->prefix == prefix && s->method == method && s->status == status)
            return s;
    }
}

void telemetry_request(const char *method, const char *prefix, const char *route, int status,
                       int64_t duration_us, uint64_t body_bytes) {
    static const char unknown[] = "unknown", none[] = "";
    struct request_series *s = find_request(route ? prefix : none, route ? route : unknown,
                                            method_index(method), (unsigned)status);

    s->bytes += body_bytes;
    hist_add(&s->hist, duration_us);
}

void telemetry_create(bool ok, int64_t duration_us) {
    hist_add(&t.creates[ok], duration_us);
}

void telemetry_create_step(const char *name, int64_t duration_us) {
    size_t i = 0;

    while (i < t.n_steps && strcmp(t.steps[i].name, name) != 0)
        i++;
    if (i == STEPS_MAX)
        return;
    if (i == t.n_steps)
        t.steps[t.n_steps++].name = name;
    t.steps[i].n++;
    t.steps[i].us += duration_us > 0 ? (uint64_t)duration_us : 0;
}

void telemetry_op(enum telemetry_op op, bool ok) {
    t.ops[op][ok]++;
}

/* A word of a foreign text that may stand in a label. */
static void take_word(char *out, size_t size, const char *s, size_t n) {
    bool fine = n > 0 && n < size;
    for (size_t i = 0; i < n && fine; i++)
        fine = (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') ||
               (s[i] >= 'A' && s[i] <= 'Z') || strchr("._-+", s[i]);
    if (fine) {
        memcpy(out, s, n);
        out[n] = '\0';
    } else {
        str_copy(out, size, "unknown");
    }
}

/* "OpenSandbox-Python-SDK/1.1.1 …" */
static void parse_agent(const char *agent, struct sdk_series *ret) {
    static const char head[] = "OpenSandbox-", middle[] = "-SDK/";
    const char *name = agent ? strstr(agent, head) : NULL;
    const char *end = name ? strstr(name, middle) : NULL;

    name = name ? name + sizeof head - 1 : NULL;
    if (end && end > name) {
        const char *version = end + sizeof middle - 1;
        take_word(ret->language, sizeof ret->language, name, (size_t)(end - name));
        take_word(ret->version, sizeof ret->version, version, strcspn(version, " ;("));
    } else {
        take_word(ret->language, sizeof ret->language, "", 0);
        take_word(ret->version, sizeof ret->version, "", 0);
    }
    for (char *p = ret->language; *p; p++) /* "Python" -> "python" */
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p + 'a' - 'A');
}

void telemetry_sdk_create(const char *user_agent, bool ok, int64_t duration_ms) {
    struct sdk_series s = {.ok = ok};
    size_t i = 0;

    parse_agent(user_agent, &s);
    if (t.n_sdks >= SDKS_MAX - 2) { /* the last two are for whatever else comes */
        str_copy(s.language, sizeof s.language, "other");
        str_copy(s.version, sizeof s.version, "other");
    }
    while (i < t.n_sdks && (t.sdks[i].ok != ok || strcmp(t.sdks[i].language, s.language) != 0 ||
                            strcmp(t.sdks[i].version, s.version) != 0))
        i++;
    if (i == t.n_sdks)
        t.sdks[t.n_sdks++] = s;
    hist_add(&t.sdks[i].hist, duration_ms < INT64_MAX / 1000 ? duration_ms * 1000 : INT64_MAX);
}

void telemetry_engine_call(const char *method, const char *path, int result, int64_t duration_us) {
    engine_calls_add(method, path, result >= 0, duration_us);
}

/* ---- the text format of Prometheus ---- */

static void head(struct buf *out, const char *name, const char *type, const char *help) {
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_request(struct buf *out, const struct request_series *s, bool bytes) {
    char labels[300];

    if (!s->hist.n)
        return;
    snprintf(labels, sizeof labels, "method=\"%s\",route=\"%s%s\",status=\"%u\"",
             methods[s->method], s->route ? s->prefix : "", s->route ? s->route : "other",
             s->status);
    if (bytes)
        buf_printf(out, "cove_http_response_bytes_total{%s} %" PRIu64 "\n", labels, s->bytes);
    else
        hist_write(out, "cove_http_request_seconds", labels, &s->hist);
}

static void write_requests(struct buf *out) {
    head(out, "cove_http_request_seconds", "histogram", "HTTP requests until they are answered.");
    for (size_t i = 0; i < REQUEST_SLOTS; i++)
        write_request(out, &t.requests[i], false);
    write_request(out, &t.beyond, false);
    head(out, "cove_http_response_bytes_total", "counter", "Bytes of bodies sent to clients.");
    for (size_t i = 0; i < REQUEST_SLOTS; i++)
        write_request(out, &t.requests[i], true);
    write_request(out, &t.beyond, true);
}

static void write_creates(struct buf *out, const char *driver) {
    char labels[96];

    head(out, "cove_sandbox_create_seconds", "histogram", "Creates of sandboxes.");
    for (unsigned ok = 0; ok < 2; ok++) {
        snprintf(labels, sizeof labels, "driver=\"%s\",success=\"%s\"", driver,
                 ok ? "true" : "false");
        hist_write(out, "cove_sandbox_create_seconds", labels, &t.creates[ok]);
    }
    head(out, "cove_sandbox_create_step_seconds", "summary", "Parts of creates that succeeded.");
    for (size_t i = 0; i < t.n_steps; i++)
        buf_printf(out,
                   "cove_sandbox_create_step_seconds_sum{step=\"%s\"} %.6f\n"
                   "cove_sandbox_create_step_seconds_count{step=\"%s\"} %" PRIu64 "\n",
                   t.steps[i].name, (double)t.steps[i].us / 1e6, t.steps[i].name, t.steps[i].n);
    head(out, "cove_sandbox_operations_total", "counter", "Other operations on sandboxes.");
    for (size_t i = 0; i < N_TELEMETRY_OPS; i++)
        for (unsigned ok = 0; ok < 2; ok++)
            buf_printf(
                out, "cove_sandbox_operations_total{operation=\"%s\",success=\"%s\"} %" PRIu64 "\n",
                op_names[i], ok ? "true" : "false", t.ops[i][ok]);
}

static void write_sdks(struct buf *out) {
    char labels[160];

    head(out, "cove_sdk_create_seconds", "histogram", "Creates as SDKs tell of them.");
    for (size_t i = 0; i < t.n_sdks; i++) {
        snprintf(labels, sizeof labels, "language=\"%s\",version=\"%s\",success=\"%s\"",
                 t.sdks[i].language, t.sdks[i].version, t.sdks[i].ok ? "true" : "false");
        hist_write(out, "cove_sdk_create_seconds", labels, &t.sdks[i].hist);
    }
}

static void gauge(struct buf *out, const char *name, const char *help, double value) {
    head(out, name, "gauge", help);
    buf_printf(out, "%s %.17g\n", name, value);
}

static void write_now(struct buf *out, const struct telemetry_now *n) {
    head(out, "cove_build_info", "gauge", "The daemon.");
    buf_printf(out, "cove_build_info{version=\"%s\",driver=\"%s\"} 1\n", COVE_VERSION, n->driver);
    head(out, "cove_sandboxes", "gauge", "Sandboxes by state.");
    for (size_t i = 0; i < n->n_states; i++)
        buf_printf(out, "cove_sandboxes{state=\"%s\"} %zu\n", n->states[i], n->sandboxes[i]);
    gauge(out, "cove_workers", "Worker threads that run.", n->workers);
    gauge(out, "cove_workers_busy", "Worker threads at work.", n->workers - n->workers_idle);
    gauge(out, "cove_workers_max", "Most worker threads.", n->workers_max);
    gauge(out, "cove_jobs_waiting", "Operations that wait for a worker.", (double)n->jobs_waiting);
    gauge(out, "cove_proxy_connections", "Upgraded connections through the proxy.",
          (double)n->connections);
}

static size_t count_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n > 3 ? n - 3 : 0; /* ".", "..", the directory itself */
}

static void write_process(struct buf *out) {
    char *text = NULL;
    uint64_t pages[2] = {0};
    struct rusage u;
    struct rlimit l = {0};

    if (path_read_file_at(AT_FDCWD, "/proc/self/statm", 4096, &text, NULL) == 0)
        sscanf(text, "%" SCNu64 " %" SCNu64, &pages[0], &pages[1]);
    free(text);
    double page = (double)sysconf(_SC_PAGESIZE);
    gauge(out, "process_resident_memory_bytes", "Resident memory.", (double)pages[1] * page);
    gauge(out, "process_virtual_memory_bytes", "Address space.", (double)pages[0] * page);
    gauge(out, "process_open_fds", "Open descriptors.", (double)count_fds());
    if (getrlimit(RLIMIT_NOFILE, &l) == 0)
        gauge(out, "process_max_fds", "Most open descriptors.", (double)l.rlim_cur);
    gauge(out, "process_start_time_seconds", "Start, since 1970.", (double)t.since_us / 1e6);
    getrusage(RUSAGE_SELF, &u);
    head(out, "process_cpu_seconds_total", "counter", "Processor time.");
    buf_printf(out, "process_cpu_seconds_total %.6f\n",
               (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                   (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
}

int telemetry_write(struct buf *out, const struct telemetry_now *now) {
    write_now(out, now);
    write_creates(out, now->driver);
    write_sdks(out);
    engine_calls_write(out);
    write_process(out);
    write_requests(out);
    return buf_ok(out) ? 0 : -1;
}

/* ---- OTLP ---- */

static json_t *attribute(const char *key, json_t *value) {
    return json_pack("{s:s,s:o}", "key", key, "value", value);
}

static json_t *text_attribute(const char *key, const char *text) {
    return attribute(key, json_pack("{s:s}", "stringValue", text));
}

static json_t *metric(const char *name, json_t *points) {
    return json_pack("{s:s,s:s,s:{s:i,s:o}}", "name", name, "unit", "ms", "histogram",
                     "aggregationTemporality", 2 /* cumulative */, "dataPoints", points);
}

static json_t *create_points(int64_t now_us) {
    json_t *points = json_array();

    for (size_t i = 0; i < t.n_sdks; i++) {
        const struct sdk_series *s = &t.sdks[i];
        json_t *a = json_array();
        json_array_append_new(a, text_attribute("sdk.language", s->language));
        json_array_append_new(a, text_attribute("sdk.version", s->version));
        json_array_append_new(a, attribute("success", json_pack("{s:b}", "boolValue", s->ok)));
        json_array_append_new(points, hist_point(&s->hist, a, t.since_us, now_us));
    }
    return points;
}

static json_t *request_points(int64_t now_us) {
    json_t *points = json_array();

    for (size_t i = 0; i < REQUEST_SLOTS; i++) {
        const struct request_series *s = &t.requests[i];
        if (!s->route)
            continue;
        json_t *a = json_array();
        char status[16], route[200];
        snprintf(status, sizeof status, "%u", s->status);
        snprintf(route, sizeof route, "%s%s", s->prefix, s->route);
        json_array_append_new(a, text_attribute("http_method", methods[s->method]));
        json_array_append_new(a, text_attribute("http_route", route));
        json_array_append_new(
            a, attribute("http_status_code", json_pack("{s:s}", "intValue", status)));
        json_array_append_new(points, hist_point(&s->hist, a, t.since_us, now_us));
    }
    return points;
}

json_t *telemetry_otlp(const json_t *resource) {
    int64_t now_us = clock_wall_us();
    json_t *attributes = json_array(), *metrics = json_array();
    const char *key;
    const json_t *v;

    json_object_foreach((json_t *)resource, key, v) {
        json_array_append_new(attributes, text_attribute(key, json_string_value(v)));
    }
    if (t.n_sdks)
        json_array_append_new(metrics,
                              metric("opensandbox.sandbox.create.duration", create_points(now_us)));
    if (t.n_requests)
        json_array_append_new(metrics,
                              metric("server.http.request.duration", request_points(now_us)));
    return json_pack("{s:[{s:{s:o},s:[{s:{s:s,s:s},s:o}]}]}", "resourceMetrics", "resource",
                     "attributes", attributes, "scopeMetrics", "scope", "name", "coved", "version",
                     COVE_VERSION, "metrics", metrics);
}
