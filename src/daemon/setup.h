/* What a daemon does to its process and machine before it serves. */
#pragma once

#include "daemon/config/config.h"
#include "net/h1_server.h"

/* As many descriptors as allowed; few malloc arenas. */
void setup_limits(void);
/* Log files, when they are configured; from then on lines go there. */
int setup_log_files(const struct config *c, struct err *err);
void setup_reopen_logs(void);
/* The TCP side on server.host, which may be a name: then on every address of it. */
int setup_listen_tcp(struct h1_server *s, const struct config *c, struct err *err);
/* State and run directories with their modes. */
int setup_directories(const struct config *c, struct err *err);
/* One datagram to the service manager, when there is one (NOTIFY_SOCKET). */
void notify_manager(const char *state);
