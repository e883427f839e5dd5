/*
 * SHA-1, only for the WebSocket handshake (RFC 6455 fixes it; nothing secret depends on it). Here
 * and not from OpenSSL because the static agent links none.
 */
#pragma once

#include "base/macros.h"

void sha1(const void *data, size_t len, unsigned char ret[20]);
