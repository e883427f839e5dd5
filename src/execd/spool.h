/*
 * Output of a background command, readable by byte offset. The first bytes live in memory, more in
 * an unlinked temporary file (or a memfd where there is no writable directory). Bounded: past the
 * capacity the oldest bytes are dropped, offsets keep counting.
 */
#pragma once

#include "base/buf.h"

struct spool {
    struct buf mem;    /* while everything fits into SPOOL_MEMORY */
    int fd;            /* -1 until it does not; a ring of `cap` bytes */
    uint64_t end, cap; /* bytes ever written; capacity of the file */
    bool failed;       /* neither file nor memory could be had: output is lost */
};

#define SPOOL_MEMORY ((size_t)16 << 10)
#define SPOOL_FILE ((uint64_t)64 << 20)
#define SPOOL_MEMFD ((uint64_t)16 << 20)

void spool_init(struct spool *s);
void spool_done(struct spool *s);
void spool_append(struct spool *s, const char *data, size_t len);
uint64_t spool_start(const struct spool *s); /* offset of the oldest byte kept */
uint64_t spool_size(const struct spool *s);  /* bytes kept */
/* Up to len bytes from *offset on, which is moved into the range kept. Bytes read, 0 at the end, or
 * -errno. */
ssize_t spool_read(const struct spool *s, uint64_t *offset, void *ret, size_t len);
