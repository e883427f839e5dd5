/*
 * loadgen: a small HTTP/1.1 load generator for `make bench`, on loopback only. One epoll loop, C
 * keep-alive connections, one request in flight on each, N requests in all; answers are read to
 * their end (Content-Length or the last chunk). Prints one JSON line: latencies in microseconds and
 * the rate.
 *
 *   loadgen [-c C] [-n N] [-X METHOD] [-d BODY] [-H 'Name: value']... ADDRESS PORT PATH
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"

struct conn {
    int fd;
    int64_t begin_us;
    size_t sent;
    char in[1 << 16];
    size_t len;
    bool head_done, chunked;
    int64_t left; /* of a Content-Length body */
    int tail;     /* matched bytes of the last chunk's marker */
};

static struct buf request = BUF_INIT(1 << 20);
static double *latency;
static uint64_t done, wanted = 1000, started, failed;

static int connect_to(const char *addr, uint16_t port) {
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || inet_pton(AF_INET, addr, &sa.sin_addr) != 1 ||
        (ntohl(sa.sin_addr.s_addr) >> 24) != 127 ||
        connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0) {
        perror("loadgen: connect (loopback addresses only)");
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static bool send_next(struct conn *c) {
    if (started >= wanted)
        return false;
    started++;
    c->len = 0;
    c->head_done = c->chunked = false;
    c->tail = 0;
    c->begin_us = clock_mono_us();
    for (size_t o = 0; o < request.len;) {
        ssize_t n = send(c->fd, request.data + o, request.len - o, MSG_NOSIGNAL);
        if (n <= 0) {
            failed++;
            return false;
        }
        o += (size_t)n;
    }
    return true;
}

/* The body ends with "\r\n0\r\n\r\n" (or is just "0\r\n\r\n"): enough for servers without trailers.
 */
static bool chunks_end(struct conn *c, const char *p, size_t n) {
    static const char mark[] = "\r\n0\r\n\r\n";
    for (size_t i = 0; i < n; i++) {
        if (p[i] == mark[c->tail])
            c->tail++;
        else
            c->tail = p[i] == '\r';
        if (c->tail == 7)
            return true;
    }
    return false;
}

/* true when the answer is complete */
static bool take(struct conn *c, const char *p, size_t n) {
    if (!c->head_done) {
        size_t room = sizeof c->in - 1 - c->len, k = MIN(n, room);
        memcpy(c->in + c->len, p, k);
        size_t before = c->len;
        c->len += k;
        c->in[c->len] = 0;
        char *end = strstr(c->in, "\r\n\r\n");
        if (!end)
            return false;
        c->head_done = true;
        if (c->in[9] != '2')
            failed++;
        char *cl = strcasestr(c->in, "\r\ncontent-length:");
        c->chunked = strcasestr(c->in, "\r\ntransfer-encoding: chunked") != NULL;
        c->left = cl && cl < end ? strtoll(cl + 17, NULL, 10) : 0;
        size_t used = (size_t)(end + 4 - c->in) - before;
        p += used;
        n -= used;
        c->tail = 2;
    }
    if (c->chunked)
        return chunks_end(c, p, n);
    c->left -= (int64_t)n;
    return c->left <= 0;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void run(struct conn *conns, size_t n_conns) {
    int ep = epoll_create1(EPOLL_CLOEXEC);
    size_t alive = 0;
    static char chunk[1 << 18];

    for (size_t i = 0; i < n_conns; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &conns[i]};
        epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].fd, &e);
        alive += send_next(&conns[i]);
    }
    while (alive > 0) {
        struct epoll_event ev[64];
        int n = epoll_wait(ep, ev, 64, 60000);
        if (n <= 0) {
            fprintf(stderr, "loadgen: no answer for 60 s\n");
            exit(1);
        }
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            ssize_t r = recv(c->fd, chunk, sizeof chunk, 0);
            if (r <= 0) {
                failed++;
                alive--;
                epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
                continue;
            }
            if (!take(c, chunk, (size_t)r))
                continue;
            latency[done++] = (double)(clock_mono_us() - c->begin_us);
            alive -= !send_next(c);
        }
    }
    close(ep);
}

int main(int argc, char **argv) {
    const char *method = "GET", *body = NULL;
    _cleanup_buf_ struct buf extra = BUF_INIT(1 << 16);
    uint64_t n_conns = 1, port;
    int o;

    while ((o = getopt(argc, argv, "c:n:X:d:H:")) != -1) {
        if (o == 'c' && str_to_u64(optarg, &n_conns) == 0)
            continue;
        if (o == 'n' && str_to_u64(optarg, &wanted) == 0)
            continue;
        if (o == 'X')
            method = optarg;
        else if (o == 'd')
            body = optarg;
        else if (o == 'H')
            buf_printf(&extra, "%s\r\n", optarg);
        else
            return 2;
    }
    if (argc - optind != 3 || str_to_u64(argv[optind + 1], &port) < 0 || n_conns < 1 ||
        n_conns > 1000)
        return 2;
    buf_printf(&request, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, argv[optind + 2], argv[optind],
               extra.data ? extra.data : "");
    if (body)
        buf_printf(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                   strlen(body));
    buf_printf(&request, "\r\n%s", body ? body : "");
    struct conn *conns = calloc(n_conns, sizeof *conns);
    latency = calloc(wanted + 1, sizeof *latency);
    if (!conns || !latency || !buf_ok(&request))
        return 1;
    for (size_t i = 0; i < n_conns; i++)
        conns[i].fd = connect_to(argv[optind], (uint16_t)port);
    int64_t t = clock_mono_us();
    run(conns, n_conns);
    double seconds = (double)(clock_mono_us() - t) / 1e6;
    qsort(latency, done, sizeof *latency, by_value);
    printf("{\"n\":%llu,\"failed\":%llu,\"rate\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f}\n",
           (unsigned long long)done, (unsigned long long)failed, (double)done / seconds,
           latency[done / 2], latency[done * 9 / 10], latency[done * 99 / 100]);
    for (size_t i = 0; i < n_conns; i++)
        close(conns[i].fd);
    free(conns);
    free(latency);
    buf_done(&request);
    return failed || !done;
}
