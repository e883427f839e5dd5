/*
 * gzip streams by zlib (see unpack_gzip.h).
 *
 * Invariant: zlib's checksum and length of a member are verified before the next member, or the
 * end, is reported.
 */
#include "oci/unpack_gzip.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#define OUT_BYTES ((size_t)256 << 10)
#define WINDOW_GZIP (15 + 16) /* zlib: largest window, gzip wrapper only */

struct gzip {
    ssize_t (*next)(void *ud, const void **ret);
    void *ud;
    z_stream z;
    bool member_ended; /* what follows is another member, padding or the end */
    bool padding;      /* zeros were seen: only zeros may follow */
    unsigned char out[OUT_BYTES];
};

bool gzip_is_magic(const void *data, size_t len) {
    return len >= 2 && memcmp(data, "\x1f\x8b", 2) == 0;
}

struct gzip *gzip_new(ssize_t (*next)(void *ud, const void **ret), void *ud) {
    struct gzip *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    g->next = next;
    g->ud = ud;
    if (inflateInit2(&g->z, WINDOW_GZIP) != Z_OK) {
        free(g);
        return NULL;
    }
    return g;
}

struct gzip *gzip_free(struct gzip *g) {
    if (!g)
        return NULL;
    inflateEnd(&g->z);
    free(g);
    return NULL;
}

/* More input: 1, 0 at the end, negative errno. */
static int fill(struct gzip *g) {
    const void *p;

    if (g->z.avail_in > 0)
        return 1;
    ssize_t n = g->next(g->ud, &p);
    if (n <= 0)
        return (int)n;
    g->z.next_in = (Bytef *)(uintptr_t)p;
    g->z.avail_in = (uInt)n;
    return 1;
}

/* Between members: 1 = another one begins, 0 = the end. */
static int next_member(struct gzip *g, struct err *err) {
    int r;

    while ((r = fill(g)) > 0) {
        if (*g->z.next_in != 0) {
            if (g->padding || *g->z.next_in != 0x1f)
                return err_set(err, -EINVAL, "bad archive: something else follows the gzip data");
            inflateReset(&g->z);
            g->member_ended = false;
            return 1;
        }
        g->padding = true;
        g->z.next_in++;
        g->z.avail_in--;
    }
    return r;
}

int gzip_read(struct gzip *g, const void **ret, size_t *ret_len, struct err *err) {
    *ret = g->out;
    *ret_len = 0;
    g->z.next_out = g->out;
    g->z.avail_out = OUT_BYTES;
    while (g->z.avail_out == OUT_BYTES) {
        int r = g->member_ended ? next_member(g, err) : fill(g);
        if (r < 0)
            return r;
        if (r == 0 && g->member_ended)
            return 0;
        if (r == 0)
            return err_set(err, -EINVAL, "bad archive: the gzip data is cut off");
        int z = inflate(&g->z, Z_NO_FLUSH);
        if (z == Z_MEM_ERROR)
            return err_set(err, -ENOMEM, "out of memory");
        if (z == Z_STREAM_END)
            g->member_ended = true;
        else if (z != Z_OK && z != Z_BUF_ERROR)
            return err_set(err, -EINVAL, "bad archive: the gzip data is damaged%s%s",
                           g->z.msg ? ": " : "", g->z.msg ? g->z.msg : "");
    }
    *ret_len = OUT_BYTES - g->z.avail_out;
    return 0;
}
