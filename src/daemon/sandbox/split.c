/* Word splitting by POSIX shell quoting, without expansions. Pure. */
#include <errno.h>
#include <string.h>

#include "daemon/sandbox/check.h"

/* Copies one quoted part starting after the opening quote; moves *s behind the closing one. */
static int quoted(const char **s, char quote, struct buf *word) {
    const char *p = *s;

    for (; *p != quote; p++) {
        if (!*p)
            return -EINVAL;
        if (quote == '"' && *p == '\\' && p[1] && strchr("\"\\$`", p[1]))
            p++;
        int r = buf_char(word, *p);
        if (r < 0)
            return r;
    }
    *s = p + 1;
    return 0;
}

static int next_word(const char **s, struct buf *word) {
    const char *p = *s;
    int r = 0;

    while (r == 0 && *p && !strchr(" \t\r\n", *p)) {
        char c = *p++;
        if (c == '\'' || c == '"') {
            r = quoted(&p, c, word);
        } else if (c == '\\') {
            if (!*p)
                return -EINVAL;
            r = buf_char(word, *p++);
        } else {
            r = buf_char(word, c);
        }
    }
    *s = p;
    return r;
}

int shell_split(const char *s, struct strv *ret) {
    _cleanup_buf_ struct buf word = BUF_INIT(1 << 20);

    for (;;) {
        s += strspn(s, " \t\r\n");
        if (!*s)
            return 0;
        buf_clear(&word);
        int r = next_word(&s, &word);
        if (r == 0)
            r = strv_add(ret, word.data ? word.data : "");
        if (r < 0)
            return r;
    }
}
