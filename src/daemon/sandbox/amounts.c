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

/* Thousandths of a CPU, cut; a positive amount below one thousandth counts as one. */
int parse_cpu(const char *s, uint64_t *ret_millis) {
    uint64_t whole = 0, milli = 0, scale = 100;
    bool any = false, positive = false;

    s = skip_blanks(s);
    if (isdigit((unsigned char)*s)) {
        if (digits(&s, &whole) < 0)
            return -EINVAL;
        any = true;
        positive = whole > 0;
    }
    bool has_point = *s == '.';
    if (has_point) {
        for (s++; isdigit((unsigned char)*s); s++, any = true) {
            milli += (uint64_t)(*s - '0') * scale;
            scale /= 10;
            positive |= *s != '0';
        }
    }
    bool is_milli = *s == 'm';
    if (is_milli) {
        s++;
        milli = whole;
        whole = 0;
    }
    if (!any || !positive || *skip_blanks(s) || whole > INT64_MAX / 1000000000 ||
        milli > INT64_MAX / 1000000)
        return -EINVAL;
    *ret_millis = MAX(whole * 1000 + milli, 1u);
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
