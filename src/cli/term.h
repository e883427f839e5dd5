/* The terminal that cove itself runs in, and the signals it gets. One per process. */
#pragma once

#include "base/macros.h"
#include "cove/cove.h"

/* Keys go through as bytes, without echo, until term_restore(). -ENOTTY: stdin is no terminal. */
int term_raw(void);
/* Back to how it was. Harmless without term_raw(); also done at exit and by fatal signals. */
void term_restore(void);
/* Size of the terminal on stdout, else stdin; false when neither is one. */
bool term_size(unsigned short *ret_cols, unsigned short *ret_rows);

/*
 * SIGINT, SIGTERM and SIGHUP are noted and interrupt `c` (the client that waits; NULL = nobody
 * yet). A SIGINT beyond the first `patience` ones restores the terminal and ends the process at
 * once. SIGWINCH is noted, SIGPIPE ignored.
 */
void signals_setup(int patience);
void signals_interrupt(struct cove_client *c);
int signals_taken(void);    /* the first of SIGINT, SIGTERM, SIGHUP since the last call, else 0 */
int signals_pending(void);  /* the same, without taking it */
bool signals_resized(void); /* since the last call */
int signals_ints(void);     /* how often SIGINT came in all */
