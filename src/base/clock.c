/* Clocks and RFC 3339 (see clock.h). */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t read_us(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_mono_us(void) {
    return read_us(CLOCK_MONOTONIC);
}
int64_t clock_mono_ms(void) {
    return clock_mono_us() / 1000;
}
int64_t clock_wall_us(void) {
    return read_us(CLOCK_REALTIME);
}
int64_t clock_wall_ms(void) {
    return clock_wall_us() / 1000;
}

void rfc3339_format(int64_t wall_us, char ret[RFC3339_SIZE]) {
    int64_t sec = wall_us / 1000000, us = wall_us % 1000000;
    struct tm tm;
    time_t t;

    if (us < 0) {
        us += 1000000;
        sec--;
    }
    t = (time_t)sec;
    gmtime_r(&t, &tm);
    int n = snprintf(ret, RFC3339_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900,
                     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    if (n < 0 || n >= RFC3339_SIZE)
        return;
    if (us)
        snprintf(ret + n, RFC3339_SIZE - (size_t)n, ".%06dZ", (int)us);
    else
        snprintf(ret + n, RFC3339_SIZE - (size_t)n, "Z");
}

/* Reads exactly n digits; advances *p. */
static int digits(const char **p, int n, int *ret) {
    int v = 0;
    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return -EINVAL;
        v = v * 10 + (**p - '0');
    }
    *ret = v;
    return 0;
}

static int expect(const char **p, char c) {
    if (**p != c)
        return -EINVAL;
    (*p)++;
    return 0;
}

static int parse_offset(const char **p, int *ret_seconds) {
    int sign, h, m = 0;

    *ret_seconds = 0;
    if (**p == 'Z' || **p == 'z') {
        (*p)++;
        return 0;
    }
    if (**p != '+' && **p != '-')
        return 0; /* none: UTC */
    sign = **p == '-' ? -1 : 1;
    (*p)++;
    if (digits(p, 2, &h) < 0)
        return -EINVAL;
    if (**p == ':')
        (*p)++;
    if (**p && digits(p, 2, &m) < 0)
        return -EINVAL;
    if (h > 23 || m > 59)
        return -EINVAL;
    *ret_seconds = sign * (h * 3600 + m * 60);
    return 0;
}

int rfc3339_parse(const char *s, int64_t *ret) {
    struct tm tm = {0};
    int year, mon, us = 0, off;

    if (!s || digits(&s, 4, &year) < 0 || expect(&s, '-') < 0 || digits(&s, 2, &mon) < 0 ||
        expect(&s, '-') < 0 || digits(&s, 2, &tm.tm_mday) < 0)
        return -EINVAL;
    if (*s != 'T' && *s != 't' && *s != ' ')
        return -EINVAL;
    s++;
    if (digits(&s, 2, &tm.tm_hour) < 0 || expect(&s, ':') < 0 || digits(&s, 2, &tm.tm_min) < 0)
        return -EINVAL;
    if (*s == ':') {
        s++;
        if (digits(&s, 2, &tm.tm_sec) < 0)
            return -EINVAL;
    }
    if (*s == '.' || *s == ',') {
        int scale = 100000, n = 0;
        for (s++; *s >= '0' && *s <= '9'; s++, n++, scale /= 10)
            us += (*s - '0') * scale;
        if (n == 0 || n > 9)
            return -EINVAL;
    }
    if (parse_offset(&s, &off) < 0 || *s)
        return -EINVAL;
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (mon < 1 || mon > 12 || tm.tm_mday < 1 ||
        tm.tm_mday > month_days[mon - 1] + (mon == 2 && leap) || tm.tm_hour > 23 ||
        tm.tm_min > 59 || tm.tm_sec > 60)
        return -EINVAL;
    tm.tm_year = year - 1900;
    tm.tm_mon = mon - 1;
    *ret = ((int64_t)timegm(&tm) - off) * 1000000 + us;
    return 0;
}
