/* Raw bytes both ways between two streams, after an upgrade. */
#pragma once

#include "base/list.h"
#include "net/sock.h"

/* The splices of one owner, who ends them: nobody else knows of them any more. */
struct splice_set {
    struct list all;
    size_t n, max; /* max 0 = any number */
};
void splice_set_init(struct splice_set *s, size_t max);
static inline bool splice_set_is_full(const struct splice_set *s) {
    return s->max && s->n >= s->max;
}
/* Cuts all of them; their done callbacks are called from here. */
void splice_set_close(struct splice_set *s);

/*
 * Takes both socks over. Each direction is back-pressured by its receiver and ends on its own
 * (half-close); done is called once, when both are over or one side broke, and the socks are closed
 * by then (what is queued still goes out for at most 30 s, 2 s when one side broke). -ENOMEM: both
 * are closed and done is not called. set: where it is listed until then; may be NULL.
 */
int splice_run(struct sock *a, struct sock *b, struct splice_set *set, void (*done)(void *ud),
               void *ud);
/* The same for a WebSocket: close codes that must not travel are mapped, and a side that goes
 * without a close frame is given one (see ws_relay.h). */
int splice_run_ws(struct sock *client, struct sock *upstream, struct splice_set *set,
                  void (*done)(void *ud), void *ud);
