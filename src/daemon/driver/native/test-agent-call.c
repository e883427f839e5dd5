/* The driver's calls to an agent, against scripted answers from a listener in this network
 * namespace. */
#include "daemon/driver/native/agent_call.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/path.h"
#include "base/test.h"

struct server {
    int fd;
    const char *answer; /* NULL: never answers; "": closes at once */
    char seen[4096];
    pthread_t thread;
    struct agent_call call;
};

static void *serve(void *arg) {
    struct server *s = arg;
    _cleanup_close_ int c = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
    ssize_t n = recv(c, s->seen, sizeof s->seen - 1, 0);
    char drain[4096];

    s->seen[n > 0 ? n : 0] = 0;
    if (s->answer) {
        (void)fd_write_full(c, s->answer, strlen(s->answer));
        shutdown(c, SHUT_WR);
    }
    while (recv(c, drain, sizeof drain, 0) > 0)
        ;
    return NULL;
}

static void start(struct server *s, const char *answer) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;

    if (geteuid() != 0)
        test_skip("cannot: needs root to enter a network namespace");
    *s = (struct server){.answer = answer, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT(bind(s->fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(s->fd, 1) == 0);
    ASSERT(getsockname(s->fd, (struct sockaddr *)&a, &len) == 0);
    s->call = (struct agent_call){.netns_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC),
                                  .pidfd = -1,
                                  .port = ntohs(a.sin_port),
                                  .token = "secret",
                                  .timeout_ms = 500};
    ASSERT(pthread_create(&s->thread, NULL, serve, s) == 0);
}

static void stop(struct server *s) {
    pthread_join(s->thread, NULL);
    fd_close(s->fd);
    fd_close(s->call.netns_fd);
}

static int claim(const char *answer, struct server *s, struct err *err) {
    _cleanup_json_ json_t *body = json_pack("{s:s}", "sandbox_id", "x");
    start(s, answer);
    int r = agent_claim(&s->call, body, err);
    stop(s);
    return r;
}

TEST(claim_is_a_post_with_the_token) {
    struct server s;
    struct err err = {0};

    ASSERT_OK(claim("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"pid\":1}", &s, &err));
    ASSERT(strncmp(s.seen, "POST /claim HTTP/1.1\r\n", 22) == 0);
    ASSERT(strstr(s.seen, "\r\nX-EXECD-ACCESS-TOKEN: secret\r\n"));
    ASSERT(strstr(s.seen, "\r\n\r\n{\"sandbox_id\":\"x\"}"));
}

TEST(answers) {
    static const struct {
        const char *answer;
        int want;
        const char *text;
    } table[] = {
        {"HTTP/1.1 200 OK\r\n\r\n", 0, ""},
        {"HTTP/1.1 500 E\r\nContent-Length: 25\r\n\r\n{\"code\":\"X\",\"message\":\"no\"}", -EIO,
         ""},
        {"HTTP/1.1 500 E\r\n\r\n{\"message\":\"no such file\"}", -EIO, "no such file"},
        {"HTTP/1.1 400 E\r\n\r\n{\"message\":\"bad cwd\"}", -EINVAL, "bad cwd"},
        {"HTTP/1.1 409 E\r\n\r\nnot json", -EIO, "refused"},
        {"", -ESRCH, "ended"},
        {"HTTP/1.1 200 OK\r\n", -ESRCH, "ended"},
        {"SSH-2.0-x\r\n\r\n", -EIO, "talking"},
        {NULL, -ETIMEDOUT, "500 ms"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct server s;
        struct err err = {0};
        int r = claim(table[i].answer, &s, &err);
        if (r != table[i].want || !strstr(err.msg, table[i].text))
            test_fail(__FILE__, __LINE__, "answer %zu gives %d \"%s\"", i, r, err.msg);
        ASSERT(!strstr(err.msg, "secret"));
    }
}

TEST_MAIN()
