/* What agent.c, agent_image.c and agent_tar.c share. */
#pragma once

#include "base/list.h"
#include "daemon/driver/docker/docker_priv.h"

#define PART_MAX ((size_t)128 << 20)        /* one file of an execd image */
#define AGENT_CACHE_MAX ((size_t)512 << 20) /* all archives of execd images together */

/* ---- agent_tar.c: archives in memory (ustar) ---- */
int tar_dir(struct buf *b, const char *path, unsigned mode);
int tar_file(struct buf *b, const char *path, unsigned mode, const void *data, size_t len);
int tar_link(struct buf *b, const char *path, unsigned mode, const char *target);
int tar_end(struct buf *b);
/* The content of the first member when it is a regular file: it lies in `tar`. -ENOENT: there is no
 * member; -EINVAL: it is something else, or broken. */
int tar_first_file(const void *tar, size_t len, const void **ret, size_t *ret_len);

/* ---- agent_image.c: files of the configured execd image ---- */
/* What is unpacked in containers of one platform, or (windows) in the volume of guests. */
struct archive {
    struct list node;
    char key[64];
    struct buf tar;
    unsigned refs; /* creates that read it just now; the cache itself counts as one */
};

struct docker_agent {
    pthread_mutex_t lock;     /* of everything below, never held across an engine call */
    pthread_mutex_t fetching; /* one fetch at a time */
    struct list archives;     /* most recently used last */
    size_t cached;            /* bytes of all */

    /* our own agent */
    pthread_mutex_t probing; /* one probe at a time */
    char *program;           /* path; NULL = not found */
    char *dir;               /* where copies for the engine lie: STATE/agent */
    struct buf tar_opt;      /* unpacked in /opt; made once, then only read */
    struct buf tar_root;     /* unpacked in / where there is no /opt */
    char version[41];        /* hash of the program; "" = not read yet */
    int binds_known;         /* 0 not yet, 1 the engine sees our files, -1 it does not */
    char *bind_text[2];
    const char *binds[3];
};

/* The archive for a platform ("" = unknown) or, windows, for guests; archive_put gives it back. */
int archive_get(struct docker *k, const char *platform, bool windows, struct archive **ret,
                struct err *err);
void archive_put(struct docker *k, struct archive *a);
