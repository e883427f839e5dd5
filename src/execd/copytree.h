/* A move to another file system: copy, then remove. */
#pragma once

#include "base/macros.h"

/* dest must not exist (-EEXIST). On a failure what was copied is removed and the source stays. */
int copytree_move(const char *src, const char *dest);
