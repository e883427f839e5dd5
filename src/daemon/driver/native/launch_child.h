/* The child's half of cove-launch: from fork to the exec of the runtime. */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "daemon/driver/native/launch_proto.h"

/* A received request; descriptors in the order of the message, the answer channel taken out. */
struct launch_request {
    json_t *json;
    int fds[LAUNCH_FDS_MAX];
    size_t n_fds;
};
void launch_request_done(struct launch_request *q);
/* Receives one; 1, 0 at end-of-file, or -errno. *ret_reply: the answer channel, the caller's. */
int launch_request_recv(int sock, struct launch_request *ret, int *ret_reply);
/* The first descriptor with that role, or -1. */
int launch_request_fd(const struct launch_request *q, const char *role);

/* Shared memory between parent and child: how far it got. */
struct launch_report {
    int64_t enter_us, mount_us; /* durations */
    struct err err;             /* code 0: it came as far as exec */
    char step[128];
};

/* Moves the calling process into its cgroups and a mount namespace of its own, and makes its user
 * namespace. False: see the report. */
bool launch_child_enter(const struct launch_request *q, bool born_in_box,
                        struct launch_report *report);
/* Mounts, descriptors, exec of runtime_fd with standard error on text_fd. Comes back only on
 * failure. */
void launch_child_run(const struct launch_request *q, int runtime_fd, int text_fd,
                      struct launch_report *report);
