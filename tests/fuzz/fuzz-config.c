/* Configuration files. Besides memory: a refusal has a text, and what was accepted can be released.
 */
#include <string.h>

#include "daemon/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config c;
    struct strv warnings = {0};
    struct err err = {0};

    if (config_parse((const char *)data, size, "fuzz", &c, &warnings, &err) == 0)
        config_done(&c);
    else if (!err.code || !err.msg[0])
        __builtin_trap();
    strv_done(&warnings);
    return 0;
}
