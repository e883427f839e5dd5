/* The driver's side of cove-launch: starts it, talks to it, starts it again when it has died. Any
 * thread. */
#pragma once

#include "base/err.h"
#include "base/json.h"

struct launcher;

struct launcher_opts {
    const char *program;      /* path of cove-launch */
    const char *runtime;      /* path of the OCI runtime */
    const char *cgroup2_path; /* where a cgroup2 file system is mounted, "" = nowhere */
};

struct launch_fd {
    const char *role; /* see launch_proto.h */
    int fd;           /* borrowed */
};

struct launch_result {
    pid_t pid;
    int pidfd;   /* the caller's */
    int text_fd; /* the caller's: standard error of runtime and agent, see launcher_text() */
    int64_t enter_us, mount_us, run_us;
};

int launcher_new(const struct launcher_opts *opts, struct launcher **ret, struct err *err);
struct launcher *
launcher_free(struct launcher *l); /* cove-launch ends; sandboxes do not. Returns NULL */
DEFINE_CLEANUP(struct launcher, launcher_free)

/* Carries out a plan (launch_proto.h; borrowed, "op" and "roles" are added). `parked` 0 = a fresh
 * child, else one from launcher_park(): -ESRCH when it is gone. Whatever the runtime left behind
 * after a failure is in the sandbox's cgroup: the caller kills that. Errors never are -ENOENT. */
int launcher_launch(struct launcher *l, int64_t parked, json_t *plan, const struct launch_fd *fds,
                    size_t n_fds, struct launch_result *ret, struct err *err);
/* A child that has entered its cgroups ("box", "enter" descriptors) and waits; the plan must name
 * the same userns. */
int launcher_park(struct launcher *l, unsigned userns, const struct launch_fd *fds, size_t n_fds,
                  int64_t *ret_parked, struct err *err);
void launcher_drop(struct launcher *l, int64_t parked);

/* What runtime and agent wrote, one printable line; "" when nothing. */
void launcher_text(int text_fd, char *ret, size_t size);
