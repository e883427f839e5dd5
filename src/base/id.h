/* Random identifiers, from getrandom(2). */
#pragma once

#include "base/macros.h"

void random_bytes(void *ret, size_t len);
void id_hex32(char ret[33]); /* 32 lower-case hex digits: a UUIDv4 without dashes */
void id_uuid(char ret[37]);  /* dashed UUIDv4 */
