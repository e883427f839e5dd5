/*
 * Streaming multipart/form-data parser (see multipart.h).
 *
 * Owns the part headers collected so far and, between two feeds, the bytes at the end of the input
 * that may be the beginning of a boundary ("held"). Invariants: bytes go to on_data once and in
 * order; a byte is held only while `match_boundary` cannot decide about it; held[0] is always the
 * first byte of a candidate. One caller, one thread.
 *
 * A delimiter is CRLF "--" boundary followed by "--" (the end) or by blanks and CRLF (a part).
 * Anything else behind it makes it content. At the very start of the body and right behind the
 * blank line of a part's headers the leading CRLF counts as seen (`bol`).
 */
#include "net/multipart.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "net/mime.h"
#include "net/url.h"

#define MAX_BOUNDARY 200
#define MAX_PADDING 64
#define MAX_PART_HEADERS ((size_t)16 << 10)

enum state { PREAMBLE, HEADERS, BODY, EPILOGUE };

struct multipart {
    const struct multipart_ops *ops;
    void *ud;
    enum state state;
    int failed; /* the error that ended the parse */
    bool bol;   /* at the beginning of a line: the delimiter needs no CRLF in front */
    char delim[MAX_BOUNDARY + 5]; /* CRLF "--" boundary */
    size_t delim_len;
    char held[MAX_BOUNDARY + MAX_PADDING + 16];
    size_t n_held;
    struct buf headers;
    size_t line_start; /* where the current header line begins in `headers` */
    struct buf name, filename, type;
    bool has_name, has_filename;
};

/* ---- part headers ---- */

struct scratch {
    struct buf a, b;
};

static void scratch_done(struct scratch *s) {
    buf_done(&s->a);
    buf_done(&s->b);
}

/* filename*=UTF-8''percent-encoded. Other character sets are left to the plain parameter. */
static int extended_filename(struct multipart *m, const char *value) {
    const char *q = strchr(value, '\'');
    _cleanup_free_ char *charset = NULL, *name = NULL;
    int r;

    q = q ? strchr(q + 1, '\'') : NULL;
    charset = str_ndup(value, strcspn(value, "'"));
    if (!charset)
        return -ENOMEM;
    if (!q || !str_ieq(charset, "utf-8"))
        return 0;
    r = url_decode(q + 1, strlen(q + 1), &name);
    if (r < 0)
        return r;
    buf_clear(&m->filename);
    m->has_filename = true;
    return buf_str(&m->filename, name);
}

static int take_disposition(struct multipart *m, const char *value, struct err *err) {
    _cleanup_(scratch_done) struct scratch s = {BUF_INIT(MAX_PART_HEADERS),
                                                BUF_INIT(MAX_PART_HEADERS)};
    bool extended = false;
    int r;

    if (m->has_name)
        return err_set(err, -EBADMSG, "multipart: a part has more than one Content-Disposition");
    r = mime_token(&value, &s.a);
    if (r < 0 || !str_ieq(s.a.data, "form-data"))
        return err_set(err, -EBADMSG,
                       "multipart: the Content-Disposition of a part is not form-data");
    while ((r = mime_param(&value, &s.a, &s.b)) > 0) {
        if (str_eq(s.a.data, "name") && !m->has_name) {
            m->has_name = true;
            r = buf_append(&m->name, s.b.data, s.b.len);
        } else if (str_eq(s.a.data, "filename") && !m->has_filename) {
            m->has_filename = true;
            r = buf_append(&m->filename, s.b.data, s.b.len);
        } else if (str_eq(s.a.data, "filename*") && !extended) {
            extended = true;
            r = extended_filename(m, s.b.data);
        }
        if (r < 0)
            break;
    }
    if (r == -ENOMEM)
        return err_set(err, r, "multipart: out of memory");
    if (r < 0)
        return err_set(err, -EBADMSG,
                       "multipart: bad parameters in the Content-Disposition of a part");
    return 0;
}

static int take_header(struct multipart *m, char *line, struct err *err) {
    char *colon = strchr(line, ':'), *value;
    size_t n;

    n = colon ? (size_t)(colon - line) : 0;
    if (n == 0 || strcspn(line, " \t\"(),/;<=>?@[\\]{}") < n)
        return err_set(err, -EBADMSG, "multipart: a header line of a part is malformed");
    for (const char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' && *c != '\t')
            return err_set(err, -EBADMSG,
                           "multipart: a part has a control character in its headers");
    *colon = 0;
    value = colon + 1 + strspn(colon + 1, " \t");
    for (n = strlen(value); n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'); n--)
        value[n - 1] = 0;
    if (str_ieq(line, "Content-Disposition"))
        return take_disposition(m, value, err);
    if (str_ieq(line, "Content-Type")) {
        buf_clear(&m->type);
        if (buf_str(&m->type, value) < 0)
            return err_set(err, -ENOMEM, "multipart: out of memory");
    } else if (str_ieq(line, "Content-Transfer-Encoding") && !str_ieq(value, "binary") &&
               !str_ieq(value, "8bit") && !str_ieq(value, "7bit")) {
        return err_set(err, -EBADMSG, "multipart: transfer encoding \"%.40s\" is not supported",
                       value);
    }
    return 0;
}

/* The whole header block of a part is there, blank line included. Folded lines become one. */
static int headers_complete(struct multipart *m, struct err *err) {
    struct multipart_part part;
    char *p = m->headers.data, *end = p + m->headers.len - 2;
    int r;

    buf_clear(&m->name);
    buf_clear(&m->filename);
    buf_clear(&m->type);
    m->has_name = m->has_filename = false;
    if (memchr(p, 0, m->headers.len))
        return err_set(err, -EBADMSG, "multipart: a part has a NUL byte in its headers");
    while (p < end) {
        char *eol = strstr(p, "\r\n");
        for (; eol && eol + 2 < end && (eol[2] == ' ' || eol[2] == '\t'); eol = strstr(eol, "\r\n"))
            memset(eol, ' ', 2);
        if (!eol) /* cannot be: the lines were checked to end with CRLF */
            return err_set(err, -EBADMSG, "multipart: a header line of a part has no end");
        *eol = 0;
        r = take_header(m, p, err);
        if (r < 0)
            return r;
        p = eol + 2;
    }
    if (!m->has_name)
        return err_set(err, -EBADMSG, "multipart: a part has no name");
    if (buf_append(&m->name, "", 0) < 0 || buf_append(&m->filename, "", 0) < 0)
        return err_set(err, -ENOMEM, "multipart: out of memory");
    part = (struct multipart_part){m->name.data, m->has_filename ? m->filename.data : NULL,
                                   m->type.len ? m->type.data : NULL};
    buf_clear(&m->headers);
    m->line_start = 0;
    m->state = BODY;
    m->bol = true;
    r = m->ops->on_part ? m->ops->on_part(&part, m->ud) : 0;
    return r < 0 ? err_set(err, r, "multipart: part \"%.100s\" was refused", part.name) : 0;
}

/* Consumes header bytes up to the blank line at most. */
static int feed_headers(struct multipart *m, const char *data, size_t len, size_t *ret_used,
                        struct err *err) {
    size_t used = 0;

    while (used < len) {
        const char *nl = memchr(data + used, '\n', len - used);
        size_t n = nl ? (size_t)(nl - data) + 1 - used : len - used;
        int r = buf_append(&m->headers, data + used, n);
        if (r == -ENOBUFS)
            return err_set(err, -EBADMSG,
                           "multipart: the headers of a part are larger than %zu bytes",
                           MAX_PART_HEADERS);
        if (r < 0)
            return err_set(err, r, "multipart: out of memory");
        used += n;
        if (!nl)
            break;
        size_t line = m->headers.len - m->line_start;
        if (line < 2 || m->headers.data[m->headers.len - 2] != '\r')
            return err_set(err, -EBADMSG,
                           "multipart: a header line of a part does not end with CRLF");
        m->line_start = m->headers.len;
        if (line == 2) {
            *ret_used = used;
            return headers_complete(m, err);
        }
    }
    *ret_used = used;
    return 0;
}

/* ---- boundaries and content ---- */

enum match { NO, MORE, PART, END };

/* Is there a delimiter at p? MORE: the n bytes do not tell yet. */
static enum match match_boundary(const struct multipart *m, bool bol, const char *p, size_t n,
                                 size_t *ret_len) {
    const char *d = m->delim + (bol ? 2 : 0);
    size_t dl = m->delim_len - (bol ? 2 : 0), i = dl;

    if (memcmp(p, d, MIN(n, dl)) != 0)
        return NO;
    if (n <= dl)
        return MORE;
    if (p[i] == '-') {
        if (n == i + 1)
            return MORE;
        *ret_len = i + 2;
        return p[i + 1] == '-' ? END : NO;
    }
    while (i < n && (p[i] == ' ' || p[i] == '\t'))
        if (++i - dl > MAX_PADDING)
            return NO;
    if (i == n)
        return MORE;
    if (p[i] != '\r')
        return NO;
    if (i + 1 == n)
        return MORE;
    *ret_len = i + 2;
    return p[i + 1] == '\n' ? PART : NO;
}

static int emit(struct multipart *m, const char *data, size_t len, struct err *err) {
    int r;

    if (len == 0 || m->state != BODY || !m->ops->on_data)
        return 0;
    r = m->ops->on_data(data, len, m->ud);
    return r < 0 ? err_set(err, r, "multipart: content was refused") : 0;
}

static int boundary_found(struct multipart *m, enum match what, struct err *err) {
    int r = 0;

    m->bol = false;
    if (m->state == BODY && m->ops->on_part_end)
        r = m->ops->on_part_end(m->ud);
    m->state = what == END ? EPILOGUE : HEADERS;
    return r < 0 ? err_set(err, r, "multipart: the end of a part was refused") : 0;
}

/*
 * Looks through [p, p+n) for a delimiter: emits what is surely content. Used: everything up to and
 * including a delimiter, or up to a candidate that needs more bytes (*ret_more), or all.
 */
static int scan(struct multipart *m, const char *p, size_t n, size_t *ret_used, bool *ret_more,
                struct err *err) {
    size_t pos = 0, len = 0;

    *ret_more = false;
    while (pos < n) {
        if (!m->bol) {
            const char *cr = memchr(p + pos, '\r', n - pos);
            pos = cr ? (size_t)(cr - p) : n;
            if (!cr)
                break;
        }
        enum match what = match_boundary(m, m->bol, p + pos, n - pos, &len);
        if (what == NO) {
            pos += m->bol ? 0 : 1;
            m->bol = false;
            continue;
        }
        int r = emit(m, p, pos, err);
        *ret_used = pos;
        *ret_more = what == MORE;
        if (r < 0 || what == MORE)
            return r;
        *ret_used = pos + len;
        return boundary_found(m, what, err);
    }
    *ret_used = n;
    return emit(m, p, n, err);
}

/* Adds input bytes one by one to what is held until it is decided. */
static int feed_held(struct multipart *m, const char *data, size_t len, size_t *ret_used,
                     struct err *err) {
    size_t used = 0, n;
    bool more = true;

    while (more && used < len) {
        m->held[m->n_held++] =
            data[used++]; /* fits: match_boundary says MORE to shorter ones only */
        int r = scan(m, m->held, m->n_held, &n, &more, err);
        if (r < 0)
            return r;
        m->n_held -= n;
        memmove(m->held, m->held + n, m->n_held);
    }
    *ret_used = used;
    return 0;
}

static int feed_content(struct multipart *m, const char *data, size_t len, size_t *ret_used,
                        struct err *err) {
    bool more;
    int r;

    if (m->n_held)
        return feed_held(m, data, len, ret_used, err);
    r = scan(m, data, len, ret_used, &more, err);
    if (r < 0 || !more)
        return r;
    m->n_held = len - *ret_used;
    memcpy(m->held, data + *ret_used, m->n_held);
    *ret_used = len;
    return 0;
}

/* ---- exported ---- */

int multipart_feed(struct multipart *m, const char *data, size_t len, struct err *err) {
    int r = 0;

    if (m->failed)
        return err_set(err, m->failed, "multipart: the parse has failed before");
    while (len > 0 && m->state != EPILOGUE) {
        size_t used = 0;
        r = m->state == HEADERS ? feed_headers(m, data, len, &used, err)
                                : feed_content(m, data, len, &used, err);
        if (r < 0) {
            m->failed = r;
            return r;
        }
        data += used;
        len -= used;
    }
    return 0;
}

int multipart_end(struct multipart *m, struct err *err) {
    if (m->failed)
        return err_set(err, m->failed, "multipart: the parse has failed before");
    if (m->state != EPILOGUE)
        return err_set(err, -EBADMSG, "multipart: the body ends before the closing boundary");
    return 0;
}

static int set_boundary(struct multipart *m, const char *content_type, struct err *err) {
    _cleanup_(scratch_done) struct scratch s = {BUF_INIT(1024), BUF_INIT(1024)};
    int r;

    if (!content_type || mime_token(&content_type, &s.a) < 0 ||
        !str_ieq(s.a.data, "multipart/form-data"))
        return err_set(err, -EINVAL, "multipart: the content type is not multipart/form-data");
    while ((r = mime_param(&content_type, &s.a, &s.b)) > 0)
        if (str_eq(s.a.data, "boundary"))
            break;
    if (r == -ENOMEM)
        return err_set(err, r, "multipart: out of memory");
    if (r <= 0 || s.b.len == 0)
        return err_set(err, -EINVAL, "multipart: the content type has no boundary");
    if (s.b.len > MAX_BOUNDARY)
        return err_set(err, -EINVAL, "multipart: the boundary is longer than %d bytes",
                       MAX_BOUNDARY);
    for (size_t i = 0; i < s.b.len; i++)
        if (s.b.data[i] < ' ' || s.b.data[i] > '~' || (s.b.data[i] == ' ' && i + 1 == s.b.len))
            return err_set(err, -EINVAL,
                           "multipart: the boundary has characters that are not allowed");
    memcpy(m->delim, "\r\n--", 4);
    memcpy(m->delim + 4, s.b.data, s.b.len);
    m->delim_len = s.b.len + 4;
    return 0;
}

int multipart_new(const char *content_type, const struct multipart_ops *ops, void *ud,
                  struct multipart **ret, struct err *err) {
    struct multipart *m = calloc(1, sizeof *m);
    int r;

    if (!m)
        return err_set(err, -ENOMEM, "multipart: out of memory");
    *m = (struct multipart){.ops = ops, .ud = ud, .bol = true};
    buf_init(&m->headers, MAX_PART_HEADERS);
    buf_init(&m->name, MAX_PART_HEADERS);
    buf_init(&m->filename, MAX_PART_HEADERS);
    buf_init(&m->type, MAX_PART_HEADERS);
    r = set_boundary(m, content_type, err);
    if (r < 0) {
        multipart_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

struct multipart *multipart_free(struct multipart *m) {
    if (!m)
        return NULL;
    buf_done(&m->headers);
    buf_done(&m->name);
    buf_done(&m->filename);
    buf_done(&m->type);
    free(m);
    return NULL;
}
