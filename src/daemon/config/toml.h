/*
 * TOML for C: the file is parsed and its values are visited in order, with their position. The
 * parser's tree lives only during the call. Implemented in the one C++ file of the tree.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

enum toml_type {
    TOML_STRING,
    TOML_INT,
    TOML_FLOAT,
    TOML_BOOL,
    TOML_STRINGS,
    TOML_TABLE,
    TOML_OTHER
};

struct toml_value {
    const char *key; /* dotted path, "server.port"; elements of a list of tables: "a.b[0].c" */
    enum toml_type type;
    const char *str;            /* TOML_STRING; may hold NUL only as its end */
    int64_t num;                /* TOML_INT, TOML_BOOL (0, 1) */
    double real;                /* TOML_FLOAT, and TOML_INT */
    const char *const *strings; /* TOML_STRINGS: NULL-terminated (an empty list counts as one) */
    unsigned line, column;      /* 1-based */
};

/*
 * cb is called for each table (before its members) and each value; a negative return stops and is
 * returned. Syntax errors: -EINVAL, err has "line N, column N: what".
 */
int toml_visit(const char *text, size_t len, int (*cb)(const struct toml_value *v, void *ud),
               void *ud, struct err *err);

#ifdef __cplusplus
}
#endif
