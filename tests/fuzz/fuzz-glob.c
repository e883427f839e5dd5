/* Patterns from clients: first line the pattern, the rest the name. */
#include <string.h>

#include "execd/glob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nl = memchr(data, '\n', size);
    size_t n = nl ? (size_t)(nl - data) : size;
    struct glob g = {0};

    if (n > 200 || size > 500)
        return 0;
    char *pattern = str_ndup((const char *)data, n);
    char *name = nl ? str_ndup((const char *)nl + 1, size - n - 1) : str_ndup("", 0);
    if (glob_compile(pattern, &g, NULL) == 0) {
        glob_match(&g, name);
        glob_done(&g);
    }
    free(pattern);
    free(name);
    return 0;
}
