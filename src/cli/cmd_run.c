/*
 * cove run: a sandbox for one command. On a shared daemon the sandbox expires by itself unless this
 * process keeps renewing it, so that nothing stays when cove is killed; a private daemon ends with
 * us.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "cli/connect.h"
#include "cli/output.h"
#include "cli/sandbox_args.h"
#include "cli/stream.h"
#include "cli/term.h"

#define RUN_EXPIRE_S 1800

static bool address_is_chosen(const struct args *a) {
    return arg_given(a, OPT_HOST) || !str_is_empty(getenv("COVE_HOST"));
}

/* A daemon that runs, or else one of our own. 0 or an exit status. */
static int find_daemon(const struct args *a, struct cove_client **ret,
                       struct cove_private_daemon **ret_own) {
    struct cove_error err = {0};
    if (arg_given(a, OPT_PRIVATE) && arg_given(a, OPT_HOST))
        return fail_text(a, EXIT_COVE, "--private and --host exclude each other");
    if (!arg_given(a, OPT_PRIVATE)) {
        if (cove_client_new(arg_value(a, OPT_HOST), NULL, ret, &err) < 0)
            return fail(a, EXIT_COVE, &err);
        int r = cove_client_ping(*ret, NULL, &err);
        if (r == 0)
            return 0;
        *ret = cove_client_free(*ret);
        if (address_is_chosen(a) || (r != -ENOENT && r != -ECONNREFUSED))
            return fail(a, EXIT_COVE, &err);
    }
    if (cove_private_daemon_start(NULL, ret_own, &err) < 0 ||
        cove_client_new(cove_private_daemon_address(*ret_own), "", ret, &err) < 0)
        return err.code == -EINTR ? 128 + SIGINT : fail(a, EXIT_COVE, &err);
    return 0;
}

static int run_in(struct cove_client *c, const struct args *a, struct sandbox_args *sa,
                  bool is_private) {
    struct cove_error err = {0};
    _cleanup_(cove_sandbox_freep) struct cove_sandbox *s = NULL;
    sa->o.timeout_s = is_private ? 0 : RUN_EXPIRE_S;
    progress_begin("Starting the sandbox");
    int r = sandbox_args_fit(a, c, sa, &err);
    if (r == 0)
        r = cove_sandbox_create(c, &sa->o, &s, &err);
    progress_end();
    if (r < 0)
        return fail(a, EXIT_COVE, &err);
    int status;
    if (signals_pending()) {
        status = 128 + signals_taken();
    } else {
        const struct stream_opts o = {
            .args = a, .argv = a->words, .cwd = sa->o.cwd, .renew_s = sa->o.timeout_s};
        signals_interrupt(c);
        status = stream_command(c, cove_sandbox_id(s), &o);
        signals_interrupt(NULL);
        cove_client_interrupt_clear(c);
    }
    r = cove_sandbox_delete(c, cove_sandbox_id(s), &err);
    if (r < 0 && r != -ENOENT)
        warn("the sandbox %s is still there: %s", cove_sandbox_id(s), err.message);
    return status;
}

int cmd_run(const struct args *a) {
    struct sandbox_args sa;
    struct err err = {0};
    int status = stream_check(a);
    if (status)
        return status;
    if (sandbox_args_parse(a, arg_given(a, OPT_PRIVATE) || daemon_is_local(a), false, &sa, &err) <
        0)
        return fail_err(a, EXIT_COVE, &err);
    struct cove_client *c = NULL;
    struct cove_private_daemon *own = NULL;
    signals_setup(1);
    progress_begin("Starting a private daemon");
    status = find_daemon(a, &c, &own);
    progress_end();
    if (status == 0)
        status = run_in(c, a, &sa, own != NULL);
    cove_client_free(c);
    cove_private_daemon_stop(own);
    sandbox_args_done(&sa);
    return status;
}
