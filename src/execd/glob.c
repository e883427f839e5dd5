/*
 * Pattern matcher (see glob.h). Backtracking with a table of pairs (pattern position, name
 * position) that are known to fail, so every pair is tried once. Pure functions; worker threads use
 * them.
 */
#include "execd/glob.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"

#define MAX_ALTERNATIVES 1024
#define MAX_PATTERN 4096
#define MAX_STEPS 2000000 /* a name that needs more does not match */

/* ---- syntax ---- */

/* Position after the class that starts at p ("[..."), or NULL when it is malformed. */
static const char *class_end(const char *p) {
    p++;
    if (*p == '^' || *p == '!')
        p++;
    if (*p == ']')
        return NULL;
    for (; *p && *p != ']'; p++)
        if (*p == '\\' && !*++p)
            return NULL;
    return *p ? p + 1 : NULL;
}

/* Position after one token that is neither brace nor group; NULL = malformed. */
static const char *skip_token(const char *p) {
    if (*p == '[')
        return class_end(p);
    if (*p == '\\')
        return p[1] ? p + 2 : NULL;
    return p + 1;
}

/* The bracket that closes the one before p, at the same level. */
static const char *find_close(const char *p, char open, char close) {
    int depth = 1;

    while (*p) {
        if (*p == open)
            depth++;
        else if (*p == close && --depth == 0)
            return p;
        p = skip_token(p);
        if (!p)
            return NULL;
    }
    return NULL;
}

static bool is_valid(const char *p) {
    int braces = 0, groups = 0;

    while (p && *p) {
        if (*p == '{')
            braces++;
        else if (*p == '}' && --braces < 0)
            return false;
        else if (*p == ')' && groups > 0)
            groups--;
        else if (*p == '!') {
            if (p[1] != '(' || !find_close(p + 2, '(', ')'))
                return false;
            groups++;
            p++;
        }
        p = skip_token(p);
    }
    return p && braces == 0;
}

/* Resolves the first pair of braces in every way, then what is left of them. */
static int expand(const char *pattern, struct strv *out) {
    const char *p = pattern, *open, *close;

    while (p && *p && *p != '{' && *p != '!')
        p = skip_token(p);
    if (!p) /* what the alternatives were put into may have become a bad pattern */
        return -EINVAL;
    if (*p != '{') /* what a negation covers stays whole: it is compiled when it is met */
        return out->n >= MAX_ALTERNATIVES ? -E2BIG
               : is_valid(pattern)        ? strv_add(out, pattern)
                                          : -EINVAL;
    open = p;
    close = find_close(p + 1, '{', '}');
    if (!close)
        return -EINVAL;
    for (const char *alt = open + 1, *q = alt; q <= close;) {
        if (*q == '{') { /* commas inside are not ours */
            q = find_close(q + 1, '{', '}');
            if (!q)
                return -EINVAL;
            q++;
        } else if (*q == '!') {
            q = find_close(q + 2, '(', ')');
            if (!q)
                return -EINVAL;
            q++;
        } else if (*q == ',' || q == close) {
            _cleanup_free_ char *one = str_printf("%.*s%.*s%s", (int)(open - pattern), pattern,
                                                  (int)(q - alt), alt, close + 1);
            int r = one ? expand(one, out) : -ENOMEM;
            if (r < 0)
                return r;
            alt = ++q;
        } else {
            q = skip_token(q);
            if (!q)
                return -EINVAL;
        }
    }
    return 0;
}

int glob_compile(const char *pattern, struct glob *ret, struct err *err) {
    struct glob g = {0};
    int r = 0;

    if (strlen(pattern) > MAX_PATTERN)
        return err_set(err, -E2BIG, "the pattern is longer than %d bytes", MAX_PATTERN);
    if (!is_valid(pattern))
        return err_set(err, -EINVAL, "bad pattern: %s", pattern);
    r = expand(pattern, &g.patterns);
    if (r < 0) {
        glob_done(&g);
        return r == -E2BIG
                   ? err_set(err, r, "the pattern has more than %d alternatives", MAX_ALTERNATIVES)
                   : err_sys(err, r, "bad pattern: %s", pattern);
    }
    *ret = g;
    return 0;
}

void glob_done(struct glob *g) {
    strv_done(&g->patterns);
}

/* ---- matching ---- */

struct match {
    const char *pattern, *name;
    size_t name_len;
    unsigned char *failed; /* bit per pair of positions */
    size_t *budget;        /* pairs that may still be tried, nested negations included */
};

/* One code point (or one broken byte) at s; its length in *len. */
static uint32_t code_point(const char *s, int *len) {
    const unsigned char *u = (const unsigned char *)s;
    int n = *u < 0x80 ? 1 : utf8_next(s, strlen(s));

    *len = MAX(n, 1);
    if (n <= 1)
        return *u < 0x80 ? *u : 0x110000U + *u;
    uint32_t c = *u & (0xffU >> (n + 1));
    for (int i = 1; i < n; i++)
        c = c << 6 | (u[i] & 0x3f);
    return c;
}

static uint32_t class_point(const char **p) {
    int n;

    if (**p == '\\')
        (*p)++;
    uint32_t c = code_point(*p, &n);
    *p += n;
    return c;
}

static bool class_has(const char *p, uint32_t c) {
    bool negated = *++p == '^' || *p == '!', found = false;

    p += negated;
    while (*p != ']') {
        uint32_t low = class_point(&p), high = low;
        if (*p == '-' && p[1] != ']') {
            p++;
            high = class_point(&p);
        }
        found |= c >= low && c <= high;
    }
    return c != '/' && found != negated;
}

static bool is_globstar(const struct match *m, const char *p) {
    return p[0] == '*' && p[1] == '*' && (p == m->pattern || p[-1] == '/') &&
           (p[2] == '/' || p[2] == 0);
}

static bool step(struct match *m, const char *p, const char *s);
static bool match_any(const struct glob *g, const char *name, size_t *budget);

static bool try_from(struct match *m, const char *p, const char *s) {
    size_t bit = (size_t)(p - m->pattern) * (m->name_len + 1) + (size_t)(s - m->name);

    if (*m->budget == 0 || m->failed[bit / 8] & 1U << bit % 8)
        return false;
    (*m->budget)--;
    if (step(m, p, s))
        return true;
    m->failed[bit / 8] |= (unsigned char)(1U << bit % 8);
    return false;
}

static bool match_globstar(struct match *m, const char *p, const char *s) {
    if (!p[2])
        return true;
    for (;;) {
        if (try_from(m, p + 3, s))
            return true;
        s = strchr(s, '/');
        if (!s)
            return false;
        s++;
    }
}

static bool match_star(struct match *m, const char *p, const char *s) {
    while (*p == '*' && !is_globstar(m, p))
        p++;
    for (;; s++) {
        if (try_from(m, p, s))
            return true;
        if (!*s || *s == '/')
            return false;
    }
}

/* !(pat)rest: the remaining name must not match pat followed by rest. */
static bool match_negated(struct match *m, const char *p, const char *s) {
    const char *close = find_close(p + 2, '(', ')');
    _cleanup_free_ char *inner = str_printf("%.*s%s", (int)(close - p - 2), p + 2, close + 1);

    struct glob g = {0};

    if (!inner || glob_compile(inner, &g, NULL) < 0)
        return false;
    bool found = match_any(&g, s, m->budget);
    glob_done(&g);
    return !found && *m->budget > 0;
}

static bool step(struct match *m, const char *p, const char *s) {
    for (;;) {
        int n;
        if (!*p)
            return !*s;
        if (is_globstar(m, p))
            return match_globstar(m, p, s);
        if (!*s && strcmp(p, "/**") == 0)
            return true;
        if (*p == '*')
            return match_star(m, p, s);
        if (*p == '!')
            return match_negated(m, p, s);
        if (!*s)
            return false;
        uint32_t c = code_point(s, &n);
        if (*p == '?') {
            if (c == '/')
                return false;
        } else if (*p == '[') {
            if (!class_has(p, c))
                return false;
        } else {
            const char *lit = *p == '\\' ? p + 1 : p;
            int k;
            if (code_point(lit, &k) != c)
                return false;
            p = lit + k;
            s += n;
            continue;
        }
        p = skip_token(p);
        s += n;
    }
}

static bool match_whole(const char *pattern, const char *name, size_t *budget) {
    struct match m = {.pattern = pattern, .name = name, .name_len = strlen(name), .budget = budget};
    bool found;

    m.failed = calloc(1, ((strlen(pattern) + 1) * (m.name_len + 1) + 7) / 8);
    found = m.failed && try_from(&m, pattern, name);
    free(m.failed);
    return found;
}

static bool match_any(const struct glob *g, const char *name, size_t *budget) {
    for (size_t i = 0; i < g->patterns.n; i++)
        if (match_whole(g->patterns.v[i], name, budget))
            return true;
    return false;
}

bool glob_match(const struct glob *g, const char *name) {
    size_t budget = MAX_STEPS;
    return match_any(g, name, &budget);
}
