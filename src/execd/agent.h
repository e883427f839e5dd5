/* What all parts of the agent share. One instance; loop thread only. */
#pragma once

#include <uv.h>

#include "execd/env.h"
#include "execd/process.h"
#include "net/h1_client.h"
#include "net/h1_server.h"

struct commands;
struct ptys;
struct metrics;
struct entrypoint;
struct router;
struct timer;

struct agent {
    uv_loop_t *loop;
    struct h1_server *server;
    struct router *router;
    struct h1_pool *pool; /* connections to ports in the sandbox */
    struct processes *processes;
    struct env env;
    char *token;  /* NULL: no authentication */
    char *cwd;    /* where the agent was started */
    bool native;  /* in a native sandbox: claims, cgroups, confinement */
    bool claimed; /* true outside native sandboxes */
    bool strip_line_ends;
    int log_fd, state_fd; /* from COVE_FDS, or -1 */
    struct commands *commands;
    struct ptys *ptys;
    struct metrics *metrics;
    struct entrypoint *entrypoint; /* NULL before it was started */
    struct timer *stop_timer;      /* runs while the agent is ending */
    bool stopping;
    int exit_status; /* of the agent, once its loop ends */
};
