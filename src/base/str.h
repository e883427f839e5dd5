/* Strings and string vectors. */
#pragma once

#include "base/macros.h"

static inline bool str_is_empty(const char *s) {
    return !s || !*s;
}
bool str_eq(const char *a, const char *b);  /* NULL equals only NULL */
bool str_ieq(const char *a, const char *b); /* ASCII case-insensitive, locale-free */
/* 1 or more lower-case letters, digits and '-', which is neither first nor last. */
bool str_is_dns_label(const char *s);
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
/* Equal in time that depends on the lengths only (secrets). NULL never equals. */
bool str_eq_const_time(const char *a, const char *b);
/* Whole-string decimal integers; leading/trailing blanks, signs where not asked, overflow refused
 * (-EINVAL/-ERANGE). */
int str_to_u64(const char *s, uint64_t *ret);
int str_to_i64(const char *s, int64_t *ret);
int str_to_u64n(const char *s, size_t len, uint64_t *ret);
char *str_printf(const char *fmt, ...) _printf_(1, 2); /* NULL on -ENOMEM */
char *str_ndup(const char *s, size_t n);
/* Copies into a fixed array, cut at a UTF-8 boundary, always terminated. Returns false when cut. */
bool str_copy(char *dst, size_t size, const char *src);

/* NULL-terminated vector of owned strings. */
struct strv {
    char **v; /* NULL until the first add; v[n] is NULL */
    size_t n, cap;
};
int strv_add(struct strv *sv, const char *s); /* copies */
int strv_addf(struct strv *sv, const char *fmt, ...) _printf_(2, 3);
int strv_take(struct strv *sv, char *s); /* owns s, also on failure (freed) */
int strv_copy(struct strv *dst,
              const char *const *src); /* appends all of a NULL-terminated vector */
void strv_done(struct strv *sv);
/* Environment vectors ("K=V"): value of key or NULL; set replaces or appends; unset removes. */
const char *env_get(const struct strv *env, const char *key);
int env_set(struct strv *env, const char *key, const char *value);
void env_unset(struct strv *env, const char *key);
#define _cleanup_strv_ _cleanup_(strv_done)

/* UTF-8. Length of the valid sequence at s (1..4), 0 = invalid, -1 = cut off at the end of the
 * input. */
int utf8_next(const char *s, size_t len);
bool utf8_is_valid(const char *s, size_t len);

int hex_encode(const void *data, size_t len, char *ret /* 2*len+1 */);
/* Decodes exactly len hex digits; -EINVAL on others. */
int hex_decode(const char *hex, size_t len, void *ret);
char *base64_encode(const void *data,
                    size_t len); /* malloc'd, padded, no newlines; NULL on -ENOMEM */
/* Strict (padding optional). Caller frees *ret. */
int base64_decode(const char *s, size_t len, void **ret, size_t *ret_len);
