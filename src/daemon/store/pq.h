/*
 * PostgreSQL's client library, loaded when it is first needed: a daemon that keeps its snapshots in
 * a file neither needs it installed nor carries its memory.
 */
#pragma once

#include <libpq-fe.h>

#include "base/err.h"

/* clang-format off */
#define PQ_FUNCTIONS(X) \
    X(PQconninfoParse) X(PQconninfoFree) X(PQfreemem) X(PQconnectdbParams) X(PQstatus) \
    X(PQerrorMessage) X(PQfinish) X(PQexec) X(PQexecParams) X(PQresultStatus) \
    X(PQresultErrorField) X(PQcmdTuples) X(PQntuples) X(PQgetvalue) X(PQgetisnull) X(PQclear) \
    X(PQsetNoticeProcessor)
/* clang-format on */

struct pq {
#define PQ_MEMBER(name) __typeof__(name) *name;
    PQ_FUNCTIONS(PQ_MEMBER)
#undef PQ_MEMBER
};
/* Stays loaded. -ELIBACC when it is not installed. Any thread. */
int pq_load(const struct pq **ret, struct err *err);

/* ---- one connection ---- */
/* dsn is never part of a message. */
int pq_connect(const struct pq *pq, const char *dsn, unsigned timeout_s, PGconn **ret,
               struct err *err);
/* Text parameters and results. *ret is the caller's (PQclear). *ret_lost: the connection is broken,
 * whether the statement had an effect is not known. -EEXIST: a key is there already. */
int pq_query(const struct pq *pq, PGconn *c, const char *sql, const char *const *values, int n,
             PGresult **ret, bool *ret_lost, struct err *err);
