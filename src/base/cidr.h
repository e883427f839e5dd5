/* Addresses and networks as an operator writes them. */
#pragma once

#include "base/macros.h"

/* "10.0.0.1", "10.0.0.0/8", "::1", "fd00::/8" */
bool cidr_is_valid(const char *entry);
/* list: NULL-terminated or NULL; bad entries match nothing. */
bool cidr_list_has(const char *const *list, const char *address);
