/*
 * The image store: unpacked layers and image records in one directory (layout:
 * native-runtime.md 3.2), ready to be stacked by overlayfs.
 *
 * Several processes and threads may use one store at once: a `struct store` is immutable after
 * store_open(), every operation takes the file locks it needs, and nothing is visible before it is
 * complete and synced. What a killed process left (names "tmp-...") is removed by the next
 * store_open(). All functions block (imports for seconds): call them from worker threads, never
 * from the loop.
 *
 * Image names are `local/NAME`, or `sha256:<64 hex digits>` (the image's id) where an image is
 * looked up.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

struct store;

struct store_opts {
    const char *unpack_path; /* the helper cove-unpack; NULL = found by COVE_LIBEXEC or next to the
                                program */
    /*
     * Directory that lives as long as the sandboxes of this daemon (its state directory): what
     * store_resolve() returns is kept for them from other processes' garbage collection, until this
     * daemon's store_gc() says otherwise, the directory is gone, or the machine boots. NULL = none.
     */
    const char *user_dir;
    uint64_t max_layer_bytes; /* unpacked size of one layer; 0 = 64 GiB */
    uint64_t max_entries;     /* entries of one layer; 0 = 2,000,000 */
};

/*
 * Opens the store at `dir` and makes it when it is not there (the parent must exist). -EPROTO when
 * the directory has another layout version. `opts` may be NULL; it is copied.
 */
int store_open(const char *dir, const struct store_opts *opts, struct store **ret, struct err *err);
struct store *store_free(struct store *s); /* returns NULL */
DEFINE_CLEANUP(struct store, store_free)

const char *store_path(const struct store *s); /* absolute */
int store_fd(const struct store *s); /* O_PATH-usable directory descriptor; the store's own */

/* ---- images ---------------------------------------------------------------------------------- */

#define LAYER_NAME_SIZE 80

struct image_layer {
    char name[LAYER_NAME_SIZE]; /* directory name below layers/: what in-use lists are made of */
    char link[32];              /* "l/...": short symlink to the tree, relative to store_path() */
    char *path;                 /* absolute path of the tree */
};

struct image {
    char id[65];                /* sha256 of the configuration, hex */
    char *reference;            /* the name it was found by */
    struct image_layer *layers; /* in overlay order: layers[0] is the uppermost; none twice */
    size_t n_layers;
    struct strv env; /* "K=V" */
    struct strv entrypoint, cmd;
    char *cwd;           /* "" when the image names none */
    char *user;          /* "name", "uid", "uid:gid" ...; "" when the image names none */
    char *os, *arch;     /* "linux", "amd64" */
    uint64_t size_bytes; /* unpacked, sum of its layers */
    int64_t created_us;  /* wall clock; of the image's configuration, else of the import */
    int64_t imported_us;
};
void image_done(struct image *img);
#define _cleanup_image_ _cleanup_(image_done)

/* -EINVAL for a text that is no image name, -ENOENT when the store does not have it. A few file
 * reads; may be cached by callers. */
int store_resolve(struct store *s, const char *reference, struct image *ret, struct err *err);
/* All references, sorted by name; *ret is malloc'd, free with image_list_free. Damaged records are
 * left out. */
int store_list(struct store *s, struct image **ret, size_t *ret_n, struct err *err);
void image_list_free(struct image *images, size_t n);
/* The record as JSON ({"reference","id","size","created","layers":[…],"config":{…}}); new reference
 * in *ret. */
int store_inspect(struct store *s, const char *reference, json_t **ret, struct err *err);
/*
 * Removes the name; with its last name the image goes, and then every layer that no image and no
 * entry of `in_use` (NULL-terminated layer names, may be NULL) needs. Whether an image may be
 * removed while sandboxes run on it is the caller's decision.
 */
int store_remove(struct store *s, const char *reference, const char *const *in_use,
                 struct err *err);
/*
 * Removes the layers that neither an image, nor `in_use`, nor another daemon's sandboxes need;
 * `in_use` is all that this daemon's sandboxes run on. Does nothing while an import runs in
 * any process (that is success; *ret_freed_layers is 0 then). *ret_freed_layers may be NULL.
 */
int store_gc(struct store *s, const char *const *in_use, size_t *ret_freed_layers, struct err *err);

/* 0, or -EINVAL with the rule that NAME in "local/NAME" breaks: lower-case letters, digits, single
 * . _ - or double __ between them, '/' between components, an optional ":tag"; at most 200 bytes.
 */
int store_check_local_name(const char *reference, struct err *err);

/* ---- import ---------------------------------------------------------------------------------- */

enum store_format {
    STORE_AUTO, /* told from the content; a source that cannot be rewound (pipe) must be a root file
                   system tar */
    STORE_ROOTFS_TAR,  /* one layer; compressed by gzip, zstd, xz, bzip2 or not at all */
    STORE_ROOTFS_DIR,  /* one layer, copied; other file systems mounted below are left out */
    STORE_OCI,         /* OCI layout: directory or tar */
    STORE_DOCKER_SAVE, /* `docker save` tar or its unpacked directory */
};

struct store_progress {
    const char *phase;      /* "unpack" (an archive of an image), "layer" */
    unsigned layer, layers; /* 1-based; 1 of 1 for root file systems */
    uint64_t bytes;         /* written so far in this phase */
    uint64_t entries;
};

struct store_import_opts {
    const char *reference; /* local/NAME; an existing name is moved to the new image */
    enum store_format format;
    const char *ref_name; /* OCI layout and docker save with several images: which one (tag); NULL =
                             the only one */
    /*
     * {"Env":["K=V"],"Entrypoint":[…],"Cmd":[…],"WorkingDir":"/x","User":"u"}, all optional, NULL =
     * none; for OCI and docker archives each key given replaces the image's own. Other keys are
     * refused.
     */
    const json_t *config;
    void (*progress)(const struct store_progress *p,
                     void *ud); /* from the calling thread; may be NULL */
    void *ud;
    int cancel_fd; /* when it becomes readable (or hangs up) the import ends with -ECANCELED; -1 =
                      none */
};
#define STORE_IMPORT_OPTS_INIT \
    { .cancel_fd = -1 }

/*
 * Imports from an open file, pipe, socket or directory (`fd`: borrowed, read from its present
 * position). Returns when everything is synced to disk. On failure nothing usable is left behind.
 * *ret may be NULL. Errors: -EINVAL bad archive, name or configuration (hostile archives end here),
 * -EBADMSG wrong digest, -E2BIG a bound was hit (named in the text), -ENOSPC, -EOPNOTSUPP encrypted
 * or foreign layers, other platform, unknown compression; -ECANCELED.
 */
int store_import(struct store *s, int fd, const struct store_import_opts *opts, struct image *ret,
                 struct err *err);

/* ---- skeleton layers (native-runtime.md 5.3, 6) ------------------------------------------------
 */

enum store_skeleton {
    SKELETON_IMAGE, /* uppermost lower layer above every image: mount targets as real directories
                       and files */
    SKELETON_HOST, /* the root of the "host" image; /bin, /lib … are the host's symlinks, or empty
                      directories when the host is not merged-usr (mount an overlay on each) */
    SKELETON_HOST_USR, /* above the host's /usr: writable prefixes local/{bin,lib,share,…} */
    SKELETON_HOST_ETC, /* above the host's /etc: real files hostname, hosts, resolv.conf as bind
                          targets */
};
/* Absolute path of the tree (0-based ids), made on first use, once per version and host. Caller
 * frees *ret_path. */
int store_skeleton(struct store *s, enum store_skeleton kind, char **ret_path, struct err *err);
