/* Calls to the Docker Engine, by kind. Any thread. */
#pragma once

#include "base/buf.h"

void engine_calls_add(const char *method, const char *path, bool ok, int64_t us);
void engine_calls_write(struct buf *out);
void engine_calls_reset(void);
