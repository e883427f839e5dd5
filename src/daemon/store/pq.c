/* Loading and calling PostgreSQL's client library (see pq.h). Owns nothing but the loaded library.
 */
#include "daemon/store/pq.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define LIBRARY "libpq.so.5"
#define UNIQUE_VIOLATION "23505"

static struct pq functions;
static char why_not[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find(void *lib, const char *name, void *ret) {
    void *f = dlsym(lib, name);
    memcpy(ret, &f, sizeof f);
    if (!f)
        snprintf(why_not, sizeof why_not, "%s has no function %s", LIBRARY, name);
    return f != NULL;
}

static void load(void) {
    void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!lib) {
        snprintf(why_not, sizeof why_not,
                 "PostgreSQL's client library %s cannot be loaded: install it (Debian: libpq5)",
                 LIBRARY);
        return;
    }
#define PQ_FIND(name) &&find(lib, #name, &functions.name)
    if (true PQ_FUNCTIONS(PQ_FIND))
        why_not[0] = '\0';
#undef PQ_FIND
}

int pq_load(const struct pq **ret, struct err *err) {
    pthread_once(&once, load);
    if (why_not[0])
        return err_set(err, -ELIBACC, "store.type: %s", why_not);
    *ret = &functions;
    return 0;
}

static void ignore_notice(void *arg, const char *message) {
}

/* The library's messages end with a newline and may have several lines. */
static void first_line(const char *from, char *to, size_t size) {
    str_copy(to, size, from ? from : "");
    to[strcspn(to, "\n")] = '\0';
}

/* A DSN that does not parse is quoted by the library's own message: it must not be tried. */
static int check_dsn(const struct pq *pq, const char *dsn, struct err *err) {
    char *message = NULL;
    PQconninfoOption *o = pq->PQconninfoParse(dsn, &message);

    if (message)
        pq->PQfreemem(message);
    if (!o)
        return err_set(err, -EINVAL,
                       "store.postgresql.dsn is not a connection text (expected "
                       "postgresql://USER@HOST/DATABASE or host=… dbname=…)");
    pq->PQconninfoFree(o);
    return 0;
}

int pq_connect(const struct pq *pq, const char *dsn, unsigned timeout_s, PGconn **ret,
               struct err *err) {
    char timeout[16], why[512];
    int r = check_dsn(pq, dsn, err);

    if (r < 0)
        return r;
    snprintf(timeout, sizeof timeout, "%u", MAX(timeout_s, 2)); /* the library's least */
    /* later ones win: what the DSN says stays, but for the encoding */
    const char *const names[] = {"connect_timeout",
                                 "tcp_user_timeout",
                                 "keepalives_idle",
                                 "fallback_application_name",
                                 "dbname",
                                 "client_encoding",
                                 NULL};
    const char *const values[] = {timeout, "30000", "30", "coved", dsn, "UTF8", NULL};
    PGconn *c = pq->PQconnectdbParams(names, values, 1);
    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    if (pq->PQstatus(c) != CONNECTION_OK) {
        first_line(pq->PQerrorMessage(c), why, sizeof why);
        pq->PQfinish(c);
        return err_set(err, -EHOSTUNREACH, "snapshot database: %s", why);
    }
    pq->PQsetNoticeProcessor(c, ignore_notice, NULL);
    *ret = c;
    return 0;
}

int pq_query(const struct pq *pq, PGconn *c, const char *sql, const char *const *values, int n,
             PGresult **ret, bool *ret_lost, struct err *err) {
    PGresult *res =
        n > 0 ? pq->PQexecParams(c, sql, n, NULL, values, NULL, NULL, 0) : pq->PQexec(c, sql);
    char why[512];

    *ret_lost = false;
    switch (res ? pq->PQresultStatus(res) : PGRES_FATAL_ERROR) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
        *ret = res;
        return 0;
    default:
        break;
    }
    const char *state = res ? pq->PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
    int code = str_eq(state, UNIQUE_VIOLATION) ? -EEXIST : -EIO;
    first_line(pq->PQerrorMessage(c), why, sizeof why);
    pq->PQclear(res);
    *ret_lost = pq->PQstatus(c) != CONNECTION_OK;
    return err_set(err, code, "snapshot database: %s", why);
}
