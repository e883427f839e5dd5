/* Random identifiers (see id.h). */
#include "base/id.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/str.h"

void random_bytes(void *ret, size_t len) {
    char *p = ret;
    while (len) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            abort(); /* never on Linux after boot; guessable ids would be worse than no daemon */
        }
        p += n;
        len -= (size_t)n;
    }
}

void id_hex32(char ret[33]) {
    unsigned char b[16];
    random_bytes(b, sizeof b);
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    hex_encode(b, sizeof b, ret);
}

void id_uuid(char ret[37]) {
    char hex[33];
    id_hex32(hex);
    for (size_t i = 0, o = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20)
            ret[o++] = '-';
        ret[o++] = hex[i];
    }
    ret[36] = 0;
}
