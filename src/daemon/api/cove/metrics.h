/* GET /metrics: what the daemon counts about itself, for Prometheus. */
#pragma once

#include "daemon/api/exchange.h"

void cove_metrics(struct xch *x);
