/*
 * A scripted server in a child process for the library's tests: one sandbox "box-1", whose agent
 * acts by the first word of the command (see test-fake.c). It checks tokens and keys as the real
 * ones do.
 */
#pragma once

#include "base/macros.h"

struct fake {
    char dir[64], socket[96], address[112];
    pid_t pid;
};
void fake_start(struct fake *f);
void fake_stop(struct fake *f);
