/* Parameters of structured header values (see mime.h). No state; callers give the buffers and their
 * maxima. */
#include "net/mime.h"

#include <errno.h>
#include <string.h>

static const char *skip_blanks(const char *s) {
    while (*s == ' ' || *s == '\t')
        s++;
    return s;
}

static size_t token_length(const char *s, const char *stop) {
    return strcspn(s, stop);
}

static size_t trimmed(const char *s, size_t n) {
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    return n;
}

int mime_token(const char **s, struct buf *ret) {
    const char *p = skip_blanks(*s);
    size_t n = token_length(p, ";");

    buf_clear(ret);
    *s = p + n;
    n = trimmed(p, n);
    return n ? buf_append(ret, p, n) : -EINVAL;
}

static int quoted_string(const char **s, struct buf *ret) {
    const char *p = *s + 1;

    for (; *p != '"'; p++) {
        if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
            p++;
        if (!*p)
            return -EINVAL;
        int r = buf_char(ret, *p);
        if (r < 0)
            return r;
    }
    *s = p + 1;
    return 0;
}

static int param_name(const char **s, struct buf *ret) {
    const char *p = *s;
    size_t n = token_length(p, "=;\" \t");

    if (n == 0)
        return -EINVAL;
    for (size_t i = 0; i < n; i++) {
        char c = p[i] >= 'A' && p[i] <= 'Z' ? (char)(p[i] + 32) : p[i];
        int r = buf_char(ret, c);
        if (r < 0)
            return r;
    }
    *s = p + n;
    return 0;
}

int mime_param(const char **s, struct buf *ret_name, struct buf *ret_value) {
    const char *p = skip_blanks(*s);
    int r;

    buf_clear(ret_name);
    buf_clear(ret_value);
    while (*p == ';') /* empty parameters ("; ;" or a trailing one) mean nothing */
        p = skip_blanks(p + 1);
    if (!*p) {
        *s = p;
        return 0;
    }
    r = param_name(&p, ret_name);
    if (r < 0)
        return r;
    p = skip_blanks(p);
    if (*p++ != '=')
        return -EINVAL;
    p = skip_blanks(p);
    if (*p == '"') {
        r = quoted_string(&p, ret_value);
    } else {
        size_t n = token_length(p, ";");
        r = buf_append(ret_value, p, trimmed(p, n));
        p += n;
    }
    if (r < 0)
        return r;
    p = skip_blanks(p);
    if (*p && *p != ';')
        return -EINVAL;
    r = buf_append(ret_value, "", 0); /* "" rather than NULL for an empty value */
    if (r < 0)
        return r;
    *s = p;
    return 1;
}
