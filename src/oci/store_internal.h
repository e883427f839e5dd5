/* What the files of the image store share. Nobody else includes this. */
#pragma once

#include <sys/file.h>

#include "base/map.h"
#include "oci/store.h"

#define STORE_VERSION "1\n"
#define TMP_PREFIX "tmp-"
#define LAYERS_MAX 256 /* of one image; overlayfs stacks 500 */
#define JSON_MAX ((size_t)4 << 20)

/* This machine, as images name it. */
#if defined(__x86_64__)
#define NATIVE_ARCH "amd64"
#elif defined(__aarch64__)
#define NATIVE_ARCH "arm64"
#elif defined(__riscv)
#define NATIVE_ARCH "riscv64"
#else
#define NATIVE_ARCH "unknown" /* images that name their architecture are refused */
#endif

struct store {
    char *path;
    char *unpack_path;
    char *user_dir, lease_file[80]; /* NULL = takes no leases */
    char boot_id[64];
    uint64_t max_layer_bytes, max_entries;
    int root, layers, links, images, refs, blobs, skel, leases, locks; /* directories */
};

/* ---- store.c: locks, temporary directories, hashes ---- */

/* File lock `name` of the store; op = LOCK_SH/LOCK_EX [| LOCK_NB]. Descriptor (close = unlock),
 * -EWOULDBLOCK, other errors. Order when several are held: "gc", "layer-XX", "tmp" or "refs". */
int store_lock(struct store *s, const char *name, int op);

/* A directory that vanishes with its owner: named tmp-..., locked while the owner (or its child)
 * lives. */
struct store_tmp {
    int parent; /* borrowed */
    char name[48];
    int fd; /* holds the lock */
};
#define STORE_TMP_INIT \
    { .parent = -1, .fd = -1 }
int store_tmp_make(struct store *s, int parent, struct store_tmp *ret);
/* Gives an existing directory a tmp- name and lock, to be removed by store_tmp_done. */
int store_tmp_steal(struct store *s, int parent, const char *name, struct store_tmp *ret);
/* Atomically gives it its final name; the caller syncs the parent. -EEXIST when the name is taken;
 * it stays temporary then. */
int store_tmp_publish(struct store_tmp *t, const char *name);
void store_tmp_done(struct store_tmp *t); /* removes it unless published */

int store_sha256_hex(const void *data, size_t len, char ret[65]);
bool store_is_hex64(const char *s); /* exactly 64 lower-case hex digits */

/* ---- store_child.c ---- */

struct unpack_job {
    const char *mode; /* cove-unpack's --mode */
    int in_fd, dest_fd, lock_fd;
    unsigned layer, layers;
    const char *phase;
};
struct unpack_report {
    char diff_id[65], digest[65], format[16];
    uint64_t bytes, entries;
    json_t *skipped; /* owned */
};
void unpack_report_done(struct unpack_report *r);
int store_run_unpack(struct store *s, const struct unpack_job *job,
                     const struct store_import_opts *opts, struct unpack_report *ret,
                     struct err *err);

/* ---- store_layer.c ---- */

enum layer_kind { LAYER_OCI, LAYER_PLAIN, LAYER_DIR };

bool layer_name_is_valid(const char *name);
bool layer_exists(struct store *s, const char *name);
void layer_link(const char *name, char ret[32]);
/*
 * Unpacks fd into a layer. want_diff/want_digest (hex, may be NULL) must match, else -EBADMSG. With
 * want_diff an existing layer is used without reading fd. *ret gets its name.
 */
int layer_import(struct store *s, enum layer_kind kind, int fd, const char *want_diff,
                 const char *want_digest, unsigned number, unsigned total,
                 const struct store_import_opts *opts, char ret[LAYER_NAME_SIZE], char ret_diff[65],
                 struct err *err);
int layer_size(struct store *s, const char *name, uint64_t *ret);

/* ---- store_image.c ---- */

/* An image about to be recorded. */
struct image_build {
    json_t *config_blob; /* the OCI image configuration; used when config_text is NULL */
    char *config_text;   /* its bytes as they came (their hash is the id) */
    size_t config_len;
    char *manifest_text; /* may be NULL */
    size_t manifest_len;
    struct strv layers; /* names, lowest first */
};
void image_build_done(struct image_build *b);
/* Checks the caller's {"Env"…} and fills *ret with a copy (empty object for NULL). */
int image_check_config(const json_t *config, json_t **ret, struct err *err);
/* store_resolve() without a lease. */
int image_resolve(struct store *s, const char *reference, struct image *ret, struct err *err);
/* Records image and reference, durably. */
int image_commit(struct store *s, struct image_build *b, const json_t *overrides,
                 const char *reference, struct err *err);
/* All layer names that images need -> names[name] = non-NULL; removes records and blobs without a
 * reference on the way. Damaged records are an error: nothing may be removed then. */
int image_live_layers(struct store *s, struct map *names, struct err *err);

/* ---- store_lease.c ---- */

int lease_file_name(const char *user_dir, char ret[80]);
/* Adds the image's layers to the store's own lease. -ENOENT when one of them is gone. */
int lease_add(struct store *s, const struct image *img);
/* The own lease is exactly `in_use` from now on. */
int lease_replace(struct store *s, const char *const *in_use);
/* All layers in leases -> live[name] = non-NULL; leases that are over are removed. */
int lease_live_layers(struct store *s, struct map *live);

/* ---- store_archive.c ---- */

/* OCI layout or `docker save` tree at root. */
int archive_import(struct store *s, int root, bool docker, const struct store_import_opts *opts,
                   struct image_build *ret, struct err *err);
