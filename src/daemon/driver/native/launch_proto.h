/*
 * Between the driver and cove-launch: one SOCK_SEQPACKET socket (descriptor 3 of cove-launch). A
 * message is a JSON object plus descriptors. The first descriptor is always the answer channel, a
 * SOCK_SEQPACKET socket of this request alone: one message comes back on it, or end-of-file when
 * cove-launch died.
 *
 *  request {"op":"launch", "roles":[...], "timeout_ms":N, "parked":K?, <plan>}
 *          {"op":"park",   "roles":[...], "userns":N}   a child in its cgroups and its own mount
 * namespace, waiting
 *          {"op":"drop",   "parked":K}        ends a parked child
 *  answer  {"pid":N, "enter_us":N, "mount_us":N, "run_us":N} + descriptors: pidfd, text of the
 * runtime and agent
 *          {"parked":K}
 *          {"step":"overlay of /usr", "errno":22, "text":"..."}
 *
 * Roles name the descriptors after the answer channel, in order:
 *   "box"    cgroup2 directory that the child is born in
 *   "enter"  a cgroup.procs file opened for writing, for each v1 hierarchy
 *   "netns"  network namespace of the sandbox (for sysfs)
 *   "keep"   becomes 3, 4, ... of the agent
 *   "bind"   detached mount (open_tree) for the next entry of "binds"
 *
 * Plan (plain data; every path absolute and clean):
 *   "argv": ["crun", ...]     run from the sealed copy of the runtime
 *   "dir":  "/…/sandboxes/x"  working directory; holds pid (written by the runtime)
 *   "rootfs": "/…/rootfs"
 *   "userns": 1000000000      first id of the range, 0 = no user namespace
 *   "overlays": [{"at": "/", "lowers": ["/…", …], "plain": ["/usr"], "dir": "/…/x"}]
 *        lowers are id-mapped in a user namespace, those in "plain" are not and lie below them;
 *        "dir" holds upper and work
 *   "binds": [{"target": "/data", "read_only": true, "idmap": true, "what": "/srv/data"}]
 *        with "stays": true the start fails when a later one covers it, through whatever link
 */
#pragma once

#define LAUNCH_MSG_MAX (128 << 10)
#define LAUNCH_FDS_MAX 128
#define LAUNCH_TEXT_MAX (16 << 10) /* what runtime and agent may write to their standard error */
#define LAUNCH_TIMEOUT_MS 20000
#define LAUNCH_SOCKET_FD 3
