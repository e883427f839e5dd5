/* Error values (see err.h). No state. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static void set_text(struct err *err, const char *text) {
    str_copy(err->msg, sizeof err->msg, text);
}

static _printf_(3, 0) int set_va(struct err *err, int code, const char *fmt, va_list ap,
                                 bool with_errno) {
    char text[sizeof err->msg + 256];

    if (!err)
        return code;
    int n = vsnprintf(text, sizeof text, fmt, ap);
    if (with_errno && n >= 0 && (size_t)n < sizeof text) {
        char sys[128];
        snprintf(text + n, sizeof text - (size_t)n, ": %s", strerror_r(-code, sys, sizeof sys));
    }
    err->code = code;
    set_text(err, text);
    return code;
}

#ifndef __clang_analyzer__
int err_set(struct err *err, int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    set_va(err, code, fmt, ap, false);
    va_end(ap);
    return code;
}

int err_sys(struct err *err, int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    set_va(err, code, fmt, ap, true);
    va_end(ap);
    return code;
}

#endif

int err_wrap(struct err *err, const char *fmt, ...) {
    char text[2 * sizeof err->msg];
    va_list ap;

    if (!err)
        return -EIO;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ": %s", err_text(err));
    set_text(err, text);
    return err->code;
}

const char *err_text(const struct err *err) {
    if (!err || (!err->code && !err->msg[0]))
        return "no error";
    return err->msg[0] ? err->msg : strerrordesc_np(-err->code);
}
