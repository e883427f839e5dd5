/* Running without an API key must be meant (see keyless.h). Called once, before the loop starts. */
#include "daemon/keyless.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/path.h"

#define ANSWER_MS 30000

/* One line, without its end; false: none in time. */
static bool read_line(int fd, char *line, size_t size, unsigned timeout_ms) {
    int64_t end = clock_mono_us() + (int64_t)timeout_ms * 1000;
    size_t n = 0;

    for (;;) {
        int64_t left = (end - clock_mono_us()) / 1000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char c;

        int r = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0 || read(fd, &c, 1) != 1)
            return false;
        if (c == '\n') {
            line[n] = '\0';
            return true;
        }
        if (n + 1 == size)
            return false;
        line[n++] = c;
    }
}

bool keyless_ask(int in, int out, unsigned timeout_ms) {
    static const char question[] =
        "No API key is configured: everyone who reaches the TCP port may run programs on this "
        "machine.\nType YES to go on without a key: ";
    char line[16];

    fd_write_full(out, question, sizeof question - 1);
    bool ok = read_line(in, line, sizeof line, timeout_ms) && strcmp(line, "YES") == 0;
    if (!ok)
        fd_write_full(out, "\n", 1);
    return ok;
}

int keyless_check(struct config *c, struct err *err) {
    if (!config_is_docker(c) || config_has_key(c) || c->insecure_ok)
        return 0;
    if (isatty(STDIN_FILENO) && keyless_ask(STDIN_FILENO, STDERR_FILENO, ANSWER_MS)) {
        c->insecure_ok = true;
        return 0;
    }
    return err_set(err, -EACCES,
                   "no API key: set server.api_key (or OPENSANDBOX_SERVER_API_KEY), or "
                   "OPENSANDBOX_INSECURE_SERVER=YES to run without one");
}
