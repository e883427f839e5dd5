/* The public host of endpoint addresses (lifecycle.md 7.1, 7.2). */
#pragma once

#include <stdint.h>

#include "base/macros.h"

struct hosts_setup {
    const char *eip;         /* NULL = none: "host", "host:port", "host[:port]/prefix" */
    const char *server_host; /* configured listening address; "" or NULL = all */
    const char *host_ip;     /* docker.host_ip; NULL = none */
    bool in_container;       /* this server runs in one */
};

/* Looks for the marks that container runtimes leave. root: "" but in tests; env ends with NULL. */
bool hosts_in_container(const char *root, const char *const *env);
/* Host without a port, IPv6 in brackets. ret: at least 256 bytes. */
const char *hosts_public(const struct hosts_setup *h, char *ret, size_t size);
/* What stands before "/sandboxes/…" when a public address is configured: without scheme and
 * trailing slashes; the server's port is added when it names neither port nor path. malloc'd. */
char *hosts_eip_base(const char *eip, uint16_t port);
/* Its path ("" when none), not terminated: *ret_len bytes. */
const char *hosts_eip_path(const char *eip, size_t *ret_len);
