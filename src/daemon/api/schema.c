/* Table-driven checks of client input (see schema.h). No state. */
#include "daemon/api/schema.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

/* One more violation. loc: borrowed array. input, ctx (owned) may be NULL. */
static void violation_add(json_t *detail, const char *type, const json_t *loc, const char *msg,
                          const json_t *input, json_t *ctx) {
    json_t *v = json_object();

    json_object_set_new(v, "type", json_string(type));
    json_object_set_new(v, "loc", json_copy((json_t *)loc));
    json_object_set_new(v, "msg", json_string(msg));
    json_object_set_new(v, "input", input ? json_incref((json_t *)input) : json_null());
    if (ctx)
        json_object_set_new(v, "ctx", ctx);
    json_array_append_new(detail, v);
}

void violation_rule_at(json_t *detail, json_t *loc, const json_t *input, const char *text) {
    _cleanup_free_ char *msg = str_printf("Value error, %s", text);
    violation_add(detail, "value_error", loc, msg, input, json_pack("{s:{}}", "error"));
    json_decref(loc);
}

void violation_rule(json_t *detail, const json_t *input, const char *text) {
    violation_rule_at(detail, json_pack("[s]", "body"), input, text);
}

/* ---- scalars ---- */

static bool word_is(const char *s, size_t len, const char *const *words) {
    for (; *words; words++)
        if (strlen(*words) == len && strncasecmp(s, *words, len) == 0)
            return true;
    return false;
}

static int lenient_bool(const char *s, bool *ret) {
    static const char *const yes[] = {"true", "yes", "on", "y", "t", "1", NULL};
    static const char *const no[] = {"false", "no", "off", "n", "f", "0", NULL};

    *ret = word_is(s, strlen(s), yes);
    return *ret || word_is(s, strlen(s), no) ? 0 : -EINVAL;
}

static int lenient_int(const char *s, int64_t *ret) {
    char text[32];
    size_t len;

    s += strspn(s, " \t\r\n");
    len = strlen(s);
    while (len && strchr(" \t\r\n", s[len - 1]))
        len--;
    if (len > 1 && *s == '+' && isdigit((unsigned char)s[1])) {
        s++;
        len--;
    }
    const char *point = memchr(s, '.', len);
    if (point && point > s) { /* "120.0" */
        size_t zeros = (size_t)(s + len - point) - 1;
        if (zeros == 0 || strspn(point + 1, "0") < zeros)
            return -EINVAL;
        len = (size_t)(point - s);
    }
    if (len == 0 || len >= sizeof text)
        return -EINVAL;
    memcpy(text, s, len);
    text[len] = '\0';
    return str_to_i64(text, ret) < 0 ? -EINVAL : 0;
}

struct at { /* where a value stands */
    const struct field *f;
    const json_t *loc;
    json_t *detail;
};

static json_t *refuse(const struct at *a, const char *type, const char *msg, const json_t *in) {
    violation_add(a->detail, type, a->loc, msg, in, NULL);
    return NULL;
}

static json_t *refuse_bound(const struct at *a, const char *type, const json_t *in,
                            const char *ctx_key, int64_t bound, const char *fmt_before,
                            const char *fmt_after) {
    _cleanup_free_ char *msg = str_printf("%s%lld%s", fmt_before, (long long)bound, fmt_after);
    violation_add(a->detail, type, a->loc, msg, in, json_pack("{s:I}", ctx_key, (json_int_t)bound));
    return NULL;
}

static json_t *bound_int(const struct at *a, int64_t n, const json_t *in) {
    const struct field *f = a->f;

    if (f->flags & FIELD_MIN && n < f->min)
        return refuse_bound(a, "greater_than_equal", in, "ge", f->min,
                            "Input should be greater than or equal to ", "");
    if (f->flags & FIELD_MAX && n > f->max)
        return refuse_bound(a, "less_than_equal", in, "le", f->max,
                            "Input should be less than or equal to ", "");
    return json_integer(n);
}

static json_t *check_int(const struct at *a, const json_t *in) {
    int64_t n;

    if (json_is_integer(in))
        return bound_int(a, json_integer_value(in), in);
    if (json_is_real(in)) {
        double d = json_real_value(in);
        if (d != floor(d) || fabs(d) > 9e15)
            return refuse(a, "int_from_float",
                          "Input should be a valid integer, got a number with a fractional part",
                          in);
        return bound_int(a, (int64_t)d, in);
    }
    if (!json_is_string(in))
        return refuse(a, "int_type", "Input should be a valid integer", in);
    if (lenient_int(json_string_value(in), &n) < 0)
        return refuse(a, "int_parsing",
                      "Input should be a valid integer, unable to parse string as an integer", in);
    return bound_int(a, n, in);
}

static json_t *check_bool(const struct at *a, const json_t *in) {
    bool b;

    if (json_is_boolean(in))
        return json_boolean(json_is_true(in));
    if (json_is_integer(in) && (json_integer_value(in) == 0 || json_integer_value(in) == 1))
        return json_boolean(json_integer_value(in) == 1);
    if (json_is_string(in) && lenient_bool(json_string_value(in), &b) == 0)
        return json_boolean(b);
    if (json_is_string(in) || json_is_number(in))
        return refuse(a, "bool_parsing",
                      "Input should be a valid boolean, unable to interpret input", in);
    return refuse(a, "bool_type", "Input should be a valid boolean", in);
}

static size_t characters(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static json_t *check_choice(const struct at *a, const json_t *in) {
    struct buf words = BUF_INIT(1024);
    const char *s = json_string_value(in);
    json_t *r = NULL;

    for (const char *const *c = a->f->choices; *c; c++) {
        if (strcmp(*c, s) == 0)
            r = json_string(s);
        buf_printf(&words, "%s'%s'", c == a->f->choices ? "" : c[1] ? ", " : " or ", *c);
    }
    if (!r) {
        _cleanup_free_ char *msg = str_printf("Input should be %s", words.data);
        violation_add(a->detail, "literal_error", a->loc, msg, in,
                      json_pack("{s:s}", "expected", words.data));
    }
    buf_done(&words);
    return r;
}

static json_t *check_string(const struct at *a, const json_t *in) {
    const struct field *f = a->f;

    if (!json_is_string(in))
        return refuse(a, "string_type", "Input should be a valid string", in);
    const char *s = json_string_value(in);
    int64_t n = (int64_t)characters(s);
    if (f->flags & FIELD_MIN && n < f->min)
        return refuse_bound(a, "string_too_short", in, "min_length", f->min,
                            "String should have at least ",
                            f->min == 1 ? " character" : " characters");
    if (f->flags & FIELD_MAX && n > f->max)
        return refuse_bound(a, "string_too_long", in, "max_length", f->max,
                            "String should have at most ",
                            f->max == 1 ? " character" : " characters");
    if (f->choices)
        return check_choice(a, in);
    if (f->matches && !f->matches(s)) {
        _cleanup_free_ char *msg = str_printf("String should match pattern '%s'", f->pattern);
        violation_add(a->detail, "string_pattern_mismatch", a->loc, msg, in,
                      json_pack("{s:s}", "pattern", f->pattern));
        return NULL;
    }
    return json_string(s);
}

static json_t *check_time(const struct at *a, const json_t *in) {
    int64_t us;

    if (!json_is_string(in))
        return refuse(a, "datetime_type", "Input should be a valid datetime", in);
    if (rfc3339_parse(json_string_value(in), &us) < 0)
        return refuse(a, "datetime_from_date_parsing",
                      "Input should be a valid datetime or date, expected RFC 3339", in);
    return json_integer(us);
}

/* ---- collections ---- */

static json_t *deeper(const json_t *loc, json_t *last) {
    json_t *l = json_copy((json_t *)loc);
    json_array_append_new(l, last);
    return l;
}

static json_t *check_text_at(const struct at *a, const json_t *in, json_t *last) {
    _cleanup_json_ json_t *loc = deeper(a->loc, last);
    struct field plain = {.type = F_STRING};
    return check_string(&(struct at){&plain, loc, a->detail}, in);
}

static json_t *check_map(const struct at *a, const json_t *in) {
    const char *key;
    json_t *v, *out;

    if (!json_is_object(in))
        return refuse(a, "dict_type", "Input should be a valid dictionary", in);
    out = json_object();
    json_object_foreach((json_t *)in, key, v) {
        bool keep_null = a->f->type == F_NULLABLE_MAP && json_is_null(v);
        json_t *text = keep_null ? json_null() : check_text_at(a, v, json_string(key));
        if (text)
            json_object_set_new(out, key, text);
    }
    return out;
}

static json_t *check_list(const struct at *a, const json_t *in) {
    size_t i, n = json_array_size(in);
    json_t *v, *out;

    if (!json_is_array(in))
        return refuse(a, "list_type", "Input should be a valid list", in);
    if (a->f->flags & FIELD_MIN && (int64_t)n < a->f->min) {
        _cleanup_free_ char *msg =
            str_printf("List should have at least %lld item%s after validation, not %zu",
                       (long long)a->f->min, a->f->min == 1 ? "" : "s", n);
        violation_add(a->detail, "too_short", a->loc, msg, in,
                      json_pack("{s:s,s:I,s:I}", "field_type", "List", "min_length",
                                (json_int_t)a->f->min, "actual_length", (json_int_t)n));
        return NULL;
    }
    out = json_array();
    json_array_foreach(in, i, v) {
        json_t *item;
        if (a->f->type == F_STRING_LIST) {
            item = check_text_at(a, v, json_integer((json_int_t)i));
        } else {
            _cleanup_json_ json_t *loc = deeper(a->loc, json_integer((json_int_t)i));
            item = schema_check(a->f->sub, v, loc, a->detail);
        }
        if (item)
            json_array_append_new(out, item);
    }
    return out;
}

static json_t *check_object(const struct at *a, const json_t *in) {
    if (a->f->sub)
        return schema_check(a->f->sub, in, a->loc, a->detail);
    if (!json_is_object(in))
        return refuse(a, "dict_type", "Input should be a valid dictionary", in);
    return json_incref((json_t *)in);
}

static json_t *check_value(const struct at *a, const json_t *in) {
    switch (a->f->type) {
    case F_STRING:
        return check_string(a, in);
    case F_INT:
        return check_int(a, in);
    case F_BOOL:
        return check_bool(a, in);
    case F_TIME:
        return check_time(a, in);
    case F_OBJECT:
        return check_object(a, in);
    case F_LIST:
    case F_STRING_LIST:
        return check_list(a, in);
    case F_STRING_MAP:
    case F_NULLABLE_MAP:
        return check_map(a, in);
    }
    return NULL;
}

/* ---- objects ---- */

static bool is_known(const struct schema *s, const char *key) {
    for (const struct field *f = s->fields; f->name; f++)
        if (strcmp(f->name, key) == 0 || str_eq(f->snake, key))
            return true;
    return false;
}

static void check_member(const struct field *f, const json_t *in, const json_t *loc, json_t *out,
                         json_t *detail) {
    const json_t *v = json_object_get(in, f->name);

    if (!v && f->snake)
        v = json_object_get(in, f->snake);
    _cleanup_json_ json_t *own = deeper(loc, json_string(f->name));
    if (!v) {
        if (f->flags & FIELD_REQUIRED)
            violation_add(detail, "missing", own, "Field required", in, NULL);
        return;
    }
    if (json_is_null(v) && !(f->flags & FIELD_REQUIRED))
        return;
    json_t *good = check_value(&(struct at){f, own, detail}, v);
    if (good)
        json_object_set_new(out, f->name, good);
}

json_t *schema_check(const struct schema *s, const json_t *in, const json_t *loc, json_t *detail) {
    const char *key;
    json_t *v;

    if (!json_is_object(in)) {
        violation_add(detail, "model_attributes_type", loc,
                      "Input should be a valid dictionary or object to extract fields from", in,
                      NULL);
        return NULL;
    }
    json_t *out = json_object();
    for (const struct field *f = s->fields; f->name; f++)
        check_member(f, in, loc, out, detail);
    if (!s->is_closed)
        return out;
    json_object_foreach((json_t *)in, key, v) {
        if (is_known(s, key))
            continue;
        _cleanup_json_ json_t *own = deeper(loc, json_string(key));
        violation_add(detail, "extra_forbidden", own, "Extra inputs are not permitted", v, NULL);
    }
    return out;
}

json_t *schema_parse_body(const char *data, size_t len, json_t *detail) {
    _cleanup_json_ json_t *loc = json_pack("[s]", "body");
    struct err err = {0};
    size_t blank = 0;

    while (blank < len && strchr(" \t\r\n", data[blank]) && data[blank])
        blank++;
    if (blank == len) {
        violation_add(detail, "missing", loc, "Field required", NULL, NULL);
        return NULL;
    }
    json_t *in = json_parse(data, len, &err);
    if (!in) {
        _cleanup_json_ json_t *empty = json_object();
        json_array_append_new(loc, json_integer(0));
        violation_add(detail, "json_invalid", loc, "JSON decode error", empty,
                      json_pack("{s:s}", "error", err.msg));
    }
    return in;
}

/* ---- limits ---- */

struct limits {
    char path[256];
    size_t len;
    struct err *err;
};

static int exceeds(const struct limits *l, const char *what, size_t max) {
    return err_set(l->err, -E2BIG, "%s may have at most %zu %s.", l->len ? l->path : "The body",
                   max, what);
}

static int walk(struct limits *l, const json_t *v);

static int walk_below(struct limits *l, const json_t *v, const char *dot, const char *key,
                      size_t index) {
    size_t before = l->len;
    int n = key ? snprintf(l->path + before, sizeof l->path - before, "%s%.80s", dot, key)
                : snprintf(l->path + before, sizeof l->path - before, "[%zu]", index);

    l->len = MIN(before + (size_t)n, sizeof l->path - 1);
    int r =
        key && strlen(key) > SCHEMA_MAX_TEXT ? exceeds(l, "bytes", SCHEMA_MAX_TEXT) : walk(l, v);
    l->len = before;
    l->path[before] = '\0';
    return r;
}

static int walk(struct limits *l, const json_t *v) {
    const char *key;
    json_t *below;
    size_t i;
    int r = 0;

    if (json_is_string(v) && json_string_length(v) > SCHEMA_MAX_TEXT)
        return exceeds(l, "bytes", SCHEMA_MAX_TEXT);
    if (json_object_size(v) > SCHEMA_MAX_MEMBERS)
        return exceeds(l, "entries", SCHEMA_MAX_MEMBERS);
    if (json_array_size(v) > SCHEMA_MAX_ITEMS)
        return exceeds(l, "entries", SCHEMA_MAX_ITEMS);
    json_object_foreach((json_t *)v, key, below) {
        if ((r = walk_below(l, below, l->len ? "." : "", key, 0)) < 0)
            return r;
    }
    json_array_foreach(v, i, below) {
        if ((r = walk_below(l, below, NULL, NULL, i)) < 0)
            return r;
    }
    return 0;
}

int schema_limits(const json_t *in, struct err *err) {
    struct limits l = {.err = err};
    return walk(&l, in);
}

/* ---- queries and paths ---- */

int64_t param_int(const char *where, const char *name, const char *text, int64_t dflt, int64_t min,
                  int64_t max, json_t *detail) {
    struct field f = {.type = F_INT, .flags = FIELD_MIN | FIELD_MAX, .min = min, .max = max};

    if (!text)
        return dflt;
    _cleanup_json_ json_t *loc = json_pack("[s,s]", where, name);
    _cleanup_json_ json_t *in = json_string(text);
    _cleanup_json_ json_t *n = check_int(&(struct at){&f, loc, detail}, in);
    return n ? json_integer_value(n) : dflt;
}

bool param_bool(const char *where, const char *name, const char *text, bool dflt, json_t *detail) {
    struct field f = {.type = F_BOOL};

    if (!text)
        return dflt;
    _cleanup_json_ json_t *loc = json_pack("[s,s]", where, name);
    _cleanup_json_ json_t *in = json_string(text);
    _cleanup_json_ json_t *b = check_bool(&(struct at){&f, loc, detail}, in);
    return json_is_true(b);
}

char *violations_line(const json_t *detail) {
    const json_t *v = json_array_get(detail, 0), *loc = json_object_get(v, "loc");
    struct buf b = BUF_INIT(4096);
    const json_t *part;
    size_t i;

    json_array_foreach(loc, i, part) {
        if (json_is_integer(part))
            buf_printf(&b, "%s%lld", i ? "." : "", (long long)json_integer_value(part));
        else
            buf_printf(&b, "%s%.80s", i ? "." : "", json_string_value(part));
    }
    buf_printf(&b, ": %s", json_str(v, "msg") ? json_str(v, "msg") : "invalid");
    const json_t *why = json_object_get(json_object_get(v, "ctx"), "error");
    if (json_is_string(why)) /* where a body stops being JSON */
        buf_printf(&b, ": %.300s", json_string_value(why));
    return buf_take(&b, NULL);
}
