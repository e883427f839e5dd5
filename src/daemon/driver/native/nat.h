/* Outbound network: every sandbox's veth ends in a hub namespace of ours, which has one uplink to
 * the host. */
#pragma once

#include "daemon/driver/native/native_priv.h"

/* Gives the namespace an eth0 with address and default route. Makes the hub on first use. Detaching
 * is closing the namespace: the kernel removes the pair. */
int native_nat_attach(struct native *n, unsigned slot, int netns_fd, struct err *err);
/* Recovery: takes over the hub of an earlier daemon when it is whole; otherwise removes its rests.
 */
void native_nat_recover(struct native *n);
/* Removes what a dead driver's hub left on the host. */
void native_nat_collect(const char *instance);
/* With in_use, the hub stays for sandboxes that live on. */
struct nat *native_nat_free(struct nat *t, bool in_use); /* returns NULL */
