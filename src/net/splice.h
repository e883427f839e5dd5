/* Raw bytes both ways between two streams, after an upgrade. */
#pragma once

#include "net/sock.h"

/*
 * Takes both socks over. Each direction is back-pressured by its receiver and ends on its own
 * (half-close); done is called once, when both are over or one side broke, and the socks are closed
 * by then (what is queued still goes out for at most 30 s, 2 s when one side broke). -ENOMEM: both
 * are closed and done is not called.
 */
int splice_run(struct sock *a, struct sock *b, void (*done)(void *ud), void *ud);
