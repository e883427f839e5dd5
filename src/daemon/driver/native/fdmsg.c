/* Messages with descriptors (see fdmsg.h). Used by the driver and by cove-launch; any thread. */
#include "daemon/driver/native/fdmsg.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define FDMSG_FDS_MAX 253 /* the kernel's limit */

int fdmsg_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds) {
    char control[CMSG_SPACE(FDMSG_FDS_MAX * sizeof(int))];
    struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n_fds > FDMSG_FDS_MAX)
        return -EMSGSIZE;
    if (n_fds) {
        memset(control, 0, CMSG_SPACE(n_fds * sizeof(int)));
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    for (;;) {
        if (sendmsg(sock, &msg, MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

ssize_t fdmsg_recv(int sock, void *data, size_t size, int *fds, size_t *n_fds) {
    char control[CMSG_SPACE(FDMSG_FDS_MAX * sizeof(int))];
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    size_t room = *n_fds;
    ssize_t n;
    bool cut;

    *n_fds = 0;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    cut = msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < got; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (*n_fds < room && !cut)
                fds[(*n_fds)++] = fd;
            else {
                fd_close(fd);
                cut = true;
            }
        }
    }
    if (!cut)
        return n;
    while (*n_fds)
        fd_close(fds[--*n_fds]);
    return -EMSGSIZE;
}
