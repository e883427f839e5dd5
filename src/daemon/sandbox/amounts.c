/* Amounts of resources as clients write them. Pure functions. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "daemon/sandbox/check.h"

static const struct {
    const char *unit;
    uint64_t factor;
} units[] = {
    {"", 1},
    {"b", 1},
    {"k", 1000},
    {"kb", 1000},
    {"ki", 1ull << 10},
    {"m", 1000000},
    {"mb", 1000000},
    {"mi", 1ull << 20},
    {"g", 1000000000},
    {"gb", 1000000000},
    {"gi", 1ull << 30},
    {"t", 1000000000000},
    {"tb", 1000000000000},
    {"ti", 1ull << 40},
};

static const char *skip_blanks(const char *s) {
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

/* Digits at *s, which moves behind them; -EINVAL without any, -ERANGE past 64 bits. */
static int digits(const char **s, uint64_t *ret) {
    uint64_t n = 0;
    const char *p = *s;

    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            return -ERANGE;
    *s = p;
    *ret = n;
    return 0;
}

int parse_memory(const char *s, uint64_t *ret_bytes) {
    uint64_t n;

    s = skip_blanks(s);
    if (digits(&s, &n) < 0)
        return -EINVAL;
    size_t len = strcspn(s, " \t\r\n\v\f");
    if (*skip_blanks(s + len))
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strlen(units[i].unit) != len || strncasecmp(s, units[i].unit, len) != 0)
            continue;
        if (n == 0 || __builtin_mul_overflow(n, units[i].factor, &n) || n > INT64_MAX)
            return -EINVAL;
        *ret_bytes = n;
        return 0;
    }
    return -EINVAL;
}

/* Digits after the point, cut after `places`, scaled to 10^places. */
static uint64_t fraction(const char **s, unsigned places, bool *any) {
    uint64_t n = 0;

    for (; isdigit((unsigned char)**s); (*s)++) {
        *any = true;
        if (places > 0) {
            n = n * 10 + (uint64_t)(**s - '0');
            places--;
        }
    }
    for (; places > 0; places--)
        n *= 10;
    return n;
}

/* "1.5" or "500m", exact in billionths of a CPU; what lies below is cut. */
int parse_cpu(const char *s, uint64_t *ret_nanos) {
    uint64_t whole = 0, part = 0, n;
    bool any = false;

    s = skip_blanks(s);
    if (isdigit((unsigned char)*s)) {
        if (digits(&s, &whole) < 0)
            return -EINVAL;
        any = true;
    }
    if (*s == '.') {
        s++;
        part = fraction(&s, 9, &any);
    }
    bool is_milli = *s == 'm';
    if (is_milli) {
        s++;
        part /= 1000;
    }
    if (!any || *skip_blanks(s) ||
        __builtin_mul_overflow(whole, is_milli ? 1000000u : 1000000000u, &n) ||
        __builtin_add_overflow(n, part, &n) || n == 0 || n > INT64_MAX)
        return -EINVAL;
    *ret_nanos = n;
    return 0;
}

int parse_count(const char *s, uint64_t *ret) {
    uint64_t n;

    s = skip_blanks(s);
    if (digits(&s, &n) < 0 || *skip_blanks(s) || n == 0 || n > INT32_MAX)
        return -EINVAL;
    *ret = n;
    return 0;
}

int parse_gpu(const char *s, int64_t *ret) {
    uint64_t n;

    if (strcasecmp(s, "all") == 0) {
        *ret = -1;
        return 0;
    }
    if (parse_count(s, &n) < 0)
        return -EINVAL;
    *ret = (int64_t)n;
    return 0;
}
