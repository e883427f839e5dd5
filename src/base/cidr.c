/* Addresses and networks in words (see cidr.h). Pure functions; any thread. */
#include "base/cidr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* An address as 16 bytes: IPv4 in its mapped form, so that both spellings of it are one. */
static int parse_address(const char *s, unsigned char ret[16]) {
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct in_addr v4;

    if (inet_pton(AF_INET, s, &v4) == 1) {
        memcpy(ret, mapped, sizeof mapped);
        memcpy(ret + 12, &v4, 4);
        return 4;
    }
    return inet_pton(AF_INET6, s, ret) == 1 ? 6 : -EINVAL;
}

static int parse_net(const char *s, unsigned char ret[16], unsigned *ret_bits) {
    size_t n = strcspn(s, "/");
    char address[64];
    uint64_t bits;

    if (n >= sizeof address)
        return -EINVAL;
    snprintf(address, sizeof address, "%.*s", (int)n, s);
    int family = parse_address(address, ret);
    uint64_t most = family == 4 ? 32 : 128;
    if (family < 0)
        return family;
    bits = most;
    if (s[n] == '/' && (str_to_u64(s + n + 1, &bits) < 0 || bits > most))
        return -EINVAL;
    *ret_bits = (unsigned)(bits + (128 - most));
    return 0;
}

bool cidr_is_valid(const char *entry) {
    unsigned char net[16];
    unsigned bits;

    return parse_net(entry, net, &bits) == 0;
}

static bool is_in(const unsigned char a[16], const unsigned char net[16], unsigned bits) {
    unsigned bytes = bits / 8, rest = bits % 8;

    if (memcmp(a, net, bytes) != 0)
        return false;
    return rest == 0 || ((a[bytes] ^ net[bytes]) & (0xff << (8 - rest))) == 0;
}

bool cidr_list_has(const char *const *list, const char *address) {
    unsigned char a[16], net[16];
    unsigned bits;

    if (!list || !*list || parse_address(address, a) < 0)
        return false;
    for (; *list; list++)
        if (parse_net(*list, net, &bits) == 0 && is_in(a, net, bits))
            return true;
    return false;
}
