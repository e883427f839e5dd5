/* Streams and dialling. */
#include "net/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "base/test.h"

static __attribute__((constructor)) void
warm_up(void) { /* libuv's own descriptors, before the tests count */
    uv_loop_t loop;

    if (uv_loop_init(&loop) == 0)
        uv_loop_close(&loop);
}

struct end {
    uv_loop_t loop;
    struct sock *s;
    int peer;
    char got[4096];
    size_t n;
    ssize_t last;
    unsigned drains, flushes;
};

static void on_read(struct sock *s, const char *data, ssize_t len, void *ud) {
    struct end *e = ud;

    e->last = len;
    if (len > 0 && e->n + (size_t)len <= sizeof e->got) {
        memcpy(e->got + e->n, data, (size_t)len);
        e->n += (size_t)len;
    }
}

static void on_drain(struct sock *s, void *ud) {
    ((struct end *)ud)->drains++;
}

static void on_flush(struct sock *s, void *ud) {
    ((struct end *)ud)->flushes++;
}

static const struct sock_ops ops = {.on_read = on_read, .on_drain = on_drain, .on_flush = on_flush};

static void begin(struct end *e) {
    int fds[2];

    *e = (struct end){.last = 99};
    ASSERT_OK(uv_loop_init(&e->loop));
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    ASSERT_OK(sock_open(&e->loop, fds[0], &e->s));
    e->peer = fds[1];
    sock_set_ops(e->s, &ops, e);
}

static void turns(struct end *e, int n) {
    while (n--)
        uv_run(&e->loop, UV_RUN_NOWAIT);
}

static void finish(struct end *e) {
    sock_close(e->s, 0);
    uv_run(&e->loop, UV_RUN_DEFAULT);
    ASSERT_INT(uv_loop_close(&e->loop), 0);
    fd_close(e->peer);
}

TEST(reads_and_ends) {
    struct end e;

    begin(&e);
    ASSERT(send(e.peer, "abc", 3, 0) == 3);
    turns(&e, 2);
    ASSERT_INT(e.n, 0); /* nothing before the start */
    sock_read_start(e.s);
    turns(&e, 2);
    ASSERT_INT(e.n, 3);
    sock_read_stop(e.s);
    ASSERT(send(e.peer, "def", 3, 0) == 3);
    turns(&e, 2);
    ASSERT_INT(e.n, 3);
    sock_read_start(e.s);
    shutdown(e.peer, SHUT_WR);
    turns(&e, 3);
    ASSERT_INT(e.n, 6);
    ASSERT_INT(e.last, 0);
    ASSERT_INT(sock_write(e.s, "still", 5), 0); /* the other direction lives */
    finish(&e);
}

TEST(unread_comes_first) {
    struct end e;

    begin(&e);
    ASSERT(send(e.peer, "kernel", 6, 0) == 6);
    ASSERT_OK(sock_unread(e.s, "second,", 7));
    ASSERT_OK(sock_unread(e.s, "first,", 6));
    turns(&e, 2);
    ASSERT_INT(e.n, 0);
    sock_read_start(e.s);
    ASSERT_INT(e.n, 0); /* never from inside the call */
    turns(&e, 3);
    ASSERT_INT(e.n, 19);
    ASSERT(memcmp(e.got, "first,second,kernel", 19) == 0);
    finish(&e);
}

TEST(unread_waits_while_stopped) {
    struct end e;

    begin(&e);
    ASSERT_OK(sock_unread(e.s, "x", 1));
    sock_read_start(e.s);
    sock_read_stop(e.s);
    turns(&e, 3);
    ASSERT_INT(e.n, 0);
    sock_read_start(e.s);
    turns(&e, 2);
    ASSERT_INT(e.n, 1);
    finish(&e);
}

TEST(closing_with_unread_bytes) {
    struct end e;

    begin(&e);
    ASSERT_OK(sock_unread(e.s, "x", 1));
    sock_read_start(e.s);
    finish(&e);
    ASSERT_INT(e.n, 0);
}

TEST(queue_marks) {
    static char block[65536], sink[65536];
    struct end e;
    ssize_t q = 0, n;
    uint64_t got = 0, written = 0;

    begin(&e);
    for (int i = 0; i < 100 && (size_t)q <= SOCK_HIGH_WATER; i++) {
        q = sock_write(e.s, block, sizeof block);
        written += sizeof block;
    }
    ASSERT((size_t)q > SOCK_HIGH_WATER);
    ASSERT_INT(sock_queued(e.s), q);
    ASSERT_INT(sock_sent(e.s) + (uint64_t)q, written);
    for (int i = 0; i < 10000 && got < written; i++) {
        n = recv(e.peer, sink, sizeof sink, 0);
        got += n > 0 ? (uint64_t)n : 0;
        turns(&e, 1);
    }
    ASSERT_INT(got, written);
    ASSERT_INT(e.drains, 1);
    ASSERT_INT(e.flushes, 1);
    finish(&e);
}

TEST(no_drain_report_below_the_mark) {
    static char block[65536], sink[65536];
    struct end e;

    begin(&e);
    while (sock_queued(e.s) == 0)
        ASSERT(sock_write(e.s, block, sizeof block) >= 0);
    for (int i = 0; i < 1000 && sock_queued(e.s); i++) {
        (void)!recv(e.peer, sink, sizeof sink, 0);
        turns(&e, 1);
    }
    ASSERT_INT(e.flushes, 1);
    ASSERT_INT(e.drains, 0);
    finish(&e);
}

TEST(queue_is_bounded) {
    static char block[1 << 20];
    struct end e;
    ssize_t q = 0;
    int i;

    begin(&e);
    for (i = 0; i < 100 && q >= 0; i++)
        q = sock_write(e.s, block, sizeof block);
    ASSERT_INT(q, -ENOBUFS);
    ASSERT(i > 60 && i < 70);
    ASSERT(sock_queued(e.s) <= 64u << 20);
    finish(&e);
}

/* Reads all that comes and checks that it goes on with the right byte. */
static void read_counted(struct end *e, unsigned *next) {
    unsigned char in[8192];

    for (ssize_t n; (n = recv(e->peer, in, sizeof in, 0)) > 0; uv_run(&e->loop, UV_RUN_NOWAIT))
        for (ssize_t i = 0; i < n; i++)
            ASSERT_INT(in[i], (*next)++ % 251);
}

/* Every byte arrives in order, however small the pieces and the kernel's buffer. */
TEST(order_is_kept) {
    struct end e;
    unsigned seed = 7, next_out = 0, next_in = 0;
    int small = 4096;

    begin(&e);
    setsockopt(sock_fd(e.s), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    while (next_out < 300000) {
        unsigned char a[3000], b[500];
        size_t na = (unsigned)rand_r(&seed) % sizeof a, nb = (unsigned)rand_r(&seed) % sizeof b;
        uv_buf_t v[2] = {{.base = (char *)a, .len = na}, {.base = (char *)b, .len = nb}};
        for (size_t i = 0; i < na; i++)
            a[i] = (unsigned char)(next_out++ % 251);
        for (size_t i = 0; i < nb; i++)
            b[i] = (unsigned char)(next_out++ % 251);
        ASSERT(sock_writev(e.s, v, 2) >= 0);
        if (rand_r(&seed) % 4 == 0 || sock_queued(e.s) > 100000)
            read_counted(&e, &next_in);
    }
    for (int i = 0; i < 1000 && next_in < next_out; i++) {
        turns(&e, 1);
        read_counted(&e, &next_in);
    }
    ASSERT_INT(next_in, next_out);
    finish(&e);
}

TEST(peer_is_gone) {
    struct end e;

    begin(&e);
    sock_read_start(e.s);
    e.peer = fd_close(e.peer);
    ASSERT_INT(sock_write(e.s, "x", 1), -EPIPE);
    ASSERT_INT(sock_write(e.s, "x", 1), -EPIPE); /* for good */
    turns(&e, 3);
    finish(&e);
}

TEST(last_words_before_a_reset_are_read) {
    struct end e;

    begin(&e);
    ASSERT(sock_write(e.s, "never read", 10) == 0);
    ASSERT(send(e.peer, "bye", 3, 0) == 3);
    e.peer = fd_close(e.peer); /* with unread bytes: the kernel reports a reset */
    sock_read_start(e.s);
    turns(&e, 3);
    ASSERT_INT(e.n, 3);
    ASSERT(e.last <= 0);
    finish(&e);
}

TEST(lingering_close_delivers) {
    static char block[1 << 20], sink[65536];
    struct end e;
    size_t got = 0;
    ssize_t n;

    begin(&e);
    ASSERT(send(e.peer, "unread", 6, 0) == 6);
    ASSERT(sock_write(e.s, block, sizeof block) > 0);
    sock_close(e.s, 1000);
    for (int i = 0; i < 1000 && (n = recv(e.peer, sink, sizeof sink, 0)) != 0; i++) {
        got += n > 0 ? (size_t)n : 0;
        turns(&e, 1);
    }
    ASSERT_INT(got, sizeof block);
    e.peer = fd_close(e.peer);
    int64_t start = clock_mono_ms();
    uv_run(&e.loop, UV_RUN_DEFAULT);
    ASSERT(clock_mono_ms() - start < 500); /* ended by the peer's end, not by the time limit */
    ASSERT_INT(uv_loop_close(&e.loop), 0);
}

TEST(lingering_close_gives_up) {
    struct end e;
    int64_t start = clock_mono_ms();

    begin(&e);
    sock_close(e.s, 50);
    uv_run(&e.loop, UV_RUN_DEFAULT);
    ASSERT(clock_mono_ms() - start >= 45 && clock_mono_ms() - start < 1000);
    ASSERT_INT(uv_loop_close(&e.loop), 0);
    fd_close(e.peer);
}

TEST(half_close_after_the_queue) {
    static char block[1 << 20], sink[65536];
    struct end e;
    size_t got = 0;
    ssize_t n = -1;

    begin(&e);
    ASSERT(sock_write(e.s, block, sizeof block) > 0);
    sock_shutdown(e.s);
    ASSERT_INT(sock_write(e.s, "x", 1), -EPIPE);
    for (int i = 0; i < 1000 && n != 0; i++) {
        n = recv(e.peer, sink, sizeof sink, 0);
        got += n > 0 ? (size_t)n : 0;
        turns(&e, 1);
    }
    ASSERT_INT(got, sizeof block);
    sock_read_start(e.s);
    ASSERT(send(e.peer, "back", 4, 0) == 4);
    turns(&e, 2);
    ASSERT_INT(e.n, 4);
    finish(&e);
}

TEST(facts_of_a_unix_peer) {
    struct end e;
    char addr[64];
    int port = 7;

    begin(&e);
    sock_peer(e.s, addr, sizeof addr, &port);
    ASSERT_STR(addr, "unix");
    ASSERT_INT(port, 0);
    ASSERT_INT(sock_peer_uid(e.s), getuid());
    finish(&e);
}

/* ---- dialling ---- */

struct dial {
    uv_loop_t loop;
    struct sock *s;
    int error;
    unsigned calls;
};

static void on_dialled(struct sock *s, int error, void *ud) {
    struct dial *d = ud;

    d->s = s;
    d->error = error;
    d->calls++;
}

static void run_dial(struct dial *d, const struct sock_addr *a, unsigned timeout_ms) {
    struct sock_dial *h = NULL;

    *d = (struct dial){.error = 1};
    ASSERT_OK(uv_loop_init(&d->loop));
    ASSERT_OK(sock_dial(&d->loop, a, timeout_ms, on_dialled, d, &h));
    ASSERT_INT(d->calls, 0);
    while (!d->calls)
        uv_run(&d->loop, UV_RUN_ONCE);
    ASSERT((d->s != NULL) == (d->error == 0));
}

static void end_dial(struct dial *d) {
    sock_close(d->s, 0);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    ASSERT_INT(d->calls, d->error == 1 ? 0 : 1);
    ASSERT_INT(uv_loop_close(&d->loop), 0);
}

static int tcp_listener(int family, uint16_t *ret_port) {
    struct sockaddr_storage ss = {.ss_family = (sa_family_t)family};
    struct sockaddr_in *a4 = (struct sockaddr_in *)&ss;
    struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)&ss;
    socklen_t len = family == AF_INET ? sizeof *a4 : sizeof *a6;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (family == AF_INET)
        a4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        a6->sin6_addr = in6addr_loopback;
    if (fd < 0 || bind(fd, (struct sockaddr *)&ss, len) < 0)
        return fd_close(fd);
    ASSERT(listen(fd, 5) == 0 && getsockname(fd, (struct sockaddr *)&ss, &len) == 0);
    *ret_port = ntohs(family == AF_INET ? a4->sin_port : a6->sin6_port);
    return fd;
}

TEST(dial_tcp) {
    uint16_t port;
    struct dial d;
    char addr[64];
    int fd = tcp_listener(AF_INET, &port), got_port = 0;

    run_dial(&d, &(struct sock_addr){.host = "127.0.0.1", .port = port}, 1000);
    ASSERT_INT(d.error, 0);
    sock_peer(d.s, addr, sizeof addr, &got_port);
    ASSERT_STR(addr, "127.0.0.1");
    ASSERT_INT(got_port, port);
    ASSERT_INT(sock_peer_uid(d.s), -1);
    end_dial(&d);
    run_dial(&d, &(struct sock_addr){.host = "localhost", .port = port},
             1000); /* by name, perhaps after ::1 */
    ASSERT_INT(d.error, 0);
    end_dial(&d);
    fd_close(fd);
    run_dial(&d, &(struct sock_addr){.host = "127.0.0.1", .port = port}, 1000);
    ASSERT_INT(d.error, -ECONNREFUSED);
    end_dial(&d);
}

TEST(dial_unix) {
    char dir[] = "/tmp/cove-net1-XXXXXX";
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct dial d;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ASSERT(mkdtemp(dir));
    snprintf(un.sun_path, sizeof un.sun_path, "%s/s", dir);
    run_dial(&d, &(struct sock_addr){.unix_path = un.sun_path}, 1000);
    ASSERT_INT(d.error, -ENOENT);
    end_dial(&d);
    ASSERT(bind(fd, (struct sockaddr *)&un, sizeof un) == 0);
    run_dial(&d, &(struct sock_addr){.unix_path = un.sun_path}, 1000);
    ASSERT_INT(d.error, -ECONNREFUSED);
    end_dial(&d);
    ASSERT(listen(fd, 0) == 0);
    run_dial(&d, &(struct sock_addr){.unix_path = un.sun_path}, 1000);
    ASSERT_INT(d.error, 0);
    end_dial(&d);
    fd_close(fd);
    ASSERT(unlink(un.sun_path) == 0 && rmdir(dir) == 0);
}

/* A full backlog: the connect is tried again until the time is over. */
TEST(dial_unix_full) {
    char dir[] = "/tmp/cove-net1-XXXXXX";
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct dial d;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), c[3];

    ASSERT(mkdtemp(dir));
    snprintf(un.sun_path, sizeof un.sun_path, "%s/s", dir);
    ASSERT(bind(fd, (struct sockaddr *)&un, sizeof un) == 0 && listen(fd, 0) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        c[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(c[i], (struct sockaddr *)&un, sizeof un);
    }
    run_dial(&d, &(struct sock_addr){.unix_path = un.sun_path}, 60);
    ASSERT_INT(d.error, -ETIMEDOUT);
    end_dial(&d);
    for (size_t i = 0; i < ARRAY_SIZE(c); i++)
        fd_close(c[i]);
    fd_close(fd);
    ASSERT(unlink(un.sun_path) == 0 && rmdir(dir) == 0);
}

TEST(dial_refused_arguments) {
    struct sock_dial *h;
    char path[300];
    uv_loop_t loop;

    memset(path, 'a', sizeof path);
    path[sizeof path - 1] = 0;
    ASSERT_OK(uv_loop_init(&loop));
    ASSERT_INT(sock_dial(&loop, &(struct sock_addr){.unix_path = path}, 0, on_dialled, NULL, &h),
               -ENAMETOOLONG);
    ASSERT_INT(sock_dial(&loop, &(struct sock_addr){0}, 0, on_dialled, NULL, &h), -EINVAL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ASSERT_INT(uv_loop_close(&loop), 0);
}

TEST(dial_name_that_does_not_exist) {
    struct dial d;

    run_dial(&d, &(struct sock_addr){.host = "no-such-host.invalid", .port = 1}, 5000);
    ASSERT(d.error == -EHOSTUNREACH || d.error == -EAGAIN || d.error == -ETIMEDOUT);
    end_dial(&d);
}

TEST(dial_cancelled) {
    struct dial d = {.error = 1};
    struct sock_dial *h;

    ASSERT_OK(uv_loop_init(&d.loop));
    ASSERT_OK(sock_dial(&d.loop, &(struct sock_addr){.host = "127.0.0.1", .port = 1}, 0, on_dialled,
                        &d, &h));
    sock_dial_cancel(h);
    ASSERT_OK(sock_dial(&d.loop, &(struct sock_addr){.host = "localhost", .port = 1}, 0, on_dialled,
                        &d, &h));
    sock_dial_cancel(h);
    end_dial(&d);
}

/* ---- network namespaces ---- */

static ino_t own_netns(void) {
    struct stat st;

    return stat("/proc/thread-self/ns/net", &st) == 0 ? st.st_ino : 0;
}

/* A namespace held by a child that made it; *ret_child ends when killed. */
static int foreign_netns(pid_t *ret_child) {
    int sync[2], ns = -1;
    char path[64], ok = 0;

    ASSERT(pipe2(sync, O_CLOEXEC) == 0);
    *ret_child = fork();
    if (*ret_child == 0) {
        ok = unshare(CLONE_NEWNET) == 0;
        (void)!write(sync[1], &ok, 1);
        pause();
        _exit(0);
    }
    ASSERT(read(sync[0], &ok, 1) == 1);
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)*ret_child);
    if (ok)
        ns = open(path, O_RDONLY | O_CLOEXEC);
    fd_close(sync[0]);
    fd_close(sync[1]);
    return ns;
}

TEST(socket_in_a_namespace) {
    ino_t home = own_netns();
    pid_t child;
    struct dial d;
    uint16_t port;
    int ns = foreign_netns(&child), fd = -1, here = tcp_listener(AF_INET, &port), r = 0;

    if (ns >= 0) {
        fd = netns_socket(ns, AF_INET, SOCK_STREAM);
        run_dial(&d, &(struct sock_addr){.host = "127.0.0.1", .port = port, .netns_fd = ns}, 200);
        r = d.error; /* its loopback is down, and nobody listens there: never our listener */
        end_dial(&d);
        fd_close(ns);
    }
    kill(child, SIGKILL);
    ASSERT(waitpid(child, NULL, 0) == child);
    fd_close(here);
    if (ns < 0)
        test_skip("network namespaces need privileges");
    ASSERT(fd >= 0);
    fd_close(fd);
    ASSERT(r < 0);
    ASSERT(home == own_netns());
}

TEST_MAIN()
