/* cove version: this program's, and the daemon's when one answers. */
#include <stdio.h>

#include "cli/connect.h"
#include "cli/output.h"

int cmd_version(const struct args *a) {
    struct cove_error err = {0};
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_free_ char *server = NULL;
    if (!c)
        return EXIT_FAILED;
    cove_client_ping(c, &server, &err);
    if (arg_given(a, OPT_JSON)) {
        _cleanup_json_ json_t *j = json_pack("{s:s, s:s?, s:s}", "client", cove_version(), "server",
                                             server, "address", cove_client_address(c));
        print_json(j, stdout);
        return 0;
    }
    printf("cove    %s\n", cove_version());
    if (server)
        printf("daemon  %s at %s\n", server, cove_client_address(c));
    else
        printf("daemon  none: %s\n", err.message);
    return 0;
}
