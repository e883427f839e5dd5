/*
 * Checks JSON bodies and query values against tables of fields and collects what is wrong in the
 * shape that clients of this API know (a `detail` list of {type, loc, msg, input[, ctx]}). Input
 * may use camelCase or snake_case names and lenient scalars; the result has the camelCase names,
 * real types and no nulls. Pure functions; any thread.
 */
#pragma once

#include "base/json.h"

enum field_type {
    F_STRING,
    F_INT,
    F_BOOL,
    F_TIME,   /* RFC 3339 text -> integer, microseconds since 1970 */
    F_OBJECT, /* by `sub`; any object when that is NULL */
    F_LIST,   /* of objects by `sub` */
    F_STRING_LIST,
    F_STRING_MAP,   /* text -> text */
    F_NULLABLE_MAP, /* text -> text or null; nulls are kept */
};

enum { FIELD_REQUIRED = 1, FIELD_MIN = 2, FIELD_MAX = 4 };

struct schema;
struct field {
    const char *name;  /* camelCase; NULL ends the table */
    const char *snake; /* other accepted spelling, or NULL */
    enum field_type type;
    unsigned flags;
    int64_t min, max;    /* value, text length or number of elements, as flags say */
    const char *pattern; /* shown when `matches` says no */
    bool (*matches)(const char *s);
    const char *const *choices; /* F_STRING: NULL-terminated */
    const struct schema *sub;
};
struct schema {
    const char *name; /* in the OpenAPI document; NULL = has none of its own */
    const struct field *fields;
    bool is_closed; /* unknown members are refused */
};

/* A rule across fields: type value_error, loc ["body"]. */
void violation_rule(json_t *detail, const json_t *input, const char *text);
/* The same of something inside the body; loc: taken over. */
void violation_rule_at(json_t *detail, json_t *loc, const json_t *input, const char *text);
/*
 * New object with what was understood. Violations are appended to detail (an array); when it grew
 * the result must not be used. NULL when the input is no object.
 */
json_t *schema_check(const struct schema *s, const json_t *in, const json_t *loc, json_t *detail);
/* Parses a body: ["body"] is the location. NULL with at least one violation. */
json_t *schema_parse_body(const char *data, size_t len, json_t *detail);

/* Bounds of every body, whatever its schema: -E2BIG names the path of what is too much. */
#define SCHEMA_MAX_MEMBERS 256
#define SCHEMA_MAX_ITEMS 1024
#define SCHEMA_MAX_TEXT 131072 /* bytes */
int schema_limits(const json_t *in, struct err *err);

/* Text values of queries and paths. where: "query" or "path". text NULL = absent: dflt. */
int64_t param_int(const char *where, const char *name, const char *text, int64_t dflt, int64_t min,
                  int64_t max, json_t *detail);
bool param_bool(const char *where, const char *name, const char *text, bool dflt, json_t *detail);

/* "body.volumes.0.name: Field required", of the first violation; malloc'd. */
char *violations_line(const json_t *detail);
