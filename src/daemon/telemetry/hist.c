/* Histograms (see hist.h). Plain data: whoever owns one keeps threads apart. */
#include "daemon/telemetry/hist.h"

#include <inttypes.h>
#include <stdio.h>

static const int64_t bounds_us[HIST_BOUNDS] = {1000,    2500,    5000,     10000,    25000,
                                               50000,   100000,  250000,   500000,   1000000,
                                               2500000, 5000000, 10000000, 30000000, 60000000};

void hist_add(struct hist *h, int64_t us) {
    size_t i = 0;

    us = us < 0 ? 0 : us;
    while (i < HIST_BOUNDS && us > bounds_us[i])
        i++;
    h->in[i]++;
    h->n++;
    h->sum_us += (uint64_t)us;
}

void hist_write(struct buf *out, const char *name, const char *labels, const struct hist *h) {
    const char *comma = *labels ? "," : "", *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    uint64_t below = 0;

    for (size_t i = 0; i < HIST_BOUNDS; i++) {
        below += h->in[i];
        buf_printf(out, "%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name, labels, comma,
                   (double)bounds_us[i] / 1e6, below);
    }
    buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, h->n);
    buf_printf(out, "%s_sum%s%s%s %.6f\n", name, open, labels, close, (double)h->sum_us / 1e6);
    buf_printf(out, "%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close, h->n);
}

/* 64-bit numbers are texts in OTLP's JSON. */
static json_t *text_of(uint64_t n) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    return json_string(text);
}

json_t *hist_point(const struct hist *h, json_t *attributes, int64_t since_us, int64_t now_us) {
    json_t *counts = json_array(), *bounds = json_array();

    for (size_t i = 0; i < HIST_BOUNDS; i++)
        json_array_append_new(bounds, json_real((double)bounds_us[i] / 1e3));
    for (size_t i = 0; i <= HIST_BOUNDS; i++)
        json_array_append_new(counts, text_of(h->in[i]));
    return json_pack("{s:o,s:o,s:o,s:o,s:f,s:o,s:o}", "attributes", attributes, "startTimeUnixNano",
                     text_of((uint64_t)since_us * 1000), "timeUnixNano",
                     text_of((uint64_t)now_us * 1000), "count", text_of(h->n), "sum",
                     (double)h->sum_us / 1e3, "bucketCounts", counts, "explicitBounds", bounds);
}
