/* Small idioms used everywhere: scope-bound cleanup, ownership transfer, container_of. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _printf_(fmt, first) __attribute__((format(printf, fmt, first)))
#define _unused_ __attribute__((unused))
#define _noreturn_ __attribute__((noreturn))
#define _must_check_ __attribute__((warn_unused_result))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
/* the system's own (sys/param.h, which uv.h brings in) are the same: whichever comes second must
 * not clash */
#undef MIN
#undef MAX
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Hands a pointer over: the variable is NULL afterwards, so its cleanup does nothing. */
#define TAKE_PTR(p)                \
    ({                             \
        __typeof__(p) take_ = (p); \
        (p) = NULL;                \
        take_;                     \
    })
#define TAKE_FD(fd)       \
    ({                    \
        int take_ = (fd); \
        (fd) = -1;        \
        take_;            \
    })

/* Closes a descriptor and keeps errno; always returns -1. Negative descriptors are ignored. */
int fd_close(int fd);

static inline void fd_closep(int *fd) {
    fd_close(*fd);
}
static inline void freep(void *p) {
    free(*(void **)p);
}
#define _cleanup_close_ _cleanup_(fd_closep)
#define _cleanup_free_ _cleanup_(freep)

/* Defines NAMEp() for use with _cleanup_: calls NAME() on the variable. */
#define DEFINE_CLEANUP(type, name)         \
    static inline void name##p(type **p) { \
        if (*p)                            \
            name(*p);                      \
    }
