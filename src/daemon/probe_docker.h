/* What a Docker Engine offers to sandboxes, each by trying it. */
#pragma once

#include "daemon/driver/docker/docker.h"

/* New reference: a list of {name, ok, required, detail, why, fix}. Blocks. */
json_t *docker_probe(const struct docker_config *c);
