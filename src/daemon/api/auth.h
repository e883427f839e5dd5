/* Who may ask: the API key of the TCP side. Pure functions. */
#pragma once

#include "base/macros.h"

enum auth_result { AUTH_OK, AUTH_MISSING, AUTH_WRONG };

/* Decided on the raw path of the request target. */
bool auth_is_exempt(const char *path);
/* key: configured, NULL = everything is open; given: the header's value or NULL. Constant time in
 * the text. */
enum auth_result auth_check(const char *key, const char *given);
