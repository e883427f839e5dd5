/*
 * Trust in the certificate of a guard that intercepts TLS (lifecycle.md 4.3 step 1, egress.md
 * 10.3). A part of bootstrap: it runs before the agent has a loop, threads or children.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define TRUST_DIR "/opt/opensandbox"
#define TRUST_CERT "/opt/opensandbox/mitmproxy-ca-cert.pem"
#define TRUST_MERGED "/opt/opensandbox/merged-ca-certificates.pem"
#define TRUST_NAME "opensandbox-mitmproxy"

/* OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT says 1, true, yes or on, in any case. */
bool trust_is_wanted(const char *value);
/*
 * Waits for the certificate, makes the image's programs trust it as far as that goes, and sets the
 * variables that the agent, the entrypoint and commands inherit. Failures are logged; the sandbox
 * starts without trust then. Returns 0, or the signal (TERM, INT) that asked us to end meanwhile.
 */
int trust_set_up(void);

/* ---- parts (trust_stores.c), open to unit tests ---- */

struct trust {
    int signals; /* signalfd of TERM and INT */
    int caught;  /* the signal that came; everything ends early then */
    struct strv
        env; /* of the programs: without the agent's secrets, PATH with the system's places */
    char *pem;
    size_t pem_len;
    int64_t deadline; /* of all programs together, monotonic ms */
};

/* A certificate from its first to its last line: nobody is still writing it. */
bool trust_pem_is_whole(const char *pem, size_t len);
/* `base` (may be empty), then the certificate on a line of its own. -ENOBUFS, -ENOMEM. */
int trust_merge(const char *base, size_t base_len, const char *pem, size_t pem_len,
                struct buf *ret);
/*
 * Runs argv[0] (looked up in t->env) to its end, within the limits of time. `out`: its standard
 * output, else its last words are in the error. 0 = it ended with status 0; -ENOENT = no such
 * program; -EINTR = a signal came.
 */
int trust_run(struct trust *t, const char *const *argv, struct buf *out, struct err *err);
bool trust_has(const struct trust *t, const char *program);
void trust_system_store(struct trust *t);
void trust_nss_store(struct trust *t);
void trust_java_stores(struct trust *t);
/* Adds the installation's key store (real path) and the keytool to use to both lists, unless it is
 * there already or is none. */
int trust_java_add(const char *home, struct strv *stores, struct strv *tools);
/* ".../bin/java", with or without jre/, to the installation; NULL when it is neither. malloc'd. */
char *trust_java_home(const char *program);
