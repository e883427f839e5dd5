/* Sockets born in another network namespace (see sock.h). Any thread; needs CAP_SYS_ADMIN. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>

#include "net/sock.h"

int netns_socket(int netns_fd, int family, int type) {
    _cleanup_close_ int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    int fd;

    if (home < 0)
        return -errno;
    if (setns(netns_fd, CLONE_NEWNET) < 0)
        return -errno;
    fd = socket(family, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fd = -errno;
    if (setns(home, CLONE_NEWNET) < 0) /* going on in a sandbox's network would be a hole */
        abort();
    return fd;
}
