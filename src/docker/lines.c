/* Lines of JSON (see lines.h). */
#include "docker/lines.h"

#include <errno.h>
#include <string.h>

void json_lines_init(struct json_lines *l, size_t max_line) {
    *l = (struct json_lines){0};
    buf_init(&l->line, max_line);
}

void json_lines_done(struct json_lines *l) {
    buf_done(&l->line);
}

static int add(struct json_lines *l, const char *s, size_t n, struct err *err) {
    int r = buf_append(&l->line, s, n);

    if (r == -ENOBUFS)
        return err_set(err, -EMSGSIZE, "the Docker engine sent a line longer than %zu bytes",
                       l->line.max);
    return r < 0 ? err_set(err, r, "out of memory") : 0;
}

static bool is_blank(const struct buf *b) {
    for (size_t i = 0; i < b->len; i++) {
        if (!b->data[i] || !strchr(" \t\r", b->data[i]))
            return false;
    }
    return true;
}

/* The collected line; 0 when it is blank. */
static int take(struct json_lines *l, json_t **ret, struct err *err) {
    struct err why;
    json_t *j;

    if (is_blank(&l->line)) {
        buf_clear(&l->line);
        return 0;
    }
    j = json_parse(l->line.data, l->line.len, &why);
    buf_clear(&l->line);
    if (!j)
        return err_set(err, -EBADMSG, "the Docker engine sent a line that is no JSON: %s", why.msg);
    *ret = j;
    return 1;
}

int json_lines_next(struct json_lines *l, const char **data, size_t *len, json_t **ret,
                    struct err *err) {
    while (*len) {
        const char *end = memchr(*data, '\n', *len);
        size_t n = end ? (size_t)(end - *data) : *len;
        int r = add(l, *data, n, err);

        if (r < 0)
            return r;
        *data += n + (end ? 1 : 0);
        *len -= n + (end ? 1 : 0);
        r = end ? take(l, ret, err) : 0;
        if (r != 0)
            return r;
    }
    return 0;
}

int json_lines_end(struct json_lines *l, json_t **ret, struct err *err) {
    return take(l, ret, err);
}
