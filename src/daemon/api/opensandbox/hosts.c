/*
 * Names under which this machine is reached from outside: what goes into endpoint addresses. The
 * answer is found once and kept in struct api. Loop thread; nothing here waits.
 */
#include "daemon/api/opensandbox/hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"

static bool is_one_of(const char *s, const char *const *list) {
    for (; *list; list++)
        if (str_ieq(s, *list))
            return true;
    return false;
}

static bool is_wildcard(const char *host) {
    static const char *const names[] = {"0.0.0.0", "::", NULL};
    return str_is_empty(host) || is_one_of(host, names);
}

static bool is_loopback(const char *host) {
    static const char *const names[] = {"127.0.0.1", "::1", "localhost", NULL};
    return is_one_of(host, names);
}

bool hosts_in_container(const char *root, const char *const *env) {
    static const char *const files[] = {"/.dockerenv", "/run/.containerenv"};
    static const char *const kinds[] = {"podman",      "docker",         "oci", "lxc",
                                        "lxc-libvirt", "systemd-nspawn", NULL};
    char path[300];

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        snprintf(path, sizeof path, "%s%s", root, files[i]);
        if (access(path, F_OK) == 0)
            return true;
    }
    for (; env && *env; env++)
        if ((str_starts(*env, "container=") || str_starts(*env, "CONTAINER=")) &&
            is_one_of(*env + strlen("container="), kinds))
            return true;
    return false;
}

/* The address this machine uses towards the world: a UDP socket is "connected", nothing is sent. */
static bool outward_address(char *ret, size_t size) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)}, own;
    socklen_t len = sizeof own;

    to.sin_addr.s_addr = htonl(0x08080808);
    _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        getsockname(fd, (struct sockaddr *)&own, &len) < 0)
        return false;
    return inet_ntop(AF_INET, &own.sin_addr, ret, (socklen_t)size) != NULL;
}

/* Asked only when there is no route to the world: the answer then comes from /etc/hosts. */
static bool name_address(char *ret, size_t size) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;
    char name[256];
    bool ok = false;

    if (gethostname(name, sizeof name) < 0 || getaddrinfo(name, NULL, &hints, &list) != 0)
        return false;
    if (list)
        ok = inet_ntop(AF_INET, &((struct sockaddr_in *)list->ai_addr)->sin_addr, ret,
                       (socklen_t)size) != NULL;
    freeaddrinfo(list);
    return ok;
}

static const char *without_scheme(const char *s) {
    const char *p = strstr(s, "://");
    return p ? p + 3 : s;
}

char *hosts_eip_base(const char *eip, uint16_t port) {
    const char *s = without_scheme(eip);
    size_t n = strlen(s);

    while (n && s[n - 1] == '/')
        n--;
    const char *after = memrchr(s, ']', n);
    after = after ? after : s;
    size_t left = n - (size_t)(after - s);
    bool whole = memchr(after, ':', left) || memchr(after, '/', left);
    return whole ? str_ndup(s, n) : str_printf("%.*s:%u", (int)n, s, port);
}

const char *hosts_eip_path(const char *eip, size_t *ret_len) {
    const char *s = without_scheme(eip), *path = strchrnul(s, '/');
    size_t n = strlen(path);

    while (n && path[n - 1] == '/')
        n--;
    *ret_len = n;
    return path;
}

static bool eip_host(const char *eip, char *ret, size_t size) {
    const char *s = without_scheme(eip);
    size_t n = strcspn(s, "/");

    if (*s == '[') {
        const char *end = memchr(s, ']', n);
        n = end ? (size_t)(end - s) + 1 : n;
    } else {
        n = MIN(n, strcspn(s, ":"));
    }
    return (size_t)snprintf(ret, size, "%.*s", (int)n, s) < size && n > 0;
}

/* An IPv6 address stands in brackets before a port. */
static bool put_host(const char *host, char *ret, size_t size) {
    bool bare6 = strchr(host, ':') && *host != '[';
    return (size_t)snprintf(ret, size, "%s%s%s", bare6 ? "[" : "", host, bare6 ? "]" : "") < size;
}

const char *hosts_public(const struct hosts_setup *h, char *ret, size_t size) {
    const char *own = h->server_host;

    if (!str_is_empty(h->eip) && eip_host(h->eip, ret, size))
        return ret;
    if ((is_wildcard(own) || is_loopback(own)) && h->in_container && !str_is_empty(h->host_ip) &&
        put_host(h->host_ip, ret, size))
        return ret;
    if (!is_wildcard(own) && put_host(own, ret, size))
        return ret;
    if (!outward_address(ret, size) && !name_address(ret, size))
        str_copy(ret, size, "127.0.0.1");
    return ret;
}
