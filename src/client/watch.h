/*
 * Readiness of a descriptor that belongs to others too (a terminal, an inherited pipe). Such
 * descriptors must not be made non-blocking, since that would change them for every process that
 * shares them; libuv's own watcher does so. This one nests them in an epoll instance instead.
 */
#pragma once

#include <uv.h>

#include "base/macros.h"

struct watch;
typedef void (*watch_cb)(struct watch *w, void *ud);

/* events: UV_READABLE or UV_WRITABLE. Starts stopped. fd is borrowed and must outlive the watch. */
int watch_open(uv_loop_t *loop, int fd, int events, watch_cb cb, void *ud, struct watch **ret);
void watch_start(struct watch *w);
void watch_stop(struct watch *w);
/* Regular files and the like, which are always ready: writes to them never wait. */
bool watch_is_file(const struct watch *w);
struct watch *
watch_close(struct watch *w); /* NULL is fine; returns NULL; memory goes once the loop has run */
