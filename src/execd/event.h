/* Events of execution streams as bare JSON, each followed by a blank line (execd.md 2.2). Appended
 * to a buffer. */
#pragma once

#include "base/buf.h"

void event_init(struct buf *b, const char *id);
void event_ping(struct buf *b);
/* name: "stdout" or "stderr" */
void event_output(struct buf *b, const char *name, const char *text, size_t len, int64_t now_ms);
void event_complete(struct buf *b, int64_t execution_ms);
/* One or two traceback lines; the second may be NULL. */
void event_error(struct buf *b, const char *ename, const char *evalue, const char *trace1,
                 const char *trace2);
