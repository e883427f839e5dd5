/* Archives in memory, in the oldest form that every unpacker takes (ustar). Names are short and
 * ours, so there are no extensions. */
#include "daemon/driver/docker/agent_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 512
#define MTIME 1600000000 /* the same bytes for the same files */

struct ustar {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct ustar) == BLOCK, "a header is one block");

static unsigned sum_of(const struct ustar *h) {
    const unsigned char *p = (const unsigned char *)h;
    unsigned sum = 0;

    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= offsetof(struct ustar, sum) && i < offsetof(struct ustar, type) ? ' ' : p[i];
    return sum;
}

static int header(struct buf *b, const char *path, char type, unsigned mode, size_t size,
                  const char *target) {
    struct ustar h = {.type = type, .magic = "ustar", .version = {'0', '0'}};

    if (!str_copy(h.name, sizeof h.name, path) || !str_copy(h.link, sizeof h.link, target))
        return -ENAMETOOLONG;
    snprintf(h.mode, sizeof h.mode, "%07o", mode & 07777);
    snprintf(h.uid, sizeof h.uid, "%07o", 0);
    snprintf(h.gid, sizeof h.gid, "%07o", 0);
    snprintf(h.size, sizeof h.size, "%011llo", (unsigned long long)size);
    snprintf(h.mtime, sizeof h.mtime, "%011llo", (unsigned long long)MTIME);
    snprintf(h.sum, sizeof h.sum, "%06o", sum_of(&h));
    h.sum[7] = ' ';
    return buf_append(b, &h, sizeof h);
}

int tar_dir(struct buf *b, const char *path, unsigned mode) {
    return header(b, path, '5', mode, 0, "");
}

int tar_link(struct buf *b, const char *path, unsigned mode, const char *target) {
    return header(b, path, '1', mode, 0, target);
}

static int pad(struct buf *b, size_t len) {
    static const char zeroes[BLOCK];
    return len % BLOCK ? buf_append(b, zeroes, BLOCK - len % BLOCK) : 0;
}

int tar_file(struct buf *b, const char *path, unsigned mode, const void *data, size_t len) {
    int r = header(b, path, '0', mode, len, "");

    if (r == 0 && len)
        r = buf_append(b, data, len);
    return r < 0 ? r : pad(b, len);
}

int tar_end(struct buf *b) {
    static const char zeroes[2 * BLOCK];
    return buf_append(b, zeroes, sizeof zeroes);
}

/* A size field: octal text, or binary with the high bit set. */
static int read_size(const char *field, size_t n, uint64_t *ret) {
    uint64_t v = 0;

    if ((unsigned char)field[0] & 0x80) {
        for (size_t i = 0; i < n; i++) {
            if (v >> 48)
                return -EINVAL;
            v = v << 8 | ((unsigned char)field[i] & (i ? 0xff : 0x7f));
        }
        *ret = v;
        return 0;
    }
    for (size_t i = 0; i < n && field[i] && field[i] != ' '; i++) {
        if (field[i] < '0' || field[i] > '7' || v >> 48)
            return -EINVAL;
        v = v << 3 | (uint64_t)(field[i] - '0');
    }
    *ret = v;
    return 0;
}

int tar_first_file(const void *tar, size_t len, const void **ret, size_t *ret_len) {
    const char *p = tar;
    uint64_t size;

    for (size_t at = 0; len - at >= BLOCK;) {
        const struct ustar *h = (const struct ustar *)(p + at);
        if (!h->name[0])
            return -ENOENT;
        if (read_size(h->size, sizeof h->size, &size) < 0 || size > len - at - BLOCK)
            return -EINVAL;
        if (h->type == '0' || h->type == 0) {
            *ret = p + at + BLOCK;
            *ret_len = (size_t)size;
            return 0;
        }
        if (!strchr("xgLK", h->type)) /* extended headers are about what follows */
            return -EINVAL;
        at += BLOCK + ((size_t)size + BLOCK - 1) / BLOCK * BLOCK;
        if (at > len)
            return -EINVAL;
    }
    return -ENOENT;
}
