/*
 * Slots: small numbers that sandboxes hold while they exist. A slot stands for a range of 65,536
 * user ids and for four addresses. They are unique on the machine: blocks of 256 slots are leased
 * by lock files in one directory that all daemons share.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#define SLOTS_PER_BLOCK 256u
#define SLOT_BLOCKS_MAX 64u

struct slots;

/* lease_dir is made when missing; owner names this daemon's state directory; limit = number of
 * slots usable at most. */
int slots_open(const char *lease_dir, const char *owner, unsigned limit, struct slots **ret,
               struct err *err);
struct slots *slots_free(struct slots *s); /* keeps blocks whose slots are in use; returns NULL */
DEFINE_CLEANUP(struct slots, slots_free)
/* The slot that has been free for longest; -ENOSPC when all are taken. */
int slots_take(struct slots *s, unsigned *ret, struct err *err);
/* Recovery: this slot is in use. -EBUSY when it already is, or its block belongs to another daemon.
 */
int slots_claim(struct slots *s, unsigned slot);
/* Calls `end` with each state directory that is gone and whose daemon is dead: nobody else will
 * ever end what it left. Their blocks are free afterwards, and not before. */
void slots_collect_dead(struct slots *s, void (*end)(const char *state_dir, void *ud), void *ud);
void slots_give_back(struct slots *s, unsigned slot);
