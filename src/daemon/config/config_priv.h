/* What reading (config.c) and the rules between keys (config_rules.c) share. */
#pragma once

#include "daemon/config/config.h"

struct reading {
    struct config *c;
    const char *name; /* of the file, in messages */
    struct strv *warnings;
    struct err *err;
    json_t *lines; /* key or section that the file has -> its line */
};

/* Line of a key or section; 0 = the file has it not. */
unsigned config_line(const struct reading *r, const char *key);
/* "FILE:LINE: KEY: expected EXPECTED" */
int config_complain(const struct reading *r, const char *key, const char *expected);
/* "FILE:LINE: KEY WHAT", among the warnings */
int config_warn(const struct reading *r, const char *key, const char *what);
bool config_is_blank(const char *s);

/* config_rules.c: what no single key can tell. Everything was read, the environment too. */
int config_check_rules(const struct reading *r);
