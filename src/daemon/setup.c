/* Process limits, directories, the service manager (see setup.h). Loop thread, before and while
 * serving. */
#include "daemon/setup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/path.h"

void setup_limits(void) {
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &l) < 0)
            log_warn("the limit of open files stays low", LOG_INT("limit", l.rlim_cur));
    }
    mallopt(
        M_ARENA_MAX,
        2); /* workers wait for the kernel most of the time: an arena each would only cost memory */
}

/* Open until the process ends: threads may log to the last. */
static struct log_file *all, *requests;

int setup_log_files(const struct config *c, struct err *err) {
    uint64_t max = (uint64_t)c->log_max_bytes;
    unsigned backups = (unsigned)c->log_backups;
    int r;

    if (!c->log_file_enabled)
        return 0;
    if ((r = log_file_open(c->log_file_path, max, backups, &all, err)) < 0 ||
        (r = log_file_open(c->log_access_path, max, backups, &requests, err)) < 0)
        return r;
    log_to_files(all, requests);
    return 0;
}

void setup_reopen_logs(void) {
    if (all)
        log_file_reopen(all);
    if (requests)
        log_file_reopen(requests);
}

int setup_directories(const struct config *c, struct err *err) {
    const char *const dirs[] = {c->state_dir, c->run_dir};

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        int r = path_mkdirs_at(AT_FDCWD, dirs[i], 0711);
        if (r < 0)
            return err_sys(err, r, "directory %s (server.state_dir, server.run_dir)", dirs[i]);
    }
    return 0;
}

void notify_manager(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    if (str_is_empty(path) || !str_copy(to.sun_path, sizeof to.sun_path, path))
        return;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (path[0] == '@')
        to.sun_path[0] = '\0'; /* the abstract namespace */
    else
        len++;
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, len) < 0)
        log_debug("the service manager cannot be reached");
}

/* ---- the TCP side ---- */

static bool is_numeric(const char *host) {
    unsigned char a[sizeof(struct in6_addr)];
    char plain[64];
    str_copy(plain, sizeof plain, host);
    plain[strcspn(plain, "%")] = '\0'; /* fe80::1%eth0 */
    return inet_pton(AF_INET, host, a) == 1 || inet_pton(AF_INET6, plain, a) == 1;
}

/* One address is enough: "localhost" often has one that this machine has not. */
static int listen_each(struct h1_server *s, const struct addrinfo *list, const struct config *c,
                       struct err *err) {
    unsigned n = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        char text[NI_MAXHOST];
        struct err e = {0};
        if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST))
            continue;
        int r = h1_server_listen_tcp(s, text, (uint16_t)c->port, (int)c->backlog, NULL, &e);
        n += r == 0;
        if (r < 0 && r != -EADDRNOTAVAIL && r != -EAFNOSUPPORT)
            return err_set(err, r, "%s", err_text(&e));
    }
    return n ? 0 : err_set(err, -EADDRNOTAVAIL, "no address of %s is one of this machine", c->host);
}

int setup_listen_tcp(struct h1_server *s, const struct config *c, struct err *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;

    if (is_numeric(c->host))
        return h1_server_listen_tcp(s, c->host, (uint16_t)c->port, (int)c->backlog, NULL, err);
    int e = getaddrinfo(c->host, NULL, &hints, &list);
    if (e)
        return err_set(err, -EADDRNOTAVAIL, "%s: %s", c->host, gai_strerror(e));
    int r = listen_each(s, list, c, err);
    freeaddrinfo(list);
    return r;
}
