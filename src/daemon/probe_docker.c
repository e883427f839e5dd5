/* `coved --probe` for the docker runtime (see probe_docker.h). Only looks: nothing is pulled or
 * made. */
#include "daemon/probe_docker.h"

#include <string.h>

#include "base/str.h"
#include "docker/engine.h"

#define TIMEOUT_MS 10000

static void add(json_t *list, const char *name, bool required, const char *detail, const char *why,
                const char *fix) {
    json_array_append_new(list, json_pack("{s:s,s:b,s:b,s:s,s:s,s:s}", "name", name, "ok", !why,
                                          "required", required, "detail", detail ? detail : "",
                                          "why", why ? why : "", "fix", fix ? fix : ""));
}

static bool probe_engine(json_t *list, struct engine *e, json_t **ret_info) {
    struct err err = {0};
    char version[16];

    if (engine_ping(e, version, &err) < 0 || engine_info(e, ret_info, &err) < 0) {
        add(list, "engine", true, engine_host(e), err_text(&err),
            "start the Docker Engine, or set DOCKER_HOST to the one that is meant");
        return false;
    }
    const char *os = json_str(*ret_info, "OSType"), *arch = json_str(*ret_info, "Architecture"),
               *release = json_str(*ret_info, "ServerVersion");
    _cleanup_free_ char *detail =
        str_printf("%s, release %s, API %s, %s/%s", engine_host(e), release ? release : "?",
                   version, os ? os : "?", arch ? arch : "?");
    add(list, "engine", true, detail, NULL, NULL);
    return true;
}

static void probe_network(json_t *list, struct engine *e, const char *mode) {
    static const char *const plain[] = {"host", "bridge", "none"};
    _cleanup_json_ json_t *answer = NULL;
    struct err err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        if (str_eq(mode, plain[i]))
            return;
    if (str_starts(mode, "container:"))
        return;
    bool ok = engine_network_inspect(e, mode, &answer, &err) >= 0;
    _cleanup_free_ char *fix = str_printf("docker network create %s", mode);
    add(list, "network", true, mode, ok ? NULL : err_text(&err), fix);
}

static void probe_image(json_t *list, struct engine *e, const char *name, const char *ref) {
    _cleanup_json_ json_t *answer = NULL;
    struct err err = {0};

    if (str_is_empty(ref))
        return;
    bool ok = engine_image_inspect(e, ref, &answer, &err) >= 0;
    _cleanup_free_ char *fix = str_printf("docker pull %s", ref);
    add(list, name, false, ref,
        ok ? NULL : "not there yet: the first create that needs it pulls it", fix);
}

static void probe_runtime(json_t *list, const json_t *info, const struct docker_config *c) {
    bool ok = !c->runtime || json_object_get(json_object_get(info, "Runtimes"), c->runtime);

    if (c->runtime)
        add(list, "secure-runtime", true, c->runtime,
            ok ? NULL : "the engine has no runtime of this name",
            "register it in the engine's daemon.json");
}

json_t *docker_probe(const struct docker_config *c) {
    const struct engine_opts o = {
        .host = c->engine_host, .tls_verify = -1, .timeout_ms = TIMEOUT_MS};
    _cleanup_json_ json_t *info = NULL;
    struct engine *e = NULL;
    struct err err = {0};
    json_t *list = json_array();

    if (engine_new(&o, &e, &err) < 0) {
        add(list, "engine", true, NULL, err_text(&err), "correct DOCKER_HOST");
        return list;
    }
    if (probe_engine(list, e, &info)) {
        probe_runtime(list, info, c);
        probe_network(list, e, c->network_mode);
        probe_image(list, e, "agent-image", c->execd_image);
        probe_image(list, e, "guard-image", c->egress_image);
    }
    engine_free(e);
    return list;
}
