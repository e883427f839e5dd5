/*
 * The little of Redis that reading a queue needs: where a server is, commands out, replies in. Pure
 * functions, any thread. Replies are taken apart in place and bounded before anything is kept,
 * since what a queue holds was put there by somebody else.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#define REDIS_MAX_REPLY ((size_t)64 << 10)

struct redis_dsn {
    char *host, *path; /* exactly one of them; path: a Unix socket */
    uint16_t port;
    char *user, *password; /* NULL = none; secret */
    unsigned db;
};
/* redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or unix://[[USER]:PASSWORD@]/PATH[?db=DB]. Messages
 * never have a part of the text in them. */
int redis_dsn_parse(const char *text, struct redis_dsn *ret, struct err *err);
void redis_dsn_done(struct redis_dsn *d);

/* Appends a command; words ends with NULL. */
int redis_command(struct buf *out, const char *const *words);

enum redis_type { REDIS_STATUS, REDIS_FAULT, REDIS_NUMBER, REDIS_TEXT, REDIS_NIL, REDIS_LIST };
struct redis_text {
    const char *data; /* in the input; NULL = nil */
    size_t len;
};
#define REDIS_MAX_ITEMS 4
struct redis_reply {
    enum redis_type type;
    struct redis_text text;                   /* all but NIL and LIST */
    struct redis_text items[REDIS_MAX_ITEMS]; /* LIST: of texts */
    size_t n_items;
};
/* The first reply of the input: bytes it takes, 0 = not complete yet. -EBADMSG: not of this
 * protocol, -EMSGSIZE: larger than REDIS_MAX_REPLY, or a list of more or other things. */
ssize_t redis_reply_parse(const char *data, size_t len, struct redis_reply *ret);
