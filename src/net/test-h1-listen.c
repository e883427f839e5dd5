/* Listeners of the HTTP server: addresses, sockets of the file system, too many clients, no
 * descriptors left. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/path.h"
#include "base/str.h"
#include "base/test.h"
#include "net/test-h1.h"

#define HELLO "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"

static int status_of(const struct h1_fixture *f) {
    int status = 0;

    if (f->out.len)
        sscanf(f->out.data, "HTTP/1.1 %d", &status);
    return status;
}

static int connect_to(uint16_t port) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    ASSERT_OK(fd_set_nonblock(fd, true));
    return fd;
}

TEST(too_many_connections) {
    const struct h1_limits one = {.max_connections = 1};
    struct h1_fixture f;
    uint16_t port = 0;
    struct err err = {0};

    h1_fixture_init(&f, &one);
    ASSERT_OK(h1_server_listen_tcp(f.server, "127.0.0.1", 0, 0, &port, &err));
    h1_fixture_connect(&f);
    int keep = f.client;
    f.client = connect_to(port);
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1000));
    ASSERT_INT(status_of(&f), 503);
    ASSERT(strstr(f.out.data, "max_connections"));
    fd_close(keep);
    h1_fixture_done(&f);
}

static void allow_descriptors(rlim_t n) {
    struct rlimit lim;

    ASSERT(getrlimit(RLIMIT_NOFILE, &lim) == 0);
    lim.rlim_cur = n ? n : lim.rlim_max;
    ASSERT(setrlimit(RLIMIT_NOFILE, &lim) == 0);
}

/* Out of descriptors, a client is turned away instead of waiting for ever, and the server lives on.
 */
TEST(no_descriptors_left) {
    struct h1_fixture f;
    uint16_t port = 0;
    struct err err = {0};

    h1_fixture_init(&f, NULL);
    ASSERT_OK(h1_server_listen_tcp(f.server, "127.0.0.1", 0, 0, &port, &err));
    f.client = connect_to(port);
    allow_descriptors((rlim_t)f.client + 1);
    ASSERT(h1_fixture_wait(&f, SIZE_MAX, 1000));
    ASSERT_INT(f.requests, 0);
    allow_descriptors(0);
    fd_close(f.client);
    f.client = connect_to(port);
    f.client_eof = false;
    h1_fixture_send(&f, HELLO, strlen(HELLO));
    ASSERT(h1_fixture_wait(&f, 1, 1000));
    ASSERT_INT(status_of(&f), 200);
    h1_fixture_done(&f);
}

/* Without even a spare one, accepting pauses (the loop rests) and comes back by itself. */
TEST(no_spare_descriptor_left) {
    struct h1_fixture f;
    uint16_t port = 0;
    struct err err = {0};

    h1_fixture_init(&f, NULL);
    ASSERT_OK(h1_server_listen_tcp(f.server, "127.0.0.1", 0, 0, &port, &err));
    f.client = connect_to(port);
    allow_descriptors((rlim_t)f.server->spare_fd);
    f.server->spare_fd = fd_close(f.server->spare_fd);
    h1_fixture_turn(&f);
    struct pollfd p = {.fd = uv_backend_fd(&f.loop), .events = POLLIN};
    h1_fixture_turn(&f);
    ASSERT_INT(poll(&p, 1, 0), 0);
    allow_descriptors(0);
    h1_fixture_send(&f, HELLO, strlen(HELLO));
    ASSERT(h1_fixture_wait(&f, 1, 1000));
    ASSERT_INT(status_of(&f), 200);
    h1_fixture_done(&f);
}

TEST(unix_listener) {
    char dir[] = "/tmp/cove-net1-XXXXXX", path[64];
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct h1_server_opts o = {0};
    struct h1_fixture f;
    struct h1_server *second;
    struct stat st;
    struct err err = {0};

    ASSERT(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/s", dir);
    str_copy(un.sun_path, sizeof un.sun_path, path);
    int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(bind(stale, (struct sockaddr *)&un, sizeof un) == 0);
    fd_close(stale);
    h1_fixture_init(&f, NULL);
    ASSERT_OK(h1_server_listen_unix(f.server, path, 0660, &err)); /* replaces the stale one */
    ASSERT(stat(path, &st) == 0);
    ASSERT_INT(st.st_mode & 07777, 0660);
    ASSERT_OK(h1_server_new(&f.loop, &o, &second));
    ASSERT_INT(h1_server_listen_unix(second, path, 0660, &err), -EADDRINUSE);
    ASSERT_INT(h1_server_listen_unix(second, dir, 0660, &err), -EEXIST);
    h1_server_free(second);
    f.client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(connect(f.client, (struct sockaddr *)&un, sizeof un) == 0);
    ASSERT_OK(fd_set_nonblock(f.client, true));
    h1_fixture_send(&f, HELLO, strlen(HELLO));
    ASSERT(h1_fixture_wait(&f, 1, 1000));
    ASSERT_INT(status_of(&f), 200);
    h1_fixture_done(&f);
    ASSERT(stat(path, &st) < 0);
    ASSERT(rmdir(dir) == 0);
}

/* A socket whose backlog is full belongs to somebody, who is only slow. */
TEST(busy_socket_is_not_replaced) {
    char dir[] = "/tmp/cove-net1-XXXXXX";
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct h1_fixture f;
    struct err err = {0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), c[3];

    ASSERT(mkdtemp(dir));
    snprintf(un.sun_path, sizeof un.sun_path, "%s/s", dir);
    ASSERT(bind(fd, (struct sockaddr *)&un, sizeof un) == 0 && listen(fd, 0) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        c[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(c[i], (struct sockaddr *)&un, sizeof un);
    }
    h1_fixture_init(&f, NULL);
    ASSERT_INT(h1_server_listen_unix(f.server, un.sun_path, 0660, &err), -EADDRINUSE);
    ASSERT(access(un.sun_path, F_OK) == 0);
    h1_fixture_done(&f);
    for (size_t i = 0; i < ARRAY_SIZE(c); i++)
        fd_close(c[i]);
    fd_close(fd);
    ASSERT(unlink(un.sun_path) == 0 && rmdir(dir) == 0);
}

TEST(inherited_listener) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    struct h1_fixture f;
    struct err err = {0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    ASSERT(bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    h1_fixture_init(&f, NULL);
    int copy = dup(fd);
    ASSERT_INT(h1_server_listen_fd(f.server, copy, &err), -EINVAL); /* does not listen yet */
    ASSERT(listen(fd, 5) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    ASSERT_OK(h1_server_listen_fd(f.server, fd, &err));
    f.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(connect(f.client, (struct sockaddr *)&a, sizeof a) == 0);
    ASSERT_OK(fd_set_nonblock(f.client, true));
    h1_fixture_send(&f, HELLO, strlen(HELLO));
    ASSERT(h1_fixture_wait(&f, 1, 1000));
    ASSERT_INT(status_of(&f), 200);
    h1_fixture_done(&f);
}

TEST(refused_addresses) {
    struct h1_fixture f;
    struct err err = {0};

    h1_fixture_init(&f, NULL);
    ASSERT_INT(h1_server_listen_tcp(f.server, "localhost", 0, 0, NULL, &err), -EINVAL);
    ASSERT(h1_server_listen_tcp(f.server, "192.0.2.1", 0, 0, NULL, &err) < 0);
    ASSERT(strstr(err.msg, "192.0.2.1"));
    h1_fixture_done(&f);
}

TEST_MAIN()
