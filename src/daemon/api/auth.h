/* Who may ask: the API keys of the TCP side. Not locked: the loop thread's. */
#pragma once

#include "base/macros.h"

#define AUTH_NAME_MAX 64 /* of a key's name */

enum auth_result { AUTH_OK, AUTH_MISSING, AUTH_WRONG };

/* Decided on the raw path of the request target. */
bool auth_is_exempt(const char *path);

/* A set of named keys. */
struct auth_keys;
struct auth_keys *auth_keys_new(void); /* NULL on -ENOMEM */
/* Copies; a blank key adds nothing. -EINVAL: the name is too long. */
int auth_keys_add(struct auth_keys *k, const char *name, const char *key);
struct auth_keys *auth_keys_free(struct auth_keys *k); /* wipes; returns NULL */
/* k: NULL or empty = everything is open; given: the header's value or NULL. *ret_name (may be NULL)
 * is the name of the key that was given, NULL when there is none; it lives as long as the set. The
 * time taken depends on the lengths of the keys, never on their texts or on which of them fits. */
enum auth_result auth_check(const struct auth_keys *k, const char *given, const char **ret_name);
