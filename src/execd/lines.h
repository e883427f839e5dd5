/*
 * Turns the bytes of one output stream into lines, one event each (execd.md 2.5). Read boundaries
 * do not matter. A line is handed out whole; only one whose JSON form would pass about 4 MB is cut,
 * at a code point's end. Invalid UTF-8 is left as it is: buf_json_str repairs it, and since a
 * sequence is never cut between two lines it repairs only what is really broken.
 */
#pragma once

#include "base/buf.h"

enum lines_mode {
    LINES_KEEP,  /* text with its own terminator: joined texts are the program's output */
    LINES_STRIP, /* terminator removed, an empty line becomes "\n" */
};

struct lines {
    enum lines_mode mode;
    struct buf buf; /* the line that is not complete yet */
    size_t counted; /* bytes of buf whose cost is in `cost` */
    size_t cost;    /* upper bound of their length as JSON */
    bool cr_waits;  /* keep: buf ends with a CR that may be the first half of CR LF */
    bool skip_lf;   /* strip: a CR ended the last line, an LF now belongs to it */
};

typedef void (*lines_cb)(const char *text, size_t len, void *ud);

#define LINES_MAX_COST ((size_t)3500 << 10)

void lines_init(struct lines *l, enum lines_mode mode);
void lines_done(struct lines *l);
/* 0, or -ENOMEM: bytes were lost. */
int lines_feed(struct lines *l, const char *data, size_t len, lines_cb cb, void *ud);
/* A CR waits for its neighbour: call lines_flush_cr within 5 ms unless more bytes came. */
static inline bool lines_has_waiting_cr(const struct lines *l) {
    return l->cr_waits;
}
void lines_flush_cr(struct lines *l, lines_cb cb, void *ud);
/* End of the stream: hands out an unterminated rest. */
void lines_finish(struct lines *l, lines_cb cb, void *ud);
