/*
 * Event streams on an open exchange. Two framings: standard ("data: ...") and bare JSON objects
 * each followed by a blank line, as execd clients want it (execd.md 2.2).
 */
#pragma once

#include "net/h1_server.h"

/* Starts a 200 text/event-stream response with the headers that keep proxies from buffering. */
void sse_start(struct h1_req *r);
/* One event: json is one line without raw newlines. Queued bytes or -errno. */
ssize_t sse_bare(struct h1_req *r, const char *json, size_t len);
/* Standard framing; event may be NULL; data may hold newlines (one data: line each). */
ssize_t sse_event(struct h1_req *r, const char *event, const char *data, size_t len);
