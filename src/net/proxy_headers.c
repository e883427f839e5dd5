/*
 * Header rules of the reverse proxy (see proxy_headers.h). No state.
 *
 * Order of a request's headers: those of the client that may pass, then the caller's additions,
 * then what is rebuilt, so nothing the client sends can stand in for ours: a header of ours is
 * dropped from the client's.
 */
#include "net/proxy_headers.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"

void header_set_done(struct header_set *s) {
    free(s->v);
    strv_done(&s->owned);
    *s = (struct header_set){0};
}

static void add(struct header_set *s, const char *name, const char *value) {
    if (s->n + 1 >= s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 32;
        struct h1_header *v = reallocarray(s->v, cap, sizeof *v);
        if (!v) {
            s->failed = true;
            return;
        }
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (struct h1_header){name, value};
    s->v[s->n] = (struct h1_header){0};
}

/* Takes a text made for this set; NULL = out of memory. */
static const char *own(struct header_set *s, char *text) {
    if (!text || strv_take(&s->owned, text) < 0) {
        s->failed = true;
        return "";
    }
    return text;
}

static void make_lower(char *s) {
    for (; *s; s++)
        if (*s >= 'A' && *s <= 'Z')
            *s = (char)(*s + 32);
}

static char *lower(const char *s) {
    char *copy = strdup(s);

    if (copy)
        make_lower(copy);
    return copy;
}

/* ---- what is dropped ---- */

static bool is_listed(const char *const *list, const char *name) {
    for (; list && *list; list++) {
        size_t n = strlen(*list);
        if (n > 0 && (*list)[n - 1] == '*' ? strncmp(*list, name, n - 1) == 0 : str_eq(*list, name))
            return true;
    }
    return false;
}

static const char *const hop_by_hop[] = {"connection", "keep-alive", "proxy-authenticate",
                                         "proxy-authorization", "proxy-connection", "te", "trailer",
                                         "transfer-encoding", "upgrade",
                                         /* framing is made anew on each side */
                                         "content-length", NULL};

/* The names in Connection headers, lower case, as keys. NULL when there are none, or out of memory
 * (failed is set). */
static struct map *connection_names(const struct h1_header *headers, size_t n,
                                    struct header_set *s) {
    struct map *m = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!str_ieq(headers[i].name, "connection"))
            continue;
        for (const char *p = headers[i].value; *p;) {
            size_t len = strcspn(p, ", \t");
            _cleanup_free_ char *name = str_ndup(p, len);
            if (!m)
                m = map_new();
            if (name)
                make_lower(name);
            if (!name || !m || (len && map_set(m, name, m, NULL) < 0))
                s->failed = true;
            p += len + strspn(p + len, ", \t");
        }
    }
    return m;
}

const char *proxy_upgrade_protocol(const struct h1_header *headers, size_t n) {
    const char *found = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!str_ieq(headers[i].name, "upgrade"))
            continue;
        if (found || strpbrk(headers[i].value, ", \t") || !*headers[i].value)
            return NULL;
        found = headers[i].value;
    }
    /* h2c would carry requests past every rule of ours */
    return found && (*found | 32) == 'h' && (found[1] == '2' || str_ieq(found, "http/2.0")) ? NULL
                                                                                            : found;
}

/* ---- requests ---- */

static const char *const forwarding[] = {"forwarded",
                                         "x-forwarded-for",
                                         "x-forwarded-host",
                                         "x-forwarded-port",
                                         "x-forwarded-proto",
                                         "x-real-ip",
                                         NULL};
static const char *const rebuilt_when_kept[] = {"x-forwarded-for", "x-forwarded-host",
                                                "x-forwarded-proto", NULL};

static const char *find(const struct proxy_request *in, const char *name) {
    for (size_t i = 0; i < in->n_headers; i++)
        if (str_ieq(in->headers[i].name, name))
            return in->headers[i].value;
    return NULL;
}

static bool is_replaced(const struct h1_header *ours, const char *name) {
    for (; ours && ours->name; ours++)
        if (str_ieq(ours->name, name))
            return true;
    return false;
}

static bool passes(const struct proxy_opts *o, const struct map *named, const char *name) {
    if (is_listed(hop_by_hop, name) || is_listed(o->drop_request, name) ||
        (named && map_has(named, name)))
        return false;
    if (is_listed(o->keep_forwarded ? rebuilt_when_kept : forwarding, name))
        return false;
    if (is_replaced(o->add_request, name))
        return false;
    /* 100-continue is answered on our side when the upstream is ready for the body */
    return !str_eq(name, "host") && !str_eq(name, "expect");
}

/* Everything a proxy before us says of the way here: it may have added a line of its own. */
static char *join(const struct proxy_request *in, const char *name) {
    struct buf b = BUF_INIT(65536);

    for (size_t i = 0; i < in->n_headers; i++)
        if (str_ieq(in->headers[i].name, name) && !str_is_empty(in->headers[i].value))
            buf_printf(&b, "%s%s", b.len ? ", " : "", in->headers[i].value);
    char *r = b.len ? buf_take(&b, NULL) : NULL;
    buf_done(&b);
    return r;
}

/* The caller first (as a proxy before us says it, when we believe it), then who we see. */
static void add_forwarded_for(const struct proxy_opts *o, const struct proxy_request *in,
                              struct header_set *s) {
    _cleanup_free_ char *all = o->trust_forwarded ? join(in, "x-forwarded-for") : NULL;
    bool keep = o->keep_forwarded || o->trust_forwarded;
    const char *told = all ? all : keep ? find(in, "x-forwarded-for") : NULL, *peer = in->peer;
    size_t n;

    if (keep && !told)
        told = find(in, "x-real-ip");
    if (told)
        told += strspn(told, " \t,");
    n = !told ? 0 : all ? strlen(told) : strcspn(told, ", \t");
    if (n && peer)
        add(s, "X-Forwarded-For", own(s, str_printf("%.*s, %s", (int)n, told, peer)));
    else if (n)
        add(s, "X-Forwarded-For", own(s, str_ndup(told, n)));
    else if (peer)
        add(s, "X-Forwarded-For", own(s, strdup(peer)));
}

int proxy_request_headers(const struct proxy_opts *o, const struct proxy_request *in,
                          struct header_set *ret) {
    struct header_set s = {0};
    struct map *named = connection_names(in->headers, in->n_headers, &s);
    const char *host = find(in, "host");

    if (o->host || host)
        add(&s, "Host", o->host ? o->host : host);
    for (size_t i = 0; i < in->n_headers; i++) {
        _cleanup_free_ char *name = lower(in->headers[i].name);
        if (!name)
            s.failed = true;
        else if (passes(o, named, name))
            add(&s, in->headers[i].name, in->headers[i].value);
    }
    for (const struct h1_header *h = o->add_request; h && h->name; h++)
        add(&s, h->name, h->value);
    if (!is_replaced(o->add_request, "X-Forwarded-For"))
        add_forwarded_for(o, in, &s);
    const char *proto = o->trust_forwarded ? find(in, "x-forwarded-proto") : NULL;
    if (!is_replaced(o->add_request, "X-Forwarded-Proto"))
        add(&s, "X-Forwarded-Proto", proto ? proto : "http");
    const char *outer = o->trust_forwarded ? find(in, "x-forwarded-host") : NULL;
    if (outer)
        host = outer;
    if (!o->keep_forwarded && host && !is_replaced(o->add_request, "X-Forwarded-Host"))
        add(&s, "X-Forwarded-Host", host);
    if (in->upgrade) {
        add(&s, "Connection", "Upgrade");
        add(&s, "Upgrade", in->upgrade);
    }
    map_free(named);
    if (s.failed) {
        header_set_done(&s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

/* ---- responses ---- */

static const char *location(const struct proxy_opts *o, const char *value, struct header_set *s) {
    if (!o->location_prefix || value[0] != '/' || value[1] == '/')
        return value;
    return own(s, str_printf("%s%s", o->location_prefix, value));
}

int proxy_response_headers(const struct proxy_opts *o, const struct h1_header *headers, size_t n,
                           bool is_upgrade, struct header_set *ret) {
    struct header_set s = {0};
    struct map *named = connection_names(headers, n, &s);

    for (size_t i = 0; i < n; i++) {
        char *name = lower(headers[i].name);
        bool kept = is_upgrade && name && str_eq(name, "upgrade");
        if (!name ||
            (!kept && (is_listed(hop_by_hop, name) || is_listed(o->drop_response, name) ||
                       (named && map_has(named, name)) || is_replaced(o->add_response, name)))) {
            s.failed |= !name;
            free(name);
            continue;
        }
        const char *value =
            str_eq(name, "location") ? location(o, headers[i].value, &s) : headers[i].value;
        add(&s, own(&s, name), value);
    }
    for (const struct h1_header *h = o->add_response; h && h->name; h++)
        add(&s, h->name, h->value);
    if (is_upgrade)
        add(&s, "connection", "Upgrade");
    map_free(named);
    if (s.failed) {
        header_set_done(&s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}
