/* Parts of the PostgreSQL repository for the copy of an existing one (migrate.c). */
#pragma once

#include "daemon/store/pq.h"
#include "daemon/store/snapdb.h"

int snapdb_pg_layout(const struct pq *pq, PGconn *c, bool *ret_is_there, struct err *err);
int snapdb_pg_make_layout(const struct pq *pq, PGconn *c, struct err *err);
/* 1 copied, 0 an id that is there already */
int snapdb_pg_copy_row(const struct pq *pq, PGconn *c, const struct snap_row *row, struct err *err);
