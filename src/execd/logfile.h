/* The bounded file that keeps an entrypoint's output: at most 4 MiB, the oldest bytes go first. */
#pragma once

#include "base/macros.h"

struct logfile {
    int fd; /* -1: output is thrown away; borrowed */
    uint64_t size;
};

#define LOGFILE_MAX ((uint64_t)4 << 20)

void logfile_init(struct logfile *l, int fd);
void logfile_append(struct logfile *l, const char *data, size_t len);
