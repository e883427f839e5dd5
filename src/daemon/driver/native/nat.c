/* Outbound network (see nat.h): refused until the hub is there. */
#include "daemon/driver/native/nat.h"

#include <errno.h>

int native_nat_attach(struct native *n, unsigned slot, int netns_fd, struct err *err) {
    return err_set(err, -EOPNOTSUPP, "outbound network is not there yet");
}

void native_nat_recover(struct native *n) {
}

struct nat *native_nat_free(struct nat *t, bool in_use) {
    return NULL;
}

int native_nat_slot(const struct nat *t) {
    return -1;
}
