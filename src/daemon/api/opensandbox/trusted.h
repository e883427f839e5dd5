/* Whose forwarding headers are believed (server.trusted_proxies). */
#pragma once

#include "base/macros.h"

/* "10.0.0.1", "10.0.0.0/8", "::1", "fd00::/8" */
bool trusted_is_valid(const char *entry);
/* list: NULL-terminated or NULL; bad entries match nothing. */
bool trusted_has(const char *const *list, const char *peer);
