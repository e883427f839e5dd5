/*
 * Renewal by use: a request through the proxy (or an intent that a gateway left in a queue) extends
 * the life of a sandbox whose create asked for that (extension access.renew.extend.seconds). Never
 * delays what caused it, never shortens a life. Loop thread only.
 */
#pragma once

#include "daemon/sandbox/service.h"

struct access;

/* The proxy calls this once the target of a request is known and the caller may reach it. Cheap
 * when it is off; unknown ids do nothing. */
void service_accessed(struct service *s, const char *id);

#define ACCESS_MAX_SANDBOXES 8192 /* remembered; the one used longest ago is forgotten */

/* ---- for the service itself ---- */
int access_open(struct service *s, struct err *err);
void access_stop(struct service *s); /* no intent is taken from a queue any more */
void access_free(struct service *s); /* all operations are over */
