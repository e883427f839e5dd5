/* Byte and line ranges, HTTP dates (see range.h). */
#include "execd/range.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static const char *skip_blanks(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

/* One range-spec in [p, end): 1 = satisfiable, 0 = not, -EINVAL = malformed. */
static int parse_one(const char *p, const char *end, uint64_t size, uint64_t *start,
                     uint64_t *last) {
    const char *dash;
    uint64_t a = 0, b = UINT64_MAX;

    p = skip_blanks(p, end);
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    dash = memchr(p, '-', (size_t)(end - p));
    if (!dash || end - p < 2)
        return -EINVAL;
    if (dash == p) { /* the last n bytes */
        if (str_to_u64n(p + 1, (size_t)(end - p - 1), &b) < 0)
            return -EINVAL;
        if (b == 0 || size == 0)
            return 0;
        *start = size - MIN(b, size);
        *last = size - 1;
        return 1;
    }
    if (str_to_u64n(p, (size_t)(dash - p), &a) < 0)
        return -EINVAL;
    if (dash + 1 < end && str_to_u64n(dash + 1, (size_t)(end - dash - 1), &b) < 0)
        return -EINVAL;
    if (b < a)
        return -EINVAL;
    if (a >= size)
        return 0;
    *start = a;
    *last = MIN(b, size - 1);
    return 1;
}

enum range_result range_parse(const char *header, uint64_t size, uint64_t *ret_start,
                              uint64_t *ret_end) {
    bool found = false;
    uint64_t start, last;

    if (!header)
        return RANGE_FULL;
    if (!str_starts(header, "bytes="))
        return RANGE_BAD;
    const char *p = header + strlen("bytes=");
    for (;;) {
        const char *end = strchrnul(p, ',');
        int r = parse_one(p, end, size, &start, &last);
        if (r < 0)
            return RANGE_BAD;
        if (r > 0 && !found) {
            found = true;
            *ret_start = start;
            *ret_end = last;
        }
        if (!*end)
            break;
        p = end + 1;
    }
    return found ? RANGE_PART : RANGE_BAD;
}

void line_range_init(struct line_range *l, uint64_t first, uint64_t count) {
    *l = (struct line_range){.first = first, .count = count, .line = 1};
}

static bool is_wanted(const struct line_range *l) {
    return l->line >= l->first && l->line - l->first < l->count;
}

static void begin_line(struct line_range *l, struct buf *out) {
    if (!l->in_line && l->line > l->first)
        buf_char(out, '\n');
    l->in_line = true;
}

/* Text of a wanted line without its end. CRs wait: they belong to the line only when more of it
 * follows. */
static void put_text(struct line_range *l, const char *p, size_t n, struct buf *out) {
    size_t text = n;

    while (text > 0 && p[text - 1] == '\r')
        text--;
    if (text > 0) {
        for (; l->held_cr > 0 && out->len < out->max; l->held_cr--)
            buf_char(out, '\r');
        buf_append(out, p, text);
    }
    l->held_cr += n - text;
}

int line_range_feed(struct line_range *l, const char *data, size_t len, struct buf *out) {
    const char *p = data, *end = data + len;

    while (p < end && !l->done) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        if (is_wanted(l)) {
            begin_line(l, out);
            put_text(l, p, (size_t)(stop - p), out);
        }
        if (!nl)
            break;
        l->line++;
        l->in_line = false;
        l->held_cr = 0;
        l->done = l->line >= l->first && l->line - l->first >= l->count;
        p = nl + 1;
    }
    return buf_ok(out) ? 0 : -ENOBUFS;
}

static const char days[][4] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/* Days since 1970 of a civil date, and back (proleptic Gregorian calendar, eras of 400 years). */
static int64_t days_from_civil(int64_t y, int m, int d) {
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400, yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static void civil_from_days(int64_t z, int *y, int *m, int *d) {
    z += 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365,
            doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;

    *d = (int)(doy - (153 * mp + 2) / 5 + 1);
    *m = (int)(mp < 10 ? mp + 3 : mp - 9);
    *y = (int)(yoe + era * 400 + (*m <= 2));
}

void http_date_format(int64_t seconds, char ret[40]) {
    int64_t day = seconds / 86400 - (seconds % 86400 < 0), left = seconds - day * 86400;
    int y, m, d;

    civil_from_days(day, &y, &m, &d);
    snprintf(ret, 40, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[((day % 7) + 7) % 7], d,
             months[m - 1], y, (int)(left / 3600), (int)(left / 60 % 60), (int)(left % 60));
}

int http_date_parse(const char *s, int64_t *ret_seconds) {
    char mon[4];
    int d, y, hh, mm, ss, n = 0;

    if (!s || strlen(s) < 29 ||
        sscanf(s + 3, ", %2d %3s %4d %2d:%2d:%2d GMT%n", &d, mon, &y, &hh, &mm, &ss, &n) != 6 ||
        n == 0)
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_SIZE(months); i++)
        if (strcmp(mon, months[i]) == 0) {
            *ret_seconds = days_from_civil(y, (int)i + 1, d) * 86400 + hh * 3600 + mm * 60 + ss;
            return 0;
        }
    return -EINVAL;
}
