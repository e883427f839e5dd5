/*
 * File name patterns (execd.md 5.7): * ? [class] {a,b} ** \x !(pat)rest, over UTF-8 code points.
 * Braces are resolved when compiled; matching takes time in proportion to pattern times name.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct glob {
    struct strv patterns; /* without braces; any of them may match */
};

/* -EINVAL for a bad pattern (also behind a part that could never match), -E2BIG for too many
 * alternatives. */
int glob_compile(const char *pattern, struct glob *ret, struct err *err);
void glob_done(struct glob *g);
bool glob_match(const struct glob *g, const char *name);
