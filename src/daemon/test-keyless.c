/* The question that stands before a daemon without a key, and who is never asked. */
#include "daemon/keyless.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/test.h"

static bool answer(const char *text, bool then_silence) {
    int in[2], out = open("/dev/null", O_WRONLY | O_CLOEXEC);

    ASSERT_OK(pipe2(in, O_CLOEXEC));
    ASSERT(write(in[1], text, strlen(text)) == (ssize_t)strlen(text));
    if (!then_silence)
        fd_close(TAKE_FD(in[1]));
    bool ok = keyless_ask(in[0], out, 100);
    fd_close(in[0]);
    fd_close(in[1]);
    fd_close(out);
    return ok;
}

TEST(exactly_yes_is_an_answer) {
    ASSERT(answer("YES\n", true));
    ASSERT(!answer("yes\n", true));
    ASSERT(!answer("YES \n", true));
    ASSERT(!answer("\n", true));
    ASSERT(!answer("YES", false));
    ASSERT(!answer("YES or something that is much longer\n", true));
}

TEST(silence_ends_by_itself) {
    int64_t begin = clock_mono_us();
    ASSERT(!answer("YES", true));
    int64_t took = clock_mono_us() - begin;
    ASSERT(took >= 99000 && took < 20 * 1000000);
}

static int check(const char *text, bool acknowledged) {
    struct config c;
    struct err err = {0};

    ASSERT_OK(config_parse(text, strlen(text), "f", &c, NULL, &err));
    c.insecure_ok = acknowledged;
    int r = keyless_check(&c, &err);
    if (r < 0) {
        ASSERT(strstr(err.msg, "server.api_key"));
        ASSERT(strstr(err.msg, "OPENSANDBOX_INSECURE_SERVER=YES"));
    }
    config_done(&c);
    return r;
}

TEST(only_docker_without_a_key_is_held_up) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    ASSERT(dup2(null, STDIN_FILENO) == STDIN_FILENO); /* no terminal */
    ASSERT_OK(check("", false));
    ASSERT_INT(check("[runtime]\ntype = \"docker\"\n", false), -EACCES);
    ASSERT_INT(check("[runtime]\ntype = \"docker\"\n[server]\napi_key = \"  \"\n", false), -EACCES);
    ASSERT_OK(check("[runtime]\ntype = \"docker\"\n", true));
    ASSERT_OK(check("[runtime]\ntype = \"docker\"\n[server]\napi_key = \"k\"\n", false));
    ASSERT_OK(check("[runtime]\ntype = \"docker\"\n[server.api_keys]\nci = \"k\"\n", false));
    fd_close(null);
}

TEST_MAIN()
