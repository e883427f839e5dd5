/*
 * What a create may ask for here, field by field. Derived from the rules of the driver, the same
 * that its checks refuse by: a field that is refused is refused with its path. Loop thread.
 */
#include "daemon/api/opensandbox/dialect.h"

static const char *honoured_if(bool is_honoured) {
    return is_honoured ? "honoured" : "refused";
}

static void put(json_t *o, const char *field, const char *what) {
    json_object_set_new(o, field, json_string(what));
}

/* What every driver does, or none. */
static void put_fixed(json_t *o) {
    static const struct {
        const char *field, *what;
    } fixed[] = {
        {"image", "honoured"},
        {"entrypoint", "honoured"},
        {"env", "honoured"},
        {"metadata", "honoured"},
        {"timeout", "honoured"},
        {"platform", "honoured"},
        {"resourceLimits.cpu", "honoured"},
        {"resourceLimits.memory", "honoured"},
        {"resourceRequests", "ignored"},
        {"volumes.host", "honoured"},
        {"secureAccess", "refused"},
        {"lifecycle", "refused"},
        {"templateId", "refused"},
        {"extensions.poolRef", "refused"},
        {"extensions.opensandbox.extensions.*", "honoured"},
        {"extensions.*", "ignored"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        put(o, fixed[i].field, fixed[i].what);
}

static void put_limits(json_t *o, const struct driver_rules *r) {
    const char *others = r->ignores_limits ? "ignored" : "refused";
    const char *disk = r->ignores_limits ? "ignored" : honoured_if(r->disk_limit);

    put(o, "resourceLimits.gpu", honoured_if(r->gpu));
    put(o, "resourceLimits.pids", r->ignores_limits ? "ignored" : "honoured");
    put(o, "resourceLimits.disk", disk);
    put(o, "resourceLimits.ephemeral-storage", disk);
    put(o, "resourceLimits.*", others);
}

/* Fields of a create -> "honoured", "refused", "ignored"; new reference. */
static json_t *fields_of_create(struct service *s) {
    const struct driver_rules *r = service_rules(s);
    json_t *o = json_object();

    put_fixed(o);
    put_limits(o, r);
    put(o, "image.auth", honoured_if(r->image_auth));
    put(o, "snapshotId", honoured_if(r->snapshots));
    put(o, "platform.os=windows", honoured_if(r->windows));
    put(o, "platform.arch=*", honoured_if(r->any_arch));
    put(o, "networkPolicy", honoured_if(service_takes_policy(s, false)));
    put(o, "credentialProxy", honoured_if(service_takes_policy(s, true)));
    put(o, "volumes.pvc", honoured_if(r->named_volumes));
    put(o, "volumes.ossfs", honoured_if(r->oss_volumes));
    put(o, "extensions.access.renew.extend.seconds",
        service_renews_by_use(s) ? "honoured" : "ignored");
    put(o, "extensions.bootstrap.execd.isolation", honoured_if(r->isolation));
    put(o, "extensions.cove.network", honoured_if(r->net_choice));
    put(o, "extensions.cove.cwd", honoured_if(r->cwd_choice));
    put(o, "extensions.cove.entrypoint", honoured_if(r->no_entrypoint));
    return o;
}

void op_capabilities(struct call *c) {
    struct service *s = c->x->api->o.service;
    json_t *own = service_capabilities(s);

    xch_json(c->x, 200,
             json_pack("{s:s,s:s,s:o,s:o}", "driver", service_driver_name(s), "version",
                       COVE_VERSION, "create", fields_of_create(s), "capabilities",
                       own ? own : json_object()));
}
