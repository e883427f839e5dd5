/*
 * The OpenAPI document, made of the table of operations and the tables of schemas, once, when it is
 * first asked for. Loop thread.
 */
#include <errno.h>
#include <string.h>

#include "daemon/api/opensandbox/operations.h"

#define DOCUMENT_VERSION "0.1.0"
#define MAX_DOCUMENT ((size_t)4 << 20)

struct doc {
    json_t *schemas; /* components: name -> schema */
    bool in_answer;  /* schemas of answers may grow members; closed requests may not */
};

static json_t *ref(const char *kind, const char *name) {
    _cleanup_free_ char *path = str_printf("#/components/%s/%s", kind, name);
    return json_pack("{s:s}", "$ref", path);
}

static json_t *schema_of(struct doc *d, const struct schema *s);

/* ---- values ---- */

static void put_bounds(json_t *o, const struct field *f, const char *min, const char *max) {
    if (f->flags & FIELD_MIN)
        json_object_set_new(o, min, json_integer(f->min));
    if (f->flags & FIELD_MAX)
        json_object_set_new(o, max, json_integer(f->max));
}

static json_t *text_value(const struct field *f) {
    json_t *o = json_pack("{s:s}", "type", "string"), *words;

    put_bounds(o, f, "minLength", "maxLength");
    if (f->pattern)
        json_object_set_new(o, "pattern", json_string(f->pattern));
    if (f->choices) {
        words = json_array();
        for (const char *const *c = f->choices; *c; c++)
            json_array_append_new(words, json_string(*c));
        json_object_set_new(o, "enum", words);
    }
    return o;
}

static json_t *list_of(const struct field *f, json_t *items) {
    json_t *o = json_pack("{s:s,s:o}", "type", "array", "items", items);
    put_bounds(o, f, "minItems", "maxItems");
    return o;
}

static json_t *value_of(struct doc *d, const struct field *f) {
    json_t *o;

    switch (f->type) {
    case F_STRING:
        return text_value(f);
    case F_INT:
        o = json_pack("{s:s}", "type", "integer");
        put_bounds(o, f, "minimum", "maximum");
        return o;
    case F_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case F_TIME:
        return json_pack("{s:s,s:s}", "type", "string", "format", "date-time");
    case F_OBJECT:
        return schema_of(d, f->sub);
    case F_LIST:
        return list_of(f, schema_of(d, f->sub));
    case F_STRING_LIST:
        return list_of(f, json_pack("{s:s}", "type", "string"));
    case F_STRING_MAP:
        return json_pack("{s:s,s:{s:s}}", "type", "object", "additionalProperties", "type",
                         "string");
    case F_NULLABLE_MAP:
        return json_pack("{s:s,s:{s:[s,s]}}", "type", "object", "additionalProperties", "type",
                         "string", "null");
    }
    return NULL;
}

/* ---- objects ---- */

static json_t *object_of(struct doc *d, const struct schema *s) {
    json_t *o = json_pack("{s:s}", "type", "object"), *members = json_object();
    json_t *required = json_array();

    for (const struct field *f = s->fields; f->name; f++) {
        json_object_set_new(members, f->name, value_of(d, f));
        if (f->flags & FIELD_REQUIRED)
            json_array_append_new(required, json_string(f->name));
    }
    json_object_set_new(o, "properties", members);
    if (json_array_size(required))
        json_object_set(o, "required", required);
    json_decref(required);
    if (s->is_closed && !d->in_answer)
        json_object_set_new(o, "additionalProperties", json_false());
    return o;
}

/* A named schema is a component, others stand where they are used. */
static json_t *schema_of(struct doc *d, const struct schema *s) {
    if (!s)
        return json_pack("{s:s}", "type", "object");
    if (!s->name)
        return object_of(d, s);
    if (!json_object_get(d->schemas, s->name))
        json_object_set_new(d->schemas, s->name, object_of(d, s));
    return ref("schemas", s->name);
}

static json_t *content(const char *type, json_t *schema) {
    return json_pack("{s:{s:o}}", type, "schema", schema);
}

static json_t *body_of(struct doc *d, const struct body_form *f) {
    d->in_answer = false;
    json_t *s = f->is_value ? value_of(d, f->schema->fields) : object_of(d, f->schema);

    json_object_set_new(d->schemas, f->name, s);
    return json_pack("{s:b,s:o}", "required", !f->is_optional, "content",
                     content("application/json", ref("schemas", f->name)));
}

/* ---- parameters ---- */

static json_t *query_param(const struct param *p) {
    struct field f = {.type = p->type, .min = p->min, .max = p->max};
    struct doc none = {0};

    if (p->type == F_INT && p->max < INT64_MAX)
        f.flags = FIELD_MIN | FIELD_MAX;
    json_t *schema = value_of(&none, &f);
    if (p->type == F_INT && !p->is_optional)
        json_object_set_new(schema, "default", json_integer(p->dflt));
    if (p->type == F_BOOL)
        json_object_set_new(schema, "default", json_boolean(p->dflt));
    if (p->is_repeated)
        schema = json_pack("{s:s,s:o}", "type", "array", "items", schema);
    json_t *o = json_pack("{s:s,s:s,s:b,s:o}", "name", p->name, "in", "query", "required", 0,
                          "schema", schema);
    if (p->help)
        json_object_set_new(o, "description", json_string(p->help));
    return o;
}

/* Appends the parameters of the path; returns it as the document has it ("{rest...}" -> "{rest}").
 */
static char *path_params(const char *prefix, const char *path, json_t *list) {
    struct buf b = BUF_INIT(4096);

    buf_str(&b, prefix);
    while (*path) {
        size_t n = strcspn(path, "{");
        buf_append(&b, path, n);
        path += n;
        if (!*path)
            break;
        n = strcspn(path, "}") + 1;
        _cleanup_free_ char *name = str_ndup(path + 1, strcspn(path + 1, ".}"));
        bool is_port = str_eq(name, "port");
        buf_printf(&b, "{%s}", name ? name : "");
        json_array_append_new(list, json_pack("{s:s,s:s,s:b,s:{s:s}}", "name", name, "in", "path",
                                              "required", 1, "schema", "type",
                                              is_port ? "integer" : "string"));
        path += n;
    }
    char *r = buf_take(&b, NULL);
    buf_done(&b);
    return r;
}

/* ---- operations ---- */

static json_t *success_of(struct doc *d, const struct operation *op) {
    json_t *o = json_pack("{s:s}", "description", h1_reason(op->status));
    json_t *all = json_object();

    d->in_answer = true;
    if (op->answer)
        json_object_set_new(all, "application/json",
                            json_pack("{s:o}", "schema", schema_of(d, op->answer)));
    if (op->type)
        json_object_set_new(all, op->type, json_pack("{s:{s:s}}", "schema", "type", "string"));
    if (json_object_size(all))
        json_object_set(o, "content", all);
    json_decref(all);
    return o;
}

static json_t *responses_of(struct doc *d, const struct operation *op) {
    char status[16];
    json_t *o = json_object();

    snprintf(status, sizeof status, "%d", op->status);
    json_object_set_new(o, status, success_of(d, op));
    if (op->body || (op->params && op->params->name))
        json_object_set_new(o, "422", ref("responses", "ValidationError"));
    json_object_set_new(o, "default", ref("responses", "Error"));
    return o;
}

static void add_operation(struct doc *d, json_t *paths, const struct operation *op,
                          const char *method, const char *prefix, const char *suffix) {
    char verb[16] = {0};
    json_t *params = json_array();
    _cleanup_free_ char *path = path_params(prefix, op->path, params);
    _cleanup_free_ char *id = str_printf("%s%s%s%s", op->id, str_eq(op->method, "*") ? "_" : "",
                                         str_eq(op->method, "*") ? method : "", suffix);
    json_t *o =
        json_pack("{s:s,s:[s],s:s}", "operationId", id, "tags", op->tag, "summary", op->summary);

    for (size_t i = 0; i < sizeof verb - 1 && method[i]; i++)
        verb[i] = (char)(method[i] | 32);
    for (const struct param *p = op->params; p && p->name; p++)
        json_array_append_new(params, query_param(p));
    if (json_array_size(params))
        json_object_set(o, "parameters", params);
    json_decref(params);
    if (op->body)
        json_object_set_new(o, "requestBody", body_of(d, op->body));
    json_object_set_new(o, "responses", responses_of(d, op));
    if (op->is_open)
        json_object_set_new(o, "security", json_array());
    if (!json_object_get(paths, path))
        json_object_set_new(paths, path, json_object());
    json_object_set_new(json_object_get(paths, path), verb, o);
}

static void add_all(struct doc *d, json_t *paths, const struct operation *op) {
    static const char *const proxied[] = {"GET", "POST", "PUT", "DELETE", "PATCH", NULL};
    const char *const one[] = {op->method, NULL};

    for (const char *const *m = str_eq(op->method, "*") ? proxied : one; *m; m++) {
        if (op->place != ON_BARE)
            add_operation(d, paths, op, *m, "/v1", "");
        if (op->place != ON_V1)
            add_operation(d, paths, op, *m, "", op->place == ON_BOTH ? "_bare" : "");
    }
}

static json_t *error_response(struct doc *d, const struct schema *s, const char *what) {
    d->in_answer = true;
    return json_pack("{s:s,s:o}", "description", what, "content",
                     content("application/json", schema_of(d, s)));
}

static json_t *make(void) {
    struct doc d = {.schemas = json_object()};
    json_t *paths = json_object();

    for (const struct operation *op = operations; op->method; op++)
        if (!op->is_hidden)
            add_all(&d, paths, op);
    json_t *error = error_response(&d, &error_answer, "Refused, or failed: code and message.");
    json_t *bad = error_response(&d, &violations_answer, "The input does not fit its schema.");
    return json_pack(
        "{s:s,s:{s:s,s:s,s:s},s:[{s:[]}],s:o,s:{s:o,s:{s:o,s:o},s:{s:{s:s,s:s,s:s}}}}", "openapi",
        "3.1.0", "info", "title", "Cove", "version", DOCUMENT_VERSION, "description",
        "Sandboxes for AI agents. Every path under /v1 is also served without that prefix.",
        "security", "ApiKey", "paths", paths, "components", "schemas", d.schemas, "responses",
        "Error", error, "ValidationError", bad, "securitySchemes", "ApiKey", "type", "apiKey", "in",
        "header", "name", "OPEN-SANDBOX-API-KEY");
}

/* Made once; borrowed from the api; NULL on -ENOMEM. */
static const char *openapi_text(struct api *a, size_t *ret_len) {
    if (!a->openapi) {
        _cleanup_buf_ struct buf b = BUF_INIT(MAX_DOCUMENT);
        _cleanup_json_ json_t *o = make();
        if (!o || buf_json(&b, o) < 0)
            return NULL;
        a->openapi = buf_take(&b, &a->openapi_len);
    }
    *ret_len = a->openapi_len;
    return a->openapi;
}

void op_openapi(struct call *c) {
    size_t len;
    const char *text = openapi_text(c->x->api, &len);

    if (text)
        xch_json_text(c->x, 200, text, len);
    else
        xch_error(c->x, 500, CODE_UNKNOWN, "out of memory");
}
