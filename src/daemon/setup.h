/* What a daemon does to its process and machine before it serves. */
#pragma once

#include "daemon/config/config.h"

/* As many descriptors as allowed; few malloc arenas. */
void setup_limits(void);
/* Log files, when they are configured; from then on lines go there. */
int setup_log_files(const struct config *c, struct err *err);
void setup_reopen_logs(void);
/* State and run directories with their modes. */
int setup_directories(const struct config *c, struct err *err);
/* One datagram to the service manager, when there is one (NOTIFY_SOCKET). */
void notify_manager(const char *state);
