/*
 * What is left of a process group whose leader has ended: waits for its members, and kills those
 * that stay. Made while the leader is still a zombie (so the group's number is surely its own),
 * works by pidfd from then on.
 */
#pragma once

#include <uv.h>

struct groupwait;

/* NULL when nobody is left (done is not called then). done: once, all are gone. */
struct groupwait *groupwait_new(uv_loop_t *loop, pid_t group, unsigned grace_ms,
                                void (*done)(void *ud), void *ud);
void groupwait_free(struct groupwait *g); /* NULL is fine; done is not called */
