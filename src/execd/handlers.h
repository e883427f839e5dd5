/* Every handler of the route table in api.c. ud is the struct agent. */
#pragma once

#include "net/router.h"

#define HANDLER(name) void name(struct h1_req *r, const struct route_match *m, void *ud)

HANDLER(handle_claim);       /* claim.c */
HANDLER(handle_command_run); /* command_api.c */
HANDLER(handle_command_stop);
HANDLER(handle_command_status);
HANDLER(handle_command_logs);
HANDLER(handle_pty_create); /* pty_api.c */
HANDLER(handle_pty_status);
HANDLER(handle_pty_delete);
HANDLER(handle_pty_ws);
HANDLER(handle_files_info); /* files.c */
HANDLER(handle_files_delete);
HANDLER(handle_files_move);
HANDLER(handle_files_permissions);
HANDLER(handle_files_replace);
HANDLER(handle_files_search); /* dirs.c */
HANDLER(handle_dirs_make);
HANDLER(handle_dirs_remove);
HANDLER(handle_dirs_list);
HANDLER(handle_files_upload);          /* upload.c */
HANDLER(handle_files_download);        /* download.c */
HANDLER(handle_isolated_capabilities); /* isolated.c */
HANDLER(handle_isolated);
HANDLER(handle_metrics); /* metrics.c */
HANDLER(handle_metrics_watch);
