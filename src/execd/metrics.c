/*
 * Metrics (see metrics.h). Owns the previous processor sample; use is measured between two requests
 * (at least 100 ms apart), so no answer waits for a measurement. Loop thread only.
 */
#include "execd/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/path.h"
#include "execd/errors.h"
#include "execd/handlers.h"
#include "execd/timer.h"
#include "net/sse.h"

#define MIN_WINDOW_US 100000
#define WATCH_MS 1000
#define MIB (1024.0 * 1024.0)

struct sample {
    int64_t at_us;
    double busy_s, total_s; /* total: of all processors, only when `busy` is machine-wide */
};

struct metrics {
    struct agent *agent;
    struct sample last;
    double used_pct;
};

struct reading {
    double cpu_used_pct, mem_total_mib, mem_used_mib;
    int cpu_count;
};

static char *read_text(const char *path) {
    char *text = NULL;
    return path_read_file_at(AT_FDCWD, path, 256 << 10, &text, NULL) == 0 ? text : NULL;
}

/* Number after `key` at the start of a line; -1 when absent. */
static double find_number(const char *text, const char *key) {
    size_t n = strlen(key);

    while (text && *text) {
        if (strncmp(text, key, n) == 0)
            return strtod(text + n, NULL);
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return -1;
}

static double file_number(const char *path) {
    _cleanup_free_ char *t = read_text(path);
    return t && *t >= '0' && *t <= '9' ? strtod(t, NULL) : -1;
}

static int machine_cpus(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? MAX(CPU_COUNT(&set), 1) : 1;
}

/* Processors this sandbox may use: its quota, else all. */
static double quota_cpus(void) {
    _cleanup_free_ char *v2 = read_text("/sys/fs/cgroup/cpu.max");
    double quota = -1, period = -1;

    if (v2) {
        if (sscanf(v2, "%lf %lf", &quota, &period) != 2)
            return -1; /* "max" */
    } else {
        quota = file_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
        period = file_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    }
    return quota > 0 && period > 0 ? quota / period : -1;
}

static void take_sample(struct sample *s) {
    _cleanup_free_ char *stat = read_text("/sys/fs/cgroup/cpu.stat"), *proc = NULL;
    double usage = find_number(stat, "usage_usec "), v[8] = {0};
    char *p;

    *s = (struct sample){.at_us = clock_mono_us()};
    if (usage >= 0) {
        s->busy_s = usage / 1e6;
        return;
    }
    proc = read_text("/proc/stat");
    if (!proc || strncmp(proc, "cpu ", 4) != 0)
        return;
    p = proc + 4;
    for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
        v[i] = strtod(p, &p);
        s->total_s += v[i] / 100;
    }
    s->busy_s = s->total_s - (v[3] + v[4]) / 100; /* without idle and iowait */
}

static void read_cpu(struct metrics *m, struct reading *r) {
    double quota = quota_cpus(), cpus = quota > 0 ? quota : machine_cpus();
    struct sample now;

    r->cpu_count = MAX((int)(cpus + 0.5), 1);
    if (clock_mono_us() - m->last.at_us >= MIN_WINDOW_US) {
        take_sample(&now);
        double busy = now.busy_s - m->last.busy_s, total = now.total_s - m->last.total_s;
        if (total <= 0)
            total = (double)(now.at_us - m->last.at_us) / 1e6 * cpus;
        m->used_pct = busy <= 0 ? 0 : MIN(busy / total * 100, 100.0);
        m->last = now;
    }
    r->cpu_used_pct = m->used_pct;
}

static void read_memory(struct reading *r) {
    _cleanup_free_ char *info = read_text("/proc/meminfo");
    double total = find_number(info, "MemTotal:") * 1024, used, limit;

    used = total -
           1024 * (find_number(info, "MemFree:") + find_number(info, "Buffers:") +
                   find_number(info, "Cached:") + MAX(find_number(info, "SReclaimable:"), 0.0));
    limit = file_number("/sys/fs/cgroup/memory.max");
    if (limit > 0 && (total <= 0 || limit < total)) {
        total = limit;
        used = file_number("/sys/fs/cgroup/memory.current");
    } else if ((limit = file_number("/sys/fs/cgroup/memory/memory.limit_in_bytes")) > 0 &&
               limit < total) {
        total = limit;
        used = file_number("/sys/fs/cgroup/memory/memory.usage_in_bytes");
    }
    if (total <=
        0) /* no /proc: something that says "unknown" and keeps the rule 0 <= used <= total */
        total = MIB;
    r->mem_total_mib = total / MIB;
    r->mem_used_mib = MIN(MAX(used, 0.0), total) / MIB;
}

static void format(struct metrics *m, struct buf *b) {
    struct reading r;

    read_cpu(m, &r);
    read_memory(&r);
    buf_printf(b,
               "{\"cpu_count\":%d,\"cpu_used_pct\":%.2f,\"mem_total_mib\":%.2f,\"mem_used_mib\":%."
               "2f,\"timestamp\":%lld}",
               r.cpu_count, r.cpu_used_pct, r.mem_total_mib, r.mem_used_mib,
               (long long)clock_wall_ms());
}

int metrics_new(struct agent *a, struct metrics **ret) {
    struct metrics *m = calloc(1, sizeof *m);

    if (!m)
        return -ENOMEM;
    m->agent = a;
    take_sample(&m->last);
    *ret = m;
    return 0;
}

void metrics_free(struct metrics *m) {
    free(m);
}

HANDLER(handle_metrics) {
    static const struct h1_header json[] = {{"Content-Type", "application/json; charset=utf-8"},
                                            {NULL, NULL}};
    struct agent *a = ud;
    _cleanup_buf_ struct buf b = BUF_INIT(4096);

    format(a->metrics, &b);
    h1_respond(r, 200, json, b.data, b.len);
}

/* ---- watch: one object every second until the client leaves ---- */

struct watch {
    struct metrics *metrics;
    struct h1_req *req;
    struct timer *timer;
};

static void send_sample(void *ud) {
    struct watch *w = ud;
    _cleanup_buf_ struct buf b = BUF_INIT(4096);

    format(w->metrics, &b);
    sse_bare(w->req, b.data, b.len);
}

static void on_watch_closed(struct h1_req *r, bool completed, void *ud) {
    struct watch *w = ud;
    timer_free(w->timer);
    free(w);
}

HANDLER(handle_metrics_watch) {
    static const struct h1_req_ops ops = {.on_close = on_watch_closed};
    struct agent *a = ud;
    struct watch *w = calloc(1, sizeof *w);
    struct timer *t = timer_new(a->loop, send_sample, w);

    if (!w || !t) {
        timer_free(t);
        free(w);
        reply_error(r, 500, ERR_RUNTIME, "out of memory");
        return;
    }
    *w = (struct watch){.metrics = a->metrics, .req = r, .timer = t};
    h1_req_set_ops(r, &ops, w);
    sse_start(r);
    timer_start(t, WATCH_MS, WATCH_MS);
    send_sample(w);
}
