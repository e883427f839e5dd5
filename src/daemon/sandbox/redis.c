/* Redis addresses, commands and replies (see redis.h). Pure functions. */
#include "daemon/sandbox/redis.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "net/url.h"

#define NAME "renew_intent.redis.dsn"
#define DEFAULT_PORT 6379

/* ---- addresses ---- */

static void free_secret(char *s) {
    if (s)
        explicit_bzero(s, strlen(s));
    free(s);
}

void redis_dsn_done(struct redis_dsn *d) {
    free(d->host);
    free(d->path);
    free_secret(d->user);
    free_secret(d->password);
    memset(d, 0, sizeof *d);
}

static int bad(struct err *err, const char *what) {
    return err_set(err, -EINVAL, NAME ": %s (expected redis://[[USER]:PASSWORD@]HOST[:PORT][/DB])",
                   what);
}

/* "[USER][:PASSWORD]" */
static int parse_user(const char *s, size_t n, struct redis_dsn *d, struct err *err) {
    const char *colon = memchr(s, ':', n);
    size_t user = colon ? (size_t)(colon - s) : n;

    if (user > 0 && url_decode(s, user, &d->user) < 0)
        return bad(err, "the user has a bad percent escape");
    if (colon && url_decode(colon + 1, n - user - 1, &d->password) < 0)
        return bad(err, "the password has a bad percent escape");
    return 0;
}

static int parse_number(const char *s, size_t n, uint64_t max, unsigned *ret) {
    uint64_t v;
    if (str_to_u64n(s, n, &v) < 0 || v > max)
        return -EINVAL;
    *ret = (unsigned)v;
    return 0;
}

/* "HOST[:PORT]" */
static int parse_place(const char *s, size_t n, struct redis_dsn *d, struct err *err) {
    const char *end = s + n, *host = s, *host_end, *colon;
    unsigned port = DEFAULT_PORT;

    if (n > 0 && *s == '[') {
        host++;
        host_end = memchr(host, ']', (size_t)(end - host));
        if (!host_end || (host_end + 1 < end && host_end[1] != ':'))
            return bad(err, "the address in brackets is not one");
        colon = host_end + 1 < end ? host_end + 1 : NULL;
    } else {
        colon = memchr(s, ':', n);
        host_end = colon ? colon : end;
    }
    if (colon && (parse_number(colon + 1, (size_t)(end - colon - 1), 65535, &port) < 0 || !port))
        return bad(err, "the port is not a number from 1 to 65535");
    d->port = (uint16_t)port;
    d->host = host_end > host ? str_ndup(host, (size_t)(host_end - host)) : strdup("localhost");
    return d->host ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* "db=N"; other options of other programs are no business of ours. */
static int parse_options(const char *s, struct redis_dsn *d, struct err *err) {
    struct query q = {0};
    const char *db;
    int r = query_parse(s, strlen(s), &q);

    if (r == 0 && (db = query_get(&q, "db")) && parse_number(db, strlen(db), INT32_MAX, &d->db) < 0)
        r = bad(err, "db is not a number");
    query_done(&q);
    return r;
}

static int parse_rest(const char *s, bool is_unix, struct redis_dsn *d, struct err *err) {
    size_t n = strcspn(s, "?");
    size_t place = is_unix ? 0 : strcspn(s, "/?");
    int r;

    if (is_unix) {
        if (*s != '/' || url_decode(s, n, &d->path) < 0)
            return bad(err, "unix:// is followed by the absolute path of a socket");
    } else {
        if ((r = parse_place(s, place, d, err)) < 0)
            return r;
        if (place < n && n - place > 1 &&
            parse_number(s + place + 1, n - place - 1, INT32_MAX, &d->db) < 0)
            return bad(err, "the database after the last '/' is not a number");
    }
    return s[n] ? parse_options(s + n + 1, d, err) : 0;
}

int redis_dsn_parse(const char *text, struct redis_dsn *ret, struct err *err) {
    struct redis_dsn d = {0};
    bool is_unix = str_starts(text, "unix://");
    int r = 0;

    if (str_starts(text, "rediss://"))
        return err_set(err, -EOPNOTSUPP,
                       NAME ": TLS (rediss://) is not supported; put a TLS tunnel in front and use "
                            "redis://");
    if (!is_unix && !str_starts(text, "redis://"))
        return bad(err, "unknown kind of address");
    const char *s = strstr(text, "://") + 3;
    const char *at = s; /* the last '@' before path and query ends the user part */
    for (const char *p = s; *p && *p != '?' && (is_unix || *p != '/'); p++)
        if (*p == '@')
            at = p + 1;
    if (at > s)
        r = parse_user(s, (size_t)(at - s - 1), &d, err);
    if (r == 0)
        r = parse_rest(at, is_unix, &d, err);
    if (r < 0) {
        redis_dsn_done(&d);
        return r;
    }
    *ret = d;
    return 0;
}

/* ---- commands ---- */

int redis_command(struct buf *out, const char *const *words) {
    size_t n = 0;

    while (words[n])
        n++;
    buf_printf(out, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    return buf_ok(out) ? 0 : -ENOMEM;
}

/* ---- replies ---- */

/* One line without its end; bytes taken, 0 = not complete. */
static ssize_t take_line(const char *data, size_t len, struct redis_text *ret) {
    const char *end = memchr(data, '\n', MIN(len, REDIS_MAX_REPLY));

    if (!end)
        return len >= REDIS_MAX_REPLY ? -EMSGSIZE : 0;
    if (end == data || end[-1] != '\r')
        return -EBADMSG;
    *ret = (struct redis_text){data, (size_t)(end - data) - 1};
    return end - data + 1;
}

/* The number of a "$" or "*" line; -1 = nil. */
static ssize_t take_count(const char *data, size_t len, int64_t max, int64_t *ret) {
    struct redis_text line;
    uint64_t n;
    ssize_t used = take_line(data, len, &line);

    if (used <= 0)
        return used;
    if (line.len == 2 && memcmp(line.data, "-1", 2) == 0) {
        *ret = -1;
        return used;
    }
    if (str_to_u64n(line.data, line.len, &n) < 0)
        return -EBADMSG;
    if (n > (uint64_t)max)
        return -EMSGSIZE;
    *ret = (int64_t)n;
    return used;
}

/* After the "$". */
static ssize_t take_text(const char *data, size_t len, struct redis_text *ret) {
    int64_t n = 0;
    ssize_t used = take_count(data, len, REDIS_MAX_REPLY, &n);

    if (used <= 0)
        return used;
    *ret = (struct redis_text){0};
    if (n < 0)
        return used;
    if (len - (size_t)used < (size_t)n + 2)
        return 0;
    if (memcmp(data + used + n, "\r\n", 2) != 0)
        return -EBADMSG;
    *ret = (struct redis_text){data + used, (size_t)n};
    return used + n + 2;
}

/* After the "*". */
static ssize_t take_list(const char *data, size_t len, struct redis_reply *ret) {
    int64_t n = 0;
    ssize_t used = take_count(data, len, REDIS_MAX_ITEMS, &n);

    if (used <= 0)
        return used;
    if (n < 0)
        ret->type = REDIS_NIL;
    for (int64_t i = 0; i < n; i++) {
        if ((size_t)used == len)
            return 0;
        if (data[used] != '$')
            return strchr("+-:*", data[used]) && data[used] ? -EMSGSIZE : -EBADMSG;
        ssize_t t = take_text(data + used + 1, len - (size_t)used - 1, &ret->items[i]);
        if (t <= 0)
            return t;
        used += t + 1;
    }
    ret->n_items = n < 0 ? 0 : (size_t)n;
    return used;
}

ssize_t redis_reply_parse(const char *data, size_t len, struct redis_reply *ret) {
    ssize_t used;

    *ret = (struct redis_reply){0};
    if (len == 0)
        return 0;
    switch (data[0]) {
    case '+':
    case '-':
    case ':':
        ret->type = data[0] == '+' ? REDIS_STATUS : data[0] == '-' ? REDIS_FAULT : REDIS_NUMBER;
        used = take_line(data + 1, len - 1, &ret->text);
        break;
    case '$':
        ret->type = REDIS_TEXT;
        used = take_text(data + 1, len - 1, &ret->text);
        if (used > 0 && !ret->text.data)
            ret->type = REDIS_NIL;
        break;
    case '*':
        ret->type = REDIS_LIST;
        used = take_list(data + 1, len - 1, ret);
        break;
    default:
        return -EBADMSG;
    }
    return used > 0 ? used + 1 : used;
}
