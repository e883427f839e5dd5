/*
 * Route tables (see router.h). The table is cut into segments once; a look-up decodes the path's
 * segments and takes the best of the routes that fit. Immutable after router_new, so any thread may
 * look things up.
 */
#include "net/router.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

#define MAX_SEGMENTS 32

enum seg_kind { SEG_LITERAL, SEG_PARAM, SEG_REST }; /* the better first */

struct seg {
    enum seg_kind kind;
    const char *text; /* literal, in the pattern */
    size_t len;
};

struct compiled {
    const struct route *route;
    struct seg segs[MAX_SEGMENTS];
    size_t n;
};

struct router {
    size_t n;
    struct compiled routes[];
};

/* A path cut at its slashes, each piece decoded (for literals and parameters) and as it came (for
 * the rest). */
struct pieces {
    char *decoded[MAX_SEGMENTS];
    const char *raw[MAX_SEGMENTS];
    size_t n;
    bool cut; /* more segments than any route can name one by one */
};

static int add_segment(struct compiled *c, const char *s, size_t len) {
    struct seg *g = &c->segs[c->n];

    if (c->n == MAX_SEGMENTS || (c->n && c->segs[c->n - 1].kind == SEG_REST))
        return -EINVAL;
    *g = (struct seg){SEG_LITERAL, s, len};
    if (memchr(s, '{', len) || memchr(s, '}', len)) {
        if (len < 3 || s[0] != '{' || s[len - 1] != '}' || memchr(s + 1, '{', len - 1) ||
            memchr(s, '}', len - 1))
            return -EINVAL;
        g->kind = len > 5 && memcmp(s + len - 4, "...}", 4) == 0 ? SEG_REST : SEG_PARAM;
    }
    c->n++;
    return 0;
}

static int compile(struct compiled *c, const struct route *r) {
    const char *p = r->pattern;
    size_t params = 0;

    c->route = r;
    if (!p || *p != '/' || !r->method || !r->handler)
        return -EINVAL;
    while (*p == '/') {
        size_t len = strcspn(p + 1, "/");
        int e = add_segment(c, p + 1, len);
        if (e < 0)
            return e;
        params += c->segs[c->n - 1].kind != SEG_LITERAL;
        p += 1 + len;
    }
    return params > ROUTE_MAX_PARAMS ? -EINVAL : 0;
}

int router_new(const struct route *table, struct router **ret) {
    struct router *r;
    size_t n = 0;

    while (table[n].method || table[n].pattern)
        n++;
    r = calloc(1, sizeof *r + n * sizeof *r->routes);
    if (!r)
        return -ENOMEM;
    for (; r->n < n; r->n++) {
        int e = compile(&r->routes[r->n], &table[r->n]);
        if (e < 0) {
            free(r);
            return e;
        }
    }
    *ret = r;
    return 0;
}

void router_free(struct router *r) {
    free(r);
}

static void pieces_done(struct pieces *p) {
    for (size_t i = 0; i < p->n; i++)
        free(p->decoded[i]);
}

static int cut_path(const char *path, struct pieces *ret) {
    while (*path == '/') {
        size_t len = strcspn(path + 1, "/");
        int e;

        if (ret->n == MAX_SEGMENTS) {
            ret->cut = true;
            return 0;
        }
        e = url_decode(path + 1, len, &ret->decoded[ret->n]);
        if (e < 0)
            return e;
        ret->raw[ret->n++] = path + 1;
        path += 1 + len;
    }
    return *path ? -EINVAL : 0;
}

static bool fits(const struct compiled *c, const struct pieces *p) {
    for (size_t i = 0; i < c->n; i++) {
        const struct seg *g = &c->segs[i];

        if (g->kind == SEG_REST)
            return i < p->n;
        if (i >= p->n)
            return false;
        if (g->kind == SEG_PARAM && !*p->decoded[i])
            return false;
        if (g->kind == SEG_LITERAL &&
            (strlen(p->decoded[i]) != g->len || memcmp(p->decoded[i], g->text, g->len) != 0))
            return false;
    }
    return c->n == p->n && !p->cut;
}

/* Compares two routes that both fit: the first difference decides. */
static bool is_better(const struct compiled *a, const struct compiled *b) {
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (a->segs[i].kind != b->segs[i].kind)
            return a->segs[i].kind < b->segs[i].kind;
    return false;
}

static int method_rank(const char *route, const char *method) {
    if (str_eq(route, method))
        return 2;
    return str_eq(route, "*") ? 1 : 0;
}

static int fill_match(const struct compiled *c, struct pieces *p, struct route_match *ret) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    size_t offsets[ROUTE_MAX_PARAMS], n = 0;

    for (size_t i = 0; i < c->n; i++) {
        const char *text = c->segs[i].kind == SEG_REST ? p->raw[i] : p->decoded[i];
        if (c->segs[i].kind == SEG_LITERAL)
            continue;
        offsets[n++] = b.len;
        if (buf_append(&b, text, strlen(text) + 1) < 0)
            return -ENOMEM;
    }
    ret->storage = buf_take(&b, NULL);
    if (!ret->storage)
        return -ENOMEM;
    ret->n_params = n;
    for (size_t i = 0; i < n; i++)
        ret->params[i] = ret->storage + offsets[i];
    return 0;
}

/* "GET, POST": the methods of every route that fits as well as the best one. */
static char *allowed(const struct router *r, const struct pieces *p, const struct compiled *best) {
    _cleanup_buf_ struct buf b = BUF_INIT(1024);

    for (size_t i = 0; i < r->n; i++) {
        const struct compiled *c = &r->routes[i];
        bool seen = false;

        if (!fits(c, p) || is_better(best, c))
            continue;
        for (size_t k = 0; k < i && !seen; k++)
            seen = fits(&r->routes[k], p) && str_eq(r->routes[k].route->method, c->route->method);
        if (!seen)
            buf_printf(&b, "%s%s", b.len ? ", " : "", c->route->method);
    }
    return buf_take(&b, NULL);
}

enum route_result router_find(const struct router *r, const char *method, const char *path,
                              const struct route **ret_route, struct route_match *ret_match,
                              char **ret_allow) {
    struct pieces p = {0};
    const struct compiled *best = NULL, *other = NULL;
    enum route_result result = ROUTE_NOT_FOUND;

    *ret_match = (struct route_match){0};
    if (ret_allow)
        *ret_allow = NULL;
    if (cut_path(path, &p) < 0) {
        pieces_done(&p);
        return ROUTE_BAD_PATH;
    }
    for (size_t i = 0; i < r->n; i++) {
        const struct compiled *c = &r->routes[i];
        int rank = method_rank(c->route->method, method);

        if (!fits(c, &p))
            continue;
        if (!other || is_better(c, other))
            other = c;
        if (rank && (!best || is_better(c, best) ||
                     (!is_better(best, c) && rank > method_rank(best->route->method, method))))
            best = c;
    }
    if (best && fill_match(best, &p, ret_match) == 0) {
        *ret_route = best->route;
        result = ROUTE_OK;
    } else if (!best && other) {
        result = ROUTE_BAD_METHOD;
        if (ret_allow)
            *ret_allow = allowed(r, &p, other);
    }
    pieces_done(&p);
    return result;
}

void route_match_done(struct route_match *m) {
    free(m->storage);
    *m = (struct route_match){0};
}
