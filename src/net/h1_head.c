/*
 * Request heads. A head is looked for in raw bytes first (its end, line endings, folding, sizes),
 * and only a whole one is copied and given to llhttp; so the result cannot depend on how the bytes
 * were cut up on the way. Pure functions but for the allocation; nothing here knows a socket.
 *
 * A request is one block of memory: the struct, its header array, the head's bytes (names and
 * values are terminated in place) and a copy of the path.
 */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "net/h1_internal.h"

#define MAX_METHOD_AND_VERSION 40 /* what a request line holds beside the target */

static enum h1_scan_result fault(struct h1_fault *ret, int status, const char *text) {
    *ret = (struct h1_fault){status, text};
    return H1_SCAN_FAULT;
}

/* "... HTTP/1.1": refuses 0.9 (no version), 2.0 prefaces and other protocols as soon as the line is
 * there. */
static bool has_known_version(const char *line, size_t len) {
    return len > 9 && memcmp(line + len - 9, " HTTP/1.", 8) == 0 &&
           (line[len - 1] == '0' || line[len - 1] == '1');
}

static enum h1_scan_result scan_request_line(struct h1_scan *s, const struct h1_limits *lim,
                                             const char *line, size_t len, struct h1_fault *f) {
    const char *sp;

    if (!has_known_version(line, len))
        return fault(f, 400, "the request line does not end in HTTP/1.1 or HTTP/1.0");
    sp = memchr(line, ' ', len);
    if (sp == line + len - 9 || memchr(sp + 1, ' ', (size_t)(line + len - 9 - sp - 1)) ||
        sp + 1 == line + len - 9)
        return fault(
            f, 400,
            "the request line is not a method, a target and a version with one blank between each");
    s->first_line = len;
    return H1_SCAN_MORE;
}

static enum h1_scan_result scan_header_line(struct h1_scan *s, const struct h1_limits *lim,
                                            const char *line, struct h1_fault *f) {
    if (*line == ' ' || *line == '\t')
        return fault(f, 400, "folded header lines are not accepted");
    if (*line == ':') /* llhttp would let it pass */
        return fault(f, 400, "a header line has no name");
    if (++s->lines > lim->max_header_count)
        return fault(f, 431, "more header lines than max_header_count");
    return H1_SCAN_MORE;
}

/* Sizes are checked on what is there, so that an endless line is refused before it is complete. */
static enum h1_scan_result check_sizes(const struct h1_scan *s, const struct h1_limits *lim,
                                       size_t len, struct h1_fault *f) {
    if (!s->first_line)
        return len > lim->max_target + MAX_METHOD_AND_VERSION + 2
                   ? fault(f, 414, "the request target is longer than max_target")
                   : H1_SCAN_MORE;
    if (len - s->first_line > lim->max_headers)
        return fault(f, 431, "the header block is larger than max_headers");
    return H1_SCAN_MORE;
}

enum h1_scan_result h1_scan_head(struct h1_scan *s, const struct h1_limits *lim, const char *data,
                                 size_t len, size_t *ret_len, struct h1_fault *f) {
    if (s->pos == 0 && len && !(data[0] >= 'A' && data[0] <= 'Z'))
        return fault(f, 400, "the request does not begin with a method");
    while (s->pos < len) {
        const char *nl = memchr(data + s->pos, '\n', len - s->pos), *line = data + s->line_start;
        enum h1_scan_result r;
        size_t line_len;

        if (!nl) {
            s->pos = len;
            break;
        }
        /* Sizes first, as if the line were not complete yet. */
        r = check_sizes(s, lim, (size_t)(nl - data) + 1, f);
        if (r == H1_SCAN_FAULT)
            return r;
        if (nl == line || nl[-1] != '\r')
            return fault(f, 400, "a line ends in LF without CR");
        s->pos = (size_t)(nl - data) + 1;
        line_len = (size_t)(nl - line) - 1;
        if (!line_len && s->first_line) {
            *ret_len = s->pos;
            return H1_SCAN_DONE;
        }
        r = s->first_line ? scan_header_line(s, lim, line, f)
                          : scan_request_line(s, lim, line, line_len, f);
        if (r == H1_SCAN_FAULT)
            return r;
        s->line_start = s->pos;
    }
    return check_sizes(s, lim, len, f);
}

/* ---- llhttp's callbacks: spans of the copied head ---- */

static int on_url(llhttp_t *p, const char *at, size_t len) {
    struct h1_req *r = p->data;

    if (!r->target)
        r->target = at;
    return 0;
}

static int on_field(llhttp_t *p, const char *at, size_t len) {
    struct h1_req *r = p->data;

    if (r->n_headers >= r->max_headers) /* the scan counted the lines: cannot happen */
        return -1;
    r->headers[r->n_headers++].name = at;
    return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t len) {
    struct h1_req *r = p->data;

    if (r->n_headers)
        r->headers[r->n_headers - 1].value = at;
    return 0;
}

static const llhttp_settings_t head_settings = {
    .on_url = on_url, .on_header_field = on_field, .on_header_value = on_value};

/* ---- checks ---- */

static const char *header(const struct h1_req *r, const char *name, unsigned *ret_count) {
    const char *first = NULL;

    *ret_count = 0;
    for (size_t i = 0; i < r->n_headers; i++) {
        if (!str_ieq(r->headers[i].name, name))
            continue;
        if (!(*ret_count)++)
            first = r->headers[i].value;
    }
    return first;
}

/* True when a comma-separated list holds the word. */
static bool list_has(const char *list, const char *word) {
    size_t n = strlen(word);

    for (const char *p = list; p && *p;) {
        size_t skip = strspn(p, " \t,"), len = strcspn(p + skip, ","), k;
        p += skip;
        for (k = len; k && (p[k - 1] == ' ' || p[k - 1] == '\t'); k--)
            ;
        if (k == n && strncasecmp(p, word, n) == 0)
            return true;
        p += len;
    }
    return false;
}

static bool any_list_has(const struct h1_req *r, const char *name, const char *word) {
    for (size_t i = 0; i < r->n_headers; i++)
        if (str_ieq(r->headers[i].name, name) && list_has(r->headers[i].value, word))
            return true;
    return false;
}

static const char *check_framing(struct h1_req *r) {
    unsigned n_te, n_cl;
    const char *te = header(r, "Transfer-Encoding", &n_te),
               *cl = header(r, "Content-Length", &n_cl);

    if (n_te && n_cl)
        return "both Content-Length and Transfer-Encoding are given";
    if (n_te > 1 || (n_te && !str_ieq(te, "chunked")))
        return "Transfer-Encoding is not exactly \"chunked\"";
    if (n_te && r->http10)
        return "Transfer-Encoding in an HTTP/1.0 request";
    if (n_cl > 1)
        return "Content-Length is given more than once";
    if (n_cl && (strspn(cl, "0123456789") != strlen(cl) || str_to_u64(cl, &r->remaining) < 0 ||
                 r->remaining > INT64_MAX))
        return "Content-Length is not a number";
    r->body_mode = n_te ? H1_BODY_CHUNKED : r->remaining ? H1_BODY_LENGTH : H1_BODY_NONE;
    r->body_done = r->body_mode == H1_BODY_NONE;
    return NULL;
}

static const char *check_host(const struct h1_req *r) {
    unsigned n;
    const char *host = header(r, "Host", &n);

    if (n > 1)
        return "Host is given more than once";
    if (!n)
        return r->http10 ? NULL : "Host is missing";
    for (const char *p = host; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || strchr("/\\?#@,\"<>", *p))
            return "Host is not a host name";
    return NULL;
}

/* Origin form, "*" for OPTIONS, or absolute form (whose authority must be the Host). */
static const char *check_target(struct h1_req *r, char *path_buf) {
    const char *path = r->target, *q;
    unsigned n;

    for (const char *p = path; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || *p == '#')
            return "the request target has characters that must be encoded";
    if (strncasecmp(path, "http://", 7) == 0) {
        const char *host = header(r, "Host", &n), *authority = path + 7;
        size_t len = strcspn(authority, "/?");
        if (!host || strlen(host) != len || strncasecmp(host, authority, len) != 0)
            return "the request target and Host name different hosts";
        path = authority + len;
    } else if (*path != '/' && !(str_eq(path, "*") && str_eq(r->method, "OPTIONS"))) {
        return "the request target does not begin with a slash";
    }
    q = strchr(path, '?');
    r->query = q ? q + 1 : NULL;
    if (path == r->target && !q) {
        r->path = r->target;
        return NULL;
    }
    n = (unsigned)(q ? (size_t)(q - path) : strlen(path));
    memcpy(path_buf, n ? path : "/", n ? n : 1);
    path_buf[n ? n : 1] = 0;
    r->path = path_buf;
    return NULL;
}

static void read_connection(struct h1_req *r) {
    unsigned n;
    const char *expect = header(r, "Expect", &n);

    r->keep_alive = r->http10 ? any_list_has(r, "Connection", "keep-alive")
                              : !any_list_has(r, "Connection", "close");
    (void)header(r, "Upgrade", &n);
    r->upgrade = n && !r->http10 && any_list_has(r, "Connection", "upgrade");
    r->expect_continue = expect && !r->http10 && str_ieq(expect, "100-continue") && !r->body_done;
    r->continue_due = r->expect_continue;
}

/* Ends every name and value with a NUL, in place, blanks around values removed. */
static void terminate_headers(struct h1_req *r) {
    for (size_t i = 0; i < r->n_headers; i++) {
        char *name = (char *)r->headers[i].name, *v = (char *)r->headers[i].value, *end;
        name[strcspn(name, ":")] = 0;
        if (!v) {
            r->headers[i].value = "";
            continue;
        }
        end = v + strcspn(v, "\r");
        while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        *end = 0;
    }
}

const char *h1_parser_reason(const llhttp_t *p) {
    const char *reason = llhttp_get_error_reason(p);

    return reason ? reason : "the request is malformed";
}

static int refuse(struct h1_fault *f, int status, const char *text) {
    *f = (struct h1_fault){status, text};
    return -EBADMSG;
}

static int parse_into(struct h1_req *r, char *head, size_t len, size_t first_line, char *path_buf,
                      struct h1_fault *f) {
    const char *why;
    llhttp_errno_t e;

    llhttp_init(&r->parser, HTTP_REQUEST, &head_settings);
    r->parser.data = r;
    e = llhttp_execute(&r->parser, head, len);
    if (e == HPE_INVALID_METHOD)
        return refuse(f, 501, "the method is not known");
    if ((e != HPE_OK && e != HPE_PAUSED_UPGRADE) || !r->target)
        return refuse(f, 400,
                      e == HPE_OK ? "the request has no target" : h1_parser_reason(&r->parser));
    if (r->parser.method == HTTP_CONNECT || r->parser.method == HTTP_PRI)
        return refuse(f, 501, "the method is not supported");
    r->method = llhttp_method_name((llhttp_method_t)r->parser.method);
    r->is_head = r->parser.method == HTTP_HEAD;
    r->http10 = r->parser.http_minor == 0;
    head[first_line - strlen(" HTTP/1.1")] = 0; /* the target ends where the version begins */
    terminate_headers(r);
    why = check_framing(r);
    if (!why)
        why = check_host(r);
    if (!why)
        why = check_target(r, path_buf);
    if (why)
        return refuse(f, 400, why);
    read_connection(r);
    return 0;
}

int h1_parse_head(const struct h1_scan *scan, const char *data, size_t len, struct h1_req **ret,
                  struct h1_fault *f) {
    size_t array = (scan->lines + 1) * sizeof(struct h1_header);
    struct h1_req *r = malloc(sizeof *r + array + len + 1 + scan->first_line + 1);
    char *head, *path_buf;
    int e;

    if (!r)
        return -ENOMEM;
    memset(r, 0, sizeof *r);
    r->body_limit = UINT64_MAX;
    r->headers = (struct h1_header *)(r + 1);
    memset(r->headers, 0, array);
    r->max_headers = scan->lines;
    head = (char *)r->headers + array;
    path_buf = head + len + 1;
    memcpy(head, data, len);
    head[len] = 0;
    e = parse_into(r, head, len, scan->first_line, path_buf, f);
    if (e < 0) {
        h1_req_free(r);
        return e;
    }
    *ret = r;
    return 0;
}

void h1_req_free(struct h1_req *r) {
    if (!r)
        return;
    buf_done(&r->collected);
    buf_done(&r->head);
    free(r);
}

/* ---- what handlers ask ---- */

const char *h1_req_method(const struct h1_req *r) {
    return r->method;
}

const char *h1_req_target(const struct h1_req *r) {
    return r->target;
}

const char *h1_req_path(const struct h1_req *r) {
    return r->path;
}

const char *h1_req_query(const struct h1_req *r) {
    return r->query;
}

const char *h1_req_header(const struct h1_req *r, const char *name) {
    unsigned n;
    return header(r, name, &n);
}

const struct h1_header *h1_req_headers(const struct h1_req *r, size_t *ret_n) {
    if (ret_n)
        *ret_n = r->n_headers;
    return r->headers; /* the entry after the last is {NULL, NULL} */
}

bool h1_req_is_upgrade(const struct h1_req *r) {
    return r->upgrade;
}

bool h1_req_is_http10(const struct h1_req *r) {
    return r->http10;
}

int64_t h1_req_content_length(const struct h1_req *r) {
    return r->body_mode == H1_BODY_CHUNKED  ? -1
           : r->body_mode == H1_BODY_LENGTH ? (int64_t)(r->remaining + r->body_bytes)
                                            : 0;
}
