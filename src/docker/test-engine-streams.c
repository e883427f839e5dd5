/* The Engine client's streams against a server that answers as the test likes: pulls, events,
 * archives, logs, hijacked execs. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/test.h"
#include "docker/test-fake.h"

static void chunk(int fd, const char *text) {
    char frame[32];

    snprintf(frame, sizeof frame, "%zx\r\n", strlen(text));
    fake_say(fd, frame);
    fake_say(fd, text);
    fake_say(fd, "\r\n");
}

#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

/* ---- pull ---- */

static bool serve_pull(int fd, const struct fake_request *q) {
    const char *mode = q->ud;

    fake_say(fd, CHUNKED);
    chunk(fd, "{\"status\":\"Pulling from x\",\"id\":\"l");
    chunk(fd, "atest\"}\r\n\r\n{\"status\":\"Download");
    chunk(fd, "ing\"}\r\n");
    if (str_eq(mode, "detail"))
        chunk(fd, "{\"errorDetail\":{\"message\":\"it broke\"},\"error\":\"other\"}\r\n");
    else if (str_eq(mode, "error"))
        chunk(fd, "{\"error\":\"manifest unknown\"}"); /* and no line end */
    else if (str_eq(mode, "denied"))
        chunk(fd, "{\"error\":\"unauthorized: authentication required\"}\n");
    else if (str_eq(mode, "garbage"))
        chunk(fd, "<html>\n");
    else if (str_eq(mode, "cut"))
        return false;
    else if (str_eq(mode, "silence"))
        fake_hang(fd);
    for (int i = 0; str_eq(mode, "long") && i < 1100; i++) {
        char block[1025] = {0};
        memset(block, 'x', 1024);
        chunk(fd, block);
    }
    fake_say(fd, "0\r\n\r\n");
    return true;
}

static void count_line(const json_t *line, void *ud) {
    ++*(int *)ud;
}

static int pull(const char *mode, struct err *err) {
    struct fake *f = fake_start(serve_pull, (void *)mode);
    struct engine *e = fake_engine(f, 300);
    int lines = 0;
    struct engine_pull p = {.ref = "x", .on_progress = count_line, .ud = &lines};
    int r = engine_image_pull(e, &p, err);

    ASSERT_INT(lines, 2);
    ASSERT_INT(engine_status(), 0);
    engine_free(e);
    fake_stop(f);
    return r;
}

TEST(an_error_in_the_progress_of_a_pull_is_an_error) {
    struct err err;

    ASSERT_OK(pull("", NULL));
    ASSERT_INT(pull("detail", &err), -EREMOTEIO);
    ASSERT_STR(err.msg, "it broke");
    ASSERT_INT(pull("error", &err), -ENOENT);
    ASSERT_STR(err.msg, "manifest unknown");
    ASSERT_INT(pull("denied", &err), -EACCES);
    ASSERT_INT(pull("garbage", &err), -EBADMSG);
    ASSERT_INT(pull("cut", &err), -ECONNRESET);
    ASSERT_INT(pull("silence", &err), -ETIMEDOUT);
    ASSERT_INT(pull("long", &err), -EMSGSIZE);
    ASSERT_INT(pull("long", NULL), -EMSGSIZE);
}

static bool check_auth(int fd, const struct fake_request *q) {
    const char *h = strstr(q->head, "\r\nX-Registry-Auth: ");
    void *text;
    size_t n;

    ASSERT(h);
    h += strlen("\r\nX-Registry-Auth: ");
    char *value = str_ndup(h, strcspn(h, "\r"));
    ASSERT(!strpbrk(value, "+/") && strlen(value) % 4 == 0);
    for (char *p = value; *p; p++)
        *p = *p == '-' ? '+' : *p == '_' ? '/' : *p;
    ASSERT_OK(base64_decode(value, strlen(value), &text, &n));
    ASSERT(n == strlen(q->ud) && memcmp(text, q->ud, n) == 0);
    free(text);
    free(value);
    ASSERT(str_starts(q->target, "/v1.41/images/create?fromImage="));
    fake_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    return true;
}

static void check_pull_auth(const char *ref, const char *password, const char *json) {
    struct fake *f = fake_start(check_auth, (void *)json);
    struct engine *e = fake_engine(f, 5000);
    struct engine_pull p = {.ref = ref, .username = "me", .password = password};

    ASSERT_OK(engine_image_pull(e, &p, NULL));
    ASSERT_INT(fake_requests(f), 1);
    engine_free(e);
    fake_stop(f);
}

TEST(credentials_of_a_pull) {
    /* in plain base64 this has '+' and '/' */
    check_pull_auth("reg.example:5000/a/b:1", "p\"\xc3\xbf>>>>>>??????",
                    "{\"username\":\"me\",\"password\":\"p\\\"\xc3\xbf>>>>>>??????\","
                    "\"serveraddress\":\"reg.example:5000\"}");
    check_pull_auth("localhost/b", "p",
                    "{\"username\":\"me\",\"password\":\"p\",\"serveraddress\":\"localhost\"}");
    check_pull_auth("library/b", NULL,
                    "{\"username\":\"me\",\"password\":\"\",\"serveraddress\":"
                    "\"https://index.docker.io/v1/\"}");
}

static bool echo_auth(int fd, const struct fake_request *q) {
    fake_json(fd, 500, "{\"message\":\"denied\"}");
    return true;
}

TEST(no_secret_in_the_error_of_a_pull) {
    struct fake *f = fake_start(echo_auth, NULL);
    struct engine *e = fake_engine(f, 5000);
    struct engine_pull p = {.ref = "x", .username = "me", .password = "geheim"};
    struct err err;

    ASSERT_INT(engine_image_pull(e, &p, &err), -EACCES);
    ASSERT_INT(err.code, -EACCES);
    ASSERT_INT(engine_status(), 500);
    ASSERT(!strstr(err.msg, "geheim"));
    engine_free(e);
    fake_stop(f);
}

/* ---- events ---- */

static bool serve_events(int fd, const struct fake_request *q) {
    fake_say(fd, CHUNKED);
    chunk(fd, "{\"n\":1}\n{\"n\":2}\n{\"n\"");
    chunk(fd, ":3}\n");
    if (strstr(q->target, "since=77"))
        fake_hang(fd);
    return false;
}

struct seen {
    int n, stop_at;
    struct engine_cancel *cancel;
    bool opened;
};

static void seen_open(void *ud) {
    struct seen *s = ud;
    ASSERT(s->n == 0);
    s->opened = true;
}

static int seen_event(const json_t *event, void *ud) {
    struct seen *s = ud;

    ASSERT_INT(json_int(event, "n", 0), ++s->n);
    if (s->n == 3 && s->cancel)
        engine_cancel_fire(s->cancel);
    return s->n == s->stop_at ? -EINTR : 0;
}

TEST(events_end_by_their_three_ways) {
    struct fake *f = fake_start(serve_events, NULL);
    struct engine *e = fake_engine(f, 5000);
    struct seen s = {0};

    ASSERT_INT(engine_events(e, NULL, 0, seen_open, seen_event, &s, NULL, NULL), -ECONNRESET);
    ASSERT(s.opened && s.n == 3);
    s = (struct seen){.stop_at = 2};
    ASSERT_INT(engine_events(e, NULL, 0, NULL, seen_event, &s, NULL, NULL), -EINTR);
    ASSERT_INT(s.n, 2);
    s = (struct seen){0};
    ASSERT_OK(engine_cancel_new(&s.cancel));
    ASSERT_INT(engine_events(e, NULL, 77, seen_open, seen_event, &s, s.cancel, NULL), -ECANCELED);
    ASSERT_INT(s.n, 3);
    engine_cancel_free(s.cancel);
    engine_free(e);
    fake_stop(f);
}

/* ---- archives ---- */

struct source {
    size_t left, asked;
};

static ssize_t from_source(void *buf, size_t size, void *ud) {
    struct source *s = ud;
    size_t n = MIN(size, s->left);

    memset(buf, 'x', n);
    s->left -= n;
    s->asked += n;
    return (ssize_t)n;
}

static bool take_upload(int fd, const struct fake_request *q) {
    ASSERT_STR(q->method, "PUT");
    ASSERT_STR(q->target, "/v1.41/containers/x/archive?path=%2Ft%20mp");
    ASSERT_INT(q->body_len, 1000000);
    ASSERT(strstr(q->head, "\r\nContent-Type: application/x-tar\r\n"));
    fake_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    return true;
}

TEST(an_upload_arrives_whole) {
    struct fake *f = fake_start(take_upload, NULL);
    struct engine *e = fake_engine(f, 5000);

    for (int known = 0; known < 2; known++) {
        struct source s = {.left = 1000000};
        ASSERT_OK(engine_archive_put(e, "x", "/t mp", known ? 1000000 : -1, from_source, &s, NULL));
    }
    ASSERT_INT(fake_connections(f), 1);
    engine_free(e);
    fake_stop(f);
}

/* Says no without reading what is sent. */
static bool refuse_upload(int fd, const struct fake_request *q) {
    const char *mode = q->ud;

    if (str_eq(mode, "reset")) /* with unread bytes in its buffer */
        return false;
    fake_json(fd, 404, "{\"message\":\"no such place\"}");
    if (str_eq(mode, "stay"))
        fake_hang(fd);
    return false;
}

TEST(an_upload_that_is_refused_in_the_middle) {
    static const char *const modes[] = {"stay", "close", "reset"};

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        struct fake *f = fake_start(refuse_upload, (void *)modes[i]);
        struct engine *e = fake_engine(f, 5000);
        struct source s = {.left = 50000000};
        struct err err;
        int r;

        fake_raw_bodies(f);
        r = engine_archive_put(e, "x", "/", i ? -1 : 50000000, from_source, &s, &err);
        ASSERT_INT(r, str_eq(modes[i], "reset") ? -ECONNRESET : -ENOENT);
        ASSERT(r != -ENOENT || str_eq(err.msg, "no such place"));
        ASSERT(s.asked < 5000000); /* it was not all sent into the void */
        ASSERT_INT(fake_requests(f), 1);
        /* half a request stands in that connection: nothing else goes there */
        ASSERT_INT(engine_info(e, NULL, NULL), str_eq(modes[i], "reset") ? -ECONNRESET : -ENOENT);
        ASSERT_INT(fake_connections(f), 2);
        engine_free(e);
        fake_stop(f);
    }
}

static bool read_nothing(int fd, const struct fake_request *q) {
    fake_hang(fd);
    return false;
}

TEST(an_upload_that_nobody_reads_stops_asking_and_ends) {
    struct fake *f = fake_start(read_nothing, NULL);
    struct engine *e = fake_engine(f, 300);
    struct source s = {.left = 50000000};

    fake_raw_bodies(f);
    ASSERT_INT(engine_archive_put(e, "x", "/", -1, from_source, &s, NULL), -ETIMEDOUT);
    ASSERT(s.asked < 5000000);
    engine_free(e);
    fake_stop(f);
}

static bool serve_download(int fd, const struct fake_request *q) {
    char block[10000];
    size_t sent = 0;

    memset(block, 'y', sizeof block);
    fake_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n");
    for (; sent < 5000000; sent += sizeof block) {
        if (q->ud && sent == 1000000)
            return false;
        fake_bytes(fd, block, sizeof block);
    }
    return true;
}

static int to_sink(const void *data, size_t len, void *ud) {
    *(size_t *)ud += len;
    return *(size_t *)ud > 4000000 && *(size_t *)ud < 4100000 ? -ENOSPC : 0;
}

static int to_counter(const void *data, size_t len, void *ud) {
    *(size_t *)ud += len;
    return 0;
}

TEST(a_download_whole_cut_and_unwanted) {
    for (int cut = 0; cut < 2; cut++) {
        struct fake *f = fake_start(serve_download, cut ? "cut" : NULL);
        struct engine *e = fake_engine(f, 5000);
        size_t n = 0;

        ASSERT_INT(engine_archive_get(e, "x", "/", to_counter, &n, NULL), cut ? -ECONNRESET : 0);
        ASSERT_INT(n, cut ? 1000000 : 5000000);
        n = 0;
        ASSERT_INT(engine_archive_get(e, "x", "/", to_sink, &n, NULL), cut ? -ECONNRESET : -ENOSPC);
        engine_free(e);
        fake_stop(f);
    }
}

/* ---- logs ---- */

static void frame(int fd, int which, const char *text, bool split) {
    size_t len = strlen(text);
    char head[8] = {(char)which, 0, 0, 0, 0, 0, (char)(len >> 8), (char)len};

    if (!split) {
        fake_bytes(fd, head, 8);
        fake_bytes(fd, text, len);
        return;
    }
    for (size_t i = 0; i < 8; i++)
        fake_bytes(fd, head + i, 1);
    for (size_t i = 0; i < len; i++)
        fake_bytes(fd, text + i, 1);
}

static bool serve_logs(int fd, const struct fake_request *q) {
    if (str_ends(q->target, "/json")) {
        fake_json(fd, 200, "{\"Config\":{\"Tty\":false}}");
        return true;
    }
    ASSERT(strstr(q->target, "stdout=1&stderr=1&since=1.000002"));
    fake_say(fd, "HTTP/1.1 200 OK\r\n\r\n");
    frame(fd, 1, "one\n", true);
    frame(fd, 2, "two\xff\n", false);
    frame(fd, 1, "", false);
    frame(fd, 1, "thr\xc3", true);
    frame(fd, 1, "\xa9\x00", false);
    return false;
}

TEST(logs_are_text_and_the_end_of_it) {
    struct fake *f = fake_start(serve_logs, NULL);
    struct engine *e = fake_engine(f, 5000);
    char *text;

    ASSERT_OK(engine_container_logs(e, "x", 0, false, 1000002, 1000, &text, NULL));
    ASSERT_STR(text, "one\ntwo\xef\xbf\xbd\nthr\xc3\xa9");
    free(text);
    ASSERT_OK(engine_container_logs(e, "x", 0, false, 1000002, 1, &text, NULL));
    ASSERT_STR(text, ""); /* half a character is none */
    free(text);
    ASSERT_OK(engine_container_logs(e, "x", 0, false, 1000002, 8, &text, NULL));
    ASSERT_STR(text, "\nthr\xc3\xa9"); /* the replacement does not fit */
    free(text);
    engine_free(e);
    fake_stop(f);
}

/* ---- hijacked execs ---- */

#define UPGRADED                                                                               \
    "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: " \
    "Upgrade\r\nUpgrade: tcp\r\n\r\n"
#define PLAIN "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"

/* Output, then an echo of what comes in as stderr until its end, then a goodbye. */
static bool serve_exec(int fd, const struct fake_request *q) {
    const char *mode = q->ud;
    char in[101];
    ssize_t n;

    ASSERT_STR(q->target, "/v1.41/exec/x/start");
    ASSERT(strstr(q->head, "\r\nUpgrade: tcp\r\n") && strstr(q->head, "Connection: Upgrade\r\n"));
    ASSERT_STR(q->body, "{\"Detach\":false,\"Tty\":false}");
    fake_say(fd, strstr(mode, "101") ? UPGRADED : PLAIN);
    frame(fd, 1, "hello", strstr(mode, "split"));
    while ((n = read(fd, in, sizeof in - 1)) > 0) {
        in[n] = 0;
        frame(fd, 2, in, strstr(mode, "split"));
    }
    frame(fd, 0, "bye", strstr(mode, "split"));
    if (strstr(mode, "cut"))
        fake_bytes(fd, "\1\0\0\0\0\0", 6);
    return false;
}

static void read_all(struct engine_stream *s, int which, const char *want, size_t at_once) {
    size_t have = 0;

    while (have < strlen(want)) {
        char piece[64];
        int w = 0;
        ssize_t n = engine_stream_read(s, &w, piece, at_once, 5000, NULL);
        ASSERT(n > 0 && (size_t)n <= at_once);
        ASSERT_INT(w, which);
        ASSERT(strncmp(want + have, piece, (size_t)n) == 0);
        have += (size_t)n;
    }
}

TEST(an_exec_with_both_kinds_of_answer) {
    static const char *const modes[] = {"101", "200", "101 split", "200 split", "101 cut"};

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        struct fake *f = fake_start(serve_exec, (void *)modes[i]);
        struct engine *e = fake_engine(f, 5000);
        struct engine_stream *s;
        char piece[64];
        int w;

        ASSERT_OK(engine_exec_start(e, "x", false, &s, NULL));
        read_all(s, 1, "hello", i % 2 ? 2 : 64);
        ASSERT_INT(engine_stream_read(s, &w, piece, sizeof piece, 0, NULL), -EAGAIN);
        ASSERT_INT(engine_stream_read(s, &w, piece, sizeof piece, 50, NULL), -ETIMEDOUT);
        ASSERT_OK(engine_stream_write(s, "input", 5, NULL));
        read_all(s, 2, "input", 3);
        ASSERT_OK(engine_stream_end(s));
        read_all(s, 1, "bye", 64);
        ssize_t n = engine_stream_read(s, &w, piece, sizeof piece, 5000, NULL);
        ASSERT_INT(n, strstr(modes[i], "cut") ? -EBADMSG : 0);
        if (n == 0)
            ASSERT_INT(engine_stream_read(s, &w, piece, sizeof piece, 5000, NULL), 0);
        engine_stream_free(s);
        engine_free(e);
        fake_stop(f);
    }
}

static bool serve_bytes(int fd, const struct fake_request *q) {
    fake_say(fd, UPGRADED);
    if (str_eq(q->ud, "huge"))
        fake_bytes(fd, "\1\0\0\0\xff\xff\xff\xffx", 9);
    else if (str_eq(q->ud, "kind"))
        fake_bytes(fd, "\7\0\0\0\0\0\0\1x", 9);
    else if (str_eq(q->ud, "system"))
        fake_bytes(fd, "\3\0\0\0\0\0\0\5wrong", 13);
    else if (str_eq(q->ud, "raw"))
        fake_bytes(fd, "\1\0\0\0\xff\xff\xff\xff", 8);
    return false;
}

static ssize_t read_one(const char *mode, bool tty, struct err *err) {
    struct fake *f = fake_start(serve_bytes, (void *)mode);
    struct engine *e = fake_engine(f, 5000);
    struct engine_stream *s;
    char piece[64];
    int w = 0;

    ASSERT_OK(engine_exec_start(e, "x", tty, &s, NULL));
    ssize_t n = engine_stream_read(s, &w, piece, sizeof piece, 5000, err);
    ASSERT(n < 0 || !tty || w == 1);
    engine_stream_free(s);
    engine_free(e);
    fake_stop(f);
    return n;
}

TEST(frames_that_are_none) {
    struct err err;

    ASSERT_INT(read_one("huge", false, &err), -EBADMSG);
    ASSERT_INT(read_one("kind", false, &err), -EBADMSG);
    ASSERT_INT(read_one("system", false, &err), -EREMOTEIO);
    ASSERT_STR(err.msg, "wrong");
    ASSERT_INT(read_one("raw", true, NULL), 8); /* a terminal has no frames */
}

static bool refuse_exec(int fd, const struct fake_request *q) {
    fake_json(fd, 409, "{\"message\":\"container x is paused\"}");
    return true;
}

TEST(an_exec_that_is_refused) {
    struct fake *f = fake_start(refuse_exec, NULL);
    struct engine *e = fake_engine(f, 5000);
    struct engine_stream *s;
    struct err err;

    ASSERT_INT(engine_exec_start(e, "x", false, &s, &err), -EBUSY);
    ASSERT_STR(err.msg, "container x is paused");
    ASSERT_INT(engine_status(), 409);
    ASSERT_INT(engine_exec_start(e, "a/b", false, &s, &err), -EINVAL);
    engine_free(e);
    fake_stop(f);
}

/* One thread reads while another writes, and a third breaks it off. */
static bool echo_frames(int fd, const struct fake_request *q) {
    char in[1001];
    ssize_t n;

    fake_say(fd, UPGRADED);
    while ((n = read(fd, in, sizeof in - 1)) > 0) {
        in[n] = 0;
        frame(fd, 1, in, false);
    }
    return false;
}

static void *write_much(void *s) {
    char block[1000];

    memset(block, 'z', sizeof block);
    for (int i = 0; i < 2000; i++)
        ASSERT_OK(engine_stream_write(s, block, sizeof block, NULL));
    return NULL;
}

static void *abort_soon(void *s) {
    struct timespec t = {.tv_nsec = 100000000};

    nanosleep(&t, NULL);
    engine_stream_abort(s);
    return NULL;
}

TEST(an_exec_read_and_written_by_two_threads) {
    struct fake *f = fake_start(echo_frames, NULL);
    struct engine *e = fake_engine(f, 10000);
    struct engine_stream *s;
    pthread_t t;
    size_t n = 0;
    char piece[5000];
    int w;

    ASSERT_OK(engine_exec_start(e, "x", false, &s, NULL));
    ASSERT(pthread_create(&t, NULL, write_much, s) == 0);
    while (n < 2000000) {
        ssize_t got = engine_stream_read(s, &w, piece, sizeof piece, 5000, NULL);
        ASSERT(got > 0);
        n += (size_t)got;
    }
    pthread_join(t, NULL);
    ASSERT(pthread_create(&t, NULL, abort_soon, s) == 0);
    ASSERT(engine_stream_read(s, &w, piece, sizeof piece, -1, NULL) <= 0);
    pthread_join(t, NULL);
    ASSERT(engine_stream_write(s, "x", 1, NULL) < 0);
    engine_stream_free(s);
    engine_free(e);
    fake_stop(f);
}

TEST(an_exec_that_takes_no_input) {
    struct fake *f = fake_start(read_nothing, NULL);
    struct engine *e = fake_engine(f, 300);
    struct engine_stream *s;

    ASSERT_INT(engine_exec_start(e, "x", false, &s, NULL), -ETIMEDOUT);
    engine_free(e);
    fake_stop(f);
}

static bool upgrade_and_hang(int fd, const struct fake_request *q) {
    fake_say(fd, UPGRADED);
    fake_hang(fd);
    return false;
}

TEST(input_that_nobody_takes_ends_in_time) {
    struct fake *f = fake_start(upgrade_and_hang, NULL);
    struct engine *e = fake_engine(f, 300);
    struct engine_stream *s;
    char block[65536] = {0};
    int r = 0;

    ASSERT_OK(engine_exec_start(e, "x", false, &s, NULL));
    for (int i = 0; i < 1000 && r == 0; i++)
        r = engine_stream_write(s, block, sizeof block, NULL);
    ASSERT_INT(r, -ETIMEDOUT);
    engine_stream_free(s);
    engine_free(e);
    fake_stop(f);
}

TEST_MAIN()
