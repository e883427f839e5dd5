/* Messages with descriptors over SOCK_SEQPACKET sockets. */
#pragma once

#include "base/macros.h"

/* One message; 0 or -errno (-EMSGSIZE when too long). SIGPIPE is not raised. */
int fdmsg_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds);
/* One message into data (size bytes). Length, 0 at end-of-file, or -errno (-EMSGSIZE: cut off; its
 * descriptors are closed). *n_fds: room in fds on entry, received on exit; all are O_CLOEXEC. */
ssize_t fdmsg_recv(int sock, void *data, size_t size, int *fds, size_t *n_fds);
