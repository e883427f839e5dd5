/* Allocation failures for tests. The linker's --wrap puts test-nomem.c under the libraries. */
#pragma once

#include <stdbool.h>

void nomem_arm(
    long n); /* from now on n allocations succeed, the next one fails, then all succeed */
bool nomem_disarm(void); /* did one fail? */

/*
 * Runs fn with the nth allocation failing, n = 0, 1, ... until it returns 0 without having met a
 * failure. A run that met one must return a negative value; or 0, where it may do without and has
 * checked that its result is whole.
 */
void nomem_exhaust(int (*fn)(void), bool may_do_without);
