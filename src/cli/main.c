/* cove: finds the command, parses its arguments by the tables, and runs it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/connect.h"
#include "cli/output.h"

/* 0, 1 and 2 must be open, or the first files that we open would be taken for them. */
static void open_standard_fds(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

static int usage_failed(const struct args *a, const struct err *err) {
    int status = a->cmd ? a->cmd->usage_status : EXIT_USAGE;
    fail_err(a, status, err);
    if (!arg_given(a, OPT_JSON))
        fprintf(stderr, a->cmd ? "      see: cove %s --help\n" : "      see: cove --help\n",
                a->cmd ? a->cmd->name : "");
    return status;
}

int main(int argc, char **argv) {
    struct args a;
    struct err err = {0};
    bool help = false;
    open_standard_fds();
    if (argc > 1 && str_eq(argv[1], "--version"))
        argv[1] = (char *)"version"; /* what people try first */
    if (argc == 3 && (str_eq(argv[2], "--help") || str_eq(argv[2], "-h")) &&
        help_group(argv[1], stdout))
        return 0;
    int status, r = args_parse(argc, argv, &a, &help, &err);
    if (r < 0) {
        status = usage_failed(&a, &err);
    } else if (help || !a.cmd) {
        if (a.cmd)
            help_command(a.cmd, stdout);
        else
            help_overview(help ? stdout : stderr);
        status = help ? 0 : EXIT_USAGE;
    } else {
        status = a.cmd->run(&a);
    }
    args_done(&a);
    if (fflush(stdout) != 0 && status == 0)
        status = a.cmd ? EXIT_FAILED : status;
    return status;
}
