/* Time. Monotonic for intervals, wall clock for what clients see. */
#pragma once

#include "base/macros.h"

int64_t clock_mono_us(void);
int64_t clock_mono_ms(void);
int64_t clock_wall_us(void); /* microseconds since 1970 UTC */
int64_t clock_wall_ms(void);

#define RFC3339_SIZE 40
/* "2025-01-02T03:04:05.678901Z": six digits when the microseconds are non-zero, none otherwise
 * (lifecycle.md 1.3). */
void rfc3339_format(int64_t wall_us, char ret[RFC3339_SIZE]);
/* Accepts any offset, "Z", none (= UTC), 'T'/'t'/' ', up to 9 fraction digits (cut to
 * microseconds). -EINVAL otherwise. */
int rfc3339_parse(const char *s, int64_t *ret_wall_us);
