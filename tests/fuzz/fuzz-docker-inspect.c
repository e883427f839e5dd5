/*
 * What the Docker driver reads from the engine, whose content an image can choose in part: inspect
 * answers of containers that nobody knows (first byte even), archives of single files (odd).
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/driver/docker/agent_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
    if (!ok)
        abort();
}

static void read_archive(const void *data, size_t len) {
    void *copy = malloc(len); /* exact, so that reading past the end is seen */
    const void *file;
    size_t n;

    memcpy(copy, data, len);
    if (tar_first_file(copy, len, &file, &n) == 0)
        check((const char *)file >= (char *)copy && n <= len &&
              (const char *)file + n <= (char *)copy + len);
    free(copy);
}

static void read_inspect(const json_t *j) {
    struct docker k = {.instance = "0123456789abcdef"};
    const json_t *labels = json_object_get(json_object_get(j, "Config"), "Labels");
    _cleanup_json_ json_t *mine = json_object();
    struct instance_info info;
    struct found_sandbox f;
    struct err err = {0};
    char platform[64];

    platform_of_image(j, platform, sizeof platform);
    docker_read_state(j, &info);
    (void)docker_read_address("bridge", j);
    if (docker_found(&k, j, &f, &err) == 0) {
        check(f.metadata && f.spec.id[0] && f.spec.image);
        found_sandbox_done(&f);
    }
    /* whatever the image says: afterwards no reserved label of it counts */
    if (docker_labels_shadow(mine, labels) == 0)
        check(docker_labels_hold(mine, mine) && (docker_labels_hold(mine, labels) || labels));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    if (data[0] & 1) {
        read_archive(data + 1, size - 1);
        return 0;
    }
    _cleanup_json_ json_t *j = json_parse((const char *)data + 1, size - 1, NULL);
    if (j)
        read_inspect(j);
    return 0;
}
