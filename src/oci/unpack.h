/*
 * The unpack core: turns a stream of entries into one overlay-ready directory tree. Used by the
 * helper program cove-unpack (and by the fuzzer) only; the daemon never links it, since libarchive
 * parses hostile bytes.
 *
 * A `struct tree` writes below one directory descriptor and nowhere else, whatever the names and
 * links in the input say (native-runtime.md 4.2). A source (tar, directory) feeds it.
 */
#pragma once

#include <sys/stat.h>
#include <time.h>

#include "base/err.h"

#define TREE_PATH_MAX 4096
#define TREE_DEPTH_MAX 256
#define TREE_DIR_NAMES_MAX \
    ((size_t)256 << 20) /* memory for directories whose times are set at the end */

enum tree_mode {
    TREE_LAYER,   /* whiteouts (".wh.") become overlay's marks */
    TREE_PLAIN,   /* a root file system: names are just names */
    TREE_ARCHIVE, /* container of an image: files, directories and links, owned by us, mode
                     0600/0700 */
};

struct tree_limits {
    uint64_t bytes; /* of file contents, and of the decompressed stream */
    uint64_t entries;
};

struct tree_stats {
    uint64_t bytes, entries, whiteouts;
    uint64_t skipped_devices, skipped_sockets, skipped_xattrs;
};

enum entry_type {
    ENTRY_FILE,
    ENTRY_DIR,
    ENTRY_SYMLINK,
    ENTRY_HARDLINK,
    ENTRY_FIFO,
    ENTRY_DEVICE,
    ENTRY_SOCKET
};

/* One entry as the source tells it. Nothing in it is trusted. */
struct entry {
    enum entry_type type;
    const char *path;
    const char *link; /* text of a symlink, target of a hard link */
    mode_t perm;
    int64_t uid, gid;
    struct timespec mtime;
    uint64_t size;
    /* Content of a file, block by block: 1 with a block, 0 at the end, negative errno (and `err`
     * set). */
    int (*data)(void *ud, const void **ret, size_t *ret_len, uint64_t *ret_offset, struct err *err);
    /* Extended attributes one after the other; false at the end. NULL = none. */
    bool (*xattr)(void *ud, const char **ret_name, const void **ret_value, size_t *ret_len);
    void *ud;
};

struct tree;

/* Borrows rootfd (an empty directory opened O_RDONLY|O_DIRECTORY). NULL on -ENOMEM. */
struct tree *tree_new(int rootfd, enum tree_mode mode, const struct tree_limits *limits);
struct tree *tree_free(struct tree *t);
DEFINE_CLEANUP(struct tree, tree_free)
/* Called now and then while data is written (about every MiB, and every entry). */
void tree_set_progress(struct tree *t, void (*fn)(const struct tree_stats *st, void *ud), void *ud);
/* Adds one entry. Any failure is final: the tree must be thrown away. */
int tree_add(struct tree *t, const struct entry *e, struct err *err);
/* Sets what is set last (times of directories). The tree is complete after this. */
int tree_finish(struct tree *t, struct err *err);
const struct tree_stats *tree_stats(const struct tree *t);

struct unpack_result {
    char diff_id[65]; /* sha256 of the tar stream; of our canonical form for a directory */
    char digest[65];  /* sha256 of the bytes read, compressed or not; "" for a directory */
    uint64_t input_bytes;
};

/* Reads a tar (optionally gzip, zstd, xz, bzip2) from fd to its end into t. */
int unpack_tar(int fd, struct tree *t, const struct tree_limits *limits, struct unpack_result *ret,
               struct err *err);
/* The same from memory, for the fuzzer. */
int unpack_tar_memory(const void *data, size_t len, struct tree *t,
                      const struct tree_limits *limits, struct unpack_result *ret, struct err *err);
/* Copies a directory (trusted, but it may change meanwhile); other file systems below it are left
 * out. */
int unpack_dir(int dirfd, struct tree *t, struct unpack_result *ret, struct err *err);
/* What a tar is, from its first names: "oci", "docker" or "rootfs" (static). */
int unpack_probe(int fd, const char **ret, struct err *err);

/*
 * Locks this process in: private mount, network, IPC and UTS namespaces with `rootfd` as the only
 * file system, resource limits, few capabilities, no new privileges, a seccomp filter of what
 * unpacking needs. *ret_rootfd is the new root's descriptor. Inherited descriptors stay usable.
 */
int unpack_jail(int rootfd, uint64_t max_file_bytes, int *ret_rootfd, struct err *err);
