/* Renewal by use: gates, order with other renewals, cooldown, bounds; intents from a real Redis. */
#include "daemon/sandbox/access.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/test.h"
#include "daemon/driver/fake/fake.h"
#include "daemon/sandbox/access_priv.h"
#include "daemon/sandbox/internal.h"
#include "daemon/sandbox/redis.h"

#define S ((int64_t)1000000)

static char dir[64];
static uv_loop_t loop;
static struct driver *drv;
static struct statedb *db;
static struct service *svc;
static int64_t wall = 1700000000LL * 1000000;

static int64_t fake_wall(void) {
    return wall;
}

static void set_up_with(struct renew_opts renew) {
    struct err err = {0};
    log_setup(LOG_ERROR, false, "test");
    str_copy(dir, sizeof dir, "/tmp/cove-test-access-XXXXXX");
    ASSERT(mkdtemp(dir));
    _cleanup_free_ char *file = path_join(dir, "state.db");
    uv_loop_init(&loop);
    drv = fake_new();
    ASSERT_OK(statedb_open(file, &db, NULL));
    struct service_opts o = {.loop = &loop,
                             .driver = drv,
                             .store = db,
                             .max_workers = 4,
                             .renew = renew,
                             .wall_us = fake_wall};
    if (service_open(&o, &svc, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
}

static void set_up(unsigned interval_s) {
    set_up_with((struct renew_opts){.enabled = true, .min_interval_s = interval_s});
}

static void tear_down(void) {
    service_close(svc);
    uv_run(&loop, UV_RUN_DEFAULT);
    ASSERT_INT(uv_loop_close(&loop), 0);
    statedb_close(db);
    fake_destroy(drv);
    uv_library_shutdown();
    path_remove_tree_at(AT_FDCWD, dir);
}

static void on_create(enum fault f, const struct err *err, struct sandbox *sb,
                      const struct step_times *steps, void *ud) {
    if (f)
        test_fail(__FILE__, __LINE__, "%s", err->msg);
    *(struct sandbox **)ud = sb;
}

static struct sandbox *sandbox(int64_t timeout_s, const char *extend) {
    struct create_request rq = {.image = strdup("host"), .timeout_s = timeout_s};
    struct sandbox *sb = NULL;
    strv_add(&rq.entrypoint, "true");
    if (extend)
        rq.extensions = json_pack("{s:s}", "access.renew.extend.seconds", extend);
    service_create(svc, &rq, on_create, &sb);
    while (!sb)
        uv_run(&loop, UV_RUN_ONCE);
    return sb;
}

static void on_op(enum fault f, const struct err *err, struct sandbox *sb, void *ud) {
    ASSERT_INT(f, FAULT_NONE);
}

static void settle(void) {
    while (service_pending(svc) > 0)
        uv_run(&loop, UV_RUN_ONCE);
}

static void use(const struct sandbox *sb) {
    service_accessed(svc, sb->spec.id);
    settle();
}

TEST(use_extends_a_life) {
    set_up(0);
    struct sandbox *sb = sandbox(100, "600");
    use(sb);
    ASSERT(sb->expires_us == wall + 600 * S);
    ASSERT(sb->fire_us == sb->expires_us);
    wall += 10 * S;
    use(sb);
    ASSERT(sb->expires_us == wall + 600 * S);
    struct sandbox *longer = sandbox(3600, "300"); /* never shortens one */
    use(longer);
    ASSERT(longer->expires_us == wall + 3600 * S);
    tear_down();
}

TEST(only_those_that_asked_for_it_and_run) {
    set_up(0);
    struct sandbox *plain = sandbox(100, NULL), *forever = sandbox(0, "600"),
                   *paused = sandbox(100, "600"), *ended = sandbox(100, "600");
    service_pause(svc, paused->spec.id, on_op, NULL);
    fake_exit(drv, ended->spec.id, 0);
    while (ended->state == SB_RUNNING)
        uv_run(&loop, UV_RUN_ONCE);
    settle();
    use(plain);
    use(forever);
    use(paused);
    use(ended);
    service_accessed(svc, "unknown");
    ASSERT(plain->expires_us == wall + 100 * S && forever->expires_us == 0 &&
           paused->expires_us == wall + 100 * S && ended->expires_us == wall + 100 * S);
    ASSERT_INT(map_size(svc->access->table), 0);
    tear_down();
}

TEST(off_by_default) {
    set_up_with((struct renew_opts){0});
    struct sandbox *sb = sandbox(100, "600");
    use(sb);
    ASSERT(sb->expires_us == wall + 100 * S);
    tear_down();
}

TEST(a_renewal_that_was_asked_for_first_is_not_undone) {
    set_up(0);
    struct sandbox *sb = sandbox(100, "600");
    service_renew(svc, sb->spec.id, wall + 7200 * S, on_op, NULL);
    service_accessed(svc, sb->spec.id); /* waits behind it */
    settle();
    ASSERT(sb->expires_us == wall + 7200 * S);
    service_renew(svc, sb->spec.id, wall + 200 * S, on_op, NULL); /* shortened on purpose */
    settle();
    ASSERT(sb->expires_us == wall + 200 * S);
    fake_hold(drv, FAKE_PAUSE);
    service_pause(svc, sb->spec.id, on_op, NULL);
    service_accessed(svc, sb->spec.id); /* paused by the time its turn comes */
    fake_release(drv, FAKE_PAUSE);
    settle();
    ASSERT(sb->expires_us == wall + 200 * S);
    tear_down();
}

TEST(one_at_a_time_and_then_a_pause) {
    set_up(3600);
    struct sandbox *sb = sandbox(100, "600");
    for (int i = 0; i < 50; i++)
        service_accessed(svc, sb->spec.id);
    ASSERT_INT(service_pending(svc), 1);
    settle();
    int64_t first = sb->expires_us;
    ASSERT(first == wall + 600 * S);
    wall += 30 * S;
    use(sb);
    ASSERT(sb->expires_us == first);
    tear_down();
}

TEST(a_deleted_sandbox_is_no_fault) {
    set_up(0);
    struct sandbox *sb = sandbox(100, "600");
    char id[SANDBOX_ID_MAX + 1];
    str_copy(id, sizeof id, sb->spec.id);
    service_delete(svc, id, on_op, NULL);
    service_accessed(svc, id);
    settle();
    service_accessed(svc, id);
    settle();
    tear_down();
}

/* The oldest is forgotten, but never one whose renewal is under way. */
TEST(memory_is_bounded) {
    test_set_timeout(120);
    set_up(3600);
    struct sandbox *first = sandbox(100, "600");
    fake_hold(drv, FAKE_PAUSE);
    service_pause(svc, first->spec.id, on_op, NULL);
    service_accessed(svc, first->spec.id); /* waits behind the pause */
    struct sandbox *second = sandbox(100, "600");
    service_accessed(svc, second->spec.id);
    for (int i = 0; i < ACCESS_MAX_SANDBOXES; i++)
        service_accessed(svc, sandbox(100, "600")->spec.id);
    ASSERT_INT(map_size(svc->access->table), ACCESS_MAX_SANDBOXES);
    ASSERT(map_has(svc->access->table, first->spec.id));
    ASSERT(!map_has(svc->access->table, second->spec.id));
    fake_release(drv, FAKE_PAUSE);
    settle();
    tear_down();
}

/* ---- intents ---- */

TEST(intents_are_read) {
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {
        {"{\"sandbox_id\":\"a\",\"observed_at\":\"2026-06-01T02:03:04Z\"}", true},
        {"{\"sandbox_id\":\"a\",\"observed_at\":\"2026-06-01T02:03:04.123456789+02:00\",\"port\":"
         "80,"
         "\"request_uri\":\"/x\",\"namespace\":\"n\",\"more\":[]}",
         true},
        {"{\"sandbox_id\":\"a\",\"observed_at\":\"2026-06-01T02:03:04Z\",\"port\":null}", true},
        {"{\"sandbox_id\":\"a\",\"observed_at\":\"2026-06-01T02:03:04Z\",\"port\":\"80\"}", false},
        {"{\"sandbox_id\":\"a\",\"observed_at\":\"2026-06-01T02:03:04Z\",\"namespace\":1}", false},
        {"{\"sandbox_id\":\"\",\"observed_at\":\"2026-06-01T02:03:04Z\"}", false},
        {"{\"sandbox_id\":\"a\",\"observed_at\":\"2026-06-01T02:03:04.1234567890Z\"}", false},
        {"{\"sandbox_id\":\"a\",\"observed_at\":\"yesterday\"}", false},
        {"{\"sandbox_id\":\"a\",\"observed_at\":1}", false},
        {"{\"sandbox_id\":\"a\"}", false},
        {"[]", false},
        {"", false},
        {"{\"sandbox_id\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\","
         "\"observed_at\":\"2026-06-01T02:03:04Z\"}",
         false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct access_intent in;
        int r = access_intent_parse(cases[i].text, strlen(cases[i].text), &in);
        if ((r == 0) != cases[i].valid)
            test_fail(__FILE__, __LINE__, "%s: %d", cases[i].text, r);
    }
}

TEST(addresses_are_read) {
    static const struct {
        const char *text, *want; /* "host|path|port|user|password|db" */
    } good[] = {
        {"redis://localhost", "localhost||6379|||0"},
        {"redis://", "localhost||6379|||0"},
        {"redis://10.0.0.1:6380/3", "10.0.0.1||6380|||3"},
        {"redis://:p%40ss@h/1", "h||6379||p@ss|1"},
        {"redis://u:p:w@h:1/", "h||1|u|p:w|0"},
        {"redis://u@h", "h||6379|u||0"},
        {"redis://:a@b@h", "h||6379||a@b|0"},
        {"redis://[::1]:7/2", "::1||7|||2"},
        {"redis://h?db=4&x=1", "h||6379|||4"},
        {"unix:///run/r.sock?db=2", "|/run/r.sock|0|||2"},
        {"unix://:pw@/run/r.sock", "|/run/r.sock|0||pw|0"},
    };
    static const char *const bad[] = {
        "",
        "hunter2",
        "rediss://:hunter2@h",
        "http://h",
        "redis://:hunter2@h:x",
        "redis://:hunter2@h:0",
        "redis://:hunter2@h:65536",
        "redis://:hunter2%@h",
        "redis://:hunter2@h/db",
        "redis://:hunter2@[::1",
        "redis://:hunter2@[::1]x",
        "redis://:hunter2@h?db=x",
        "unix://:hunter2@run",
    };
    struct redis_dsn d;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct err err = {0};
        if (redis_dsn_parse(good[i].text, &d, &err) < 0)
            test_fail(__FILE__, __LINE__, "%s: %s", good[i].text, err.msg);
        _cleanup_free_ char *got =
            str_printf("%s|%s|%u|%s|%s|%u", d.host ? d.host : "", d.path ? d.path : "", d.port,
                       d.user ? d.user : "", d.password ? d.password : "", d.db);
        ASSERT_STR(got, good[i].want);
        redis_dsn_done(&d);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = {0};
        if (redis_dsn_parse(bad[i], &d, &err) == 0)
            test_fail(__FILE__, __LINE__, "accepted: %s", bad[i]);
        ASSERT(err.msg[0] && !strstr(err.msg, "hunter2"));
    }
}

TEST(replies_are_read_at_every_cut) {
    static const char text[] = "+OK\r\n-ERR no\r\n:12\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*0\r\n"
                               "*2\r\n$1\r\nk\r\n$0\r\n\r\n*2\r\n$-1\r\n$2\r\nxy\r\n";
    static const enum redis_type types[] = {REDIS_STATUS, REDIS_FAULT, REDIS_NUMBER,
                                            REDIS_TEXT,   REDIS_NIL,   REDIS_NIL,
                                            REDIS_LIST,   REDIS_LIST,  REDIS_LIST};
    struct redis_reply r;
    size_t at = 0;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        ssize_t used = redis_reply_parse(text + at, sizeof text - 1 - at, &r);
        ASSERT(used > 0);
        ASSERT_INT(r.type, types[i]);
        for (ssize_t n = 0; n < used; n++) {
            _cleanup_free_ char *part = malloc((size_t)n + 1); /* no byte more than it has */
            memcpy(part, text + at, (size_t)n);
            ASSERT_INT(redis_reply_parse(part, (size_t)n, &r), 0);
        }
        at += (size_t)used;
    }
    ASSERT_INT(at, sizeof text - 1);
    static const struct {
        const char *text;
        int want;
    } bad[] = {{"HTTP/1.1 200\r\n", -EBADMSG},
               {"+OK\n", -EBADMSG},
               {"$x\r\n", -EBADMSG},
               {"$-2\r\n", -EBADMSG},
               {"$99999999999\r\n", -EMSGSIZE},
               {"*5\r\n", -EMSGSIZE},
               {"*1\r\n*0\r\n", -EMSGSIZE},
               {"*1\r\nx", -EBADMSG},
               {"$1\r\nab\r\n", -EBADMSG},
               {"*1\r\n$1\r\nabc", -EBADMSG}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ASSERT_INT(redis_reply_parse(bad[i].text, strlen(bad[i].text), &r), bad[i].want);
}

/* ---- against a server ---- */

static char rdir[64], rsock[96];
static pid_t rpid;
static int rpidfd = -1;

static int redis_socket(void) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    str_copy(un.sun_path, sizeof un.sun_path, rsock);
    if (connect(fd, (struct sockaddr *)&un, sizeof un) == 0)
        return fd;
    close(fd);
    return -1;
}

static void redis_dir(void) {
    str_copy(rdir, sizeof rdir, "/tmp/cove-test-redis-XXXXXX");
    ASSERT(mkdtemp(rdir));
    snprintf(rsock, sizeof rsock, "%s/s", rdir);
}

static void redis_start(const char *password) {
    const char *argv[] = {
        "redis-server", "--port",        "0",      "--unixsocket", rsock, "--save", "", "--dir",
        rdir,           "--requirepass", password, "--appendonly", "no",  NULL};
    struct spawn_opts o = SPAWN_OPTS_INIT;
    struct err err = {0};
    o.argv = argv;
    int r = spawn_start(&o, &rpid, &rpidfd, &err), fd = -1;
    if (r == -ENOENT)
        test_skip("redis-server is not installed (scripts/setup test)");
    ASSERT_OK(r);
    while ((fd = redis_socket()) < 0) /* nothing tells when it listens */
        poll(NULL, 0, 5);
    close(fd);
}

static void redis_stop(void) {
    kill(rpid, SIGKILL);
    waitpid(rpid, NULL, 0);
    close(rpidfd);
    unlink(rsock);
}

/* Sends an inline command and reads until the answer of a last PING is there. */
static void redis_do(const char *password, const char *fmt, ...) _printf_(2, 3);
static void redis_do(const char *password, const char *fmt, ...) {
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    char answer[512];
    size_t n = 0;
    va_list ap;
    int fd = redis_socket();
    ASSERT(fd >= 0);
    if (*password)
        buf_printf(&b, "AUTH %s\r\n", password);
    buf_str(&b, "SELECT 3\r\n");
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    buf_str(&b, "\r\nPING\r\n");
    ASSERT_OK(fd_write_full(fd, b.data, b.len));
    do {
        ssize_t got = read(fd, answer + n, sizeof answer - 1 - n);
        ASSERT(got > 0);
        n += (size_t)got;
        answer[n] = '\0';
    } while (!strstr(answer, "+PONG"));
    ASSERT(answer[0] != '-' && !strstr(answer, "\r\n-"));
    close(fd);
}

static void push(const char *password, const char *id, int64_t at_us) {
    char when[RFC3339_SIZE];
    rfc3339_format(at_us, when);
    redis_do(password,
             "LPUSH intents '{\"sandbox_id\":\"%s\",\"observed_at\":\"%s\",\"port\":8000}'", id,
             when);
}

static struct renew_opts queue_opts(const char *dsn, unsigned interval_s) {
    return (struct renew_opts){.enabled = true,
                               .min_interval_s = interval_s,
                               .redis_dsn = dsn,
                               .redis_queue = "intents",
                               .redis_readers = 2};
}

static void until(const struct sandbox *sb, int64_t expires_us) {
    while (sb->expires_us != expires_us)
        uv_run(&loop, UV_RUN_ONCE);
}

TEST(a_queue_renews) {
    char dsn[160];
    redis_dir();
    redis_start("s3cret");
    snprintf(dsn, sizeof dsn, "unix://:s3cret@%s?db=3", rsock);
    set_up_with(queue_opts(dsn, 3600));
    struct sandbox *a = sandbox(100, "600"), *b = sandbox(100, "600"), *c = sandbox(100, "600");
    int64_t born = wall;
    push("s3cret", a->spec.id, wall - 301 * S); /* too old */
    push("s3cret", "unknown", wall);
    redis_do("s3cret", "LPUSH intents nonsense");
    push("s3cret", b->spec.id, wall - 299 * S);
    until(b, born + 600 * S);
    ASSERT(a->expires_us == born + 100 * S);
    wall += 60 * S;
    push("s3cret", b->spec.id, wall); /* within the interval */
    push("s3cret", c->spec.id, wall);
    until(c, wall + 600 * S);
    ASSERT(b->expires_us == born + 600 * S);
    redis_do("s3cret", "EXISTS intents");
    tear_down();
    redis_stop();
    path_remove_tree_at(AT_FDCWD, rdir);
}

TEST(a_queue_that_comes_later_and_goes) {
    char dsn[160];
    test_set_timeout(60);
    redis_dir();
    snprintf(dsn, sizeof dsn, "unix://%s?db=3", rsock);
    set_up_with(queue_opts(dsn, 0)); /* nobody listens: the service works all the same */
    struct sandbox *sb = sandbox(100, "600");
    use(sb);
    ASSERT(sb->expires_us == wall + 600 * S);
    for (int i = 0; i < 2; i++) {
        redis_start("");
        wall += 60 * S;
        push("", sb->spec.id, wall);
        until(sb, wall + 600 * S);
        redis_stop();
    }
    tear_down();
    path_remove_tree_at(AT_FDCWD, rdir);
}

TEST(a_wrong_password_is_told_without_it) {
    char dsn[160], text[4096] = "", name[] = "/tmp/cove-test-log-XXXXXX";
    redis_dir();
    redis_start("s3cret");
    snprintf(dsn, sizeof dsn, "unix://:hunter2@%s", rsock);
    int fd = mkstemp(name), saved = dup(2);
    dup2(fd, 2);
    set_up_with(queue_opts(dsn, 0));
    log_setup(LOG_DEBUG, false, "test");
    while (!strstr(text, "trying again")) {
        uv_run(&loop, UV_RUN_ONCE);
        ASSERT(pread(fd, text, sizeof text - 1, 0) >= 0);
    }
    dup2(saved, 2);
    close(saved);
    close(fd);
    unlink(name);
    ASSERT(strstr(text, "WRONGPASS") && !strstr(text, "hunter2"));
    tear_down();
    redis_stop();
    path_remove_tree_at(AT_FDCWD, rdir);
}

TEST_MAIN()
