/*
 * Waiting for the agent of a new container. Nothing but asking tells when it listens, so it is
 * asked again with pauses that grow; the index, which the watch thread feeds, tells when the
 * container has ended, and then there is nothing to wait for.
 *
 * A failure here is none of the create: an agent that comes late is found by the client's own
 * readiness check.
 */
#include "daemon/driver/docker/docker_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define DEFAULT_TIMEOUT_MS 10000
#define PAUSE_MAX_MS 50
#define TRY_MS 1000 /* of one request; shorter when there is another way */
#define TRY_FIRST_MS 300
#define LOOK_AGAIN_MS 2000 /* should events be missing */

/* Ways to the agent, best first. */
struct ways {
    struct {
        char host[128];
        uint16_t port;
    } way[2];
    size_t n;
};

static void add_way(struct ways *w, const char *host, uint16_t port) {
    if (str_is_empty(host) || port == 0)
        return;
    str_copy(w->way[w->n].host, sizeof w->way[w->n].host, host);
    w->way[w->n++].port = port;
}

/* true: the container runs, and these lead to it. */
static bool find_ways(struct docker *k, const char *id, struct ways *ret) {
    *ret = (struct ways){.n = 0};
    pthread_mutex_lock(&k->lock);
    const struct box *b = docker_find(k, id);
    bool alive = b && (b->info.state == INST_RUNNING || b->info.state == INST_PAUSED);
    if (alive && b->is_host_net) {
        add_way(ret, engine_is_unix(k->engine) ? "127.0.0.1" : k->proxy_host, AGENT_PORT);
    } else if (alive) {
        if (!b->has_guard) /* a guard has the address, and it is not ours to know */
            add_way(ret, b->address, AGENT_PORT);
        add_way(ret, k->proxy_host, b->agent_port);
    }
    pthread_mutex_unlock(&k->lock);
    return alive;
}

static void look_again(struct docker *k, const char *container) {
    _cleanup_json_ json_t *inspect = NULL;

    if (engine_container_inspect(k->engine, container, &inspect, NULL) == 0)
        (void)docker_index_update(k, inspect, NULL, NULL);
}

/* Does one of the ways answer? A way that leads nowhere is taken out while there is another. */
static bool ask(struct ways *w, int64_t left_ms) {
    for (size_t i = 0; i < w->n; i++) {
        unsigned limit = w->n > 1 && i == 0 ? TRY_FIRST_MS : TRY_MS;
        int r = docker_probe_http(w->way[i].host, w->way[i].port, "/ping", NULL,
                                  (unsigned)MIN((int64_t)limit, left_ms));
        if (r == 0 || r == -EAGAIN) /* any answer is one */
            return true;
        if (w->n > 1 && i == 0 && (r == -ETIMEDOUT || r == -EHOSTUNREACH || r == -ENETUNREACH)) {
            w->way[0] = w->way[1];
            w->n = 1;
            i--;
        }
    }
    return false;
}

void agent_wait(struct docker *k, const struct sandbox_spec *spec, const char *container) {
    unsigned limit = k->config.start_timeout_ms ? k->config.start_timeout_ms : DEFAULT_TIMEOUT_MS;
    int64_t start = clock_mono_ms(), looked = start, now;
    struct ways ways, seen;
    int pause = 1;

    if (is_windows(spec) || !find_ways(k, spec->id, &ways)) /* a guest boots for minutes */
        return;
    if (ways.n == 0) {
        log_debug("the agent cannot be reached from here, not waiting for it",
                  LOG_STR("sandbox", spec->id));
        return;
    }
    while ((now = clock_mono_ms()) < start + limit) {
        if (ask(&ways, start + limit - now))
            return;
        if (now - looked >= LOOK_AGAIN_MS) {
            look_again(k, container);
            looked = now;
        }
        if (!find_ways(k, spec->id, &seen))
            return;
        (void)poll(NULL, 0, pause);
        pause = MIN(pause * 2, PAUSE_MAX_MS);
    }
    log_warn("the agent of a new sandbox did not answer in time", LOG_STR("sandbox", spec->id),
             LOG_INT("timeout_ms", limit));
}
