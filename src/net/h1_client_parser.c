/*
 * Response parser (see h1_client_parser.h): llhttp plus the checks it leaves to us.
 *
 * The head is first walked by a scanner of ours, which bounds it, refuses folded lines, bare CR or
 * LF and NUL, and finds its end; llhttp then gets exactly the head's bytes, and the body's
 * afterwards, one piece at a time. So no caller's code ever runs inside llhttp. Invariant: after
 * RESPONSE_DONE or an error nothing is parsed.
 */
#include "net/h1_client_parser.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#define MAX_INTERIM 32

/* ---- llhttp's callbacks: they only record ---- */

static struct h1_response *self(llhttp_t *l) {
    return l->data;
}

static int take_text(struct h1_response *p, const char *s, size_t n) {
    if (p->phase == RESPONSE_IN_HEAD)
        return buf_append(&p->text, s, n) < 0 ? -1 : 0;
    p->framing_bytes += n; /* trailers are dropped, but not without end */
    return p->framing_bytes > H1_RESPONSE_MAX_HEAD ? -1 : 0;
}

static int on_text(llhttp_t *l, const char *s, size_t n) {
    return take_text(self(l), s, n);
}

static int on_name_end(llhttp_t *l) {
    return take_text(self(l), "", 1);
}

static int on_value_end(llhttp_t *l) {
    struct h1_response *p = self(l);

    while (p->phase == RESPONSE_IN_HEAD && p->text.len &&
           strchr(" \t", p->text.data[p->text.len - 1]) && p->text.data[p->text.len - 1])
        p->text.data[--p->text.len] = 0;
    p->n_headers += p->phase == RESPONSE_IN_HEAD;
    return take_text(p, "", 1);
}

static int on_extension(llhttp_t *l, const char *s, size_t n) {
    struct h1_response *p = self(l);

    p->framing_bytes += n;
    return p->framing_bytes > H1_RESPONSE_MAX_HEAD ? -1 : 0;
}

static bool has_no_body(const struct h1_response *p) {
    return p->is_head_request || p->status / 100 == 1 || p->status == 204 || p->status == 304;
}

static int on_head_end(llhttp_t *l) {
    struct h1_response *p = self(l);

    p->head_done = true;
    p->status = l->status_code;
    p->length = -1;
    p->is_chunked = l->flags & F_CHUNKED;
    if (l->flags & F_CONTENT_LENGTH)
        p->length = l->content_length > INT64_MAX ? INT64_MAX : (int64_t)l->content_length;
    p->until_close = !has_no_body(p) && llhttp_message_needs_eof(l);
    return has_no_body(p) ? 1 : 0;
}

static int on_piece(llhttp_t *l, const char *s, size_t n) {
    struct h1_response *p = self(l);

    if (n == 0) /* resumed without new bytes */
        return 0;
    p->piece = s;
    p->piece_len = n;
    return HPE_PAUSED;
}

static int on_message_end(llhttp_t *l) {
    struct h1_response *p = self(l);

    p->ended = true;
    p->keep_alive = llhttp_should_keep_alive(l);
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_header_field = on_text,
    .on_header_value = on_text,
    .on_header_field_complete = on_name_end,
    .on_header_value_complete = on_value_end,
    .on_chunk_extension_name = on_extension,
    .on_chunk_extension_value = on_extension,
    .on_headers_complete = on_head_end,
    .on_body = on_piece,
    .on_message_complete = on_message_end,
};

/* ---- the head ---- */

void h1_response_drop_head(struct h1_response *p) {
    buf_done(&p->text);
    free(TAKE_PTR(p->headers));
    p->n_headers = 0;
}

static void begin(struct h1_response *p) {
    llhttp_init(&p->parser, HTTP_RESPONSE, &settings);
    p->parser.data = p;
    p->phase = RESPONSE_IN_HEAD;
    p->head_done = p->ended = p->keep_alive = p->until_close = false;
    p->head_bytes = p->line_bytes = 0;
    p->last = 0;
    h1_response_drop_head(p);
}

void h1_response_init(struct h1_response *p, bool is_head_request, bool accept_upgrade) {
    *p = (struct h1_response){.is_head_request = is_head_request, .accept_upgrade = accept_upgrade};
    buf_init(&p->text, 2 * H1_RESPONSE_MAX_HEAD);
    begin(p);
}

void h1_response_done(struct h1_response *p) {
    h1_response_drop_head(p);
}

/* Walks over head bytes. Returns how many belong to the head; *ret_end when the blank line is among
 * them. */
static ssize_t scan_head(struct h1_response *p, const char *s, size_t n, bool *ret_end,
                         struct err *err) {
    *ret_end = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i], last = p->last;

        p->last = c;
        if (++p->head_bytes > H1_RESPONSE_MAX_HEAD)
            return err_set(err, -EBADMSG, "the response head is larger than %zu bytes",
                           H1_RESPONSE_MAX_HEAD);
        if (c == 0 || (last == '\r') != (c == '\n'))
            return err_set(err, -EBADMSG, "the response head has a NUL, a bare CR or a bare LF");
        if (c == '\n') {
            *ret_end = p->line_bytes == 1;
            p->line_bytes = 0;
            if (*ret_end && p->head_bytes == 2)
                return err_set(err, -EBADMSG, "the response begins with an empty line");
            if (*ret_end)
                return (ssize_t)i + 1;
            continue;
        }
        if (p->line_bytes++ == 0 && (c == ' ' || c == '\t'))
            return err_set(err, -EBADMSG, "the response head has a folded line");
    }
    return (ssize_t)n;
}

static int collect_headers(struct h1_response *p, struct err *err) {
    const char *s = p->text.data;

    if (p->n_headers > H1_RESPONSE_MAX_HEADERS)
        return err_set(err, -EBADMSG, "the response has more than %d headers",
                       H1_RESPONSE_MAX_HEADERS);
    p->headers = calloc(p->n_headers + 1, sizeof *p->headers);
    if (!p->headers)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < p->n_headers; i++) {
        p->headers[i].name = s;
        s += strlen(s) + 1;
        p->headers[i].value = s;
        s += strlen(s) + 1;
    }
    return 0;
}

/* Two readers must not be able to disagree about the length. */
static int check_framing(const struct h1_response *p, struct err *err) {
    unsigned lengths = 0, codings = 0;

    if (p->parser.http_major != 1 || p->parser.http_minor > 1)
        return err_set(err, -EBADMSG, "the response is not HTTP/1.0 or 1.1");
    for (size_t i = 0; i < p->n_headers; i++) {
        if (!*p->headers[i].name)
            return err_set(err, -EBADMSG, "the response has a header without a name");
        lengths += str_ieq(p->headers[i].name, "Content-Length");
        if (!str_ieq(p->headers[i].name, "Transfer-Encoding"))
            continue;
        codings++;
        if (!str_ieq(p->headers[i].value, "chunked"))
            return err_set(err, -EBADMSG, "the response has a transfer coding other than chunked");
    }
    if (lengths > 1 || codings > 1 || (lengths && codings))
        return err_set(err, -EBADMSG, "the response states its length more than once");
    if ((codings > 0) != p->is_chunked) /* blanks that one of us trims and the other does not */
        return err_set(err, -EBADMSG, "the transfer coding of the response is malformed");
    if (codings && p->parser.http_minor == 0)
        return err_set(err, -EBADMSG, "the response is HTTP/1.0 and chunked");
    if (p->length == INT64_MAX)
        return err_set(err, -EBADMSG, "the response states an impossible length");
    return 0;
}

static int parser_error(const struct h1_response *p, struct err *err) {
    const char *why = llhttp_get_error_reason(&p->parser);
    return err_set(err, -EBADMSG, "the response is not valid HTTP: %s",
                   why && *why ? why : llhttp_errno_name(llhttp_get_errno(&p->parser)));
}

static int head_complete(struct h1_response *p, struct err *err) {
    int r;

    if (!p->head_done)
        return err_set(err, -EBADMSG, "the response is not valid HTTP: its head is malformed");
    r = collect_headers(p, err);
    if (r == 0)
        r = check_framing(p, err);
    if (r < 0)
        return r;
    if (p->status == 101) {
        if (!p->accept_upgrade || !p->parser.upgrade)
            return err_set(err, -EBADMSG,
                           "the response switches protocols, which was not asked for");
        p->phase = RESPONSE_DONE;
        return H1_RESPONSE_UPGRADE;
    }
    if (p->status / 100 == 1) {
        if (++p->n_interim > MAX_INTERIM)
            return err_set(err, -EBADMSG, "more than %d interim responses", MAX_INTERIM);
        begin(p);
        return H1_RESPONSE_MORE;
    }
    if (p->status < 100)
        return err_set(err, -EBADMSG, "the response has the impossible status %d", p->status);
    p->phase = RESPONSE_IN_BODY;
    return H1_RESPONSE_HEAD;
}

/* ---- events ---- */

static int next_in_head(struct h1_response *p, const char **data, size_t *len, struct err *err) {
    while (*len > 0) {
        bool end;
        ssize_t n = scan_head(p, *data, *len, &end, err);
        if (n < 0)
            return (int)n;
        llhttp_errno_t e = llhttp_execute(&p->parser, *data, (size_t)n);
        if (e != HPE_OK && !(end && (e == HPE_PAUSED || e == HPE_PAUSED_UPGRADE)))
            return parser_error(p, err);
        *data += n;
        *len -= (size_t)n;
        int r = end ? head_complete(p, err) : H1_RESPONSE_MORE;
        if (r != H1_RESPONSE_MORE)
            return r;
    }
    return H1_RESPONSE_MORE;
}

static int next_in_body(struct h1_response *p, const char **data, size_t *len, struct err *err) {
    if (!p->ended) {
        llhttp_errno_t e;
        size_t used = *len;

        p->piece = NULL;
        llhttp_resume(&p->parser);
        e = llhttp_execute(&p->parser, *data, *len);
        if (e == HPE_PAUSED)
            used = (size_t)(llhttp_get_error_pos(&p->parser) - *data);
        else if (e != HPE_OK)
            return parser_error(p, err);
        *data += used;
        *len -= used;
        if (p->piece)
            return H1_RESPONSE_DATA;
    }
    if (p->ended) {
        p->phase = RESPONSE_DONE;
        return H1_RESPONSE_END;
    }
    return H1_RESPONSE_MORE;
}

int h1_response_next(struct h1_response *p, const char **data, size_t *len, struct err *err) {
    switch (p->phase) {
    case RESPONSE_IN_HEAD:
        return next_in_head(p, data, len, err);
    case RESPONSE_IN_BODY:
        return next_in_body(p, data, len, err);
    default:
        return H1_RESPONSE_MORE;
    }
}

int h1_response_eof(const struct h1_response *p, struct err *err) {
    if (p->phase == RESPONSE_DONE || (p->phase == RESPONSE_IN_BODY && (p->until_close || p->ended)))
        return 0;
    if (p->phase == RESPONSE_IN_BODY)
        return err_set(err, -EBADMSG, "the response is truncated");
    if (p->head_bytes == 0)
        return err_set(err, -ECONNRESET, "the connection was closed without a response");
    return err_set(err, -EBADMSG, "the response is truncated in its head");
}
