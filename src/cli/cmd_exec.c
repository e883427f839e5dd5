/* cove exec: one more command in a sandbox that exists. */
#include <string.h>

#include "cli/connect.h"
#include "cli/output.h"
#include "cli/stream.h"
#include "cli/term.h"

int cmd_exec(const struct args *a) {
    size_t first = a->n_words > 1 && str_eq(a->words[1], "--") ? 2 : 1;
    if (a->n_words <= first)
        return fail_text(a, EXIT_COVE, "%s", a->cmd->missing);
    if (first == 1 && a->words[1][0] == '-')
        return fail_text(a, EXIT_COVE,
                         "options go before the sandbox, as in: cove exec %s … %s -- COMMAND (or "
                         "write -- before a command that begins with -)",
                         a->words[1], a->words[0]);
    const char *cwd = arg_value(a, OPT_CWD);
    if (cwd && cwd[0] != '/')
        return fail_text(a, EXIT_COVE,
                         "--cwd must be an absolute path inside the sandbox, not \"%s\"", cwd);
    int status = stream_check(a);
    if (status)
        return status;
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_free_ char *id = c ? resolve_running(a, c, a->words[0]) : NULL;
    if (!id)
        return EXIT_COVE;
    signals_setup(2); /* the first goes to the command, the second kills it, the third is for us */
    signals_interrupt(c);
    const struct stream_opts o = {
        .args = a, .argv = a->words + first, .cwd = cwd, .forward_signals = true};
    status = stream_command(c, id, &o);
    signals_interrupt(NULL);
    return status;
}
