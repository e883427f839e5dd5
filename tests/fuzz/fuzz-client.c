/*
 * What libcove reads from outside: answers of a server, frames and listings of an agent, which runs
 * beside code that nobody trusts. The first byte chooses the reader.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/exec.h"
#include "client/files.h"

static void sandbox(const char *data, size_t len) {
    _cleanup_json_ json_t *j = json_parse(data, len, NULL);
    struct cove_error err;
    struct cove_sandbox *s = j ? sandbox_from_json(j, &err) : NULL;
    if (!s)
        return;
    if (!*cove_sandbox_id(s) || !cove_sandbox_state(s) || !cove_sandbox_message(s) ||
        !cove_sandbox_image(s) || !cove_sandbox_entrypoint(s) || !*cove_sandbox_json(s))
        abort();
    cove_sandbox_free(s);
}

static void listing(const char *data, size_t len) {
    _cleanup_json_ json_t *j = json_parse(data, len, NULL);
    json_t *entry;
    size_t i;
    json_array_foreach(j, i, entry) {
        struct remote_info info;
        const char *path = json_str(entry, "path"), *name = path ? child_name("/tree", path) : NULL;
        if (name && (!*name || strchr(name, '/') || !strcmp(name, "..") || !strcmp(name, ".")))
            abort(); /* it would leave the target */
        if (remote_info_parse(entry, &info) == 0 && info.mode > 0777)
            abort();
    }
}

static void frames(const char *data, size_t len) {
    _cleanup_json_ json_t *j = json_parse(data, len, NULL);
    struct cove_exit e;
    exit_from_frame(j, &e);
    if (e.code < 0 || e.code > 255)
        abort();
    int r = start_error_code(j);
    if (r >= 0)
        abort();
}

static void errors(const char *data, size_t len) {
    struct cove_error err;
    int r = cerr_from_response(&err, 400 + (int)(len % 200), data, len, "do something");
    if (r >= 0 || err.code != r || !utf8_is_valid(err.message, strlen(err.message)))
        abort();
}

static void addresses(const char *data, size_t len) {
    struct address a = {0};
    char *text = str_ndup(data, len);
    if (text && address_parse(text, &a, NULL) == 0 && !a.unix_path == !a.host)
        abort();
    address_done(&a);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const readers[])(const char *, size_t) = {sandbox, listing, frames, errors,
                                                            addresses};
    if (size > 0)
        readers[data[0] % ARRAY_SIZE(readers)]((const char *)data + 1, size - 1);
    return 0;
}
