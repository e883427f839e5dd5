/* From configuration to a driver: the one place that knows which drivers there are. */
#pragma once

#include "daemon/config/config.h"
#include "daemon/driver/driver.h"

int driver_open(const struct config *c, struct driver **ret, struct err *err);
/* Tries what the machine offers; new reference: a list of {name, ok, required, detail, why, fix}.
 */
json_t *driver_probe(const struct config *c);
/* Names for COVE_CRASH_AT, NULL-terminated; empty in builds without them. */
const char *const *driver_crash_points(void);
