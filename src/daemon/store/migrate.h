/* `coved migrate-snapshots`: the records of an SQLite file into a PostgreSQL database. */
#pragma once

#include "base/err.h"

/* from NULL = ~/.opensandbox/opensandbox.db, only read; to: connection text, secret. All or
 * nothing: one transaction; ids that are there already are skipped. Prints what was done; a dry run
 * changes and makes nothing. */
int migrate_snapshots(const char *from, const char *to, bool dry_run, struct err *err);
