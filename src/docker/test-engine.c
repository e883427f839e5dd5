/* The Engine client against a server that answers as the test likes: calls and their errors,
 * connections, limits. Streams are in test-engine-streams.c. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/test.h"
#include "docker/test-fake.h"

static int get(struct engine *e, const char *path, json_t **ret, struct err *err) {
    struct engine_call c = {.method = "GET", .path = path};
    return engine_request(e, &c, ret, err);
}

static int post(struct engine *e, const char *path, struct err *err) {
    struct engine_call c = {.method = "POST", .path = path};
    return engine_request(e, &c, NULL, err);
}

/* ---- version ---- */

static bool ping_as_told(int fd, const struct fake_request *q) {
    const char *version = q->ud;

    if (!str_eq(q->target, "/_ping")) {
        fake_json(fd, 200, "{}");
        return true;
    }
    fake_say(fd, "HTTP/1.1 200 OK\r\n");
    if (*version) {
        fake_say(fd, "Api-Version: ");
        fake_say(fd, version);
        fake_say(fd, "\r\n");
    }
    fake_say(fd, "Content-Length: 2\r\n\r\nOK");
    return true;
}

static int ping_with(const char *version, char ret[16], struct err *err) {
    struct fake *f = fake_start(ping_as_told, (void *)version);
    struct engine *e = fake_engine(f, 5000);
    int r;

    fake_own_ping(f);
    r = engine_ping(e, ret, err);
    engine_free(e);
    fake_stop(f);
    return r;
}

TEST(version_is_the_lower_of_both) {
    char v[16];
    struct err err;

    ASSERT_OK(ping_with("1.41", v, NULL));
    ASSERT_STR(v, "1.41");
    ASSERT_OK(ping_with("1.999", v, NULL));
    ASSERT_STR(v, "1.47");
    ASSERT_INT(ping_with("1.39", v, &err), -EOPNOTSUPP);
    ASSERT_STR(err.msg, "the Docker engine speaks API 1.39, at least 1.40 is needed");
    ASSERT_INT(ping_with("", v, &err), -EBADMSG);
    ASSERT_INT(ping_with("2.0", v, NULL), -EBADMSG);
}

/* another engine has taken the place: the version is asked again after its refusal */
static bool refuse_version(int fd, const struct fake_request *q) {
    if (q->total == 0)
        fake_say(fd, "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK");
    else if (str_starts(q->target, "/v1.41/"))
        fake_json(fd, 400,
                  "{\"message\":\"client version 1.41 is too old. Minimum supported API version "
                  "is 1.44\"}");
    else if (str_eq(q->target, "/_ping"))
        fake_say(fd, "HTTP/1.1 200 OK\r\nApi-Version: 1.46\r\nContent-Length: 2\r\n\r\nOK");
    else
        fake_json(fd, 200, str_starts(q->target, "/v1.46/") ? "{}" : "no");
    return true;
}

TEST(version_is_asked_again_when_refused) {
    struct fake *f = fake_start(refuse_version, NULL);
    struct engine *e = fake_engine(f, 5000);
    struct err err;

    fake_own_ping(f);
    ASSERT_INT(get(e, "/info", NULL, &err), -EINVAL);
    ASSERT(strstr(err.msg, "too old"));
    ASSERT_OK(get(e, "/info", NULL, NULL));
    engine_free(e);
    fake_stop(f);
}

/* ---- statuses ---- */

static bool status_of_path(int fd, const struct fake_request *q) {
    const char *s = strrchr(q->target, '/') + 1;
    int status = (int)strtol(s, NULL, 10);

    if (str_ends(s, "text"))
        fake_say(fd, "HTTP/1.1 500 X\r\nContent-Length: 17\r\n\r\nplain \x1b"
                     "[1m\r\nmore");
    else if (str_ends(s, "empty"))
        fake_say(fd, "HTTP/1.1 502 X\r\nContent-Length: 0\r\n\r\n");
    else if (str_ends(s, "large"))
        fake_say(fd, "HTTP/1.1 500 X\r\nContent-Length: 99999999\r\n\r\nplain text at its start");
    else if (status == 304 || status == 204)
        fake_say(fd, status == 304 ? "HTTP/1.1 304 X\r\n\r\n" : "HTTP/1.1 204 X\r\n\r\n");
    else
        fake_json(fd, status, "{\"message\":\"the engine's words\"}");
    return !str_ends(s, "large");
}

static void check_status(struct engine *e, const char *path, int code, int status,
                         const char *message) {
    struct err err = {0};

    ASSERT_INT(get(e, path, NULL, &err), code);
    ASSERT_INT(err.code, code);
    ASSERT_INT(engine_status(), status);
    if (message)
        ASSERT_STR(err.msg, message);
    ASSERT_INT(get(e, path, NULL, NULL), code);
    ASSERT_INT(engine_status(), status);
}

TEST(statuses) {
    struct fake *f = fake_start(status_of_path, NULL);
    struct engine *e = fake_engine(f, 5000);
    json_t *j = NULL;

    check_status(e, "/404", -ENOENT, 404, "the engine's words");
    check_status(e, "/409", -EBUSY, 409, "the engine's words");
    check_status(e, "/400", -EINVAL, 400, "the engine's words");
    check_status(e, "/500", -EREMOTEIO, 500, "the engine's words");
    check_status(e, "/503", -EREMOTEIO, 503, "the engine's words");
    check_status(e, "/301", -EREMOTEIO, 301, "the engine's words");
    check_status(e, "/304", -EALREADY, 304, "the Docker engine answered with status 304");
    check_status(e, "/500text", -EREMOTEIO, 500, "plain  [1m");
    check_status(e, "/empty", -EREMOTEIO, 502, "the Docker engine answered with status 502");
    check_status(e, "/large", -EREMOTEIO, 500, "plain text at its start");
    ASSERT_OK(get(e, "/204", &j, NULL));
    ASSERT(json_is_null(j));
    ASSERT_INT(engine_status(), 0);
    ASSERT_OK(get(e, "/201", &j, NULL));
    ASSERT(json_is_object(j));
    json_decref(j);
    engine_free(e);
    fake_stop(f);
}

/* ---- answers that are none ---- */

#define WHOLE                                                                                 \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" \
    "6\r\n{\"a\":1\r\n1\r\n}\r\n0\r\n\r\n"

static bool cut_answer(int fd, const struct fake_request *q) {
    fake_bytes(fd, WHOLE, strtoul(strrchr(q->target, '/') + 1, NULL, 10));
    return false;
}

TEST(every_cut_of_an_answer_is_an_error) {
    struct fake *f = fake_start(cut_answer, NULL);
    struct engine *e = fake_engine(f, 5000);
    json_t *j = NULL;
    char path[16];

    ASSERT_OK(engine_ping(e, NULL, NULL));
    for (size_t n = 0; n < strlen(WHOLE); n++) {
        snprintf(path, sizeof path, "/%zu", n);
        ASSERT_INT(get(e, path, &j, NULL), -ECONNRESET);
        ASSERT_INT(engine_status(), 0);
        ASSERT(!j);
    }
    snprintf(path, sizeof path, "/%zu", strlen(WHOLE));
    ASSERT_OK(get(e, path, &j, NULL));
    ASSERT_INT(json_int(j, "a", 0), 1);
    json_decref(j);
    engine_free(e);
    fake_stop(f);
}

static bool by_single_bytes(int fd, const struct fake_request *q) {
    for (const char *p = WHOLE; *p; p++)
        fake_bytes(fd, p, 1);
    return true;
}

TEST(an_answer_in_single_bytes) {
    struct fake *f = fake_start(by_single_bytes, NULL);
    struct engine *e = fake_engine(f, 5000);
    json_t *j = NULL;

    for (int i = 0; i < 20; i++) {
        ASSERT_OK(get(e, "/x", &j, NULL));
        ASSERT_INT(json_int(j, "a", 0), 1);
        json_decref(j);
    }
    ASSERT_INT(fake_connections(f), 1);
    engine_free(e);
    fake_stop(f);
}

static const char *const garbage[] = {
    "hello\r\n\r\n",
    "HTTP/2.0 200 OK\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nno json!",
    "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"a\":1,\"a\":2}",
    "\0\0\0\0\r\n\r\n",
};

static bool say_garbage(int fd, const struct fake_request *q) {
    const char *text = garbage[strtoul(strrchr(q->target, '/') + 1, NULL, 10)];
    fake_bytes(fd, text, *text ? strlen(text) : 8);
    return false;
}

TEST(garbage_is_no_answer) {
    struct fake *f = fake_start(say_garbage, NULL);
    struct engine *e = fake_engine(f, 5000);
    struct err err;
    json_t *j;
    char path[16];

    for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
        snprintf(path, sizeof path, "/%zu", i);
        ASSERT_INT(get(e, path, &j, &err), -EBADMSG);
        ASSERT_INT(err.code, -EBADMSG);
        ASSERT_INT(get(e, path, &j, NULL), -EBADMSG);
    }
    engine_free(e);
    fake_stop(f);
}

static bool much(int fd, const struct fake_request *q) {
    char block[1000];

    memset(block, ' ', sizeof block);
    fake_say(fd, "HTTP/1.1 200 OK\r\n\r\n");
    for (int i = 0; i < 100; i++)
        fake_bytes(fd, block, sizeof block);
    fake_say(fd, "7");
    return false;
}

TEST(an_answer_has_a_maximum) {
    struct fake *f = fake_start(much, NULL);
    struct engine *e = fake_engine(f, 5000);
    struct engine_call c = {.method = "GET", .path = "/x", .max_answer = 100000};
    struct err err;
    json_t *j;

    ASSERT_INT(engine_request(e, &c, &j, &err), -EMSGSIZE);
    ASSERT_STR(err.msg, "the Docker engine's answer is larger than 100000 bytes");
    c.max_answer = 100001;
    ASSERT_OK(engine_request(e, &c, &j, &err)); /* ended by the connection's end */
    ASSERT_INT(json_integer_value(j), 7);
    json_decref(j);
    engine_free(e);
    fake_stop(f);
}

static bool long_list(int fd, const struct fake_request *q) {
    static char block[1 << 20];

    memset(block, ' ', sizeof block);
    fake_say(fd, "HTTP/1.1 200 OK\r\n\r\n[");
    for (int i = 0; i < 20; i++)
        fake_bytes(fd, block, sizeof block);
    fake_say(fd, "{\"Id\":\"a\"}]");
    return false;
}

/* A start must not fail because there are many containers. */
TEST(a_list_of_containers_may_be_long) {
    struct fake *f = fake_start(long_list, NULL);
    struct engine *e = fake_engine(f, 5000);
    struct err err = {0};
    json_t *j;

    ASSERT_OK(engine_container_list(e, true, NULL, &j, &err));
    ASSERT_INT(json_array_size(j), 1);
    json_decref(j);
    engine_free(e);
    fake_stop(f);
}

/* ---- time and cancellation ---- */

static bool silent(int fd, const struct fake_request *q) {
    if (strstr(q->target, "/head"))
        fake_say(fd, "HTTP/1.1 200 OK\r\nContent-Le");
    if (strstr(q->target, "/body"))
        fake_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{");
    if (strstr(q->target, "/error"))
        fake_say(fd, "HTTP/1.1 500 X\r\nContent-Length: 10\r\n\r\n{");
    fake_hang(fd);
    return false;
}

TEST(silence_ends_a_call) {
    static const char *const paths[] = {"/nothing", "/head", "/body"};
    struct fake *f = fake_start(silent, NULL);
    struct engine *e = fake_engine(f, 200);
    struct err err;

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        int64_t t0 = clock_mono_ms();
        ASSERT_INT(get(e, paths[i], NULL, &err), -ETIMEDOUT);
        ASSERT(clock_mono_ms() - t0 >= 199);
        ASSERT_INT(engine_status(), 0);
        ASSERT(strstr(err.msg, "did not answer in time"));
        ASSERT_INT(post(e, paths[i], NULL), -ETIMEDOUT);
    }
    ASSERT_INT(fake_requests(f), 2 * ARRAY_SIZE(paths)); /* and nothing is sent again */
    engine_free(e);
    fake_stop(f);
}

static bool dribble(int fd, const struct fake_request *q) {
    struct timespec t = {.tv_nsec = 20000000};

    fake_say(fd, "HTTP/1.1 200 OK\r\n\r\n[");
    while (send(fd, "1,", 2, MSG_NOSIGNAL) == 2)
        nanosleep(&t, NULL);
    return false;
}

TEST(a_dribble_does_not_stretch_the_limit) {
    struct fake *f = fake_start(dribble, NULL);
    struct engine *e = fake_engine(f, 300);
    int64_t t0 = clock_mono_ms();

    ASSERT_INT(get(e, "/x", NULL, NULL), -ETIMEDOUT);
    ASSERT(clock_mono_ms() - t0 < 5000);
    engine_free(e);
    fake_stop(f);
}

static void *fire_soon(void *cancel) {
    struct timespec t = {.tv_nsec = 100000000};

    nanosleep(&t, NULL);
    engine_cancel_fire(cancel);
    engine_cancel_fire(cancel);
    return NULL;
}

static int get_cancelled(struct engine *e, const char *path) {
    struct engine_cancel *cancel;
    struct engine_call c = {.method = "GET", .path = path};
    int64_t t0 = clock_mono_ms();
    struct err err;
    pthread_t t;
    int r;

    ASSERT_OK(engine_cancel_new(&cancel));
    ASSERT(!engine_cancel_fired(cancel));
    c.cancel = cancel;
    ASSERT(pthread_create(&t, NULL, fire_soon, cancel) == 0);
    r = engine_request(e, &c, NULL, &err);
    pthread_join(t, NULL);
    ASSERT(engine_cancel_fired(cancel));
    ASSERT(clock_mono_ms() - t0 < 5000);
    ASSERT_INT(engine_request(e, &c, NULL, &err), -ECANCELED); /* it stays fired */
    engine_cancel_free(cancel);
    return r;
}

TEST(cancelled_from_another_thread) {
    struct fake *f = fake_start(silent, NULL);
    struct engine *e = fake_engine(f, 15000);

    ASSERT_INT(get_cancelled(e, "/nothing"), -ECANCELED);
    ASSERT_INT(get_cancelled(e, "/head"), -ECANCELED);
    ASSERT_INT(get_cancelled(e, "/body"), -ECANCELED);
    ASSERT_INT(get_cancelled(e, "/error"), -ECANCELED);
    engine_free(e);
    fake_stop(f);
}

/* A listener whose queue is full: connecting itself blocks. */
TEST(cancelled_or_late_while_connecting) {
    char dir[] = "/tmp/cove-engine-XXXXXX", host[64];
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fill[8];
    struct engine_opts o = {.host = host, .timeout_ms = 15000};
    struct engine *e;

    ASSERT(mkdtemp(dir));
    snprintf(un.sun_path, sizeof un.sun_path, "%s/s", dir);
    snprintf(host, sizeof host, "unix://%s/s", dir);
    ASSERT(bind(s, (struct sockaddr *)&un, sizeof un) == 0 && listen(s, 0) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(fill); i++) {
        fill[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fill[i], (struct sockaddr *)&un, sizeof un);
    }
    ASSERT_OK(engine_new(&o, &e, NULL));
    ASSERT_INT(get_cancelled(e, "/x"), -ECANCELED);
    engine_free(e);
    o.timeout_ms = 300;
    ASSERT_OK(engine_new(&o, &e, NULL));
    ASSERT_INT(get(e, "/x", NULL, NULL), -ETIMEDOUT);
    engine_free(e);
    for (size_t i = 0; i < ARRAY_SIZE(fill); i++)
        fd_close(fill[i]);
    fd_close(s);
    unlink(un.sun_path);
    rmdir(dir);
}

/* ---- kept connections ---- */

/* The second request on a connection finds it closed: while idle, or after it was sent. */
static bool close_when_reused(int fd, const struct fake_request *q) {
    if (q->nth > 1) /* the first is /_ping or a request; then one, then none */
        return false;
    fake_json(fd, 200, "{}");
    return true;
}

TEST(a_get_survives_a_stale_connection) {
    struct fake *f = fake_start(close_when_reused, NULL);
    struct engine *e = fake_engine(f, 5000);

    for (int i = 0; i < 6; i++)
        ASSERT_OK(get(e, "/x", NULL, NULL));
    ASSERT(fake_connections(f) > 1);
    ASSERT(fake_requests(f) > 6);
    engine_free(e);
    fake_stop(f);
}

TEST(a_post_is_never_sent_twice) {
    struct fake *f = fake_start(close_when_reused, NULL);
    struct engine *e = fake_engine(f, 5000);
    struct err err;
    unsigned sent = 0;

    for (int i = 0; i < 8; i++) {
        int r = post(e, "/x", &err);
        sent++;
        ASSERT(r == 0 || r == -ECONNRESET);
        ASSERT_INT(fake_requests(f), sent);
    }
    engine_free(e);
    fake_stop(f);
}

/* Keeps the connection by what it says, and ends it, or sends something more, all the same. */
static bool leave_quietly(int fd, const struct fake_request *q) {
    fake_json(fd, 200, "{}");
    if (q->ud)
        fake_say(fd, "HTTP/1.1 408 Too slow\r\nContent-Length: 0\r\n\r\n");
    return q->ud != NULL;
}

TEST(a_post_does_not_meet_a_connection_that_ended_while_idle) {
    for (int junk = 0; junk < 2; junk++) {
        struct fake *f = fake_start(leave_quietly, junk ? "junk" : NULL);
        struct engine *e = fake_engine(f, 5000);
        struct timespec t = {.tv_nsec = 50000000};

        for (int i = 0; i < 4; i++) {
            ASSERT_OK(post(e, "/x", NULL));
            nanosleep(&t, NULL); /* idle for less than what a POST takes */
        }
        ASSERT_INT(fake_requests(f), 4);
        engine_free(e);
        fake_stop(f);
    }
}

static bool never_answer(int fd, const struct fake_request *q) {
    return false;
}

TEST(a_get_on_a_new_connection_is_not_repeated) {
    struct fake *f = fake_start(never_answer, NULL);
    struct engine *e = fake_engine(f, 5000);

    ASSERT_OK(engine_ping(e, NULL, NULL));
    ASSERT_INT(get(e, "/x", NULL, NULL), -ECONNRESET);
    ASSERT_INT(fake_requests(f), 2); /* on the kept one of the ping, and on a new one */
    ASSERT_INT(get(e, "/x", NULL, NULL), -ECONNRESET);
    ASSERT_INT(fake_requests(f), 3);
    engine_free(e);
    fake_stop(f);
}

static bool part_then_close(int fd, const struct fake_request *q) {
    fake_say(fd, "HTTP");
    return false;
}

TEST(a_get_that_was_answered_in_part_is_not_repeated) {
    struct fake *f = fake_start(part_then_close, NULL);
    struct engine *e = fake_engine(f, 5000);

    ASSERT_OK(engine_ping(e, NULL, NULL));
    ASSERT_INT(get(e, "/x", NULL, NULL), -ECONNRESET);
    ASSERT_INT(fake_requests(f), 1);
    engine_free(e);
    fake_stop(f);
}

static bool not_to_be_kept(int fd, const struct fake_request *q) {
    if (strstr(q->target, "/close"))
        fake_say(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
    else if (strstr(q->target, "/more"))
        fake_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n");
    else if (strstr(q->target, "/interim"))
        fake_say(fd, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 X\r\n\r\n"
                     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    return true;
}

TEST(connections_that_are_not_kept) {
    struct fake *f = fake_start(not_to_be_kept, NULL);
    struct engine *e = fake_engine(f, 5000);

    for (int i = 0; i < 3; i++)
        ASSERT_OK(get(e, "/interim", NULL, NULL));
    ASSERT_INT(fake_connections(f), 1);
    for (int i = 0; i < 3; i++)
        ASSERT_OK(get(e, "/close", NULL, NULL));
    ASSERT_INT(fake_connections(f), 3);
    for (int i = 0; i < 3; i++)
        ASSERT_OK(get(e, "/more", NULL, NULL));
    ASSERT_INT(fake_connections(f), 6);
    engine_free(e);
    fake_stop(f);
}

/* ---- what is sent ---- */

static bool mirror(int fd, const struct fake_request *q) {
    _cleanup_buf_ struct buf b = BUF_INIT(65536);

    buf_str(&b, "{\"method\":");
    buf_json_str(&b, q->method, strlen(q->method));
    buf_str(&b, ",\"target\":");
    buf_json_str(&b, q->target, strlen(q->target));
    buf_str(&b, ",\"head\":");
    buf_json_str(&b, q->head, strlen(q->head));
    buf_str(&b, ",\"body\":");
    buf_json_str(&b, q->body, q->body_len);
    buf_char(&b, '}');
    fake_json(fd, 200, b.data);
    return true;
}

TEST(requests_as_they_are_sent) {
    struct fake *f = fake_start(mirror, NULL);
    struct engine *e = fake_engine(f, 5000);
    _cleanup_buf_ struct buf query = BUF_INIT(1000);
    json_t *body = json_pack("{s:s}", "k", "\xc3\xbc"), *j;
    struct engine_call c = {.method = "POST", .path = "/p", .body = body};

    ASSERT_OK(engine_query_add(&query, "a b", "c&d=\xc3\xbc/"));
    ASSERT_OK(engine_query_add(&query, "x", ""));
    ASSERT_STR(query.data, "a%20b=c%26d%3D%C3%BC%2F&x=");
    c.query = query.data;
    ASSERT_OK(engine_request(e, &c, &j, NULL));
    ASSERT_STR(json_str(j, "method"), "POST");
    ASSERT_STR(json_str(j, "target"), "/v1.41/p?a%20b=c%26d%3D%C3%BC%2F&x=");
    ASSERT(strstr(json_str(j, "head"), "\r\nContent-Type: application/json\r\n"));
    ASSERT(strstr(json_str(j, "head"), "\r\nHost: localhost\r\n"));
    ASSERT(strstr(json_str(j, "head"), "\r\nUser-Agent: cove/"));
    ASSERT(!strstr(json_str(j, "head"), "Registry"));
    ASSERT_STR(json_str(j, "body"), "{\"k\":\"\xc3\xbc\"}");
    json_decref(j);
    c = (struct engine_call){.method = "GET", .path = "/p"};
    ASSERT_OK(engine_request(e, &c, &j, NULL));
    ASSERT(!strstr(json_str(j, "head"), "Content-"));
    json_decref(j);
    json_decref(body);
    engine_free(e);
    fake_stop(f);
}

TEST(nothing_is_smuggled_into_a_request) {
    static const char *const bad[] = {"/a b", "/a\r\nX: y", "/a\n"};
    struct fake *f = fake_start(mirror, NULL);
    struct engine *e = fake_engine(f, 5000);

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct engine_call c = {.method = "GET", .path = bad[i]};
        ASSERT_INT(engine_request(e, &c, NULL, NULL), -EINVAL);
        c = (struct engine_call){.method = "GET", .path = "/", .query = bad[i]};
        ASSERT_INT(engine_request(e, &c, NULL, NULL), -EINVAL);
        c = (struct engine_call){.method = "GET", .path = "/", .registry_auth = bad[i]};
        ASSERT_INT(engine_request(e, &c, NULL, NULL), -EINVAL);
    }
    ASSERT_INT(fake_requests(f), 0);
    engine_free(e);
    fake_stop(f);
}

/* ---- removal ---- */

#define IN_PROGRESS "{\"message\":\"removal of container x is already in progress\"}"

static bool remove_in_progress(int fd, const struct fake_request *q) {
    const char *mode = q->ud;

    if (str_eq(q->method, "DELETE")) {
        if (q->total == 0 || str_eq(mode, "for ever"))
            fake_json(fd, 409,
                      str_eq(mode, "other") ? "{\"message\":\"is running\"}" : IN_PROGRESS);
        else
            fake_say(fd, "HTTP/1.1 204 No Content\r\n\r\n");
        return true;
    }
    ASSERT(strstr(q->target, "/containers/x/wait?condition=removed"));
    if (str_eq(mode, "gone"))
        fake_json(fd, 404, "{\"message\":\"No such container: x\"}");
    else if (str_eq(mode, "removed"))
        fake_json(fd, 200, "{\"StatusCode\":137}");
    else
        fake_json(fd, 200, "{\"StatusCode\":0,\"Error\":{\"Message\":\"device is busy\"}}");
    return true;
}

static void check_remove(const char *mode, int want, unsigned requests) {
    struct fake *f = fake_start(remove_in_progress, (void *)mode);
    struct engine *e = fake_engine(f, 5000);

    ASSERT_INT(engine_container_remove(e, "x", true, NULL), want);
    ASSERT_INT(fake_requests(f), requests);
    engine_free(e);
    fake_stop(f);
}

TEST(a_removal_in_progress_is_waited_for) {
    check_remove("gone", 0, 2);
    check_remove("removed", 0, 2);
    check_remove("failed", 0, 3);        /* that removal failed: once more */
    check_remove("for ever", -EBUSY, 7); /* but not without end */
    check_remove("other", -EBUSY, 1);
}

/* ---- many threads ---- */

static bool answer_path(int fd, const struct fake_request *q) {
    char json[600];

    snprintf(json, sizeof json, "{\"target\":\"%s\"}", q->target);
    fake_json(fd, 200, json);
    return q->nth % 7 != 6; /* now and then it closes */
}

static void *many_calls(void *arg) {
    struct engine *e = arg;
    char path[64], want[80];

    for (int i = 0; i < 40; i++) {
        struct engine_call c = {.method = i % 3 ? "GET" : "POST", .path = path};
        json_t *j = NULL;
        snprintf(path, sizeof path, "/%p/%d", (void *)&c, i);
        snprintf(want, sizeof want, "/v1.41%s", path);
        int r = engine_request(e, &c, &j, NULL);
        ASSERT(r == 0 || (r == -ECONNRESET && i % 3 == 0));
        if (r == 0)
            ASSERT_STR(json_str(j, "target"), want);
        json_decref(j);
    }
    return NULL;
}

TEST(many_threads_share_an_engine) {
    struct fake *f = fake_start(answer_path, NULL);
    struct engine *e = fake_engine(f, 10000);
    pthread_t t[12];

    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        ASSERT(pthread_create(&t[i], NULL, many_calls, e) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        pthread_join(t[i], NULL);
    engine_free(e);
    fake_stop(f);
}

/* ---- addresses ---- */

static int open_host(const char *host, struct err *err) {
    struct engine_opts o = {.host = host};
    struct engine *e;
    int r = engine_new(&o, &e, err);

    if (r == 0) {
        ASSERT_STR(engine_host(e), host);
        engine_free(e);
    }
    return r;
}

TEST(addresses) {
    static const char *const good[] = {"unix:///x",         "unix://",        "tcp://h",
                                       "tcp://h:1/",        "http://[::1]:2", "tcp://[fe80::1]",
                                       "http://a.b.c:65535"};
    static const char *const bad[] = {
        "",          "/run/docker.sock", "unix://x",  "tcp://",     "tcp://:1",   "tcp://h:0",
        "tcp://h:x", "tcp://h:65536",    "tcp://h/x", "http://u@h", "tcp://[::1", "tcp://[::1]x",
        "ssh://h",   "npipe:////x",      "tcp://a b", "tcp://a\nb"};
    char path[200];
    struct err err;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ASSERT_OK(open_host(good[i], NULL));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ASSERT_INT(open_host(bad[i], &err), -EINVAL);
        ASSERT(strstr(err.msg, "Docker host"));
    }
    ASSERT_INT(open_host("tcp://me:geheim@h:1", &err), -EINVAL);
    ASSERT(!strstr(err.msg, "geheim"));
    ASSERT_INT(open_host("ssh://me:geheim@h:1", &err), -EINVAL);
    ASSERT(!strstr(err.msg, "geheim"));
    struct engine_opts o = {.host = "http://h", .tls_verify = 1};
    struct engine *e;
    ASSERT_INT(engine_new(&o, &e, NULL), -EINVAL); /* never plain where TLS is asked for */
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    memcpy(path, "unix:///", 8);
    ASSERT_INT(open_host(path, &err), -EINVAL);
}

TEST_MAIN()
