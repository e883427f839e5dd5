/*
 * /v1/isolated (execd.md 7.3) as long as isolated sessions do not exist here: clients ask the
 * capabilities first and get an honest answer; everything else is a permanent refusal, which they
 * do not repeat.
 */
#include "execd/agent.h"
#include "execd/errors.h"
#include "execd/handlers.h"

static json_t *layer(const char *state) {
    return json_pack("{s:s}", "state", state);
}

HANDLER(handle_isolated_capabilities) {
    const struct agent *a = ud;
    bool is_first = getpid() == 1;
    json_t *hardening =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "init_mode", is_first ? "pid1" : "subreaper",
                  "signal_shield", layer(is_first ? "active" : "disabled"), "cap_drop",
                  layer("disabled"), "seccomp", layer(a->native ? "active" : "disabled"),
                  "landlock", layer("unsupported"), "ebpf", layer("unsupported"));

    reply_json(r, 200,
               json_pack("{s:b, s:s, s:s, s:b, s:b, s:b, s:b, s:o}", "available", 0, "version",
                         COVE_VERSION, "message",
                         "isolated sessions are not available in this agent", "setpriv_available",
                         0, "userns_available", 0, "commit_supported", 0, "diff_supported", 0,
                         "hardening", hardening));
}

HANDLER(handle_isolated) {
    reply_error(r, 501, ERR_NOT_SUPPORTED, "isolated sessions are not available in this agent");
}
