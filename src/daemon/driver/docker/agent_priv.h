/* What agent.c, agent_cache.c, agent_bind.c and agent_tar.c share. */
#pragma once

#include "base/list.h"
#include "daemon/driver/docker/docker_priv.h"

#define PART_MAX ((size_t)128 << 20)        /* one file of the agent */
#define PARTS_MAX 5                         /* files of one agent */
#define AGENT_CACHE_MAX ((size_t)512 << 20) /* all archives in memory together */

/* ---- agent_tar.c: archives in memory (ustar) ---- */
int tar_dir(struct buf *b, const char *path, unsigned mode);
int tar_file(struct buf *b, const char *path, unsigned mode, const void *data, size_t len);
int tar_link(struct buf *b, const char *path, unsigned mode, const char *target);
int tar_end(struct buf *b);
/* The content of the first member when it is a regular file: it lies in `tar`. -ENOENT: there is no
 * member; -EINVAL: it is something else, or broken. */
int tar_first_file(const void *tar, size_t len, const void **ret, size_t *ret_len);

/* ---- agent_cache.c ---- */
enum archive_kind {
    ARCHIVE_OWN,     /* our agent: one program under two names */
    ARCHIVE_IMAGE,   /* of the configured execd image, by platform; both are unpacked in /opt */
    ARCHIVE_WINDOWS, /* of the same image, for guests: unpacked in / */
};

/* An agent, ready for use. Immutable once it is in the cache: either the tar is there or the binds
 * are. */
struct archive {
    struct list node;
    char key[64];
    struct buf tar;
    struct {
        const char *name; /* in RUNTIME_DIR */
        size_t at, len;   /* in the tar */
        unsigned mode;
    } parts[PARTS_MAX];
    size_t n_parts;
    struct strv binds;  /* "src:dst:ro" */
    bool is_unbindable; /* its files could not be written */
    unsigned refs;      /* of creates that use it just now; the cache's own counts as one */
};

struct docker_agent {
    pthread_mutex_t lock;     /* of what follows, never held across an engine call */
    struct list archives;     /* most recently used last */
    size_t cached;            /* bytes of all tars */
    int binds_known;          /* 0 not yet, 1 the engine sees our files, -1 it does not */
    unsigned doubts;          /* probes without an answer; under probing */
    pthread_mutex_t fetching; /* one fetch at a time */
    pthread_mutex_t probing;  /* one probe at a time */
    char *program;            /* path; NULL = not found */
    char *dir;                /* where copies for the engine lie: STATE/agent */
};

/* The archive for a platform ("" = unknown). to_bind: its files are wanted as binds, not as a tar
 * (which comes all the same when they cannot be written). archive_put gives it back. */
int archive_get(struct docker *k, enum archive_kind kind, const char *platform, bool to_bind,
                struct archive **ret, struct err *err);
void archive_put(struct docker *k, struct archive *a);
struct archive *archive_free(struct archive *a);

/* ---- agent_bind.c ---- */
/* Does the engine see our files? Found out once, with a container of that image. */
bool binds_possible(struct docker *k, const char *image);
/* Writes the archive's files where the engine can bind them, and fills in its binds. */
int binds_write(struct docker *k, struct archive *a, struct err *err);
void binds_collect(struct docker *k);
