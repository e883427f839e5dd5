/* Answers of an agent to the driver: any bytes, in any pieces, give a status inside them or an
 * error. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/driver/native/agent_call.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (size_t len = 0; len <= size; len = len < 64                       ? len + 1
                                            : len * 2 > size && len < size ? size
                                                                           : len * 2) {
        char *text = malloc(len + 1); /* exact, so that reading past the end is seen */
        memcpy(text, data, len);
        text[len] = 0;
        for (int at_end = 0; at_end < 2; at_end++) {
            size_t body = SIZE_MAX;
            int r = agent_answer_parse(text, len, at_end, &body);
            if (r > 0 && (body > len || r < 100 || r > 999))
                abort();
            if (at_end && r == 0)
                abort();
        }
        free(text);
    }
    return 0;
}
