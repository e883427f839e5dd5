/* Drivers by name (see drivers.h). */
#include "daemon/drivers.h"

#include <errno.h>

#include "daemon/driver/native/native.h"

static int native_settings(const struct config *c, struct native_config *n, struct err *err) {
    native_config_init(n);
    n->state_dir = c->state_dir;
    n->store_dir = c->store_dir;
    n->run_dir = c->run_dir;
    n->lease_dir = c->lease_dir;
    n->libexec_dir = c->libexec_dir;
    n->runtime = c->oci_runtime;
    n->subnet = c->subnet;
    n->dns = c->dns.n ? (const char *const *)c->dns.v : NULL;
    n->userns = c->userns;
    n->uid_base = (uint32_t)c->uid_base;
    n->uid_count = (uint32_t)c->uid_count;
    n->default_pids = (uint64_t)c->default_pids;
    n->netns_pool = (unsigned)c->netns_pool;
    n->parked_pool = (unsigned)c->parked_pool;
    n->warm_image = c->warm_image;
    n->warm_pool = (unsigned)c->warm_pool;
    n->start_timeout_ms = (unsigned)c->start_timeout_ms;
    return security_profile_parse(c->profile, &n->profile, err);
}

int driver_open(const struct config *c, struct driver **ret, struct err *err) {
    struct native_config n;
    int r = native_settings(c, &n, err);
    return r < 0 ? r : native_driver_new(&n, NULL, ret, err);
}

json_t *driver_probe(const struct config *c) {
    struct native_probe p[NATIVE_PROBES_MAX];
    struct native_config n;
    struct err err = {0};
    json_t *list = json_array();

    if (native_settings(c, &n, &err) < 0)
        native_config_init(&n);
    size_t count = native_probe(&n, p);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s,s:b,s:b,s:s,s:s,s:s}", "name", p[i].name, "ok",
                                              p[i].ok, "required", p[i].required, "detail",
                                              p[i].detail, "why", p[i].why, "fix", p[i].fix));
    return list;
}

const char *const *driver_crash_points(void) {
    return native_crash_points;
}
