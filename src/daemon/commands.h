/* What coved does besides serving. All return the process's exit status. */
#pragma once

#include "base/buf.h"
#include "daemon/options.h"

int command_init_config(const struct options *o);
int command_check_config(const struct options *o);
int command_migrate(const struct options *o);

int command_complain(const struct err *err); /* 1 */
int command_print(const struct buf *b);      /* to standard output; 1 when that fails */
