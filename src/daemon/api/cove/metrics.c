/* GET /metrics. What is counted stands in daemon/telemetry, what is so now is asked here. Loop
 * thread. */
#include "daemon/api/cove/metrics.h"

#include "daemon/api/opensandbox/dialect.h"
#include "daemon/telemetry/telemetry.h"

#define MAX_TEXT ((size_t)8 << 20)

void cove_metrics(struct xch *x) {
    _cleanup_buf_ struct buf b = BUF_INIT(MAX_TEXT);
    const char *names[SB_UNKNOWN + 1];
    struct service_load load;

    service_load(x->api->o.service, &load);
    for (unsigned i = 0; i <= SB_UNKNOWN; i++)
        names[i] = i == SB_LOST ? "Lost" : render_state((enum sandbox_state)i);
    struct telemetry_now now = {
        .driver = service_driver_name(x->api->o.service),
        .states = names,
        .sandboxes = load.by_state,
        .n_states = ARRAY_SIZE(names),
        .workers = load.workers,
        .workers_idle = load.workers_idle,
        .workers_max = load.workers_max,
        .jobs_waiting = load.waiting,
        .connections = x->api->upgrades.n,
    };
    if (telemetry_write(&b, &now) < 0)
        xch_error(x, 500, CODE_UNKNOWN, "the answer could not be put together");
    else
        xch_respond(x, 200, TELEMETRY_TYPE, b.data, b.len);
}
