/* The event stream of one POST /command (execd.md 2.2 to 2.5). */
#pragma once

#include "execd/command.h"
#include "net/h1_server.h"

/* Answers the request: with the stream, or with an error envelope when nothing was started. */
void stream_run(struct agent *a, struct h1_req *r, const struct command_spec *spec);

/* Called by the command. */
void stream_started(struct stream *s, struct command *c); /* in the table; before any other call */
void stream_executed(struct stream *s);                   /* background only: the program runs */
void stream_ended(struct stream *s, const struct err *start); /* the command's record is finished */
void stream_abandoned(struct stream *s); /* the agent ends: nothing more will be told */
/* Makes the pipes of a foreground command; write ends belong to the caller. */
int stream_make_pipes(struct stream *s, const struct identity *id, int *ret_out, int *ret_err,
                      struct err *err);
