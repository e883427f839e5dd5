/* Server addresses as people write them. Owns nothing but the parsed form; pure functions. */
#include <errno.h>
#include <string.h>
#include <sys/un.h>

#include "client/internal.h"

void address_done(struct address *a) {
    free(a->unix_path);
    free(a->host);
    *a = (struct address){0};
}

static int parse_unix(const char *path, const char *text, struct address *ret,
                      struct cove_error *err) {
    if (path[0] != '/')
        return cerr_set(err, -EINVAL,
                        "the address \"%s\" needs an absolute path, as in unix:/run/cove/api.sock",
                        text);
    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return cerr_set(err, -EINVAL, "the socket path in \"%s\" is longer than 107 bytes", text);
    ret->unix_path = strdup(path);
    return ret->unix_path ? 0 : cerr_oom(err);
}

/* HOST[:PORT] with [IPv6] in brackets; a trailing slash is fine, a path is not. */
static int parse_http(const char *rest, const char *text, struct address *ret,
                      struct cove_error *err) {
    size_t len = strcspn(rest, "/?#");
    if (rest[len] && !str_eq(rest + len, "/"))
        return cerr_set(err, -EINVAL, "the address \"%s\" must end after the port", text);
    if (memchr(rest, '@', len))
        return cerr_set(err, -EINVAL,
                        "an address must not carry a password; set OPEN_SANDBOX_API_KEY");
    const char *host = rest, *port = NULL, *end = rest + len;
    size_t host_len;
    if (*rest == '[') {
        const char *close = memchr(rest, ']', len);
        if (!close || (close + 1 != end && close[1] != ':'))
            return cerr_set(err, -EINVAL, "the address \"%s\" has an unfinished [IPv6] part", text);
        host++;
        host_len = (size_t)(close - host);
        port = close + 1 == end ? NULL : close + 2;
    } else {
        const char *colon = memchr(rest, ':', len);
        host_len = colon ? (size_t)(colon - rest) : len;
        port = colon ? colon + 1 : NULL;
    }
    uint64_t n = 80;
    if (host_len == 0 || host_len > 255)
        return cerr_set(err, -EINVAL, "the address \"%s\" names no host", text);
    if (port && (str_to_u64n(port, (size_t)(end - port), &n) < 0 || n < 1 || n > 65535))
        return cerr_set(err, -EINVAL, "the port in \"%s\" is not a number from 1 to 65535", text);
    ret->port = (uint16_t)n;
    ret->host = str_ndup(host, host_len);
    return ret->host ? 0 : cerr_oom(err);
}

int address_parse(const char *text, struct address *ret, struct cove_error *err) {
    struct address a = {0};
    int r;
    if (text[0] == '/')
        r = parse_unix(text, text, &a, err);
    else if (str_starts(text, "unix://"))
        r = parse_unix(text + 7, text, &a, err);
    else if (str_starts(text, "unix:"))
        r = parse_unix(text + 5, text, &a, err);
    else if (str_starts(text, "http://"))
        r = parse_http(text + 7, text, &a, err);
    else if (str_starts(text, "https://"))
        r = cerr_set(
            err, -EINVAL,
            "https is not spoken here yet: use http:// through a tunnel, or the Unix socket");
    else
        r = cerr_set(err, -EINVAL,
                     "cannot understand the address \"%s\": use unix:/path or http://host:port",
                     text);
    if (r == 0)
        *ret = a;
    return r;
}
