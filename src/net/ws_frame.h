/*
 * WebSocket frames (RFC 6455 section 5): an incremental decoder that assembles messages and checks
 * everything a frame can violate, and the encoder of frame headers. No I/O.
 */
#pragma once

#include "base/buf.h"

enum ws_opcode {
    WS_OP_CONT = 0,
    WS_OP_TEXT = 1,
    WS_OP_BINARY = 2,
    WS_OP_CLOSE = 8,
    WS_OP_PING = 9,
    WS_OP_PONG = 10
};

#define WS_MAX_CONTROL 125
#define WS_MAX_HEADER 14

struct ws_decoder {
    bool expect_mask; /* we are the server */
    size_t max_message;
    /* of the frame being read */
    unsigned char head[WS_MAX_HEADER];
    size_t n_head, need_head;
    enum ws_opcode opcode;
    bool fin, in_payload;
    uint64_t left;       /* payload bytes to come */
    unsigned mask_phase; /* payload bytes seen, modulo 4 */
    unsigned char mask[4];
    char control[WS_MAX_CONTROL + 1]; /* control frames come between the fragments of a message */
    size_t n_control;
    /* of the message being assembled */
    enum ws_opcode message_opcode; /* WS_OP_CONT = none begun */
    struct buf message;
    size_t utf8_checked;
    /* after a failure: the close code for the peer, and why */
    int fail_code;
    const char *fail_reason;
};

struct ws_event {
    enum ws_opcode opcode; /* TEXT and BINARY are whole messages */
    const char *data;      /* valid until the next call */
    size_t len;
    int close_code; /* of CLOSE: 1005 = none given. data is the reason then */
};

void ws_decoder_init(struct ws_decoder *d, bool is_server, size_t max_message);
void ws_decoder_done(struct ws_decoder *d);
/*
 * Reads from *data (both are moved on) until one event is complete: 1 = *ret is set, 0 = more bytes
 * are needed, -EBADMSG = fail_code and fail_reason are set, and it is final.
 */
int ws_decode(struct ws_decoder *d, const char **data, size_t *len, struct ws_event *ret);

/* Writes the header of a final, unfragmented frame; mask NULL = unmasked. Returns its length. */
size_t ws_encode_header(unsigned char ret[WS_MAX_HEADER], enum ws_opcode op, uint64_t len,
                        const unsigned char *mask);
/* XORs data with the mask; phase = position of data[0] in the payload, modulo 4. */
void ws_mask(char *data, size_t len, const unsigned char mask[4], unsigned phase);
/* May this code stand in a close frame? */
bool ws_close_code_is_valid(int code);
