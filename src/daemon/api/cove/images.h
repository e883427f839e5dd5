/*
 * Cove's own routes for images (not part of OpenSandbox): GET /v1/images, POST
 * /v1/images?name=local/NAME, DELETE /v1/images/local/NAME. A POST has the archive as its body, or
 * (operator on the Unix socket) {"path": "/file"} as application/json. With "Accept:
 * application/x-ndjson" the answer is a line of JSON per progress report and a last one with
 * "image" or "error"; else one object at the end.
 */
#pragma once

#include "daemon/api/exchange.h"

void cove_images_list(struct xch *x);
void cove_images_import(struct xch *x);
void cove_images_remove(struct xch *x, const char *raw_name);
