/* See connect.h. */
#include "cli/connect.h"

#include <string.h>

#include "cli/output.h"

struct cove_client *connect_daemon(const struct args *a) {
    struct cove_client *c = NULL;
    struct cove_error err = {0};
    if (cove_client_new(arg_value(a, OPT_HOST), NULL, &c, &err) < 0)
        fail(a, EXIT_FAILED, &err);
    return c;
}

bool daemon_is_local(const struct args *a) {
    const char *address = arg_value(a, OPT_HOST);
    if (!address)
        address = getenv("COVE_HOST");
    return str_is_empty(address) || address[0] == '/' || str_starts(address, "unix:");
}

char *resolve_sandbox(const struct args *a, struct cove_client *c, const char *word) {
    struct cove_error err = {0};
    _cleanup_(cove_sandbox_freep) struct cove_sandbox *s = NULL;
    if (cove_sandbox_find(c, word, &s, &err) < 0) {
        fail(a, EXIT_FAILED, &err);
        return NULL;
    }
    return strdup(cove_sandbox_id(s));
}

char *resolve_running(const struct args *a, struct cove_client *c, const char *word) {
    struct cove_error err = {0};
    _cleanup_(cove_sandbox_freep) struct cove_sandbox *s = NULL;
    if (cove_sandbox_find(c, word, &s, &err) < 0) {
        fail(a, EXIT_FAILED, &err);
        return NULL;
    }
    const char *id = cove_sandbox_id(s), *state = cove_sandbox_state(s);
    if (str_eq(state, "Paused")) {
        fail_text(a, EXIT_FAILED,
                  "the sandbox %s is paused: nothing runs in it until it is resumed "
                  "(POST /v1/sandboxes/%s/resume)",
                  id, id);
        return NULL;
    }
    if (str_eq(state, "Terminated") || str_eq(state, "Failed")) {
        fail_text(a, EXIT_FAILED, "the sandbox %s has ended: `cove logs %s` shows what it wrote",
                  id, id);
        return NULL;
    }
    return strdup(id);
}
