/* A running command, shared by exec.c (the conversation) and exec_start.c (beginning and end of
 * it). */
#pragma once

#include "client/internal.h"
#include "client/streams.h"
#include "net/ws.h"

struct cove_exec {
    struct cove_client *c;
    struct cove_exec_options o; /* only on_output, ud, renew_s are used after the start */
    char *sandbox_id, *session;

    /* the upgrade */
    struct h1_call *call;
    char ws_key[25];
    int refused_status;
    struct buf refused; /* body of an answer that is not 101 */

    struct ws *ws;
    bool connected, exited, timed_out;
    struct cove_exit exit;
    int error;
    struct cove_error err;
    uint64_t offset; /* bytes of output received */

    struct sink out, errs;
    struct source in;
    uv_timer_t timer, renew_timer;
    struct h1_call *renew_call;
    unsigned handles; /* timers that are not closed yet */
};

/* Remembers the first failure. Returns code. */
int exec_fail(struct cove_exec *x, int code, const char *text);
extern const struct ws_ops exec_ws_ops;
void exec_on_input(const char *data, size_t len, void *ud);
void exec_on_sink_change(void *ud);
/* Parts with rules of their own, for the tests. */
void exit_from_frame(const json_t *frame, struct cove_exit *ret);
int start_error_code(const json_t *frame);
