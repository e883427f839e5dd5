/* Export of metrics to an OpenTelemetry collector: OTLP over HTTP, JSON. Loop thread. */
#pragma once

#include <uv.h>

#include "base/err.h"

struct otlp_opts {
    uv_loop_t *loop;
    const char *endpoint; /* NULL or blank = the standard OTEL_EXPORTER_OTLP_* variables */
    const char *service_name;
    unsigned interval_ms;
};
struct otlp;
/* Starts exporting. -EINVAL when the address is none, or needs TLS. A collector that does not
 * answer is a warning, and the next interval tries again. */
int otlp_new(const struct otlp_opts *o, struct otlp **ret, struct err *err);
/* Ends it; frees when the loop has run once more. NULL is fine. */
void otlp_free(struct otlp *x);
