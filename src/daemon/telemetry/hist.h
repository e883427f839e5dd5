/* Histograms with one set of bounds, and their two renderings. */
#pragma once

#include "base/buf.h"
#include "base/json.h"

#define HIST_BOUNDS 15

struct hist {
    uint64_t in[HIST_BOUNDS + 1]; /* not cumulative; the last: above all bounds */
    uint64_t n, sum_us;
};
void hist_add(struct hist *h, int64_t us);
/* NAME_bucket, NAME_sum, NAME_count in seconds; labels: `a="b",c="d"` or "". */
void hist_write(struct buf *out, const char *name, const char *labels, const struct hist *h);
/* A data point of OTLP, in milliseconds; takes the reference of attributes (an array). */
json_t *hist_point(const struct hist *h, json_t *attributes, int64_t since_us, int64_t now_us);
