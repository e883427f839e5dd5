/*
 * Layers: the first byte is the mode, the rest the archive. Whatever it says: nothing beside the
 * destination changes, and what lies in it holds no device but whiteouts and no forged mark of
 * overlayfs. Needs root, as the unpacker itself (owners, whiteouts). Works in /dev/shm.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/path.h"
#include "base/str.h"
#include "oci/unpack.h"

#define OUTSIDE_FD 100 /* seeds point at /proc/self/fd/100 */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char work[] = "/dev/shm/cove-fuzz-unpack-XXXXXX";
static int work_fd;

static void clean_up(void) {
    path_remove_tree_at(AT_FDCWD, work);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    umask(0);
    if (!mkdtemp(work) || (work_fd = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        mkdirat(work_fd, "outside", 0755) < 0 ||
        path_write_file_at(work_fd, "outside/canary", "alive", 5, 0644, false) < 0) {
        perror(work);
        exit(1);
    }
    int fd = openat(work_fd, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dup3(fd, OUTSIDE_FD, O_CLOEXEC) < 0)
        abort();
    close(fd);
    atexit(clean_up);
    return 0;
}

static void check_marks(int dirfd, const char *name) {
    char path[64], names[4096];
    _cleanup_close_ int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? 0 : listxattr(path, names, sizeof names);
    for (char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
        if ((str_starts(p, "trusted.") && !str_eq(p, "trusted.overlay.opaque")) ||
            str_starts(p, "user.overlay."))
            abort();
}

static void check_dir(int fd, bool layer) {
    DIR *d = fdopendir(fd);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        struct stat st;
        if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
            continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISBLK(st.st_mode) ||
            S_ISSOCK(st.st_mode))
            abort();
        if (S_ISCHR(st.st_mode) && (!layer || st.st_rdev != makedev(0, 0)))
            abort();
        check_marks(dirfd(d), e->d_name);
        if (S_ISDIR(st.st_mode))
            check_dir(openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                      layer);
    }
    closedir(d);
}

static unsigned count(int dirfd, const char *name) {
    DIR *d = fdopendir(openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    unsigned n = 0;
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static void check_outside(void) {
    struct stat st, dir;
    char text[8] = "";
    int fd = openat(work_fd, "outside/canary", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof text) != 5 || memcmp(text, "alive", 5) != 0 ||
        fstat(fd, &st) < 0 || st.st_mode != (S_IFREG | 0644) || st.st_nlink != 1 ||
        st.st_uid != getuid())
        abort();
    close(fd);
    if (fstat(OUTSIDE_FD, &dir) < 0 || dir.st_mode != (S_IFDIR | 0755) || dir.st_uid != getuid() ||
        fgetxattr(OUTSIDE_FD, "trusted.overlay.opaque", text, sizeof text) >= 0)
        abort();
    if (count(work_fd, "outside") != 3 || count(work_fd, ".") != 3) /* with . and .. */
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct tree_limits limits = {.bytes = 1 << 20, .entries = 1000};
    enum tree_mode mode;
    struct unpack_result res;
    struct err err = {0};

    if (size < 1)
        return 0;
    mode = (enum tree_mode)(data[0] % 3);
    if (mkdirat(work_fd, "dest", 0755) < 0)
        abort();
    int dest = openat(work_fd, "dest", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct tree *t = tree_new(dest, mode, &limits);
    if (!t)
        abort();
    unpack_tar_memory(data + 1, size - 1, t, &limits, &res, &err);
    tree_free(t);
    check_dir(dest, mode == TREE_LAYER);
    if (path_remove_tree_at(work_fd, "dest") < 0)
        abort();
    check_outside();
    return 0;
}
