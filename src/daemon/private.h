/*
 * Private daemons (`cove run`): own state below the configured directories, shared image store.
 * What a killed one has left is found by its unlocked directory and removed by later daemons.
 */
#pragma once

#include "daemon/config/config.h"

/*
 * Turns the configuration into that of a private daemon with a name of its own. *ret_lock keeps
 * sweeps away and is to be closed as soon as the driver has locked the state directory.
 */
int private_setup(struct config *c, int *ret_lock, struct err *err);
/* Removes the directories of this private daemon, after it has ended. */
void private_remove(const struct config *c);
/* Removes sandboxes and directories that killed private daemons have left. Blocks; needs no running
 * service. */
void private_sweep(const struct config *base);
