/*
 * Diagnostics in words: the texts people and scripts read. Made of what the driver describes, or of
 * the service's own record where it describes nothing. Secrets never appear: values whose name
 * smells of one are masked, and so is what stands before '@' in a URL. Pure functions.
 */
#include "daemon/api/opensandbox/diagnostics.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define MAX_PROBE 200 /* characters of a health probe's output */

/* ---- secrets ---- */

bool diag_is_secret_name(const char *name, size_t len) {
    static const char *const words[] = {"SECRET", "TOKEN", "PASSWORD", "KEY"};

    for (size_t i = 0; i < len; i++)
        for (size_t w = 0; w < ARRAY_SIZE(words); w++) {
            size_t n = strlen(words[w]);
            if (n <= len - i && strncasecmp(name + i, words[w], n) == 0)
                return true;
        }
    return false;
}

/* Without the user part of URLs. */
static void put_masked(struct buf *b, const char *value) {
    const char *p;

    while ((p = strstr(value, "://"))) {
        size_t before = (size_t)(p - value) + 3;
        const char *authority = value + before;
        size_t n = strcspn(authority, "/?# \t\r\n\"'<>");
        const char *at = memrchr(authority, '@', n);
        buf_append(b, value, before);
        if (at)
            buf_str(b, "***");
        value = at ? at : authority;
    }
    buf_str(b, value);
}

/* ---- what is known ---- */

static void set_time(json_t *o, const char *key, int64_t us) {
    if (us)
        render_time(o, key, us);
}

static const char *status_word(enum sandbox_state st) {
    switch (st) {
    case SB_RUNNING:
        return "running";
    case SB_PAUSED:
        return "paused";
    case SB_STOPPING:
        return "removing";
    case SB_TERMINATED:
    case SB_FAILED:
        return "exited";
    case SB_PENDING:
        return "created";
    case SB_LOST:
        return "dead";
    default:
        return "unknown";
    }
}

static json_t *env_list(const struct strv *env) {
    json_t *list = json_array();

    for (size_t i = 0; i < env->n; i++)
        json_array_append_new(list, json_string(env->v[i]));
    return list;
}

json_t *diag_own_details(const struct sandbox *sb) {
    const struct sandbox_spec *s = &sb->spec;
    enum sandbox_state st = sandbox_state_of(sb);
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s,s:b,s:b,s:b,s:i,s:o}", "containerId", s->id, "name", s->id,
                  "image", s->image, "status", status_word(st), "running",
                  st == SB_RUNNING || st == SB_PAUSED, "paused", st == SB_PAUSED, "oomKilled",
                  sb->oom_killed, "exitCode", sb->exit_code, "env", env_list(&s->env));

    if (!o)
        return NULL;
    if (st == SB_LOST)
        json_object_set_new(o, "error", json_string("the machine or its runtime was restarted"));
    set_time(o, "createdAt", sb->created_us);
    set_time(o, "startedAt", sb->started_us);
    set_time(o, "finishedAt", sb->finished_us);
    if (s->cpu_millis)
        json_object_set_new(o, "nanoCpus", json_integer((json_int_t)s->cpu_millis * 1000000));
    if (s->memory_bytes)
        json_object_set_new(o, "memoryBytes", json_integer((json_int_t)s->memory_bytes));
    if (s->pids)
        json_object_set_new(o, "pidsLimit", json_integer((json_int_t)s->pids));
    json_object_set_new(o, "networks", json_pack("{s:s}", s->net == NET_NAT ? "nat" : "none", ""));
    if (sb->metadata)
        json_object_set(o, "labels", sb->metadata);
    return o;
}

/* ---- inspect ---- */

static const char *text_of(const json_t *d, const char *key, const char *none) {
    const char *s = json_str(d, key);
    return str_is_empty(s) ? none : s;
}

static const char *yes_no(const json_t *d, const char *key) {
    return json_bool(d, key, false) ? "True" : "False";
}

static void line(struct buf *b, const char *label, const char *value) {
    buf_printf(b, "%-16s%s\n", label, value);
}

static void put_state(struct buf *b, const json_t *d, const struct sandbox *sb) {
    char at[RFC3339_SIZE];

    buf_printf(b, "%-16s%.12s\n", "Container ID:", text_of(d, "containerId", sb->spec.id));
    line(b, "Name:", text_of(d, "name", "N/A"));
    line(b, "Image:", text_of(d, "image", "N/A"));
    line(b, "Status:", text_of(d, "status", "unknown"));
    line(b, "Running:", yes_no(d, "running"));
    line(b, "Paused:", yes_no(d, "paused"));
    line(b, "OOMKilled:", yes_no(d, "oomKilled"));
    buf_printf(b, "%-16s%lld\n", "Exit Code:", (long long)json_int(d, "exitCode", 0));
    line(b, "Started At:", text_of(d, "startedAt", "N/A"));
    line(b, "Finished At:", text_of(d, "finishedAt", "N/A"));
    if (sb->expires_us) {
        rfc3339_format(sb->expires_us, at);
        line(b, "Expires At:", at);
    }
    if (!str_is_empty(json_str(d, "error"))) {
        buf_printf(b, "%-16s", "Error:");
        put_masked(b, json_str(d, "error"));
        buf_char(b, '\n');
    }
}

static void put_resources(struct buf *b, const json_t *d, const struct sandbox *sb) {
    int64_t cpus = json_int(d, "nanoCpus", 0), memory = json_int(d, "memoryBytes", 0);
    int64_t pids = json_int(d, "pidsLimit", 0);

    buf_str(b, "\nResources:\n");
    if (cpus > 0)
        buf_printf(b, "  %-14s%.2f cores\n", "CPU:", (double)cpus / 1e9);
    if (memory > 0)
        buf_printf(b, "  %-14s%lld MiB\n", "Memory:", (long long)(memory >> 20));
    if (pids > 0)
        buf_printf(b, "  %-14s%lld\n", "PIDs Limit:", (long long)pids);
    if (sb->spec.disk_bytes)
        buf_printf(b, "  %-14s%llu MiB\n", "Disk:", (unsigned long long)sb->spec.disk_bytes >> 20);
}

static void put_network(struct buf *b, const json_t *d) {
    const json_t *ports = json_object_get(d, "ports");
    const char *key;
    json_t *v;

    buf_str(b, "\nNetwork:\n");
    json_object_foreach(json_object_get(d, "networks"), key, v) {
        buf_printf(b, "  %s: %s\n", key, json_is_string(v) ? json_string_value(v) : "");
    }
    if (json_object_size(ports))
        buf_str(b, "\nPorts:\n");
    json_object_foreach((json_t *)ports, key, v) {
        if (json_is_string(v))
            buf_printf(b, "  %s -> %s\n", key, json_string_value(v));
        else
            buf_printf(b, "  %s (not bound)\n", key);
    }
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_labels(struct buf *b, const json_t *labels) {
    size_t n = 0, count = json_object_size(labels);
    _cleanup_free_ const char **keys = count ? calloc(count, sizeof *keys) : NULL;
    const char *key;
    json_t *v;

    if (!keys)
        return;
    json_object_foreach((json_t *)labels, key, v) {
        keys[n++] = key;
    }
    qsort(keys, n, sizeof *keys, by_text);
    buf_str(b, "\nLabels:\n");
    for (size_t i = 0; i < n; i++) {
        const char *value = json_str(labels, keys[i]);
        buf_printf(b, "  %s=", keys[i]);
        if (diag_is_secret_name(keys[i], strlen(keys[i])))
            buf_str(b, "***");
        else
            put_masked(b, value ? value : "");
        buf_char(b, '\n');
    }
}

static void put_environment(struct buf *b, const json_t *env) {
    json_t *v;
    size_t i;

    if (json_array_size(env))
        buf_str(b, "\nEnvironment:\n");
    json_array_foreach(env, i, v) {
        const char *entry = json_string_value(v);
        size_t n = entry ? strcspn(entry, "=") : 0;
        if (!entry)
            continue;
        buf_str(b, "  ");
        if (diag_is_secret_name(entry, n))
            buf_printf(b, "%.*s=***", (int)n, entry);
        else
            put_masked(b, entry);
        buf_char(b, '\n');
    }
}

void diag_put_inspect(struct buf *b, const json_t *d, const struct sandbox *sb) {
    const struct sandbox_spec *s = &sb->spec;

    put_state(b, d, sb);
    put_resources(b, d, sb);
    put_network(b, d);
    for (size_t i = 0; i < s->n_mounts; i++)
        buf_printf(b, "%s  %s -> %s (%s)\n", i ? "" : "\nMounts:\n",
                   s->mounts[i].volume ? s->mounts[i].volume : s->mounts[i].source,
                   s->mounts[i].target, s->mounts[i].read_only ? "ro" : "rw");
    put_labels(b, json_object_get(d, "labels"));
    put_environment(b, json_object_get(d, "env"));
}

/* ---- events ---- */

struct lines {
    struct buf *b;
    size_t n;
};

static void event(struct lines *l, const char *label, const char *value) {
    if (str_is_empty(value))
        return;
    buf_printf(l->b, "%-12s", label);
    put_masked(l->b, value);
    buf_char(l->b, '\n');
    l->n++;
}

static void put_health(struct lines *l, const json_t *health, int64_t limit) {
    const json_t *log = json_object_get(health, "log");
    size_t n = json_array_size(log), from = (int64_t)n > limit ? n - (size_t)limit : 0;
    char probe[4 * MAX_PROBE + 1];

    event(l, "Health:", text_of(health, "status", "N/A"));
    for (size_t i = from; i < n; i++) {
        const char *text = json_string_value(json_array_get(log, i));
        size_t at = 0;
        for (int k = 0; text && text[at] && k < MAX_PROBE; k++)
            at += (size_t)MAX(utf8_next(text + at, strlen(text + at)), 1);
        snprintf(probe, sizeof probe, "%.*s", (int)at, text ? text : "");
        for (char *p = probe; *p; p++)
            if (*p == '\n' || *p == '\r')
                *p = ' ';
        buf_str(l->b, "  ");
        put_masked(l->b, probe);
        buf_char(l->b, '\n');
        l->n++;
    }
}

void diag_put_events(struct buf *b, const json_t *d, const struct sandbox *sb, int64_t limit) {
    const char *finished = json_str(d, "finishedAt"), *error = json_str(d, "error");
    const json_t *health = json_object_get(d, "health");
    int64_t code = json_int(d, "exitCode", 0);
    struct lines l = {.b = b};

    buf_printf(b, "%-12s%.12s (%s)\n", "Container:", text_of(d, "containerId", sb->spec.id),
               text_of(d, "name", sb->spec.id));
    l.n++;
    event(&l, "Status:", text_of(d, "status", "unknown"));
    event(&l, "Created:", json_str(d, "createdAt"));
    event(&l, "Started:", json_str(d, "startedAt"));
    if (finished && !str_starts(finished, "0001-01-01"))
        event(&l, "Finished:", finished);
    if (json_bool(d, "oomKilled", false))
        event(&l, "Event:", "OOMKilled - container was killed due to out-of-memory");
    if (code != 0) {
        char text[64];
        snprintf(text, sizeof text, "Exited with code %lld", (long long)code);
        event(&l, "Event:", text);
    }
    if (!str_is_empty(error)) {
        _cleanup_free_ char *text = str_printf("Error - %s", error);
        event(&l, "Event:", text);
    }
    if (health)
        put_health(&l, health, limit);
    if (l.n <= 3)
        buf_str(b, "(no notable events)\n");
}

/* ---- logs ---- */

char *diag_to_utf8(const char *s) {
    struct buf b = BUF_INIT(4 * DIAG_MAX_LOG);
    size_t len = strlen(s);

    for (size_t i = 0; i < len;) {
        int n = utf8_next(s + i, len - i);
        if (n > 0)
            buf_append(&b, s + i, (size_t)n);
        else
            buf_str(&b, "\xef\xbf\xbd");
        i += n > 0 ? (size_t)n : 1;
    }
    char *r = buf_take(&b, NULL);
    buf_done(&b);
    return r;
}

const char *diag_last_lines(const char *s, int64_t n, bool *ret_more) {
    const char *p = s + strlen(s);
    if (p > s && p[-1] == '\n')
        p--;
    while (p > s && !(p[-1] == '\n' && --n <= 0))
        p--;
    *ret_more = p > s;
    return p;
}

const char *diag_last_bytes(const char *s, size_t max, bool *ret_cut) {
    size_t len = strlen(s);

    *ret_cut = len > max;
    if (!*ret_cut)
        return s;
    s += len - max;
    const char *end = strchr(s, '\n'); /* whole lines, unless one alone is too long */
    return end && end[1] ? end + 1 : s;
}

int64_t diag_parse_since(const char *s) {
    uint64_t n;
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};

    s += strspn(s, " \t");
    size_t digits = strspn(s, "0123456789");
    if (digits == 0 || str_to_u64n(s, digits, &n) < 0 || n > 100000000)
        return DIAG_SINCE_DEFAULT_S;
    s += digits;
    s += strspn(s, " \t");
    int64_t factor = *s ? 0 : 1;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++)
        if (*s && tolower((unsigned char)*s) == units[i].unit)
            factor = units[i].seconds;
    if (*s)
        s++;
    s += strspn(s, " \t");
    return factor && !*s ? (int64_t)n * factor : DIAG_SINCE_DEFAULT_S;
}
