/* Messages with descriptors: they arrive, close-on-exec, and none leaks when a message does not
 * fit. */
#include "daemon/driver/native/fdmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/test.h"

static int count_fds(void) {
    int n = 0;
    for (int i = 0; i < 256; i++)
        n += fcntl(i, F_GETFD) >= 0;
    return n;
}

TEST(descriptors_arrive_in_order_and_close_on_exec) {
    int sv[2], sent[3], got[8];
    size_t n = ARRAY_SIZE(got);
    char text[16];

    ASSERT_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv));
    for (int i = 0; i < 3; i++) {
        sent[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        ASSERT(lseek(sent[i], 0, SEEK_SET) == 0);
    }
    ASSERT_OK(fdmsg_send(sv[0], "hello", 5, sent, 3));
    ASSERT_INT(fdmsg_recv(sv[1], text, sizeof text, got, &n), 5);
    ASSERT_INT(n, 3);
    ASSERT(memcmp(text, "hello", 5) == 0);
    for (size_t i = 0; i < 3; i++) {
        ASSERT(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
        fd_close(got[i]);
        fd_close(sent[i]);
    }
    fd_close(sv[0]);
    n = ARRAY_SIZE(got);
    ASSERT_INT(fdmsg_recv(sv[1], text, sizeof text, got, &n), 0);
    fd_close(sv[1]);
}

TEST(what_does_not_fit_is_refused_whole) {
    int sv[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC), got[2];
    int many[8] = {null, null, null, null, null, null, null, null};
    char text[4];
    size_t n;

    ASSERT_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv));
    int before = count_fds();
    ASSERT_OK(fdmsg_send(sv[0], "longer than four", 16, many, 2));
    n = ARRAY_SIZE(got);
    ASSERT_INT(fdmsg_recv(sv[1], text, sizeof text, got, &n), -EMSGSIZE);
    ASSERT_INT(n, 0);
    ASSERT_OK(fdmsg_send(sv[0], "abc", 3, many, 8));
    n = ARRAY_SIZE(got);
    ASSERT_INT(fdmsg_recv(sv[1], text, sizeof text, got, &n), -EMSGSIZE);
    ASSERT_INT(count_fds(), before);
    ASSERT_INT(fdmsg_send(sv[0], "x", 1, many, 300), -EMSGSIZE);
    fd_close(sv[0]);
    ASSERT_INT(fdmsg_send(sv[1], "x", 1, NULL, 0), -EPIPE);
    fd_close(sv[1]);
    fd_close(null);
}

TEST_MAIN()
