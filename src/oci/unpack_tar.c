/*
 * Tar source of the unpack core: bytes -> (libarchive's filters) -> sha256 -> libarchive's tar
 * reader -> tree writer, in one pass. libarchive's disk writer is not used: it is only a parser
 * here.
 *
 * Invariants: the tree sees no byte that is not counted and hashed; input and decompressed stream
 * are read to their ends, so that both digests cover everything.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/buf.h"
#include "base/path.h"
#include "base/str.h"
#include "oci/unpack.h"
#include "oci/unpack_gzip.h"

#define BLOCK_BYTES ((size_t)256 << 10)
/* A stream this much larger than its input is an attack; small archives of zeros are none. */
#define RATIO_MAX 500
#define RATIO_FROM_BYTES ((uint64_t)1 << 30)

struct tar {
    int fd; /* -1 = memory */
    const char *mem;
    size_t mem_left;
    char *block;
    size_t peeked;   /* bytes at the start of block that were read to know the format, and are still
                        to be used */
    struct gzip *gz; /* NULL = `raw` decompresses */
    struct archive *raw, *tar;
    EVP_MD_CTX *in_md, *out_md; /* out_md NULL: the input is not compressed, both digests are one */
    uint64_t in_bytes, out_bytes;
    uint64_t max_bytes;
    struct err err; /* of a callback, since libarchive only carries texts */
};

static void tar_done(struct tar *s) {
    archive_read_free(s->tar);
    archive_read_free(s->raw);
    gzip_free(s->gz);
    EVP_MD_CTX_free(s->in_md);
    EVP_MD_CTX_free(s->out_md);
    free(s->block);
}

/* ---- input: bytes as they come --------------------------------------------------------------- */

/* The next block into s->block: bytes, 0 at the end, or negative errno with s->err set. */
static ssize_t read_block(struct tar *s) {
    ssize_t n;

    if (s->fd < 0) {
        n = (ssize_t)MIN(s->mem_left, BLOCK_BYTES);
        if (n > 0)
            memcpy(s->block, s->mem, (size_t)n);
        s->mem += n;
        s->mem_left -= (size_t)n;
    } else {
        do
            n = read(s->fd, s->block, BLOCK_BYTES);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            return err_sys(&s->err, -errno, "reading the archive");
    }
    EVP_DigestUpdate(s->in_md, s->block, (size_t)n);
    s->in_bytes += (uint64_t)n;
    return n;
}

static ssize_t next_block(void *ud, const void **ret) {
    struct tar *s = ud;
    size_t n = s->peeked;

    *ret = s->block;
    s->peeked = 0;
    return n ? (ssize_t)n : read_block(s);
}

static la_ssize_t input_read(struct archive *a, void *ud, const void **ret) {
    struct tar *s = ud;
    ssize_t n = next_block(s, ret);

    if (n < 0)
        archive_set_error(a, (int)-n, "%s", err_text(&s->err));
    return n < 0 ? -1 : n;
}

/* The last error of an archive as ours. libarchive's texts may hold names from the archive: quoted
 * by JSON later. */
static int archive_failed(struct tar *s, struct archive *a, struct err *err) {
    const char *text = archive_error_string(a);
    int code = archive_errno(a);

    if (s->err.code) {
        if (err)
            *err = s->err;
        return s->err.code;
    }
    if (code == ENOMEM)
        return err_set(err, -ENOMEM, "the archive needs more memory than unpacking may use");
    return err_set(err, -EINVAL, "bad archive: %s", text ? text : "unknown error");
}

/* xz, zstd, bzip2 or nothing. */
static int open_filters(struct tar *s, struct err *err) {
    struct archive_entry *e;

    s->raw = archive_read_new();
    if (!s->raw)
        return err_set(err, -ENOMEM, "out of memory");
    archive_read_support_filter_zstd(s->raw);
    archive_read_support_filter_xz(s->raw);
    archive_read_support_filter_bzip2(s->raw);
    archive_read_support_format_raw(s->raw);
    if (archive_read_open(s->raw, s, NULL, input_read, NULL) != ARCHIVE_OK ||
        archive_read_next_header(s->raw, &e) != ARCHIVE_OK)
        return archive_failed(s, s->raw, err);
    return 0;
}

static int open_input(struct tar *s, struct err *err) {
    s->in_md = EVP_MD_CTX_new();
    s->block = malloc(BLOCK_BYTES);
    if (!s->in_md || !s->block || !EVP_DigestInit_ex(s->in_md, EVP_sha256(), NULL))
        return err_set(err, -ENOMEM, "out of memory");
    ssize_t n = read_block(s);
    if (n < 0)
        return err_set(err, s->err.code, "%s", err_text(&s->err));
    if (n == 0)
        return err_set(err, -EINVAL, "the archive is empty");
    s->peeked = (size_t)n;
    if (gzip_is_magic(s->block, s->peeked)) {
        s->gz = gzip_new(next_block, s);
        if (!s->gz)
            return err_set(err, -ENOMEM, "out of memory");
    } else {
        int r = open_filters(s, err);
        if (r < 0)
            return r;
    }
    if (s->gz || archive_filter_code(s->raw, 0) != ARCHIVE_FILTER_NONE) {
        s->out_md = EVP_MD_CTX_new();
        if (!s->out_md || !EVP_DigestInit_ex(s->out_md, EVP_sha256(), NULL))
            return err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

/* ---- the decompressed stream, as input of the tar reader ------------------------------------- */

/* The next decompressed bytes: 1, 0 at the end, negative errno with s->err set. */
static int read_plain(struct tar *s, const void **ret, size_t *ret_len) {
    la_int64_t off;

    if (s->gz) {
        int r = gzip_read(s->gz, ret, ret_len, &s->err);
        return r == 0 ? *ret_len > 0 : r;
    }
    int r = archive_read_data_block(s->raw, ret, ret_len, &off);
    if (r == ARCHIVE_EOF)
        return 0;
    return r == ARCHIVE_OK ? 1 : archive_failed(s, s->raw, &s->err);
}

static la_ssize_t stream_read(struct archive *a, void *ud, const void **ret) {
    struct tar *s = ud;
    size_t len = 0;
    int r = read_plain(s, ret, &len);

    if (r == 0)
        return 0;
    if (r < 0)
        goto fail;
    s->out_bytes += len;
    if (s->out_bytes > s->max_bytes) {
        err_set(&s->err, -E2BIG,
                "the decompressed archive is larger than the limit of %llu bytes for one layer",
                (unsigned long long)s->max_bytes);
        goto fail;
    }
    if (s->out_bytes > RATIO_FROM_BYTES && s->out_bytes / RATIO_MAX > s->in_bytes) {
        err_set(&s->err, -E2BIG, "the archive expands to more than %d times its size", RATIO_MAX);
        goto fail;
    }
    if (s->out_md)
        EVP_DigestUpdate(s->out_md, *ret, len);
    return (la_ssize_t)len;
fail:
    if (a)
        archive_set_error(a, EIO, "%s", err_text(&s->err));
    return -1;
}

static int open_stream(struct tar *s, struct err *err) {
    s->tar = archive_read_new();
    if (!s->tar)
        return err_set(err, -ENOMEM, "out of memory");
    archive_read_support_format_tar(s->tar);
    if (archive_read_open(s->tar, s, NULL, stream_read, NULL) != ARCHIVE_OK)
        return archive_failed(s, s->tar, err);
    return 0;
}

/* 1 = *ret is the next entry, 0 = end. */
static int next_entry(struct tar *s, struct archive_entry **ret, struct err *err) {
    int r = archive_read_next_header(s->tar, ret);

    if (r == ARCHIVE_EOF)
        return 0;
    if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
        return archive_failed(s, s->tar, err);
    return 1;
}

/* What is behind the end mark belongs to the digests as well. */
static int drain(struct tar *s, struct err *err) {
    const void *p;
    la_ssize_t n;

    while ((n = stream_read(NULL, s, &p)) > 0)
        ;
    while (n == 0 && (n = next_block(s, &p)) > 0)
        n = 0;
    if (n < 0) {
        if (err)
            *err = s->err;
        return s->err.code;
    }
    return 0;
}

static int digest_hex(EVP_MD_CTX *md, char ret[65]) {
    unsigned char d[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (!EVP_DigestFinal_ex(md, d, &n) || n != 32)
        return -EIO;
    hex_encode(d, n, ret);
    return 0;
}

/* ---- entries --------------------------------------------------------------------------------- */

struct tar_entry {
    struct tar *s;
    struct archive_entry *e;
};

static int entry_data(void *ud, const void **ret, size_t *ret_len, uint64_t *ret_offset,
                      struct err *err) {
    struct tar_entry *te = ud;
    la_int64_t off = 0;
    int r = archive_read_data_block(te->s->tar, ret, ret_len, &off);

    if (r == ARCHIVE_EOF)
        return 0;
    if (r != ARCHIVE_OK)
        return archive_failed(te->s, te->s->tar, err);
    if (off < 0)
        return err_set(err, -EINVAL, "bad archive: negative offset");
    *ret_offset = (uint64_t)off;
    return 1;
}

static bool entry_xattr(void *ud, const char **ret_name, const void **ret_value, size_t *ret_len) {
    struct tar_entry *te = ud;
    return archive_entry_xattr_next(te->e, ret_name, ret_value, ret_len) == ARCHIVE_OK;
}

static enum entry_type type_of(struct archive_entry *e) {
    if (archive_entry_hardlink(e))
        return ENTRY_HARDLINK;
    switch (archive_entry_filetype(e)) {
    case AE_IFREG:
        return ENTRY_FILE;
    case AE_IFDIR:
        return ENTRY_DIR;
    case AE_IFLNK:
        return ENTRY_SYMLINK;
    case AE_IFIFO:
        return ENTRY_FIFO;
    case AE_IFSOCK:
        return ENTRY_SOCKET;
    default:
        return ENTRY_DEVICE;
    }
}

static int add_entry(struct tar *s, struct archive_entry *ae, struct tree *t, struct err *err) {
    struct tar_entry te = {s, ae};
    la_int64_t size = archive_entry_size(ae);
    struct entry e = {
        .type = type_of(ae),
        .path = archive_entry_pathname(ae),
        .perm = archive_entry_perm(ae),
        .uid = archive_entry_uid(ae),
        .gid = archive_entry_gid(ae),
        .mtime = {.tv_sec = archive_entry_mtime(ae), .tv_nsec = archive_entry_mtime_nsec(ae)},
        .size = size > 0 ? (uint64_t)size : 0,
        .data = entry_data,
        .xattr = entry_xattr,
        .ud = &te,
    };

    e.link = e.type == ENTRY_HARDLINK ? archive_entry_hardlink(ae) : archive_entry_symlink(ae);
    archive_entry_xattr_reset(ae);
    return tree_add(t, &e, err);
}

static int run(struct tar *s, struct tree *t, struct unpack_result *ret, struct err *err) {
    struct archive_entry *e;
    int r = open_input(s, err);

    if (r == 0)
        r = open_stream(s, err);
    while (r >= 0 && (r = next_entry(s, &e, err)) > 0)
        r = add_entry(s, e, t, err);
    if (r == 0)
        r = drain(s, err);
    if (r == 0)
        r = tree_finish(t, err);
    if (r < 0)
        return r;
    r = digest_hex(s->in_md, ret->digest);
    if (r == 0 && s->out_md)
        r = digest_hex(s->out_md, ret->diff_id);
    else
        str_copy(ret->diff_id, sizeof ret->diff_id, ret->digest);
    ret->input_bytes = s->in_bytes;
    return r < 0 ? err_sys(err, r, "sha256") : 0;
}

int unpack_tar(int fd, struct tree *t, const struct tree_limits *limits, struct unpack_result *ret,
               struct err *err) {
    _cleanup_(tar_done) struct tar s = {.fd = fd, .max_bytes = limits->bytes};
    return run(&s, t, ret, err);
}

int unpack_tar_memory(const void *data, size_t len, struct tree *t,
                      const struct tree_limits *limits, struct unpack_result *ret,
                      struct err *err) {
    _cleanup_(tar_done) struct tar s = {
        .fd = -1, .mem = data, .mem_left = len, .max_bytes = limits->bytes};
    return run(&s, t, ret, err);
}

/* ---- telling an image archive from a root file system -----------------------------------------
 */

static bool is_hex64(const char *s) {
    return strspn(s, "0123456789abcdef") >= 64;
}

int unpack_probe(int fd, const char **ret, struct err *err) {
    _cleanup_(tar_done) struct tar s = {.fd = fd, .max_bytes = UINT64_MAX};
    struct archive_entry *e;
    bool docker = false;
    int r = open_input(&s, err);

    if (r == 0)
        r = open_stream(&s, err);
    while (r >= 0 && (r = next_entry(&s, &e, err)) > 0) {
        const char *name = archive_entry_pathname(e);
        if (name && str_starts(name, "./"))
            name += 2;
        if (!name || !*name)
            continue;
        if (str_eq(name, "oci-layout")) {
            *ret = "oci";
            return 0;
        }
        if (str_eq(name, "manifest.json"))
            docker = true;
        else if (!str_eq(name, "index.json") && !str_eq(name, "repositories") &&
                 !str_eq(name, "blobs") && !str_starts(name, "blobs/") && !is_hex64(name))
            break; /* no archive of an image has other names at its top */
    }
    if (r < 0)
        return r;
    *ret = docker && r == 0 ? "docker" : "rootfs";
    return 0;
}
