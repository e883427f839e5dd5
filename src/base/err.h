/*
 * Errors that a person reads: a negative errno plus a message that grows context on the way up.
 * Functions that take a `struct err *` accept NULL there; they return the same negative errno that
 * they put into it, so `return err_set(err, -EINVAL, "...")` is the idiom.
 */
#pragma once

#include "base/macros.h"

struct err {
    int code;       /* negative errno, 0 = none */
    char msg[1024]; /* always terminated; cut at a UTF-8 boundary when too long */
};

#ifdef __clang_analyzer__
/* The static analyzer sees one file at a time: tell it what comes back. */
#define err_set(err, code, ...) ((void)(err), (code))
#define err_sys(err, code, ...) ((void)(err), (code))
#else
/* Sets code and message, replacing what was there. Returns code. */
int err_set(struct err *err, int code, const char *fmt, ...) _printf_(3, 4);
/* Same, with ": " and the text of errno `-code` appended. Returns code. */
int err_sys(struct err *err, int code, const char *fmt, ...) _printf_(3, 4);
#endif
/* Puts "context: " in front of the present message. Returns the present code (-EIO when err is
 * NULL: callers that may be given NULL keep the code themselves). */
int err_wrap(struct err *err, const char *fmt, ...) _printf_(2, 3);
/* Message, or the text of the code, or "no error"; never NULL. */
const char *err_text(const struct err *err);
