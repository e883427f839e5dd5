/*
 * Answers in place of the C library's name services, which a static program cannot have: they would
 * load shared libraries of the very image the agent must not depend on. The event loop library
 * refers to them; the agent itself reads account files with users.c and connects to numeric
 * addresses only. Linked into the static binary alone.
 */
#include <errno.h>
#include <netdb.h>
#include <pwd.h>

#include "base/macros.h"

int getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t size, struct passwd **ret) {
    *ret = NULL;
    return ENOENT;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret) {
    *ret = NULL;
    return EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *list) {
}

int getnameinfo(const struct sockaddr *sa, socklen_t len, char *host, socklen_t host_len,
                char *serv, socklen_t serv_len, int flags) {
    return EAI_FAIL;
}

const char *gai_strerror(int code) {
    return "name service is not available";
}
