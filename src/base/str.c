/* Strings, vectors of strings, encodings (see str.h). No locale is consulted anywhere. */
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool str_eq(const char *a, const char *b) {
    if (!a || !b)
        return a == b;
    return strcmp(a, b) == 0;
}

static int lower(int c) {
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

bool str_ieq(const char *a, const char *b) {
    if (!a || !b)
        return a == b;
    for (; *a && *b; a++, b++)
        if (lower((unsigned char)*a) != lower((unsigned char)*b))
            return false;
    return *a == *b;
}

bool str_is_dns_label(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && !s[n] && s[0] != '-' && s[n - 1] != '-';
}

bool str_starts(const char *s, const char *prefix) {
    return s && strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix) {
    size_t n = s ? strlen(s) : 0, m = strlen(suffix);
    return s && n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool str_eq_const_time(const char *a, const char *b) {
    size_t n, m;
    unsigned char diff = 0;

    if (!a || !b)
        return false;
    n = strlen(a);
    m = strlen(b);
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(a[i] ^ (m ? b[i % m] : 1));
    return diff == 0 && n == m;
}

int str_to_u64n(const char *s, size_t len, uint64_t *ret) {
    uint64_t v = 0;

    if (!s || len == 0)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
            return -ERANGE;
    }
    *ret = v;
    return 0;
}

int str_to_u64(const char *s, uint64_t *ret) {
    return str_to_u64n(s, s ? strlen(s) : 0, ret);
}

int str_to_i64(const char *s, int64_t *ret) {
    bool neg = s && *s == '-';
    uint64_t v;
    int r = str_to_u64(s ? s + neg : NULL, &v);

    if (r < 0)
        return r;
    if (v > (uint64_t)INT64_MAX + (neg ? 1 : 0))
        return -ERANGE;
    *ret = neg ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

static _printf_(1, 0) char *vprintf_new(const char *fmt, va_list ap) {
    char *p = NULL;
    return vasprintf(&p, fmt, ap) < 0 ? NULL : p;
}

char *str_printf(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *p = vprintf_new(fmt, ap);
    va_end(ap);
    return p;
}

char *str_ndup(const char *s, size_t n) {
    char *p = malloc(n + 1);
    if (!p)
        return NULL;
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}

bool str_copy(char *dst, size_t size, const char *src) {
    size_t n = strlen(src);

    if (n < size) {
        memcpy(dst, src, n + 1);
        return true;
    }
    n = size - 1;
    while (n > 0 && ((unsigned char)src[n] & 0xc0) == 0x80)
        n--;
    memcpy(dst, src, n);
    dst[n] = 0;
    return false;
}

int strv_take(struct strv *sv, char *s) {
    if (!s)
        return -ENOMEM;
    if (sv->n + 1 >= sv->cap) {
        size_t cap = sv->cap ? sv->cap * 2 : 8;
        char **v = reallocarray(sv->v, cap, sizeof *v);
        if (!v) {
            free(s);
            return -ENOMEM;
        }
        sv->v = v;
        sv->cap = cap;
    }
    sv->v[sv->n++] = s;
    sv->v[sv->n] = NULL;
    return 0;
}

int strv_add(struct strv *sv, const char *s) {
    return strv_take(sv, strdup(s));
}

int strv_addf(struct strv *sv, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *p = vprintf_new(fmt, ap);
    va_end(ap);
    return strv_take(sv, p);
}

int strv_copy(struct strv *dst, const char *const *src) {
    int r = 0;
    for (; src && *src && r == 0; src++)
        r = strv_add(dst, *src);
    return r;
}

void strv_done(struct strv *sv) {
    for (size_t i = 0; i < sv->n; i++)
        free(sv->v[i]);
    free(sv->v);
    *sv = (struct strv){0};
}

static char **env_find(const struct strv *env, const char *key) {
    size_t n = strlen(key);
    for (size_t i = env->n; i-- > 0;)
        if (strncmp(env->v[i], key, n) == 0 && env->v[i][n] == '=')
            return &env->v[i];
    return NULL;
}

const char *env_get(const struct strv *env, const char *key) {
    char **p = env_find(env, key);
    return p ? *p + strlen(key) + 1 : NULL;
}

int env_set(struct strv *env, const char *key, const char *value) {
    char **p = env_find(env, key), *kv = str_printf("%s=%s", key, value);
    if (!kv)
        return -ENOMEM;
    if (!p)
        return strv_take(env, kv);
    free(*p);
    *p = kv;
    return 0;
}

void env_unset(struct strv *env, const char *key) {
    char **p;
    while ((p = env_find(env, key))) {
        size_t i = (size_t)(p - env->v);
        free(*p);
        memmove(p, p + 1, (env->n - i) * sizeof *p); /* the NULL moves along */
        env->n--;
    }
}

int utf8_next(const char *str, size_t len) {
    const unsigned char *s = (const unsigned char *)str;
    size_t need;
    unsigned char lo = 0x80, hi = 0xbf;

    if (len == 0)
        return -1;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    need = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] == 0xe0)
        lo = 0xa0;
    else if (s[0] == 0xed)
        hi = 0x9f;
    else if (s[0] == 0xf0)
        lo = 0x90;
    else if (s[0] == 0xf4)
        hi = 0x8f;
    for (size_t i = 1; i < need; i++) {
        if (i >= len)
            return -1;
        if (s[i] < lo || s[i] > hi)
            return 0;
        lo = 0x80;
        hi = 0xbf;
    }
    return (int)need;
}

bool utf8_is_valid(const char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        int n = utf8_next(s + i, len - i);
        if (n <= 0)
            return false;
        i += (size_t)n;
    }
    return true;
}

int hex_encode(const void *data, size_t len, char *ret) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++) {
        ret[2 * i] = digits[p[i] >> 4];
        ret[2 * i + 1] = digits[p[i] & 15];
    }
    ret[2 * len] = 0;
    return 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)lower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hex_decode(const char *hex, size_t len, void *ret) {
    unsigned char *p = ret;
    if (len % 2)
        return -EINVAL;
    for (size_t i = 0; i < len; i += 2) {
        int a = hex_digit(hex[i]), b = hex_digit(hex[i + 1]);
        if (a < 0 || b < 0)
            return -EINVAL;
        p[i / 2] = (unsigned char)(a << 4 | b);
    }
    return 0;
}

static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *data, size_t len) {
    const unsigned char *p = data;
    size_t out, o = 0;
    char *s;

    if (__builtin_mul_overflow((len + 2) / 3, (size_t)4, &out))
        return NULL;
    s = malloc(out + 1);
    if (!s)
        return NULL;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = MIN(len - i, (size_t)3);
        uint32_t v =
            (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (n > 2 ? p[i + 2] : 0);
        s[o++] = b64[v >> 18];
        s[o++] = b64[v >> 12 & 63];
        s[o++] = n > 1 ? b64[v >> 6 & 63] : '=';
        s[o++] = n > 2 ? b64[v & 63] : '=';
    }
    s[o] = 0;
    return s;
}

int base64_decode(const char *s, size_t len, void **ret, size_t *ret_len) {
    unsigned char *out;
    size_t o = 0;
    uint32_t acc = 0;
    int bits = 0;

    if (len % 4 == 0)
        for (int k = 0; k < 2 && len > 0 && s[len - 1] == '='; k++)
            len--;
    if (len % 4 == 1)
        return -EINVAL;
    out = malloc(len / 4 * 3 + 3);
    if (!out)
        return -ENOMEM;
    for (size_t i = 0; i < len; i++) {
        const char *p = s[i] ? strchr(b64, s[i]) : NULL;
        if (!p) {
            free(out);
            return -EINVAL;
        }
        acc = acc << 6 | (uint32_t)(p - b64);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[o++] = (unsigned char)(acc >> bits);
            acc &= (1u << bits) - 1;
        }
    }
    if (acc) { /* stray bits behind the last byte */
        free(out);
        return -EINVAL;
    }
    *ret = out;
    *ret_len = o;
    return 0;
}
