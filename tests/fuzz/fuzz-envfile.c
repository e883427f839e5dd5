/* The EXECD_ENVS grammar: never a hidden name, never a broken vector. */
#include <string.h>

#include "execd/env.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct strv base = {0}, out = {0};

    env_set(&base, "A", "value of a");
    if (envfile_apply((const char *)data, size, &base, &out) < 0)
        abort();
    for (size_t i = 0; i < out.n; i++) {
        const char *eq = strchr(out.v[i], '=');
        if (!eq || eq == out.v[i])
            abort();
        char *name = str_ndup(out.v[i], (size_t)(eq - out.v[i]));
        if (env_is_hidden(name))
            abort();
        free(name);
    }
    strv_done(&base);
    strv_done(&out);
    return 0;
}
