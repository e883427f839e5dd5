/*
 * Calls of the lifecycle API that concern sandboxes: each builds one request and reads one answer.
 * The address and token of a sandbox's agent are asked for once and kept for the sandbox used last.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "client/internal.h"
#include "net/url.h"

#define AGENT_PORT "44772"
#define LIST_PAGE_SIZE 200
#define LIST_MAX_PAGES 1000

char *id_encode(const char *id, struct cove_error *err) {
    if (str_is_empty(id) || str_eq(id, ".") || str_eq(id, "..") || strlen(id) > 256) {
        cerr_set(err, -EINVAL, "\"%.64s\" is not a sandbox id", id ? id : "");
        return NULL;
    }
    char *enc = url_encode(id, false);
    if (!enc)
        cerr_oom(err);
    return enc;
}

/* ---- create ---- */

json_t *pairs_to_json(const char *const *pairs, const char *what, struct cove_error *err) {
    _cleanup_json_ json_t *o = json_object();
    for (size_t i = 0; o && pairs && pairs[i]; i++) {
        const char *eq = strchr(pairs[i], '=');
        if (!eq || eq == pairs[i]) {
            cerr_set(err, -EINVAL, "%s \"%s\" must have the form NAME=VALUE", what, pairs[i]);
            return NULL;
        }
        _cleanup_free_ char *key = str_ndup(pairs[i], (size_t)(eq - pairs[i]));
        json_t *value = json_string(eq + 1);
        if (!key || !value || json_object_set_new(o, key, value) < 0) {
            cerr_set(err, -EINVAL, "%s \"%s\" is not valid UTF-8", what, pairs[i]);
            return NULL;
        }
    }
    return TAKE_PTR(o);
}

json_t *strings_to_json(const char *const *v, const char *what, struct cove_error *err) {
    _cleanup_json_ json_t *a = json_array();
    for (size_t i = 0; v && v[i]; i++) {
        if (!utf8_is_valid(v[i], strlen(v[i])) || json_array_append_new(a, json_string(v[i])) < 0) {
            cerr_set(err, -EINVAL, "%s \"%.200s\" is not valid UTF-8", what, v[i]);
            return NULL;
        }
    }
    return TAKE_PTR(a);
}

static void set_limit(json_t *limits, const char *key, uint64_t value, const char *unit) {
    if (value)
        json_object_set_new(limits, key, json_sprintf("%llu%s", (unsigned long long)value, unit));
}

static void set_mounts(json_t *body, const struct cove_sandbox_options *o) {
    if (o->n_mounts == 0)
        return;
    json_t *volumes = json_array();
    for (size_t i = 0; i < o->n_mounts; i++)
        json_array_append_new(
            volumes, json_pack("{s:o, s:{s:s}, s:s, s:b}", "name", json_sprintf("mount-%zu", i),
                               "host", "path", o->mounts[i].source, "mountPath",
                               o->mounts[i].target, "readOnly", o->mounts[i].read_only));
    json_object_set_new(body, "volumes", volumes);
}

static json_t *create_body(const struct cove_sandbox_options *o, struct cove_error *err) {
    _cleanup_json_ json_t *env = pairs_to_json(o->env, "the variable", err);
    _cleanup_json_ json_t *metadata = env ? pairs_to_json(o->metadata, "the label", err) : NULL;
    if (!metadata)
        return NULL;
    _cleanup_json_ json_t *body =
        json_pack("{s:{s:s}, s:{}, s:O, s:{}}", "image", "uri", o->image ? o->image : "host",
                  "resourceLimits", "env", env, "extensions");
    if (!body) {
        cerr_oom(err);
        return NULL;
    }
    json_t *ext = json_object_get(body, "extensions"),
           *limits = json_object_get(body, "resourceLimits");
    if (o->entrypoint && o->entrypoint[0]) {
        json_t *words = strings_to_json(o->entrypoint, "the entrypoint's argument", err);
        if (!words)
            return NULL;
        json_object_set_new(body, "entrypoint", words);
    } else {
        json_object_set_new(ext, "cove.entrypoint", json_string("none"));
    }
    if (json_object_size(metadata))
        json_object_set(body, "metadata", metadata);
    if (o->cwd)
        json_object_set_new(ext, "cove.cwd", json_string(o->cwd));
    if (o->network)
        json_object_set_new(ext, "cove.network", json_string(o->network));
    set_limit(limits, "cpu", o->cpu_millis, "m");
    set_limit(limits, "memory", o->memory_bytes, "");
    set_limit(limits, "pids", o->pids, "");
    set_limit(limits, "disk", o->disk_bytes, "");
    if (o->timeout_s)
        json_object_set_new(body, "timeout", json_integer(o->timeout_s));
    set_mounts(body, o);
    return TAKE_PTR(body);
}

static int post_json(struct cove_client *c, const char *target, const json_t *body,
                     unsigned silence_ms, json_t **ret, const char *doing, struct cove_error *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(RESPONSE_MAX);
    if (buf_json(&text, body) < 0)
        return cerr_oom(err);
    struct transport_req rq = {.method = "POST",
                               .target = target,
                               .content_type = "application/json",
                               .body = text.data,
                               .body_len = text.len,
                               .silence_ms = silence_ms};
    return transport_json(c, &rq, ret, doing, err);
}

int cove_sandbox_create(struct cove_client *c, const struct cove_sandbox_options *opts,
                        struct cove_sandbox **ret, struct cove_error *err) {
    struct cove_sandbox_options o;
    if (OPTIONS_ARE_BAD(opts))
        return cerr_set(err, -EINVAL, "the options do not begin with COVE_SANDBOX_OPTIONS_INIT");
    OPTIONS_COPY(&o, opts);
    _cleanup_json_ json_t *body = create_body(&o, err), *answer = NULL;
    if (!body)
        return -EINVAL;
    int r = post_json(c, "/v1/sandboxes", body, UINT_MAX, &answer, "create the sandbox", err);
    if (r < 0)
        return r;
    /* the create answer leaves the image out */
    if (!json_object_get(answer, "image"))
        json_object_set(answer, "image", json_object_get(body, "image"));
    *ret = sandbox_from_json(answer, err);
    return *ret ? 0 : -EBADMSG;
}

/* ---- get, find, list, delete, renew, logs ---- */

static int call_json(struct cove_client *c, const char *target, json_t **ret, const char *doing,
                     struct cove_error *err) {
    struct transport_req rq = {.method = "GET", .target = target};
    return transport_json(c, &rq, ret, doing, err);
}

int cove_sandbox_get(struct cove_client *c, const char *id, struct cove_sandbox **ret,
                     struct cove_error *err) {
    _cleanup_free_ char *enc = id_encode(id, err);
    if (!enc)
        return -EINVAL;
    _cleanup_free_ char *target = str_printf("/v1/sandboxes/%s", enc);
    _cleanup_json_ json_t *j = NULL;
    if (!target)
        return cerr_oom(err);
    int r = call_json(c, target, &j, "find the sandbox", err);
    if (r < 0)
        return r;
    *ret = sandbox_from_json(j, err);
    return *ret ? 0 : -EBADMSG;
}

struct cove_sandbox_list {
    struct cove_sandbox **v;
    size_t n;
};

size_t cove_sandbox_list_size(const struct cove_sandbox_list *l) {
    return l->n;
}

const struct cove_sandbox *cove_sandbox_list_at(const struct cove_sandbox_list *l, size_t i) {
    return i < l->n ? l->v[i] : NULL;
}

struct cove_sandbox_list *cove_sandbox_list_free(struct cove_sandbox_list *l) {
    for (size_t i = 0; l && i < l->n; i++)
        cove_sandbox_free(l->v[i]);
    if (l)
        free(l->v);
    free(l);
    return NULL;
}
DEFINE_CLEANUP(struct cove_sandbox_list, cove_sandbox_list_free)

static int list_add_page(struct cove_sandbox_list *l, const json_t *page, struct cove_error *err) {
    json_t *items = json_object_get(page, "items"), *item;
    size_t i, n = json_array_size(items);
    if (!json_is_array(items))
        return cerr_set(err, -EBADMSG, "cannot list sandboxes: the server's answer has no items");
    struct cove_sandbox **v = reallocarray(l->v, l->n + n + 1, sizeof(*v));
    if (!v)
        return cerr_oom(err);
    l->v = v;
    json_array_foreach(items, i, item) {
        l->v[l->n] = sandbox_from_json(item, err);
        if (!l->v[l->n])
            return -EBADMSG;
        l->n++;
    }
    return 0;
}

int cove_sandbox_list(struct cove_client *c, const char *const *states,
                      struct cove_sandbox_list **ret, struct cove_error *err) {
    _cleanup_(cove_sandbox_list_freep) struct cove_sandbox_list *l = calloc(1, sizeof(*l));
    _cleanup_buf_ struct buf filter = BUF_INIT(4096);
    if (!l)
        return cerr_oom(err);
    for (size_t i = 0; states && states[i]; i++) {
        _cleanup_free_ char *enc = url_encode(states[i], false);
        buf_printf(&filter, "&state=%s", enc ? enc : "");
    }
    if (!buf_ok(&filter))
        return cerr_set(err, -EINVAL, "too many states to filter by");
    for (unsigned page = 1; page <= LIST_MAX_PAGES; page++) {
        _cleanup_free_ char *target = str_printf("/v1/sandboxes?page=%u&pageSize=%d%s", page,
                                                 LIST_PAGE_SIZE, filter.len ? filter.data : "");
        _cleanup_json_ json_t *j = NULL;
        if (!target)
            return cerr_oom(err);
        int r = call_json(c, target, &j, "list sandboxes", err);
        if (r == 0)
            r = list_add_page(l, j, err);
        if (r < 0)
            return r;
        if (!json_bool(json_object_get(j, "pagination"), "hasNextPage", false))
            break;
    }
    *ret = TAKE_PTR(l);
    return 0;
}

int cove_sandbox_find(struct cove_client *c, const char *id, struct cove_sandbox **ret,
                      struct cove_error *err) {
    int r = cove_sandbox_get(c, id, ret, err);
    if (r != -ENOENT || (err && err->http_status != 404))
        return r;
    _cleanup_(cove_sandbox_list_freep) struct cove_sandbox_list *l = NULL;
    if (cove_sandbox_list(c, NULL, &l, err) < 0 || !l)
        return err ? err->code : -EIO;
    const struct cove_sandbox *found = NULL;
    for (size_t i = 0; i < l->n; i++) {
        if (!str_starts(cove_sandbox_id(l->v[i]), id))
            continue;
        if (found)
            return cerr_set(
                err, -ENOTUNIQ,
                "\"%s\" is the beginning of several ids, among them %s and %s: give more of it", id,
                cove_sandbox_id(found), cove_sandbox_id(l->v[i]));
        found = l->v[i];
    }
    if (!found)
        return cerr_set(err, -ENOENT, "there is no sandbox \"%s\"", id);
    return cove_sandbox_get(c, cove_sandbox_id(found), ret, err);
}

int cove_sandbox_delete(struct cove_client *c, const char *id, struct cove_error *err) {
    _cleanup_free_ char *enc = id_encode(id, err);
    if (!enc)
        return -EINVAL;
    _cleanup_free_ char *target = str_printf("/v1/sandboxes/%s", enc);
    if (!target)
        return cerr_oom(err);
    struct transport_req rq = {.method = "DELETE", .target = target};
    if (c->agent.sandbox_id && str_eq(c->agent.sandbox_id, id))
        agent_done(&c->agent);
    return transport_ok(c, &rq, NULL, "remove the sandbox", err);
}

int cove_sandbox_renew(struct cove_client *c, const char *id, uint32_t seconds,
                       int64_t *ret_expires_us, struct cove_error *err) {
    char when[RFC3339_SIZE];
    rfc3339_format(clock_wall_us() + (int64_t)seconds * 1000000, when);
    _cleanup_free_ char *enc = id_encode(id, err);
    if (!enc)
        return -EINVAL;
    _cleanup_free_ char *target = str_printf("/v1/sandboxes/%s/renew-expiration", enc);
    _cleanup_json_ json_t *body = json_pack("{s:s}", "expiresAt", when), *answer = NULL;
    if (!target || !body)
        return cerr_oom(err);
    int r = post_json(c, target, body, 0, &answer, "renew the sandbox", err);
    if (r < 0)
        return r;
    const char *text = json_str(answer, "expiresAt");
    int64_t us;
    if (!text || rfc3339_parse(text, &us) < 0)
        return cerr_set(err, -EBADMSG,
                        "cannot renew the sandbox: the server's answer has no expiresAt");
    if (ret_expires_us)
        *ret_expires_us = us;
    return 0;
}

int cove_sandbox_logs(struct cove_client *c, const char *id, unsigned tail, char **ret,
                      struct cove_error *err) {
    _cleanup_free_ char *enc = id_encode(id, err);
    if (!enc)
        return -EINVAL;
    _cleanup_free_ char *target =
        str_printf("/v1/sandboxes/%s/diagnostics/logs?tail=%u", enc, tail ? tail : 100);
    if (!target)
        return cerr_oom(err);
    struct transport_req rq = {.method = "GET", .target = target};
    struct transport_resp resp;
    int r = transport_ok(c, &rq, &resp, "read the logs", err);
    if (r < 0)
        return r;
    *ret = buf_take(&resp.body, NULL);
    transport_resp_done(&resp);
    return *ret ? 0 : cerr_oom(err);
}

/* ---- endpoints and the agent ---- */

static int endpoint_ask(struct cove_client *c, const char *id, const char *port, json_t **ret,
                        struct cove_error *err) {
    _cleanup_free_ char *enc = id_encode(id, err);
    if (!enc)
        return -EINVAL;
    _cleanup_free_ char *target =
        str_printf("/v1/sandboxes/%s/endpoints/%s?use_server_proxy=true", enc, port);
    if (!target)
        return cerr_oom(err);
    return call_json(c, target, ret, "reach the sandbox", err);
}

int cove_sandbox_endpoint(struct cove_client *c, const char *id, uint16_t port, char **ret,
                          struct cove_error *err) {
    char port_text[8];
    snprintf(port_text, sizeof(port_text), "%u", port);
    _cleanup_json_ json_t *j = NULL;
    int r = endpoint_ask(c, id, port_text, &j, err);
    if (r < 0)
        return r;
    const char *endpoint = json_str(j, "endpoint");
    if (str_is_empty(endpoint))
        return cerr_set(err, -EBADMSG,
                        "cannot reach the sandbox: the server's answer has no endpoint");
    const char *slash = strchr(endpoint, '/');
    *ret = c->unix_path ? str_printf("unix:%s:%s", c->unix_path, slash ? slash : "/")
                        : str_printf("http://%s", endpoint);
    return *ret ? 0 : cerr_oom(err);
}

void agent_done(struct agent *a) {
    for (size_t i = 0; i < a->values.n; i++)
        explicit_bzero(a->values.v[i], strlen(a->values.v[i]));
    strv_done(&a->names);
    strv_done(&a->values);
    free(a->sandbox_id);
    free(a->prefix);
    *a = (struct agent){0};
}

/* A header that came from the server and goes back to it: never a way to smuggle another one in. */
static bool header_is_plain(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return false;
    return true;
}

int agent_get(struct cove_client *c, const char *id, const struct agent **ret,
              struct cove_error *err) {
    if (c->agent.sandbox_id && str_eq(c->agent.sandbox_id, id)) {
        *ret = &c->agent;
        return 0;
    }
    _cleanup_json_ json_t *j = NULL;
    int r = endpoint_ask(c, id, AGENT_PORT, &j, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *enc = id_encode(id, err);
    if (!enc)
        return -EINVAL;
    /* Our own path, not the answer's: a public address of the server need not be reachable from
     * here. */
    struct agent a = {.sandbox_id = strdup(id),
                      .prefix = str_printf("/v1/sandboxes/%s/proxy/" AGENT_PORT, enc)};
    const char *name;
    json_t *value;
    bool bad = !a.sandbox_id || !a.prefix;
    json_object_foreach(json_object_get(j, "headers"), name, value) {
        const char *v = json_string_value(value);
        bad = bad || !v || !header_is_plain(name) || !header_is_plain(v) || a.names.n >= 8 ||
              strv_add(&a.names, name) < 0 || strv_add(&a.values, v) < 0;
    }
    if (bad) {
        agent_done(&a);
        return cerr_set(err, -EBADMSG,
                        "cannot reach the sandbox: the server's answer has unusable headers");
    }
    agent_done(&c->agent);
    c->agent = a;
    *ret = &c->agent;
    return 0;
}

char *agent_target(const struct agent *a, const char *path, const char *query_key,
                   const char *query_value) {
    if (!query_key)
        return str_printf("%s%s", a->prefix, path);
    _cleanup_free_ char *enc = url_encode(query_value, true);
    return enc ? str_printf("%s%s?%s=%s", a->prefix, path, query_key, enc) : NULL;
}

int cove_client_ping(struct cove_client *c, char **ret_version, struct cove_error *err) {
    struct transport_req rq = {.method = "GET", .target = "/version", .silence_ms = 10000};
    struct transport_resp resp;
    int r = transport_run(c, &rq, &resp, err);
    if (r < 0)
        return r;
    _cleanup_json_ json_t *j =
        resp.status == 200 ? json_parse(resp.body.data ? resp.body.data : "", resp.body.len, NULL)
                           : NULL;
    transport_resp_done(&resp);
    const char *version = json_str(j, "version");
    if (!version)
        return cerr_set(err, -EBADMSG, "what listens at %s is not a sandbox server", c->address);
    if (ret_version && !(*ret_version = strdup(version)))
        return cerr_oom(err);
    return 0;
}

int cove_client_capabilities(struct cove_client *c, char **ret_json, struct cove_error *err) {
    _cleanup_json_ json_t *j = NULL;
    int r = call_json(c, "/v1/capabilities", &j, "ask what the daemon offers", err);
    if (r < 0)
        return r;
    char *text = json_dumps(j, JSON_COMPACT);
    if (!text)
        return cerr_oom(err);
    *ret_json = text;
    return 0;
}
