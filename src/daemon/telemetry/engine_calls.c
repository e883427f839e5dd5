/*
 * Calls to the Docker Engine, by kind (see engine_calls.h). Kinds are fixed, so counting is a few
 * relaxed additions; a reader may see one of a call's numbers before the other, which rates do not
 * notice.
 */
#include "daemon/telemetry/engine_calls.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/str.h"

/* First part of the path, what is done with it. */
static const struct {
    const char *subject, *verb;
} kinds[] = {
    {"containers", "create"}, {"containers", "start"},   {"containers", "stop"},
    {"containers", "kill"},   {"containers", "pause"},   {"containers", "unpause"},
    {"containers", "wait"},   {"containers", "inspect"}, {"containers", "list"},
    {"containers", "remove"}, {"containers", "logs"},    {"containers", "archive"},
    {"containers", "exec"},   {"images", "create"},      {"images", "inspect"},
    {"images", "list"},       {"images", "remove"},      {"volumes", "create"},
    {"volumes", "inspect"},   {"volumes", "list"},       {"volumes", "remove"},
    {"networks", "inspect"},  {"networks", "list"},      {"exec", "start"},
    {"exec", "inspect"},      {"commit", "create"},      {"events", "list"},
    {"info", "list"},         {"version", "list"},       {"_ping", "list"},
    {"other", "other"},
};
#define N_KINDS ARRAY_SIZE(kinds)

static struct { atomic_uint_fast64_t done, failed, us; } counts[N_KINDS];

/* "/v1.41/containers/ID/start?x" -> containers, start */
static size_t kind_of(const char *method, const char *path) {
    const char *p = path + (*path == '/');

    if (p[0] == 'v' && p[1] >= '0' && p[1] <= '9' && strchr(p, '/'))
        p = strchr(p, '/') + 1;
    size_t n = strcspn(p, "/?"), rest;
    const char *last = p + n + (p[n] == '/');
    const char *slash = last;
    while ((slash = strchr(slash, '/')))
        last = ++slash;
    rest = strcspn(last, "?");
    bool is_delete = strcmp(method, "DELETE") == 0, is_post = strcmp(method, "POST") == 0;

    for (size_t i = 0; i + 1 < N_KINDS; i++) {
        const char *v = kinds[i].verb;
        if (strlen(kinds[i].subject) != n || strncmp(kinds[i].subject, p, n) != 0)
            continue;
        if (is_delete ? strcmp(v, "remove") == 0
                      : rest && strlen(v) == rest && strncmp(v, last, rest) == 0)
            return i;
        if (!is_delete && strcmp(v, "list") == 0 &&
            (rest == 0 || (rest == 4 && strncmp(last, "json", 4) == 0 && last == p + n + 1)))
            return i;
        if (!is_delete && !is_post && strcmp(v, "inspect") == 0 && rest && last > p + n + 1 &&
            strncmp(last, "json", 4) == 0)
            return i;
        if (!is_delete && !is_post && strcmp(v, "inspect") == 0 && rest && last == p + n + 1 &&
            (strncmp(p, "volumes", n) == 0 || strncmp(p, "networks", n) == 0))
            return i;
        if (is_post && rest == 0 && strcmp(v, "create") == 0)
            return i;
    }
    return N_KINDS - 1;
}

void engine_calls_add(const char *method, const char *path, bool ok, int64_t us) {
    size_t i = kind_of(method, path);

    atomic_fetch_add_explicit(&counts[i].done, 1, memory_order_relaxed);
    if (!ok)
        atomic_fetch_add_explicit(&counts[i].failed, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[i].us, us > 0 ? (uint64_t)us : 0, memory_order_relaxed);
}

static uint64_t value(atomic_uint_fast64_t *a) {
    return atomic_load_explicit(a, memory_order_relaxed);
}

void engine_calls_write(struct buf *out) {
    static const char *const heads[] = {
        "# HELP cove_engine_calls_total Calls to the Docker Engine.\n"
        "# TYPE cove_engine_calls_total counter\n",
        "# HELP cove_engine_call_failures_total Calls that failed or were refused.\n"
        "# TYPE cove_engine_call_failures_total counter\n",
        "# HELP cove_engine_call_seconds_total Time until answers began.\n"
        "# TYPE cove_engine_call_seconds_total counter\n"};

    for (unsigned what = 0; what < ARRAY_SIZE(heads); what++) {
        bool is_first = true;
        for (size_t i = 0; i < N_KINDS; i++) {
            if (!value(&counts[i].done))
                continue;
            if (is_first)
                buf_str(out, heads[what]);
            is_first = false;
            buf_printf(out, "cove_engine_call%s{call=\"%s %s\"} ",
                       what == 0   ? "s_total"
                       : what == 1 ? "_failures_total"
                                   : "_seconds_total",
                       kinds[i].subject, kinds[i].verb);
            if (what == 2)
                buf_printf(out, "%.6f\n", (double)value(&counts[i].us) / 1e6);
            else
                buf_printf(out, "%" PRIu64 "\n",
                           value(what == 0 ? &counts[i].done : &counts[i].failed));
        }
    }
}

void engine_calls_reset(void) {
    for (size_t i = 0; i < N_KINDS; i++) {
        atomic_store(&counts[i].done, 0);
        atomic_store(&counts[i].failed, 0);
        atomic_store(&counts[i].us, 0);
    }
}
